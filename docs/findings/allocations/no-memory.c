/* OOM-01 and OOM-02: calls during which the library asks for memory that there is not.
 *
 *   gcc -rdynamic -o no-memory no-memory.c -ldl
 *   ./no-memory .../libQnnHtp.so
 *
 * A call may answer anything; it may not end the process.
 */
#define CASES 3
#include "refuse.h"

static void judge(void) {
  find_library();
  Handle made = NULL;
  if (which == 0) {
    judging("QnnBackend_create, whose first operator new finds no memory", "an answer, such as 1002");
    news = 1;
    uint32_t answer = code(QNN(kBackendCreate, Handle, void*, Handle*)(NULL, NULL, &made));
    news = 0;
    seen(1, "%u", answer);
  }
  Handle owner = backend();
  if (which == 1) {
    for (int nth = 1; nth <= 40; ++nth) {
      if (nth == 1) judging("QnnContext_create, one of whose first 40 operator new finds no memory", "answers");
      news = nth;
      uint32_t answer = code(QNN(kContextCreate, Handle, Handle, void*, Handle*)(owner, NULL, NULL, &made));
      news = 0;
      if (!answer) QNN(kContextFree, Handle, Handle)(made, NULL);
    }
    seen(1, "answers");
  }
  Tensor tensors[3];
  uint64_t size = 0, written = 0;
  Handle composed = context(owner);
  sum_graph(composed, tensors, kAllRaw);
  ok(QNN(kContextGetBinarySize, Handle, uint64_t*)(composed, &size), "QnnContext_getBinarySize");
  void* bytes = malloc(size);
  judging("QnnContext_getBinary, one of whose first 20 malloc finds no memory", "answers");
  for (int nth = 1; nth <= 20; ++nth) {
    mallocs = nth;
    QNN(kContextGetBinary, Handle, void*, uint64_t, uint64_t*)(composed, bytes, size, &written);
    mallocs = 0;
  }
  seen(1, "answers");
}
