/* PRE-06: QnnTensor_createGraphTensor with a memory type that Qnn_TensorMemType_t does not have.
 *
 *   gcc -o any-type-created any-type-created.c -ldl
 *   ./any-type-created .../libQnnHtp.so
 */
#include "qnn.h"

static void judge(void) {
  Handle sum = graph(context(backend()), "sum");
  Tensor tensors[3] = {bytes_tensor("a", kAppWrite, 77), bytes_tensor("b", kAppWrite, kRaw),
                       bytes_tensor("c", kAppRead, kRaw)};
  judging("QnnTensor_createGraphTensor of input a with memory type 77, QnnGraph_addNode, QnnGraph_finalize",
          "one of the calls refuses it, as 7004 QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM");
  uint32_t created = code(create_tensor(sum, &tensors[0]));
  if (created) seen(1, "%u", created);
  for (int i = 1; i < 3; ++i) ok(create_tensor(sum, &tensors[i]), "QnnTensor_createGraphTensor");
  Node add = {1, "add", "qti.aisw", "ElementWiseAdd", 0, NULL, 2, tensors, 1, tensors + 2};
  uint32_t added = code(add_node(sum, add)), finalised = code(finalize(sum));
  seen(added || finalised, "%u, %u, %u", created, added, finalised);
}
