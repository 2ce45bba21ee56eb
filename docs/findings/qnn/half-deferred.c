/* CAP-06, EXT-29: deferred initialisation, which property key 217 denies, is accepted when the context is created and
 * refused by QnnContext_finalize; the graphs of the context stay out of reach.
 *
 *   gcc -o half-deferred half-deferred.c -ldl
 *   ./half-deferred .../libQnnHtp.so
 */
#include "qnn.h"

static void judge(void) {
  Handle owner = backend(), deferred = NULL, sum = NULL;
  uint64_t size = 0;
  uint8_t* bytes = binary_of_a_sum(owner, &size);
  ContextConfig config = {.option = kDeferGraphInit, .deferred = 1};
  const ContextConfig* configs[] = {&config, NULL};
  uint32_t key = code(has_capability(217));
  judging("QnnContext_createFromBinary with DEFER_GRAPH_INIT, then QnnContext_finalize and QnnGraph_retrieve",
          key ? "QnnContext_createFromBinary refuses what key 217 denies" : "0, 0, 0, as key 217 promises");
  uint32_t created = code(from_binary(owner, configs, bytes, size, &deferred));
  if (created) seen(key != 0, "key 217 answers %u, QnnContext_createFromBinary %u", key, created);
  uint32_t finalised = code(QNN(kContextFinalize, Handle, Handle)(deferred, NULL));
  uint32_t retrieved = code(QNN(kGraphRetrieve, Handle, const char*, Handle*)(deferred, "sum", &sum));
  seen(!key && !finalised && !retrieved, "key 217 answers %u; the calls answer %u, %u, %u", key, created, finalised,
       retrieved);
}
