/* PRE-03: QnnTensor_createGraphTensor of a STATIC tensor without data.
 *
 *   gcc -o static-without-data static-without-data.c -ldl
 *   ./static-without-data .../libQnnSaver.so
 */
#include "qnn.h"

static void judge(void) {
  Handle sum = graph(context(backend()), "sum");
  Tensor weights = bytes_tensor("w", kStatic, kRaw);
  judging("QnnTensor_createGraphTensor of a STATIC tensor whose clientBuf.data is NULL",
          "7004 QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM");
  uint32_t answer = code(create_tensor(sum, &weights));
  seen(answer == 7004, "%u", answer);
}
