/* libcdsprpc.so whose functions are made by Python, as provider.c's are: a mutant of the emulated rpcmem.
 *
 * What Python hands over writes where the list of providers would be: the four functions of the table below.
 */
#define ENTRY served_functions
#define KIND "rpcmem"
#include "provider.c"

#include <stddef.h>

typedef void* (*Alloc)(int heap, uint32_t flags, size_t size);
typedef int64_t (*Ask)(void* pointer);

static const void* function(int number) {
  const void** list = NULL;
  uint32_t count = 0;
  if (served_functions(&list, &count) || !list) abort();
  return list[number];
}

EXPORT void* rpcmem_alloc(int heap, uint32_t flags, int size) {
  return ((Alloc)function(0))(heap, flags, (size_t)(ptrdiff_t)size);
}

EXPORT void* rpcmem_alloc2(int heap, uint32_t flags, size_t size) {
  return ((Alloc)function(1))(heap, flags, size);
}

EXPORT void rpcmem_free(void* pointer) { ((Ask)function(2))(pointer); }

EXPORT int rpcmem_to_fd(void* pointer) { return (int)((Ask)function(3))(pointer); }
