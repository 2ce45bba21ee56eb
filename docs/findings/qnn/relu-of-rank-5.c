/* EXE-21: a Relu of FLOAT_32 and rank 5, which is composed and finalised, and ends the process when it is executed.
 *
 *   gcc -o relu-of-rank-5 relu-of-rank-5.c -ldl
 *   ./relu-of-rank-5 .../libQnnHtp.so
 *
 * The same of rank 4 is executed before.
 */
#include "qnn.h"

static const uint32_t kOnes[5] = {1, 1, 1, 1, 8};

static Handle relu(Handle backend, Handle context, const char* name, uint32_t rank, Tensor tensors[2]) {
  Handle made = graph(context, name);
  for (int i = 0; i < 2; ++i) {
    tensors[i] = bytes_tensor(i ? "out" : "in", i ? kAppRead : kAppWrite, kRaw);
    tensors[i].data_type = kFloat32;
    tensors[i].encoding_defined = tensors[i].encoding = 0x7fffffff;
    tensors[i].rank = rank;
    tensors[i].dimensions = kOnes + 5 - rank;
    ok(create_tensor(made, &tensors[i]), "QnnTensor_createGraphTensor");
  }
  Node node = {1, "relu", "qti.aisw", "Relu", 0, NULL, 1, tensors, 1, tensors + 1};
  ok(QNN(kBackendValidateOpConfig, Handle, Node)(backend, node), "QnnBackend_validateOpConfig");
  ok(add_node(made, node), "QnnGraph_addNode");
  ok(finalize(made), "QnnGraph_finalize");
  return made;
}

static void judge(void) {
  float in[8] = {-2, -1, 0, 1, 2, 3, 4, 5}, out[8];
  Handle opened = backend(), owner = context(opened);
  for (uint32_t rank = 4; rank <= 5; ++rank) {
    Tensor tensors[2];
    Handle made = relu(opened, owner, rank == 4 ? "four" : "five", rank, tensors);
    for (int i = 0; i < 2; ++i) {
      tensors[i].data = i ? out : in;
      tensors[i].data_size = sizeof in;
    }
    memset(out, 0, sizeof out);
    if (rank == 5) judging("QnnGraph_execute of Relu, FLOAT_32 [1, 1, 1, 1, 8], of -2, -1, ..., 5", "0, and 5 at the end");
    uint32_t answer = code(execute(made, tensors, 1, tensors + 1));
    if (rank == 5) seen(answer == 0 && out[0] == 0 && out[7] == 5, "%u, and %g at the end", answer, out[7]);
    if (answer || out[7] != 5) cannot("of rank 4: %u, and %g at the end", answer, out[7]);
  }
}
