/* libcdsprpc.so emulated on memfd_create: shared memory with real descriptors, without a DSP.
 *
 * The contract is that of the upstream implementation (fastrpc, src/rpcmem_linux.c): rpcmem_to_fd knows exact
 * base pointers of live allocations only, rpcmem_free ignores what it does not know, and says so on standard error:
 * the memory that its caller means stays allocated. The remote_register functions are there because clients resolve
 * them; they have nothing to do here.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct block {
  void* pointer;
  size_t size;
  int fd;
  struct block* next;
};

static struct block* blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A memfd of size bytes and its mapping; -1 where there is no such thing to be had. */
static int share(size_t size, void** pointer) {
  int fd = memfd_create("rpcmem", MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (ftruncate(fd, (off_t)size) == 0) {
    *pointer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*pointer != MAP_FAILED) return fd;
  }
  close(fd);
  return -1;
}

static void* allocate(size_t size) {
  struct block* made = malloc(sizeof *made);
  if (!made) return NULL;
  made->size = size;
  made->fd = share(size, &made->pointer);
  if (made->fd < 0) {
    free(made);
    return NULL;
  }
  pthread_mutex_lock(&lock);
  made->next = blocks;
  blocks = made;
  pthread_mutex_unlock(&lock);
  return made->pointer;
}

EXPORT void rpcmem_init(void) {}
EXPORT void rpcmem_deinit(void) {}

EXPORT void* rpcmem_alloc(int heap, uint32_t flags, int size) {
  (void)heap, (void)flags;
  return size > 0 ? allocate((size_t)size) : NULL;
}

EXPORT void* rpcmem_alloc2(int heap, uint32_t flags, size_t size) {
  (void)heap, (void)flags;
  return size > 0 && size <= PTRDIFF_MAX ? allocate(size) : NULL;
}

EXPORT int rpcmem_to_fd(void* pointer) {
  int fd = -1;
  pthread_mutex_lock(&lock);
  for (struct block* each = blocks; each; each = each->next)
    if (each->pointer == pointer) fd = each->fd;
  pthread_mutex_unlock(&lock);
  return fd;
}

/* The live allocation with this address in it, and how far in it; NULL: there is none. With the lock. */
static const struct block* around(const void* pointer, size_t* offset) {
  for (const struct block* each = blocks; each; each = each->next) {
    *offset = (uintptr_t)pointer - (uintptr_t)each->pointer;
    if (*offset < each->size) return each;
  }
  return NULL;
}

EXPORT void rpcmem_free(void* pointer) {
  char wrong[160] = "";
  pthread_mutex_lock(&lock);
  struct block** link = &blocks;
  while (*link && (*link)->pointer != pointer) link = &(*link)->next;
  struct block* found = *link;
  if (found) {
    *link = found->next;
  } else if (pointer) {
    size_t offset = 0;
    const struct block* other = around(pointer, &offset);
    if (other)
      snprintf(wrong, sizeof wrong, "it is byte %zu of an allocation of %zu bytes at %p", offset, other->size,
               other->pointer);
    else
      snprintf(wrong, sizeof wrong, "no live allocation has this address");
  }
  pthread_mutex_unlock(&lock);
  if (*wrong) fprintf(stderr, "emulated rpcmem: rpcmem_free(%p) frees nothing: %s\n", pointer, wrong);
  if (!found) return;
  munmap(found->pointer, found->size);
  close(found->fd);
  free(found);
}

EXPORT void remote_register_buf(void* buffer, int size, int fd) { (void)buffer, (void)size, (void)fd; }
EXPORT void remote_register_buf_attr(void* buffer, int size, int fd, int attribute) {
  (void)buffer, (void)size, (void)fd, (void)attribute;
}
EXPORT void remote_register_buf_attr2(void* buffer, size_t size, int fd, int attribute) {
  (void)buffer, (void)size, (void)fd, (void)attribute;
}
