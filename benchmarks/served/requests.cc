// What a served reference asks the system for: the library asks in its place, so that a client can have it refused.
//
// A reference asks for memory or for a mapping. One piece of memory is asked for by malloc and by operator new, since
// it counts as either: which of them is refused is the client's choice.
#include <sys/mman.h>

#include <cstdlib>
#include <new>

enum { kGranted, kMemory, kNew, kMapping };
static const std::size_t kBytes = 4096;

static int memory() {
  void* made = std::malloc(1);
  if (!made) return kMemory;
  std::free(made);
  try {
    operator delete(operator new(1));
  } catch (const std::bad_alloc&) {
    return kNew;
  }
  return kGranted;
}

// What was refused; 0: nothing was.
extern "C" __attribute__((visibility("default"))) int pytest_qnn_ask(int mapping) {
  if (!mapping) return memory();
  void* made = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return kMapping;
  munmap(made, kBytes);
  return kGranted;
}
