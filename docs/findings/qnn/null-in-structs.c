/* IF-14 and IF-15: NULL, or a value or version that there is not, in lists and structs that a call is given. Each call is
 * made in a process of its own, with all else in order. Of the first six the headers list the code, or say that NULL is
 * allowed; of the others nothing, and any error will do (of four of them, that need not be given, success as well).
 *
 *   gcc -o null-in-structs null-in-structs.c -ldl
 *   ./null-in-structs .../libQnnHtp.so
 *
 * An answer of 1000 says that the library has no such function, 4950 of Saver that it only writes the call down: it
 * conforms.
 */
#define CASES 21
#include "qnn.h"

enum { kAnyError = 0, kAnyAnswer = 1, kSuccess = 2 };

static const struct {
  const char *call, *expected;
  uint32_t code;
} kCalls[CASES] = {
    {"QnnContext_setConfig without configurations", "0: NULL is allowed", kSuccess},
    {"QnnGraph_setConfig without configurations", "0: NULL is allowed", kSuccess},
    {"QnnBackend_registerOpPackage without a path", "4004 QNN_BACKEND_ERROR_INVALID_ARGUMENT", 4004},
    {"QnnGraph_createSubgraph without a name", "6003 QNN_GRAPH_ERROR_INVALID_NAME", 6003},
    {"QnnGraph_execute without inputs", "6000 QNN_GRAPH_ERROR_INVALID_ARGUMENT", 6000},
    {"QnnGraph_releaseExecutionEnvironment of {NULL}", "6000 QNN_GRAPH_ERROR_INVALID_ARGUMENT", 6000},
    {"QnnGraph_prepareExecutionEnvironment of {NULL}", "an error", kAnyError},
    {"QnnGraph_create with a CUSTOM configuration of NULL", "any answer", kAnyAnswer},
    {"QnnGraph_addNode without outputs", "an error", kAnyError},
    {"QnnGraph_addNode with one parameter, and no array", "any answer", kAnyAnswer},
    {"QnnTensor_createGraphTensor of version 9", "an error", kAnyError},
    {"QnnTensor_createGraphTensor without a name", "any answer", kAnyAnswer},
    {"QnnTensor_createGraphTensor of type 0x7ffffffe", "an error", kAnyError},
    {"QnnTensor_createGraphTensor of data type 0x7ffffffe", "an error", kAnyError},
    {"QnnTensor_createGraphTensor, 32 scales by axis and no array", "an error", kAnyError},
    {"QnnTensor_createContextTensor of type 0x7ffffffe", "an error", kAnyError},
    {"QnnTensor_createContextTensor, 32 scales by axis and no array", "an error", kAnyError},
    {"QnnTensor_updateGraphTensors of one, and no array", "an error", kAnyError},
    {"QnnTensor_updateGraphTensors of {NULL}", "an error", kAnyError},
    {"QnnTensor_updateGraphTensors of version 9", "an error", kAnyError},
    {"QnnGraph_setConfig with a CUSTOM configuration of NULL", "any answer", kAnyAnswer},
};

static void judged(void) { judging(kCalls[which].call, kCalls[which].expected); }

static uint32_t node_added(Handle owner) {
  static const char* const names[] = {"a", "b", "c"};
  Tensor tensors[3];
  Handle made = graph(owner, "sum");
  for (int i = 0; i < 3; ++i) {
    tensors[i] = bytes_tensor(names[i], i < 2 ? kAppWrite : kAppRead, kRaw);
    ok(create_tensor(made, &tensors[i]), "QnnTensor_createGraphTensor");
  }
  Node add = {1, "add", "qti.aisw", "ElementWiseAdd", 0, NULL, 2, tensors, 1, tensors + 2};
  if (which == 8) add.outputs = NULL;
  if (which == 9) add.parameter_count = 1;
  judged();
  return code(add_node(made, add));
}

static void by_axis(Tensor* tensor) { /* Qnn_AxisScaleOffset_t stands where scale and offset do */
  const struct {
    int32_t axis;
    uint32_t count;
    void* scales;
  } encoding = {3, 32, NULL};
  tensor->encoding = 1;
  memcpy(&tensor->scale, &encoding, sizeof encoding);
}

