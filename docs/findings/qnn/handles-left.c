/* REG-07: QnnMem_register that fails leaves the client's array of handles as it was.
 *
 *   gcc -o handles-left handles-left.c -ldl
 *   ./handles-left .../libQnnGpu.so
 *
 * The context is NULL, so that no session is needed.
 */
#include "qnn.h"

static void judge(void) {
  uint32_t descriptor[12] = {0}; /* Qnn_MemDescriptor_t: a shape without dimensions, and no type */
  Handle handle = (void*)0x5555555555555555;
  judging("QnnMem_register of one descriptor in the context NULL, with 0x5555555555555555 in the array of handles",
          "an error, and NULL in the array (or 1000 and nothing written, where there is no memory API)");
  uint32_t answer = code(QNN(kMemRegister, Handle, void*, uint32_t, Handle*)(NULL, descriptor, 1, &handle));
  seen(answer == 1000 || (answer && handle == NULL), "%u, and %p in the array", answer, handle);
}
