/* EXE-13: QnnGraph_execute with a memory type that Qnn_TensorMemType_t does not have.
 *
 *   gcc -o unknown-memory-type unknown-memory-type.c -ldl
 *   ./unknown-memory-type .../libQnnHtp.so
 */
#include "qnn.h"

static void judge(void) {
  Tensor tensors[3];
  uint8_t memory[3][kBytes];
  Handle sum = sum_graph(context(backend()), tensors, kAllRaw);
  give_memory(tensors, memory);
  tensors[0].memory_type = 77;
  judging("QnnGraph_execute, input a with memory type 77", "6004 QNN_GRAPH_ERROR_INVALID_TENSOR");
  uint32_t answer = code(execute(sum, tensors, 2, tensors + 2));
  seen(answer == 6004, "%u, and the first byte of the output is 0x%02x (0xee before)", answer, memory[2][0]);
}
