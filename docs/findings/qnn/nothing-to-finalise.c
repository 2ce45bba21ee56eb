/* PRE-15: a graph that is refused at graphFinalize, as it has no node yet, takes none any more.
 *
 *   gcc -o nothing-to-finalise nothing-to-finalise.c -ldl
 *   ./nothing-to-finalise .../libQnnIr.so
 *
 * The same graph without that call is composed and finalised before.
 */
#include "qnn.h"

static void judge(void) {
  Handle owner = context(backend());
  Tensor right[3], tensors[3];
  sum_graph(owner, right, kAllRaw);
  Handle made = graph(owner, "again");
  for (int i = 0; i < 3; ++i) {
    tensors[i] = bytes_tensor(right[i].name, right[i].type, kRaw);
    ok(create_tensor(made, &tensors[i]), "QnnTensor_createGraphTensor");
  }
  if (finalize(made) == 0) cannot("QnnGraph_finalize of a graph without a node answers 0");
  Node add = {1, "add", "qti.aisw", "ElementWiseAdd", 0, NULL, 2, tensors, 1, tensors + 2};
  judging("QnnGraph_addNode, after QnnGraph_finalize was refused since there was no node", "0");
  uint32_t answer = code(add_node(made, add));
  seen(answer == 0, "%u", answer);
}
