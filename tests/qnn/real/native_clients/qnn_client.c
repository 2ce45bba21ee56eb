/* A QNN client that knows nothing of Python: u8 additions through shared memory, at offsets of one buffer.
 *
 *   qnn_client BACKEND_LIBRARY
 *
 * libcdsprpc.so is found as clients find it, by its name. Exit status 0: every byte came out right.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t Code;
typedef void* Handle;

typedef struct {
  uint32_t defined, encoding;
  float scale;
  int32_t offset;
  uint64_t rest[3];
} Quantisation;

typedef struct {
  uint32_t version;
  uint32_t unused;
  uint32_t id;
  const char* name;
  uint32_t type, format, data_type;
  Quantisation quantisation;
  uint32_t rank;
  uint32_t* dimensions;
  uint32_t memory;
  union {
    struct {
      void* data;
      uint32_t size;
    } raw;
    Handle handle;
  } where;
  uint64_t rest[3];
} Tensor;
_Static_assert(sizeof(Tensor) == 144, "Qnn_Tensor_t");

typedef struct {
  uint32_t version;
  const char *name, *package, *type;
  uint32_t parameter_count;
  void* parameters;
  uint32_t input_count;
  Tensor* inputs;
  uint32_t output_count;
  Tensor* outputs;
} Operator;
_Static_assert(sizeof(Operator) == 80, "Qnn_OpConfig_t");

typedef struct {
  uint32_t type;
  uint64_t size;
  int32_t fd;
  uint64_t offset;
} Shared;
_Static_assert(sizeof(Shared) == 32, "QnnMemHtp_Descriptor_t");

typedef struct {
  uint32_t rank;
  uint32_t* dimensions;
  const char* configuration;
  uint32_t data_type, memory_type;
  Shared* custom;
  void* rest;
} Descriptor;
_Static_assert(sizeof(Descriptor) == 48, "Qnn_MemDescriptor_t");

typedef struct {
  uint32_t id;
  const char* name;
  uint32_t version[6];
  void* table[71];
} Interface;

enum { BACKEND_CREATE = 1, BACKEND_FREE = 8, CONTEXT_CREATE = 9, CONTEXT_FREE = 14, GRAPH_CREATE = 15 };
enum { GRAPH_ADD_NODE = 18, GRAPH_FINALIZE = 19, GRAPH_EXECUTE = 21, TENSOR_CREATE = 24 };
enum { MEM_REGISTER = 35, MEM_DEREGISTER = 36 };
enum { UFIXED_POINT_8 = 0x408, MEMHANDLE = 1, CUSTOM = 2, SHARED_BUFFER = 1 };
enum { COUNT = 128, TOTAL = 4096, FIRST = 256 };

static void need(int right, const char* what) {
  if (right) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}
static void ok(Code code, const char* what) {
  if (code) fprintf(stderr, "%llu: ", (unsigned long long)code);
  need(code == 0, what);
}

static Tensor tensor(const char* name, uint32_t type, float scale, uint32_t* dimensions) {
  Tensor made = {.version = 1, .name = name, .type = type, .data_type = UFIXED_POINT_8};
  made.quantisation = (Quantisation){.defined = 1, .scale = scale};
  made.rank = 4;
  made.dimensions = dimensions;
  made.memory = MEMHANDLE;
  return made;
}

int main(int argc, char** argv) {
  need(argc == 2, "usage: qnn_client BACKEND_LIBRARY");
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  need(library != NULL, "the backend cannot be loaded");
  void* rpcmem = dlopen("libcdsprpc.so", RTLD_NOW);
  need(rpcmem != NULL, "libcdsprpc.so cannot be loaded");
  void* (*allocate)(int, uint32_t, int) = dlsym(rpcmem, "rpcmem_alloc");
  int (*descriptor_of)(void*) = dlsym(rpcmem, "rpcmem_to_fd");
  void (*release)(void*) = dlsym(rpcmem, "rpcmem_free");
  Code (*get_providers)(const Interface***, uint32_t*) = dlsym(library, "QnnInterface_getProviders");

  const Interface** list;
  uint32_t count;
  ok(get_providers(&list, &count), "QnnInterface_getProviders");
  need(count == 1, "one provider");
  void* const* table = list[0]->table;
  Handle backend, context, graph;
  ok(((Code(*)(Handle, void*, Handle*))table[BACKEND_CREATE])(NULL, NULL, &backend), "backendCreate");
  ok(((Code(*)(Handle, Handle, void*, Handle*))table[CONTEXT_CREATE])(backend, NULL, NULL, &context), "contextCreate");
  ok(((Code(*)(Handle, const char*, void*, Handle*))table[GRAPH_CREATE])(context, "sum", NULL, &graph), "graphCreate");

  uint32_t dimensions[] = {1, 4, 4, 8};
  Tensor tensors[3] = {tensor("a", 0, 0.5f, dimensions), tensor("b", 0, 0.5f, dimensions),
                       tensor("c", 1, 1.0f, dimensions)};
  for (int i = 0; i < 3; ++i)
    ok(((Code(*)(Handle, Tensor*))table[TENSOR_CREATE])(graph, &tensors[i]), "tensorCreateGraphTensor");
  Operator add = {1, "add", "qti.aisw", "ElementWiseAdd", 0, NULL, 2, tensors, 1, tensors + 2};
  ok(((Code(*)(Handle, Operator))table[GRAPH_ADD_NODE])(graph, add), "graphAddNode");
  ok(((Code(*)(Handle, void*, void*))table[GRAPH_FINALIZE])(graph, NULL, NULL), "graphFinalize");

  uint8_t* memory = allocate(25, 1, TOTAL);
  need(memory != NULL, "rpcmem_alloc");
  memset(memory, 0xEE, TOTAL);
  for (int i = 0; i < 3; ++i) {
    Shared shared = {SHARED_BUFFER, TOTAL, descriptor_of(memory), FIRST + (uint64_t)i * COUNT};
    Descriptor descriptor = {4, dimensions, NULL, UFIXED_POINT_8, CUSTOM, &shared, NULL};
    Handle handle = NULL;
    ok(((Code(*)(Handle, Descriptor*, uint32_t, Handle*))table[MEM_REGISTER])(context, &descriptor, 1, &handle),
       "memRegister");
    tensors[i].where.handle = handle;
  }
  uint8_t *a = memory + FIRST, *b = a + COUNT, *c = b + COUNT;
  for (int i = 0; i < COUNT; ++i) a[i] = (uint8_t)i, b[i] = (uint8_t)(2 * (i % 50));
  ok(((Code(*)(Handle, Tensor*, uint32_t, Tensor*, uint32_t, void*, void*))table[GRAPH_EXECUTE])(
         graph, tensors, 2, tensors + 2, 1, NULL, NULL),
     "graphExecute");
  for (int i = 0; i < COUNT; ++i) /* c = (a/2 + b/2), halves up */
    need(c[i] == (a[i] + b[i] + 1) / 2, "a wrong sum");
  need(memory[FIRST - 1] == 0xEE && c[COUNT] == 0xEE, "the bytes around the tensors were written");

  for (int i = 0; i < 3; ++i)
    ok(((Code(*)(Handle*, uint32_t))table[MEM_DEREGISTER])(&tensors[i].where.handle, 1), "memDeRegister");
  release(memory);
  ok(((Code(*)(Handle, void*))table[CONTEXT_FREE])(context, NULL), "contextFree");
  ok(((Code(*)(Handle))table[BACKEND_FREE])(backend), "backendFree");
  printf("%s: %d sums are right\n", list[0]->name, COUNT);
  return 0;
}
