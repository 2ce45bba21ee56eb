/* What the programs of this folder share: the part of the QNN interface 2.32 that they need (Linux, x86-64), a child
 * process in which the library is loaded, and the answer. Written for these programs alone, without the suite.
 *
 * A program defines `judge`, which makes calls up to the one that is judged, says `judging(CALL, EXPECTED)`, makes
 * that call and ends with `seen(CONFORMS, FORMAT, ...)`. It ends with 0 where the library does as expected, 1 where
 * it does not (also by a crash or a hang in the call that is judged), 2 where it cannot come as far as that.
 */
#ifndef FINDINGS_QNN_H
#define FINDINGS_QNN_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t Error;
typedef void* Handle;

/* Places in the table of functions. */
enum {
  kHasCapability = 0,
  kBackendCreate = 1,
  kBackendSetConfig = 2,
  kBackendRegisterOpPackage = 5,
  kBackendValidateOpConfig = 7,
  kBackendFree = 8,
  kContextCreate = 9,
  kContextSetConfig = 10,
  kContextGetBinarySize = 11,
  kContextGetBinary = 12,
  kContextCreateFromBinary = 13,
  kContextFree = 14,
  kGraphCreate = 15,
  kGraphCreateSubgraph = 16,
  kGraphSetConfig = 17,
  kGraphAddNode = 18,
  kGraphFinalize = 19,
  kGraphRetrieve = 20,
  kGraphExecute = 21,
  kTensorCreateContextTensor = 23,
  kTensorCreateGraphTensor = 24,
  kLogCreate = 25,
  kLogSetLogLevel = 26,
  kLogFree = 27,
  kMemRegister = 35,
  kDeviceCreate = 40,
  kErrorGetMessage = 48,
  kGraphPrepareExecutionEnvironment = 51,
  kGraphReleaseExecutionEnvironment = 52,
  kGraphGetProperty = 53,
  kTensorUpdateGraphTensors = 57,
  kContextGetProperty = 63,
  kContextFinalize = 66,
  kFunctions = 71,
};
enum { kAppWrite = 0, kAppRead = 1, kNative = 3, kStatic = 4, kUpdatableStatic = 6 };
enum { kRaw = 0, kMemhandle = 1 };
enum { kFloat32 = 0x232, kUfixed8 = 0x408 };
enum { kDeferGraphInit = 9 };

typedef struct {
  uint32_t backend_id;
  const char* name;
  uint32_t version[6];
  void* table[kFunctions];
} Interface;

typedef struct { /* Qnn_Tensor_t, version 1 */
  uint32_t version;
  uint32_t id __attribute__((aligned(8)));
  const char* name;
  uint32_t type, format, data_type;
  uint32_t encoding_defined __attribute__((aligned(8))), encoding;
  float scale;
  int32_t offset;
  char other_encodings[24];
  uint32_t rank;
  const uint32_t* dimensions;
  uint32_t memory_type;
  void* data; /* of client memory, or a memory handle */
  uint32_t data_size;
  char of_version_2[24];
} Tensor;

typedef struct { /* Qnn_OpConfig_t */
  uint32_t version;
  const char *name, *package, *type;
  uint32_t parameter_count;
  void* parameters;
  uint32_t input_count;
  Tensor* inputs;
  uint32_t output_count;
  Tensor* outputs;
} Node;

typedef struct { /* QnnContext_Config_t */
  uint32_t option;
  union {
    uint8_t deferred;
    void* other;
  };
} ContextConfig;

_Static_assert(sizeof(Tensor) == 144 && sizeof(Node) == 80 && sizeof(ContextConfig) == 16, "layouts of QNN");

/* What the child leaves for its parent: whether it came to the call that is judged, and what it says of it. */
typedef struct {
  volatile int judging, answered;
  char call[200];
} Progress;

static Progress* progress;
static void* const* table;

/* A program of several cases defines CASES before it includes this file: judge is called for each, in a process of its
 * own, with its number in `which`. */
#ifndef CASES
#define CASES 1
#endif
static int which;

static void judge(void); /* of each program */

static inline void cannot(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  printf("cannot run: ");
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
  fflush(stdout);
  _exit(2);
}

