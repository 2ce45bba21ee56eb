/* OOM-01 and OOM-02: calls during which the library asks for memory that there is not.
 *
 *   gcc -rdynamic -o no-memory no-memory.c -ldl
 *   ./no-memory .../libQnnHtp.so
 *
 * This program has operator new and malloc of its own, which the loader takes for the library's, too (-rdynamic). While a
 * call is judged they count what the library itself asks for, and refuse one request: malloc gives NULL, operator new
 * throws std::bad_alloc, as C++ has it. A call may answer anything; it may not end the process.
 */
#define CASES 3
#include "../qnn/qnn.h"

static volatile long news, mallocs; /* requests up to the one that is refused; 0: none is */
static const char* whole_path;

extern void* __libc_malloc(size_t size);

/* Whether whoever goes on at this address is the library under judgement. */
static int is_library(void* address) {
  Dl_info found;
  return dladdr(address, &found) && found.dli_fname && !strcmp(found.dli_fname, whole_path);
}

void* malloc(size_t size) {
  if (mallocs > 0 && is_library(__builtin_return_address(0)) && --mallocs == 0) return NULL;
  return __libc_malloc(size);
}

static void* new_memory(size_t size, void* caller) {
  if (news > 0 && is_library(caller) && --news == 0) {
    void (*bad_alloc)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
    bad_alloc();
  }
  return __libc_malloc(size ? size : 1);
}
void* _Znwm(size_t size) { return new_memory(size, __builtin_return_address(0)); } /* operator new */
void* _Znam(size_t size) { return new_memory(size, __builtin_return_address(0)); } /* operator new[] */

/* Functions that are in no file, as those of a library in another language, ask for nothing that is counted. */
static void find_library(void) {
  Dl_info found;
  whole_path = dladdr(table[kBackendCreate], &found) && found.dli_fname ? found.dli_fname : "";
}

static void judge(void) {
  find_library();
  Handle made = NULL;
  if (which == 0) {
    judging("QnnBackend_create, whose first operator new finds no memory", "an answer, such as 1002");
    news = 1;
    uint32_t answer = code(QNN(kBackendCreate, Handle, void*, Handle*)(NULL, NULL, &made));
    news = 0;
    seen(1, "%u", answer);
  }
  Handle owner = backend();
  if (which == 1) {
    for (int nth = 1; nth <= 40; ++nth) {
      if (nth == 1) judging("QnnContext_create, one of whose first 40 operator new finds no memory", "answers");
      news = nth;
      uint32_t answer = code(QNN(kContextCreate, Handle, Handle, void*, Handle*)(owner, NULL, NULL, &made));
      news = 0;
      if (!answer) QNN(kContextFree, Handle, Handle)(made, NULL);
    }
    seen(1, "answers");
  }
  Tensor tensors[3];
  uint64_t size = 0, written = 0;
  Handle composed = context(owner);
  sum_graph(composed, tensors, kAllRaw);
  ok(QNN(kContextGetBinarySize, Handle, uint64_t*)(composed, &size), "QnnContext_getBinarySize");
  void* bytes = malloc(size);
  judging("QnnContext_getBinary, one of whose first 20 malloc finds no memory", "answers");
  for (int nth = 1; nth <= 20; ++nth) {
    mallocs = nth;
    QNN(kContextGetBinary, Handle, void*, uint64_t, uint64_t*)(composed, bytes, size, &written);
    mallocs = 0;
  }
  seen(1, "answers");
}
