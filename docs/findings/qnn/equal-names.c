/* PRE-12: two graphs of one name in one context.
 *
 *   gcc -o equal-names equal-names.c -ldl
 *   ./equal-names .../libQnnIr.so
 */
#include "qnn.h"

static void judge(void) {
  Handle owner = context(backend()), second = NULL, first = graph(owner, "sum");
  judging("QnnGraph_create with a name that its context has", "6003 QNN_GRAPH_ERROR_INVALID_NAME");
  uint32_t answer = code(graph_create(owner, "sum", &second));
  seen(answer == 6003, "%u; the graphs are %p and %p", answer, first, second);
}