static inline void judging(const char* call, const char* expected) {
  snprintf(progress->call, sizeof progress->call, "%s", call);
  printf("call:     %s\nexpected: %s\n", call, expected);
  fflush(stdout);
  progress->judging = 1;
}

static inline void seen(int conforms, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  printf("seen:     ");
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
  fflush(stdout);
  progress->answered = 1;
  _exit(conforms ? 0 : 1);
}

static inline uint32_t code(Error error) { return (uint32_t)(error & 0xffff); }

static inline void ok(Error error, const char* call) {
  if (error) cannot("%s answers %u", call, code(error));
}

/* Functions of the table, by their places. */
#define QNN(place, ...) ((Error(*)(__VA_ARGS__))table[place])

static inline Handle backend(void) {
  Handle made = NULL;
  ok(QNN(kBackendCreate, Handle, void*, Handle*)(NULL, NULL, &made), "QnnBackend_create");
  return made;
}
static inline Handle context(Handle backend) {
  Handle made = NULL;
  ok(QNN(kContextCreate, Handle, Handle, void*, Handle*)(backend, NULL, NULL, &made), "QnnContext_create");
  return made;
}
static inline Error graph_create(Handle context, const char* name, Handle* made) {
  return QNN(kGraphCreate, Handle, const char*, void*, Handle*)(context, name, NULL, made);
}
static inline Handle graph(Handle context, const char* name) {
  Handle made = NULL;
  ok(graph_create(context, name, &made), "QnnGraph_create");
  return made;
}
static inline Error create_tensor(Handle graph, Tensor* tensor) {
  return QNN(kTensorCreateGraphTensor, Handle, Tensor*)(graph, tensor);
}
static inline Error add_node(Handle graph, Node node) { return QNN(kGraphAddNode, Handle, Node)(graph, node); }
static inline Error finalize(Handle graph) { return QNN(kGraphFinalize, Handle, void*, void*)(graph, NULL, NULL); }
static inline Error execute(Handle graph, Tensor* inputs, uint32_t count, Tensor* outputs) {
  return QNN(kGraphExecute, Handle, Tensor*, uint32_t, Tensor*, uint32_t, Handle, Handle)(graph, inputs, count,
                                                                                         outputs, 1, NULL, NULL);
}
static inline Error has_capability(uint32_t key) { return QNN(kHasCapability, uint32_t)(key); }

/* A uint8 tensor of 1 x 2 x 2 x 32 = 128 elements, of 128 bytes: real = value * scale. */
enum { kBytes = 128 };
static const uint32_t kDimensions[4] = {1, 2, 2, 32};

static inline Tensor bytes_tensor(const char* name, uint32_t type, uint32_t memory_type) {
  Tensor made;
  memset(&made, 0, sizeof made);
  made.version = 1;
  made.name = name;
  made.type = type;
  made.data_type = kUfixed8;
  made.encoding_defined = 1;
  made.scale = 0.5f;
  made.rank = 4;
  made.dimensions = kDimensions;
  made.memory_type = memory_type;
  return made;
}

/* The graph a + b = c, whose tensors are created with these memory types; not yet finalised. */
static inline Handle compose(Handle context, Tensor tensors[3], const uint32_t memory_types[3]) {
  static const char* const names[] = {"a", "b", "c"};
  Handle made = graph(context, "sum");
  for (int i = 0; i < 3; ++i) {
    tensors[i] = bytes_tensor(names[i], i < 2 ? kAppWrite : kAppRead, memory_types[i]);
    ok(create_tensor(made, &tensors[i]), "QnnTensor_createGraphTensor");
  }
  Node add = {1, "add", "qti.aisw", "ElementWiseAdd", 0, NULL, 2, tensors, 1, tensors + 2};
  ok(add_node(made, add), "QnnGraph_addNode");
  return made;
}

static const uint32_t kAllRaw[3] = {kRaw, kRaw, kRaw};

static inline Handle sum_graph(Handle context, Tensor tensors[3], const uint32_t memory_types[3]) {
  Handle made = compose(context, tensors, memory_types);
  ok(finalize(made), "QnnGraph_finalize");
  return made;
}

