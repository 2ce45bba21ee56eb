/* PRE-07: two tensors of one graph get one id.
 *
 *   gcc -o equal-ids equal-ids.c -ldl
 *   ./equal-ids .../libQnnIr.so
 */
#include "qnn.h"

static void judge(void) {
  Handle sum = graph(context(backend()), "sum");
  Tensor a = bytes_tensor("a", kAppWrite, kRaw), b = bytes_tensor("b", kAppWrite, kRaw);
  a.id = b.id = 12345;
  judging("QnnTensor_createGraphTensor of two tensors, whose ids are 12345 before", "two different ids");
  ok(create_tensor(sum, &a), "QnnTensor_createGraphTensor");
  ok(create_tensor(sum, &b), "QnnTensor_createGraphTensor");
  seen(a.id != b.id, "%u and %u", a.id, b.id);
}
