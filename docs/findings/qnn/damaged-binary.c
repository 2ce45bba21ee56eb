/* OFF-08: QnnContext_createFromBinary with a binary that lacks its second half.
 *
 *   gcc -o damaged-binary damaged-binary.c -ldl
 *   ./damaged-binary .../libQnnHtp.so
 */
#include "qnn.h"

static void judge(void) {
  Handle owner = backend(), made = NULL;
  uint64_t size = 0;
  uint8_t* bytes = binary_of_a_sum(owner, &size);
  judging("QnnContext_createFromBinary with the first half of a binary",
          "5005 QNN_CONTEXT_ERROR_CREATE_FROM_BINARY, 5004 _BINARY_VERSION or 5008 _BINARY_CONFIGURATION");
  uint32_t answer = code(from_binary(owner, NULL, bytes, size / 2, &made));
  seen(answer == 5005 || answer == 5004 || answer == 5008, "%u (of a binary of %lu bytes)", answer,
       (unsigned long)size);
}
