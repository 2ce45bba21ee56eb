/* EXT-04: QnnContext_getProperty of a deferred context with NULL for the list of properties.
 *
 *   gcc -o null-properties null-properties.c -ldl
 *   ./null-properties .../libQnnHtp.so
 */
#include "qnn.h"

static void judge(void) {
  Handle owner = backend(), deferred = NULL;
  uint64_t size = 0;
  uint8_t* bytes = binary_of_a_sum(owner, &size);
  ContextConfig config = {.option = kDeferGraphInit, .deferred = 1};
  const ContextConfig* configs[] = {&config, NULL};
  ok(from_binary(owner, configs, bytes, size, &deferred), "QnnContext_createFromBinary, deferred");
  judging("QnnContext_getProperty(context, NULL)", "5000 QNN_CONTEXT_ERROR_INVALID_ARGUMENT");
  uint32_t answer = code(QNN(kContextGetProperty, Handle, void**)(deferred, NULL));
  seen(answer == 5000, "%u", answer);
}