/* Client memory for the three tensors: a = i, b = 2, c = 0xEE. */
static inline void give_memory(Tensor tensors[3], uint8_t memory[3][kBytes]) {
  for (int i = 0; i < kBytes; ++i) memory[0][i] = (uint8_t)i;
  memset(memory[1], 2, kBytes);
  memset(memory[2], 0xEE, kBytes);
  for (int i = 0; i < 3; ++i) {
    tensors[i].memory_type = kRaw;
    tensors[i].data = memory[i];
    tensors[i].data_size = kBytes;
  }
}

/* The binary of a context with the graph a + b = c; the context is freed. */
static inline uint8_t* binary_of_a_sum(Handle backend, uint64_t* size) {
  Tensor tensors[3];
  Handle made = context(backend);
  sum_graph(made, tensors, kAllRaw);
  ok(QNN(kContextGetBinarySize, Handle, uint64_t*)(made, size), "QnnContext_getBinarySize");
  uint8_t* bytes = malloc(*size);
  uint64_t written = 0;
  ok(QNN(kContextGetBinary, Handle, void*, uint64_t, uint64_t*)(made, bytes, *size, &written), "QnnContext_getBinary");
  *size = written;
  ok(QNN(kContextFree, Handle, Handle)(made, NULL), "QnnContext_free");
  return bytes;
}
static inline Error from_binary(Handle backend, const ContextConfig** configs, void* bytes, uint64_t size,
                                Handle* made) {
  return QNN(kContextCreateFromBinary, Handle, Handle, const ContextConfig**, const void*, uint64_t, Handle*,
             Handle)(backend, NULL, configs, bytes, size, made, NULL);
}

static inline void load(const char* path) {
  /* libQnnHtp.so brings an unwinder of its own, which must not be the first: otherwise exceptions of others crash. */
  dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_GLOBAL);
  dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) cannot("%s", dlerror());
  Error (*providers)(const Interface***, uint32_t*) =
      (Error(*)(const Interface***, uint32_t*))dlsym(library, "QnnInterface_getProviders");
  if (!providers) cannot("%s exports no QnnInterface_getProviders", path);
  const Interface** list = NULL;
  uint32_t count = 0;
  ok(providers(&list, &count), "QnnInterface_getProviders");
  if (count == 0) cannot("there is no provider");
  const uint32_t* version = list[0]->version;
  printf("library:  %s, core API %u.%u.%u, backend API %u.%u.%u\n", list[0]->name, version[0], version[1], version[2],
         version[3], version[4], version[5]);
  fflush(stdout);
  table = list[0]->table;
}

static inline int wait_for(pid_t child, int seconds) {
  struct timespec pause = {0, 10000000};
  int status = 0;
  for (int i = 0; i < 100 * seconds; ++i) {
    if (waitpid(child, &status, WNOHANG) == child) return status;
    nanosleep(&pause, NULL);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  printf("%sno answer after %d s\n", progress->judging ? "seen:     " : "cannot run: ", seconds);
  return -1;
}

/* Carry out one case in a process of its own, and give the program's answer to it. */
static inline int answer_of_a_child(const char* path) {
  *progress = (Progress){0};
  fflush(stdout);
  pid_t child = fork(); /* before the library is loaded, which has threads of its own */
  if (child == 0) {
    load(path);
    judge();
    cannot("the program says nothing");
  }
  int status = wait_for(child, 10);
  if (status != -1 && WIFEXITED(status) && progress->answered) return WEXITSTATUS(status);
  if (status != -1 && WIFSIGNALED(status))
    printf("%sthe process died of signal %d (%s) in %s\n", progress->judging ? "seen:     " : "cannot run: ",
           WTERMSIG(status), strsignal(WTERMSIG(status)), progress->judging ? progress->call : "an earlier call");
  return progress->judging && (status == -1 || WIFSIGNALED(status)) ? 1 : 2;
}

int main(int argc, char** argv) {
  char path[4096];
  int wrong = 0, unable = 0;
  if (argc != 2 || !realpath(argv[1], path)) return fprintf(stderr, "usage: %s LIBRARY\n", argv[0]), 2;
  progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (which = 0; which < CASES; ++which) {
    int answer = answer_of_a_child(path);
    wrong += answer == 1;
    unable += answer == 2;
  }
  return wrong ? 1 : unable == CASES ? 2 : 0;
}

#endif
