/* EXE-14: QnnGraph_execute with raw memory for the output that is smaller than the tensor: 64 bytes of 128.
 *
 *   gcc -o small-memory small-memory.c -ldl
 *   ./small-memory .../libQnnHtp.so
 *
 * A page that cannot be written lies behind the 64 bytes.
 */
#include "qnn.h"

static void judge(void) {
  Tensor tensors[3];
  uint8_t memory[3][kBytes];
  Handle sum = sum_graph(context(backend()), tensors, kAllRaw);
  give_memory(tensors, memory);
  ok(execute(sum, tensors, 2, tensors + 2), "QnnGraph_execute with memory of 128 bytes");
  uint8_t* page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || mprotect(page + 4096, 4096, PROT_NONE)) cannot("no memory");
  tensors[2].data = page + 4096 - 64;
  tensors[2].data_size = 64;
  judging("QnnGraph_execute, output c of 128 bytes with a client buffer of dataSize 64",
          "6004 QNN_GRAPH_ERROR_INVALID_TENSOR or 6000 QNN_GRAPH_ERROR_INVALID_ARGUMENT");
  uint32_t answer = code(execute(sum, tensors, 2, tensors + 2));
  seen(answer == 6004 || answer == 6000, "%u", answer);
}
