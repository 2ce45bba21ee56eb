/* OOM-05: a graph, and a tensor, that there was no memory for, are created once more when there is enough.
 *
 *   gcc -rdynamic -o kept-names kept-names.c -ldl
 *   ./kept-names .../libQnnHtp.so
 *
 * A call that failed has made nothing that could have the name.
 */
#define CASES 2
#include "refuse.h"

static const struct {
  const char* what;
  int nth; /* operator new that finds no memory: it stands behind the one that the name is kept for */
} cases[CASES] = {{"QnnGraph_create", 20}, {"QnnTensor_createGraphTensor", 8}};

static void judge(void) {
  Handle made = NULL, owner = context(backend());
  Handle first = graph(owner, "first"); /* what the library makes once is there */
  Tensor tensor = bytes_tensor("a", kAppWrite, kRaw);
  char call[200];
  find_library();
  news = cases[which].nth;
  uint32_t failed = code(which ? create_tensor(first, &tensor) : graph_create(owner, "second", &made));
  news = 0;
  snprintf(call, sizeof call, "%s, whose operator new %d finds no memory: %u. The same again, with enough",
           cases[which].what, cases[which].nth, failed);
  judging(call, "0");
  if (!failed) seen(1, "nothing was refused, or the call did without");
  uint32_t again = code(which ? create_tensor(first, &tensor) : graph_create(owner, "second", &made));
  seen(!again, "%u", again);
}
