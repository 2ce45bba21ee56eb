/* CAP-06: property key 215 denies properties of contexts, and QnnContext_getProperty gives them.
 *
 *   gcc -o denied-properties denied-properties.c -ldl
 *   ./denied-properties .../libQnnHtp.so
 *
 * The property is the start alignment of external buffers (QnnHtpContext.h), of a context whose graphs are deferred.
 */
#include "qnn.h"

typedef struct { /* QnnHtpContext_CustomProperty_t */
  uint32_t option;
  uint64_t value;
} Custom;
typedef struct { /* QnnContext_Property_t */
  uint32_t option;
  Custom* custom;
} Property;
_Static_assert(sizeof(Custom) == 16 && sizeof(Property) == 16, "layouts of properties");

static void judge(void) {
  Handle owner = backend(), deferred = NULL;
  uint64_t size = 0;
  uint8_t* bytes = binary_of_a_sum(owner, &size);
  ContextConfig config = {.option = kDeferGraphInit, .deferred = 1};
  const ContextConfig* configs[] = {&config, NULL};
  ok(from_binary(owner, configs, bytes, size, &deferred), "QnnContext_createFromBinary, deferred");
  Custom alignment = {.option = 1, .value = 0x5555};
  Property property = {.option = 0, .custom = &alignment};
  Property* properties[] = {&property, NULL};
  uint32_t key = code(has_capability(215));
  judging("QnnContext_getProperty of the start alignment", key ? "1000, since key 215 is not supported" : "0");
  uint32_t answer = code(QNN(kContextGetProperty, Handle, Property**)(deferred, properties));
  seen((key == 0) == (answer == 0), "key 215 answers %u; the call %u, and a value of 0x%lx", key, answer,
       (unsigned long)alignment.value);
}
