/* PRE-02: QnnTensor_createGraphTensor of an input of memory type RAW whose data is not NULL.
 *
 *   gcc -o preset-data preset-data.c -ldl
 *   ./preset-data .../libQnnSaver.so
 */
#include "qnn.h"

static void judge(void) {
  uint8_t bytes[kBytes] = {0};
  Handle sum = graph(context(backend()), "sum");
  Tensor input = bytes_tensor("a", kAppWrite, kRaw);
  input.data = bytes;
  input.data_size = kBytes;
  judging("QnnTensor_createGraphTensor of an APP_WRITE tensor with clientBuf.data",
          "7004 QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM");
  uint32_t answer = code(create_tensor(sum, &input));
  seen(answer == 7004, "%u", answer);
}
