/* What the programs of this folder share: one request of the library for memory finds none.
 *
 * A program has operator new and malloc of its own, which the loader takes for the library's, too (gcc -rdynamic).
 * While a call is judged they count what the library itself asks for, and refuse one request: malloc and operator new
 * (nothrow) give NULL, operator new throws std::bad_alloc, as C++ has it. Nobody else is refused anything.
 */
#include "../qnn/qnn.h"

/* Requests up to the one that is refused, itself included; 0: none is. */
static volatile long mallocs, news, nothrow_news;
static const char* whole_path;

extern void* __libc_malloc(size_t size);

/* Whether whoever goes on at this address is the library under judgement. */
static int is_library(void* address) {
  Dl_info found;
  return dladdr(address, &found) && found.dli_fname && !strcmp(found.dli_fname, whole_path);
}

static int is_refused(volatile long* left, void* caller) { return *left > 0 && is_library(caller) && --*left == 0; }

static void* memory(size_t size) { return __libc_malloc(size ? size : 1); }

void* malloc(size_t size) {
  return is_refused(&mallocs, __builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

static void* throwing(size_t size, void* caller) {
  if (is_refused(&news, caller)) ((void (*)(void))dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv"))();
  return memory(size);
}
static void* not_throwing(size_t size, void* caller) { return is_refused(&nothrow_news, caller) ? NULL : memory(size); }

/* operator new and operator new[], then those with std::nothrow */
void* _Znwm(size_t size) { return throwing(size, __builtin_return_address(0)); }
void* _Znam(size_t size) { return throwing(size, __builtin_return_address(0)); }
void* _ZnwmRKSt9nothrow_t(size_t size, void* nothrow) {
  (void)nothrow;
  return not_throwing(size, __builtin_return_address(0));
}
void* _ZnamRKSt9nothrow_t(size_t size, void* nothrow) {
  (void)nothrow;
  return not_throwing(size, __builtin_return_address(0));
}

/* Functions that are in no file, as those of a library in another language, ask for nothing that is counted. */
static inline void find_library(void) {
  Dl_info found;
  if (dlsym(RTLD_DEFAULT, "_Znwm") != (void*)_Znwm)
    cannot("the library does not take this program's operator new: build it with gcc -rdynamic");
  whole_path = dladdr(table[kBackendCreate], &found) && found.dli_fname ? found.dli_fname : "";
}
