/* IF-10: calls with a handle that nobody gave. Each is made in a process of its own, with other arguments in order.
 *
 *   gcc -o invalid-handle invalid-handle.c -ldl
 *   ./invalid-handle .../libQnnHtp.so
 *
 * An answer of 1000 (4003 of a backend, 4950 of Saver) says that the library has no such function, 4000 that it does
 * not work on this machine: it conforms.
 */
#define CASES 10
#include "qnn.h"

static uint32_t validated(Handle backend) {
  Tensor tensors[3] = {bytes_tensor("a", kAppWrite, kRaw), bytes_tensor("b", kAppWrite, kRaw),
                       bytes_tensor("c", kAppRead, kRaw)};
  Node add = {1, "add", "qti.aisw", "ElementWiseAdd", 0, NULL, 2, tensors, 1, tensors + 2};
  return code(QNN(kBackendValidateOpConfig, Handle, Node)(backend, add));
}

static uint32_t called(int number) {
  static const Handle kNobody = (Handle)0xb06050b0605;
  static void* nothing[] = {NULL};
  Handle made = NULL;
  Tensor tensor = bytes_tensor("a", kAppWrite, kRaw);
  switch (number) {
    case 0: return code(QNN(kBackendSetConfig, Handle, void*)(kNobody, NULL));
    case 1: return code(QNN(kBackendCreate, Handle, void*, Handle*)(kNobody, NULL, &made));
    case 2: return code(QNN(kDeviceCreate, Handle, void*, Handle*)(kNobody, NULL, &made));
    case 3: return code(QNN(kContextCreate, Handle, Handle, void*, Handle*)(kNobody, NULL, NULL, &made));
    case 4: return code(graph_create(kNobody, "sum", &made));
    case 5: return code(create_tensor(kNobody, &tensor));
    case 6: return code(finalize(kNobody));
    case 7: return validated(kNobody);
    case 8: return validated(NULL);
    default: return code(QNN(kGraphGetProperty, Handle, void**)(kNobody, nothing));
  }
}

static void judge(void) {
  static const struct {
    const char *call, *expected;
    uint32_t invalid;
  } kCalls[CASES] = {
      {"QnnBackend_setConfig of the backend 0xb06050b0605", "4011 QNN_BACKEND_ERROR_INVALID_HANDLE", 4011},
      {"QnnBackend_create with the log 0xb06050b0605", "4011 QNN_BACKEND_ERROR_INVALID_HANDLE", 4011},
      {"QnnDevice_create with the log 0xb06050b0605", "14000 QNN_DEVICE_ERROR_INVALID_HANDLE", 14000},
      {"QnnContext_create of the backend 0xb06050b0605", "5002 QNN_CONTEXT_ERROR_INVALID_HANDLE", 5002},
      {"QnnGraph_create in the context 0xb06050b0605", "6001 QNN_GRAPH_ERROR_INVALID_HANDLE", 6001},
      {"QnnTensor_createGraphTensor in the graph 0xb06050b0605", "7001 QNN_TENSOR_ERROR_INVALID_HANDLE", 7001},
      {"QnnGraph_finalize of the graph 0xb06050b0605", "6001 QNN_GRAPH_ERROR_INVALID_HANDLE", 6001},
      {"QnnBackend_validateOpConfig of the backend 0xb06050b0605", "4011 QNN_BACKEND_ERROR_INVALID_HANDLE", 4011},
      {"QnnBackend_validateOpConfig of the backend NULL", "4011 QNN_BACKEND_ERROR_INVALID_HANDLE", 4011},
      {"QnnGraph_getProperty of the graph 0xb06050b0605", "6001 QNN_GRAPH_ERROR_INVALID_HANDLE", 6001},
  };
  Handle alive = NULL;
  QNN(kBackendCreate, Handle, void*, Handle*)(NULL, NULL, &alive); /* or none, as libQnnGpu.so on a host */
  judging(kCalls[which].call, kCalls[which].expected);
  uint32_t answer = called(which);
  int excused = answer == 1000 || answer == 4003 || answer == 4950 || (which == 1 && answer == 4000);
  seen(excused || answer == kCalls[which].invalid, "%u", answer);
}
