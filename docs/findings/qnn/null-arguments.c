/* IF-14 and IF-15: calls with NULL for one argument, or with a version that there is not. Each is made in a process of
 * its own, with all other arguments in order. Of the first five the headers list the code; of the others nothing, and
 * any error will do (of two of them, that need not be given, success as well).
 *
 *   gcc -o null-arguments null-arguments.c -ldl
 *   ./null-arguments .../libQnnHtp.so
 *
 * An answer of 1000 says that the library has no such function, 4950 of Saver that it only writes the call down: it
 * conforms.
 */
#define CASES 15
#include "qnn.h"

static const struct {
  const char *call, *expected;
  uint32_t code;
} kCalls[CASES] = {
    {"QnnLog_create without a place for the log", "11003 QNN_LOG_ERROR_INVALID_ARGUMENT", 11003},
    {"QnnGraph_create without a place for the graph", "6000 QNN_GRAPH_ERROR_INVALID_ARGUMENT", 6000},
    {"QnnGraph_create without a name", "6003 QNN_GRAPH_ERROR_INVALID_NAME", 6003},
    {"QnnGraph_retrieve without a place for the graph", "6003 QNN_GRAPH_ERROR_INVALID_NAME", 6003},
    {"QnnContext_create without a place for the context", "5000 QNN_CONTEXT_ERROR_INVALID_ARGUMENT", 5000},
    {"QnnBackend_create without a place for the backend", "an error", 0},
    {"QnnTensor_createGraphTensor, rank 4 without dimensions", "an error", 0},
    {"QnnBackend_validateOpConfig without inputs", "an error", 0},
    {"QnnBackend_validateOpConfig without outputs", "an error", 0},
    {"QnnGraph_addNode of version 9", "an error", 0},
    {"QnnGraph_addNode without a package", "an error", 0},
    {"QnnGraph_addNode without a type", "an error", 0},
    {"QnnGraph_addNode without inputs", "an error", 0},
    {"QnnGraph_addNode without a name", "any answer", 1},
    {"QnnContext_createFromBinary with a CUSTOM configuration of NULL", "any answer", 1},
};

static Node add_of(Tensor tensors[3]) {
  return (Node){1, "add", "qti.aisw", "ElementWiseAdd", 0, NULL, 2, tensors, 1, tensors + 2};
}

static uint32_t validated(Handle backend, int without_outputs) {
  Tensor tensors[3] = {bytes_tensor("a", kAppWrite, kRaw), bytes_tensor("b", kAppWrite, kRaw),
                       bytes_tensor("c", kAppRead, kRaw)};
  Node add = add_of(tensors);
  *(without_outputs ? &add.outputs : &add.inputs) = NULL;
  judging(kCalls[which].call, kCalls[which].expected);
  return code(QNN(kBackendValidateOpConfig, Handle, Node)(backend, add));
}

static uint32_t added(Handle backend) {
  Tensor tensors[3];
  Handle made = graph(context(backend), "sum");
  static const char* const names[] = {"a", "b", "c"};
  for (int i = 0; i < 3; ++i) {
    tensors[i] = bytes_tensor(names[i], i < 2 ? kAppWrite : kAppRead, kRaw);
    ok(create_tensor(made, &tensors[i]), "QnnTensor_createGraphTensor");
  }
  Node add = add_of(tensors);
  if (which == 9) add.version = 9;
  if (which == 10) add.package = NULL;
  if (which == 11) add.type = NULL;
  if (which == 12) add.inputs = NULL;
  if (which == 13) add.name = NULL;
  judging(kCalls[which].call, kCalls[which].expected);
  return code(add_node(made, add));
}

static uint32_t without_dimensions(Handle backend) {
  Tensor tensor = bytes_tensor("a", kAppWrite, kRaw);
  Handle made = graph(context(backend), "sum");
  tensor.dimensions = NULL;
  judging(kCalls[which].call, kCalls[which].expected);
  return code(create_tensor(made, &tensor));
}

static uint32_t with_custom(Handle backend) {
  uint64_t size = 0;
  uint8_t* bytes = binary_of_a_sum(backend, &size);
  ContextConfig config = {.option = 0, .other = NULL};
  const ContextConfig* configs[] = {&config, NULL};
  Handle made = NULL;
  judging(kCalls[which].call, kCalls[which].expected);
  return code(from_binary(backend, configs, bytes, size, &made));
}

static uint32_t of_graphs(Handle backend) {
  Tensor tensors[3];
  Handle owner = context(backend), made = NULL;
  if (which == 3) sum_graph(owner, tensors, kAllRaw);
  judging(kCalls[which].call, kCalls[which].expected);
  if (which == 3) return code(QNN(kGraphRetrieve, Handle, const char*, Handle*)(owner, "sum", NULL));
  return code(graph_create(owner, which == 2 ? NULL : "sum", which == 2 ? &made : NULL));
}

static uint32_t called(void) {
  switch (which) {
    case 0:
      judging(kCalls[0].call, kCalls[0].expected);
      return code(QNN(kLogCreate, void*, uint32_t, Handle*)(NULL, 1, NULL));
    case 1: case 2: case 3: return of_graphs(backend());
    case 4: {
      Handle alive = backend();
      judging(kCalls[4].call, kCalls[4].expected);
      return code(QNN(kContextCreate, Handle, Handle, void*, Handle*)(alive, NULL, NULL, NULL));
    }
    case 5:
      judging(kCalls[5].call, kCalls[5].expected);
      return code(QNN(kBackendCreate, Handle, void*, Handle*)(NULL, NULL, NULL));
    case 6: return without_dimensions(backend());
    case 7: return validated(backend(), 0);
    case 8: return validated(backend(), 1);
    case 14: return with_custom(backend());
    default: return added(backend());
  }
}

static void judge(void) {
  uint32_t answer = called(), wanted = kCalls[which].code;
  int excused = answer == 1000 || answer == 4950 || wanted == 1;
  seen(excused || (wanted ? answer == wanted : answer != 0), "%u", answer);
}
