/* QLEAK-06: what a process keeps of its first session, of which all is freed.
 *
 *   gcc -o first-session first-session.c -ldl
 *   ./first-session .../libQnnHtp.so
 *
 * A graph of three tensors of 128 bytes is executed once. Private memory that was written to is counted before the
 * backend is made and when all is freed; the rule allows 4 MiB more, and speaks of the first session only.
 */
#include "qnn.h"

/* KiB of pages of this process's own that were written to, as the kernel sums them up. */
static long written(void) {
  char line[256];
  long found = -1;
  FILE* rollup = fopen("/proc/self/smaps_rollup", "r");
  if (!rollup) cannot("there is no /proc/self/smaps_rollup");
  while (fgets(line, sizeof line, rollup)) sscanf(line, "Anonymous: %ld kB", &found);
  fclose(rollup);
  return found;
}

static void judge(void) {
  static uint8_t memory[3][kBytes];
  Tensor tensors[3];
  long before = written();
  Handle opened = backend(), owner = context(opened);
  Handle made = sum_graph(owner, tensors, kAllRaw);
  give_memory(tensors, memory);
  ok(execute(made, tensors, 2, tensors + 2), "QnnGraph_execute");
  long during = written();
  ok(QNN(kContextFree, Handle, Handle)(owner, NULL), "QnnContext_free");
  judging("QnnBackend_free, the last call of a process's first session", "at most 4096 KiB more than before it");
  ok(QNN(kBackendFree, Handle)(opened), "QnnBackend_free");
  long kept = written() - before;
  seen(kept <= 4096, "%ld KiB more, of %ld when the graph was executed", kept, during - before);
}
