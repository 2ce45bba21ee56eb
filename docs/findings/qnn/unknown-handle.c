/* EXE-05: QnnGraph_execute with memory type MEMHANDLE and a handle that nobody gave.
 *
 *   gcc -o unknown-handle unknown-handle.c -ldl
 *   ./unknown-handle .../libQnnHtp.so
 */
#include "qnn.h"

static void judge(void) {
  Tensor tensors[3];
  uint8_t memory[3][kBytes];
  Handle sum = sum_graph(context(backend()), tensors, kAllRaw);
  give_memory(tensors, memory);
  ok(execute(sum, tensors, 2, tensors + 2), "QnnGraph_execute with raw memory");
  tensors[0].memory_type = kMemhandle;
  tensors[0].data = (void*)0xb06050b0605; /* not mapped either */
  tensors[0].data_size = 0;
  judging("QnnGraph_execute, input a with memory type MEMHANDLE and the handle 0xb06050b0605",
          "6004 QNN_GRAPH_ERROR_INVALID_TENSOR");
  uint32_t answer = code(execute(sum, tensors, 2, tensors + 2));
  seen(answer == 6004, "%u", answer);
}
