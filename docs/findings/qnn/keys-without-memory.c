/* CAP-03: property keys 1101 (the memory API) and 1102 (ION) are supported, and QnnMem_register answers "not supported".
 *
 *   gcc -o keys-without-memory keys-without-memory.c -ldl
 *   ./keys-without-memory .../libQnnHtp.so
 *
 * The memory is rpcmem's where libcdsprpc.so is found, and a memfd otherwise.
 */
#include "qnn.h"

typedef struct { /* Qnn_MemDescriptor_t with Qnn_MemIonInfo_t */
  uint32_t rank;
  const uint32_t* dimensions;
  const char* configuration;
  uint32_t data_type, memory_type;
  int32_t fd;
  void* rest;
} Descriptor;
_Static_assert(sizeof(Descriptor) == 48, "Qnn_MemDescriptor_t");

static int shared_memory(void) {
  void* library = dlopen("libcdsprpc.so", RTLD_NOW);
  if (!library) {
    int fd = memfd_create("memory", 0);
    return fd < 0 || ftruncate(fd, 4096) ? -1 : fd;
  }
  void* (*allocate)(int, uint32_t, int) = (void* (*)(int, uint32_t, int))dlsym(library, "rpcmem_alloc");
  int (*descriptor_of)(void*) = (int (*)(void*))dlsym(library, "rpcmem_to_fd");
  return descriptor_of(allocate(25, 1, 4096));
}

static void judge(void) {
  Handle owner = context(backend()), handle = NULL;
  uint32_t memory = code(has_capability(1101)), ion = code(has_capability(1102));
  Descriptor descriptor = {4, kDimensions, NULL, kUfixed8, 1, shared_memory(), NULL};
  if (descriptor.fd < 0) cannot("no shared memory");
  int promised = memory == 0 && ion == 0;
  judging("QnnMem_register of one ION descriptor of 128 bytes",
          promised ? "0, as keys 1101 and 1102 promise" : "1000 QNN_MEM_ERROR_NOT_SUPPORTED or 8005");
  uint32_t answer = code(QNN(kMemRegister, Handle, Descriptor*, uint32_t, Handle*)(owner, &descriptor, 1, &handle));
  seen(promised ? answer == 0 : answer == 1000 || answer == 8005, "keys 1101 and 1102 answer %u and %u; the call %u",
       memory, ion, answer);
}
