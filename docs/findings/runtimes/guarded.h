/* Pages that must not be touched.
 *
 * The library's operator new, as long as g_guarded says so: a block of 8 KiB or more begins behind a page that must not be
 * touched. The array of a graph's tensors is one (of 128 tensors at first), so that a read of tensors[-1] ends the
 * process whatever the memory before it holds. Needs `gcc -rdynamic`.
 */
#ifndef FINDINGS_GUARDED_H
#define FINDINGS_GUARDED_H
#include "runtimes.h"

#include <sys/mman.h>

enum { kPage = 4096, kLarge = 8192 };

static int g_guarded, g_last;

/* The same bytes, behind whose last page is one that must not be touched. Whole pages have an alignment that will do. */
static void* at_the_end(const void* content, size_t size) {
  if (size % kPage) cannot("the model does not end where a page does");
  char* made = mmap(NULL, size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED || mprotect(made + size, kPage, PROT_NONE)) cannot("no pages");
  return memcpy(made, content, size);
}

void* _Znwm(size_t size) {
  if (g_guarded && size >= kLarge) {
    size_t whole = (size / kPage + 2) * kPage;
    char* made = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made != MAP_FAILED && !mprotect(made, kPage, PROT_NONE)) return made + kPage;
  }
  void* made = malloc(size ? size : 1);
  if (!made) abort();
  return made;
}

/* A guarded block begins where a page does, and stays until the process ends (as any of malloc's that begins there). */
void _ZdlPv(void* block) {
  if ((uintptr_t)block % kPage) free(block);
}

void _ZdlPvm(void* block, size_t size) {
  (void)size;
  _ZdlPv(block);
}
#endif
