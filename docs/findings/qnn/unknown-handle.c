/* EXE-05: QnnGraph_execute with memory type MEMHANDLE and a handle that nobody gave: an address at which nothing is
 * mapped, and that of memory of the client's own, which is registered nowhere.
 *
 *   gcc -o unknown-handle unknown-handle.c -ldl
 *   ./unknown-handle .../libQnnHtp.so
 */
#define CASES 2
#include "qnn.h"

static void judge(void) {
  Tensor tensors[3];
  uint8_t memory[3][kBytes];
  static uint8_t other[kBytes];
  Handle sum = sum_graph(context(backend()), tensors, kAllRaw);
  give_memory(tensors, memory);
  ok(execute(sum, tensors, 2, tensors + 2), "QnnGraph_execute with raw memory");
  memset(memory[2], 0xEE, kBytes);
  memset(other, 40, kBytes);
  tensors[0].memory_type = kMemhandle;
  tensors[0].data = which ? (void*)other : (void*)0xb06050b0605;
  tensors[0].data_size = 0;
  judging(which ? "QnnGraph_execute, input a with memory type MEMHANDLE and the address of 128 bytes, each 40"
                : "QnnGraph_execute, input a with memory type MEMHANDLE and the handle 0xb06050b0605",
          "6004 QNN_GRAPH_ERROR_INVALID_TENSOR");
  uint32_t answer = code(execute(sum, tensors, 2, tensors + 2));
  seen(answer == 6004, "%u; c begins with %u (40 + 2 is 42)", answer, memory[2][0]);
}
