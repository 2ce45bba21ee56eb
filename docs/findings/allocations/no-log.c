/* OOM-03: QnnLog_create, which finds no memory for the log, and answers success.
 *
 *   gcc -rdynamic -o no-log no-log.c -ldl
 *   ./no-log .../libQnnIr.so
 */
#include "refuse.h"

static void judge(void) {
  Handle log = NULL;
  find_library();
  judging("QnnLog_create, whose operator new (nothrow) gives NULL, then QnnLog_free of the log",
          "an error of QnnLog_create, such as 1002; or 0, 0");
  nothrow_news = 1;
  uint32_t created = code(QNN(kLogCreate, void*, uint32_t, Handle*)(NULL, 1, &log));
  nothrow_news = 0;
  if (created) seen(1, "%u", created);
  uint32_t freed = code(QNN(kLogFree, Handle)(log));
  seen(!freed, "0, %u", freed);
}
