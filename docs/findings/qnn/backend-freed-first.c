/* CTX-07: QnnBackend_free while a context is alive, and then QnnContext_free.
 *
 *   gcc -o backend-freed-first backend-freed-first.c -ldl
 *   ./backend-freed-first .../libQnnSaver.so
 */
#include "qnn.h"

static void judge(void) {
  Handle owner = backend(), made = context(owner);
  judging("QnnBackend_free while a context is alive, then QnnContext_free of it",
          "refused, 0; or 0, 5002 QNN_CONTEXT_ERROR_INVALID_HANDLE");
  uint32_t freed = code(QNN(kBackendFree, Handle)(owner));
  uint32_t answer = code(QNN(kContextFree, Handle, Handle)(made, NULL));
  seen(freed ? answer == 0 : answer == 5002, "%u, %u", freed, answer);
}
