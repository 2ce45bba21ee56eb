/* QTHR-04: messages above the level that QnnLog_setLogLevel has set.
 *
 *   gcc -o loud-log loud-log.c -ldl
 *   ./loud-log .../libQnnHtp.so
 *
 * The log is made with level 4 (VERBOSE) and lowered to 1 (ERROR) before a graph is composed and executed.
 */
#include "qnn.h"

static volatile int lowered, messages, loud, loudest;

static void message(const char* format, uint32_t level, uint64_t time, va_list arguments) {
  (void)format;
  (void)time;
  (void)arguments;
  __sync_fetch_and_add(&messages, 1);
  if (!lowered || level <= 1) return;
  __sync_fetch_and_add(&loud, 1);
  if ((int)level > loudest) loudest = (int)level;
}

static void judge(void) {
  Handle log = NULL, owner = NULL;
  Tensor tensors[3];
  uint8_t memory[3][kBytes];
  typedef void (*Callback)(const char*, uint32_t, uint64_t, va_list);
  ok(QNN(kLogCreate, Callback, uint32_t, Handle*)(message, 4, &log), "QnnLog_create");
  ok(QNN(kBackendCreate, Handle, void*, Handle*)(log, NULL, &owner), "QnnBackend_create");
  ok(QNN(kLogSetLogLevel, Handle, uint32_t)(log, 1), "QnnLog_setLogLevel");
  lowered = 1;
  judging("QnnContext_create to QnnGraph_execute, after QnnLog_setLogLevel(log, 1)", "no message above level 1");
  Handle sum = sum_graph(context(owner), tensors, kAllRaw);
  give_memory(tensors, memory);
  ok(execute(sum, tensors, 2, tensors + 2), "QnnGraph_execute");
  seen(loud == 0, "%d messages above it, up to level %d (%d messages in all)", loud, loudest, messages);
}
