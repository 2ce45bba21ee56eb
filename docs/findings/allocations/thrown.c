/* OOM-02: six calls, each of whose first operator new finds no memory.
 *
 *   gcc -rdynamic -o thrown thrown.c -ldl
 *   ./thrown .../libQnnIr.so
 *
 * The functions are C's: no exception may leave them. A call may answer anything.
 */
#define CASES 6
#include "refuse.h"

static const char* const calls[CASES] = {"QnnLog_create", "QnnBackend_create",           "QnnContext_create",
                                         "QnnGraph_create", "QnnTensor_createGraphTensor", "QnnGraph_finalize"};

static void begins(void) {
  char call[100];
  snprintf(call, sizeof call, "%s, whose first operator new finds no memory", calls[which]);
  judging(call, "an answer, such as 1002");
  news = 1;
}

static void ends(Error answer) {
  news = 0;
  seen(1, "%u", code(answer));
}

static void judge(void) {
  Tensor tensors[3];
  Handle made = NULL;
  find_library();
  if (which == 0) begins(), ends(QNN(kLogCreate, void*, uint32_t, Handle*)(NULL, 1, &made));
  if (which == 1) begins(), ends(QNN(kBackendCreate, Handle, void*, Handle*)(NULL, NULL, &made));
  Handle owner = backend();
  if (which == 2) begins(), ends(QNN(kContextCreate, Handle, Handle, void*, Handle*)(owner, NULL, NULL, &made));
  Handle composed = context(owner);
  if (which == 3) begins(), ends(graph_create(composed, "sum", &made));
  if (which == 4) {
    made = graph(composed, "sum");
    tensors[0] = bytes_tensor("a", kAppWrite, kRaw);
    begins(), ends(create_tensor(made, &tensors[0]));
  }
  made = compose(composed, tensors, kAllRaw);
  begins(), ends(finalize(made));
}
