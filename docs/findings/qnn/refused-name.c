/* OFF-09: a tensor that was refused in a graph from a binary leaves its name there.
 *
 *   gcc -o refused-name refused-name.c -ldl
 *   ./refused-name .../libQnnHtp.so
 */
#include "qnn.h"

static void judge(void) {
  Handle owner = backend(), loaded = NULL, sum = NULL;
  uint64_t size = 0;
  uint8_t* bytes = binary_of_a_sum(owner, &size);
  ok(from_binary(owner, NULL, bytes, size, &loaded), "QnnContext_createFromBinary");
  ok(QNN(kGraphRetrieve, Handle, const char*, Handle*)(loaded, "sum", &sum), "QnnGraph_retrieve");
  Tensor first = bytes_tensor("new", kNative, kRaw), second = bytes_tensor("new", kNative, kRaw);
  uint32_t refused = code(create_tensor(sum, &first));
  if (refused != 1005 && refused != 6024) cannot("QnnTensor_createGraphTensor gives %u", refused);
  judging("QnnTensor_createGraphTensor of a tensor that this graph has just refused",
          "the same refusal: 1005 QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED or 6024 QNN_GRAPH_ERROR_GRAPH_FINALIZED");
  uint32_t answer = code(create_tensor(sum, &second));
  seen(answer == 1005 || answer == 6024, "%u, after %u", answer, refused);
}
