/* MSC-03: property key 506 promises updatable static tensors; a finalised graph with one cannot be finalised again
 * after QnnTensor_updateGraphTensors.
 *
 *   gcc -o updated-weights updated-weights.c -ldl
 *   ./updated-weights .../libQnnHtp.so
 */
#include "qnn.h"

static void judge(void) {
  uint8_t first[kBytes], second[kBytes], memory[3][kBytes];
  Tensor tensors[3] = {bytes_tensor("a", kAppWrite, kRaw), bytes_tensor("w", kUpdatableStatic, kRaw),
                       bytes_tensor("c", kAppRead, kRaw)};
  memset(first, 2, kBytes);
  memset(second, 4, kBytes);
  if (code(has_capability(506))) cannot("property key 506 is not supported");
  Handle sum = graph(context(backend()), "sum");
  tensors[1].data = first;
  tensors[1].data_size = kBytes;
  for (int i = 0; i < 3; ++i) ok(create_tensor(sum, &tensors[i]), "QnnTensor_createGraphTensor");
  Node add = {1, "add", "qti.aisw", "ElementWiseAdd", 0, NULL, 2, tensors, 1, tensors + 2};
  ok(add_node(sum, add), "QnnGraph_addNode");
  ok(finalize(sum), "QnnGraph_finalize");
  tensors[1].data = second;
  const Tensor* updated[] = {&tensors[1]};
  judging("QnnTensor_updateGraphTensors of w from 2 to 4, QnnGraph_finalize, QnnGraph_execute of a + w",
          "0, 0, 0 and 0 + 4 = 4 in the first byte");
  uint32_t taken = code(QNN(kTensorUpdateGraphTensors, Handle, const Tensor**, uint64_t)(sum, updated, 1));
  uint32_t finalised = code(finalize(sum));
  give_memory(tensors, memory);
  Tensor io[2] = {tensors[0], tensors[2]};
  uint32_t executed = code(execute(sum, io, 1, io + 1));
  seen(!taken && !finalised && !executed && memory[2][0] == 4, "%u, %u, %u and %u", taken, finalised, executed,
       memory[2][0]);
}
