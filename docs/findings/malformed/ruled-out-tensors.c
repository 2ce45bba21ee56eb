/* PRE-14: QnnTensor_createGraphTensor of tensors that QnnTypes.h rules out. Each is made in a process of its own.
 *
 *   gcc -o ruled-out-tensors ruled-out-tensors.c -ldl
 *   ./ruled-out-tensors .../libQnnHtp.so
 */
#define CASES 4
#include "../qnn/qnn.h"

static void judge(void) {
  static const char* const kWrong[CASES] = {
      "version 2, dimensions 1 x 2 x 2 x 0 (must contain non-zero values)",
      "UFIXED_POINT_8, scale 0 (must be strictly positive)",
      "UFIXED_POINT_8, scale -0.5 (must be strictly positive)",
      "UFIXED_POINT_8, scale NaN (must be strictly positive)",
  };
  static const uint32_t kNothing[4] = {1, 2, 2, 0};
  Handle made = graph(context(backend()), "wrong");
  Tensor right = bytes_tensor("right", kAppWrite, kRaw), wrong = bytes_tensor("wrong", kAppWrite, kRaw);
  ok(create_tensor(made, &right), "QnnTensor_createGraphTensor");
  if (which == 0) {
    wrong.version = 2;
    wrong.dimensions = kNothing;
    uint32_t no_layout = 0x7fffffff; /* QNN_SPARSE_LAYOUT_UNDEFINED, behind isDynamicDimensions */
    memcpy((char*)&wrong + 8 + 120, &no_layout, sizeof no_layout);
  }
  if (which == 1) wrong.scale = 0;
  if (which == 2) wrong.scale = -0.5f;
  if (which == 3) wrong.scale = __builtin_nanf("");
  char call[150];
  snprintf(call, sizeof call, "QnnTensor_createGraphTensor, %s", kWrong[which]);
  judging(call, "7004 QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM");
  uint32_t answer = code(create_tensor(made, &wrong));
  seen(answer != 0, "%u", answer);
}
