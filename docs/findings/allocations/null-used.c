/* OOM-01: QnnGraph_finalize, whose first malloc gives NULL.
 *
 *   gcc -rdynamic -o null-used null-used.c -ldl
 *   ./null-used .../libQnnIr.so
 *
 * The call may answer anything; it may not end the process.
 */
#include "refuse.h"

static void judge(void) {
  Tensor tensors[3];
  find_library();
  Handle composed = compose(context(backend()), tensors, kAllRaw);
  judging("QnnGraph_finalize, whose first malloc gives NULL", "an answer, such as 1002");
  mallocs = 1;
  uint32_t answer = code(finalize(composed));
  mallocs = 0;
  seen(1, "%u", answer);
}
