/* IF-08: property key 1001 (QNN_PROPERTY_GROUP_ERROR) denies QnnError_getMessage, which works.
 *
 *   gcc -o denied-messages denied-messages.c -ldl
 *   ./denied-messages .../libQnnHtp.so
 */
#include "qnn.h"

static void judge(void) {
  const char* text = NULL;
  uint32_t key = code(has_capability(1001));
  judging("QnnError_getMessage(8000)", key ? "1000, since key 1001 is not supported" : "0 and a text");
  uint32_t answer = code(QNN(kErrorGetMessage, Error, const char**)(8000, &text));
  seen((key == 0) == (answer == 0), "key 1001 answers %u; QnnError_getMessage answers %u, '%s'", key, answer,
       text ? text : "");
}
