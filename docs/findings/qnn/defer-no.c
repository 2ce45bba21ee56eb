/* EXT-31: QnnContext_create with the option DEFER_GRAPH_INIT set to no.
 *
 *   gcc -o defer-no defer-no.c -ldl
 *   ./defer-no .../libQnnHtp.so
 */
#include "qnn.h"

static void judge(void) {
  Handle owner = backend(), made = NULL;
  ContextConfig config = {.option = kDeferGraphInit, .deferred = 0};
  const ContextConfig* configs[] = {&config, NULL};
  judging("QnnContext_create with {DEFER_GRAPH_INIT, isGraphInitDeferred = 0}",
          "0, as without the option (or 1000 where the option is not known)");
  uint32_t answer =
      code(QNN(kContextCreate, Handle, Handle, const ContextConfig**, Handle*)(owner, NULL, configs, &made));
  seen(answer == 0 || answer == 1000, "%u", answer);
}
