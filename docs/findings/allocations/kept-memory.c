/* OOM-06: QnnContext_create many times, each time without memory for one thing.
 *
 *   gcc -rdynamic -o kept-memory kept-memory.c -ldl
 *   ./kept-memory .../libQnnHtp.so
 *
 * A call that failed gives no handle that could be freed: what it has allocated it must free itself. The same number
 * of contexts that are created and freed with nothing refused shows that the process does not grow by these.
 */
#include "refuse.h"

#include <malloc.h>

enum { kTimes = 1000, kRefused = 15, kMost = 64 * 1024 };

/* By how many bytes of malloc the process grows over so many calls, whose nth operator new finds no memory. */
static long grown(Handle owner, long nth, uint32_t* answer) {
  size_t before = mallinfo2().uordblks;
  for (int i = 0; i < kTimes; ++i) {
    Handle made = NULL;
    news = nth;
    *answer = code(QNN(kContextCreate, Handle, Handle, void*, Handle*)(owner, NULL, NULL, &made));
    news = 0;
    if (!*answer) QNN(kContextFree, Handle, Handle)(made, NULL);
  }
  return (long)(mallinfo2().uordblks - before);
}

static void judge(void) {
  uint32_t answer = 0;
  char call[200];
  find_library();
  Handle owner = backend();
  grown(owner, 0, &answer); /* what is made once is there */
  long plain = grown(owner, 0, &answer);
  if (plain > kMost) cannot("with nothing refused the process grows by %ld bytes", plain);
  snprintf(call, sizeof call, "QnnContext_create %d times, whose operator new %d finds no memory", kTimes, kRefused);
  judging(call, "at most 65536 more bytes of malloc in use");
  long more = grown(owner, kRefused, &answer);
  seen(more <= kMost, "%ld more; the call answers %u; %ld more with nothing refused", more, answer, plain);
}