static uint32_t tensor_created(Handle owner) {
  Tensor tensor = bytes_tensor("a", kAppWrite, kRaw);
  if (which == 10) tensor.version = 9;
  if (which == 11) tensor.name = NULL;
  if (which == 12 || which == 15) tensor.type = 0x7ffffffe;
  if (which == 13) tensor.data_type = 0x7ffffffe;
  if (which == 14 || which == 16) by_axis(&tensor);
  if (which >= 15) {
    judged();
    return code(QNN(kTensorCreateContextTensor, Handle, Tensor*)(owner, &tensor));
  }
  Handle made = graph(owner, "sum");
  judged();
  return code(create_tensor(made, &tensor));
}

static uint32_t tensors_updated(Handle owner) {
  static uint8_t weights[kBytes];
  Tensor tensors[3];
  memset(weights, 2, kBytes);
  Handle made = graph(owner, "sum");
  for (int i = 0; i < 3; ++i) {
    tensors[i] = bytes_tensor(i == 0 ? "a" : i == 1 ? "b" : "c", i == 0 ? kAppWrite : kAppRead, kRaw);
    if (i == 1) {
      tensors[i].type = kUpdatableStatic;
      tensors[i].data = weights;
      tensors[i].data_size = kBytes;
    }
    /* A library without updatable tensors may refuse this one. */
    if (create_tensor(made, &tensors[i])) {
      judged();
      return 1000;
    }
  }
  Node add = {1, "add", "qti.aisw", "ElementWiseAdd", 0, NULL, 2, tensors, 1, tensors + 2};
  ok(add_node(made, add), "QnnGraph_addNode");
  ok(finalize(made), "QnnGraph_finalize");
  const Tensor* listed[] = {which == 18 ? NULL : &tensors[1]};
  if (which == 19) tensors[1].version = 9;
  judged();
  return code(QNN(kTensorUpdateGraphTensors, Handle, const Tensor**, uint64_t)(made, which == 17 ? NULL : listed, 1));
}

static uint32_t of_graphs(Handle owner) {
  Tensor tensors[3];
  uint8_t memory[3][kBytes];
  const ContextConfig custom = {0};
  const ContextConfig* configs[] = {&custom, NULL};
  const void* environments[] = {NULL};
  Handle made = NULL;
  if (which == 7) {
    judged();
    return code(QNN(kGraphCreate, Handle, const char*, const ContextConfig**, Handle*)(owner, "sum", configs, &made));
  }
  if (which == 1 || which == 3 || which == 20) {
    Handle begun = graph(owner, "sum");
    judged();
    if (which == 20) return code(QNN(kGraphSetConfig, Handle, const ContextConfig**)(begun, configs));
    if (which == 1) return code(QNN(kGraphSetConfig, Handle, void*)(begun, NULL));
    return code(QNN(kGraphCreateSubgraph, Handle, const char*, Handle*)(begun, NULL, &made));
  }
  made = sum_graph(owner, tensors, kAllRaw);
  give_memory(tensors, memory);
  judged();
  if (which == 4) return code(execute(made, NULL, 2, tensors + 2));
  int place = which == 5 ? kGraphReleaseExecutionEnvironment : kGraphPrepareExecutionEnvironment;
  return code(QNN(place, Handle, const void**, uint32_t)(made, environments, 1));
}

static uint32_t called(void) {
  Handle alive = backend();
  if (which == 2) {
    judged();
    return code(QNN(kBackendRegisterOpPackage, Handle, const char*, const char*, const char*)(alive, NULL,
                                                                                              "noSuchProvider", NULL));
  }
  Handle owner = context(alive);
  if (which == 0) {
    judged();
    return code(QNN(kContextSetConfig, Handle, void*)(owner, NULL));
  }
  if (which == 8 || which == 9) return node_added(owner);
  if (which >= 17 && which <= 19) return tensors_updated(owner);
  return which >= 10 && which <= 16 ? tensor_created(owner) : of_graphs(owner);
}

static void judge(void) {
  uint32_t answer = called(), wanted = kCalls[which].code;
  int conforms = wanted == kAnyAnswer || answer == 1000 || answer == 4950;
  if (wanted == kSuccess) conforms |= answer == 0;
  else conforms |= wanted ? answer == wanted : answer != 0;
  seen(conforms, "%u", answer);
}
