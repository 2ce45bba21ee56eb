/* OFF-08: QnnContext_createFromBinary with a binary in which one byte was changed, in its seventh sixteenth.
 *
 *   gcc -o changed-binary changed-binary.c -ldl
 *   ./changed-binary .../libQnnHtp.so
 *
 * The binary is that of two graphs, a Relu and an addition of weights. No document says that the byte must be noticed.
 */
#include "../qnn/qnn.h"

enum { kElements = 9 * 33 };
static const uint32_t kShape[4] = {1, 1, 9, 33};

static Tensor float_tensor(const char* name, uint32_t type) {
  Tensor made;
  memset(&made, 0, sizeof made);
  made.version = 1;
  made.name = name;
  made.type = type;
  made.data_type = kFloat32;
  made.encoding_defined = made.encoding = 0x7fffffff;
  made.rank = 4;
  made.dimensions = kShape;
  return made;
}

static void add_graph(Handle context, const char* name, const char* operator, uint32_t inputs) {
  static float weights[kElements];
  Handle made = graph(context, name);
  Tensor tensors[3] = {float_tensor("a", kAppWrite), float_tensor("b", kStatic), float_tensor("c", kAppRead)};
  for (int i = 0; i < kElements; ++i) weights[i] = (float)(i % 64) * 0.25f - 8.0f;
  tensors[1].data = weights;
  tensors[1].data_size = sizeof weights;
  for (int i = 0; i < 3; ++i)
    if (i != 1 || inputs == 2) ok(create_tensor(made, &tensors[i]), "QnnTensor_createGraphTensor");
  Node node = {1, "node", "qti.aisw", operator, 0, NULL, inputs, tensors, 1, tensors + 2};
  ok(add_node(made, node), "QnnGraph_addNode");
  ok(finalize(made), "QnnGraph_finalize");
}

static void judge(void) {
  Handle all = backend(), made = context(all);
  uint64_t size = 0, written = 0;
  add_graph(made, "first", "Relu", 1);
  add_graph(made, "second", "ElementWiseAdd", 2);
  ok(QNN(kContextGetBinarySize, Handle, uint64_t*)(made, &size), "QnnContext_getBinarySize");
  uint8_t* bytes = malloc(size);
  ok(QNN(kContextGetBinary, Handle, void*, uint64_t, uint64_t*)(made, bytes, size, &written), "QnnContext_getBinary");
  uint64_t at = (written * 6 / 16 + written * 7 / 16) / 2, end = written * 7 / 16;
  while (at < end && !bytes[at]) ++at;
  bytes[at] ^= 0xFF;
  char call[120];
  snprintf(call, sizeof call, "QnnContext_createFromBinary, byte %llu of %llu changed", (unsigned long long)at,
           (unsigned long long)written);
  judging(call, "an answer");
  uint32_t answer = code(from_binary(all, NULL, bytes, written, &made));
  seen(1, "%u", answer);
}
