/* The signal handler of a child that runs cases: what `pytest_qnn.isolation.evidence.crash_handler` has as machine code.
 *
 * It runs on an alternate stack, allocates nothing, takes no lock and calls the system directly, because the heap
 * and everything else may be broken. The thread that crashed enters it twice:
 *
 * 1. It writes what the kernel says, and /proc/self/maps, to the record. Then it jumps to glibc's backtrace(3), in
 *    whose eyes the kernel's signal frame is the caller: this code has no unwind information of its own. That
 *    returns to the interrupted instruction, which faults again; a signal that was sent is sent again.
 * 2. It gives the signal back to whoever had it before, and has it delivered there in the same way.
 *
 * The text of it, in base64, stands in `crash_handler.py`, so that no compiler is needed where it is used:
 *
 *     python -m pytest_qnn.native.machine_code crash_handler
 *
 * compiles this file with gcc, for Linux on x86-64, and prints it.
 *
 * A fault in backtrace ends the process with the signal blocked, as it would have ended anyway; what stage 1 wrote
 * stays.
 */
#include <stdint.h>

enum { kSignals = 65, kFrames = 64 };
enum { kRead = 0, kClose = 3, kGetpid = 39, kGettid = 186, kOpen = 2, kRtTgsigqueueinfo = 297 };
enum { kRip = 40 + 16 * 8, kRsp = 40 + 15 * 8 }; /* of ucontext_t */

typedef struct {
  int64_t signal;  /* written last: the record is there */
  int64_t code;    /* si_code */
  uint64_t address; /* si_addr */
  uint64_t pc;
  uint64_t sp;
  uint64_t caller; /* of a call to no code: where it came from, which the unwinder cannot say */
  uint64_t thread;
  uint64_t maps_size;
  uint64_t frames[kFrames]; /* 0: no more */
} Record;

typedef struct {
  Record* record; /* NULL: nothing is recorded */
  char* maps;
  uint64_t maps_size;
  int (*backtrace)(void**, int); /* NULL where libc has none */
  int (*sigaction)(int, const void*, void*);
  int64_t stage;
  const void* previous[kSignals]; /* struct sigaction by signal; NULL: not ours */
} State;

/* Of the code: eight bytes that are overwritten with the address of the state, and a text. */
extern State* const state __attribute__((visibility("hidden")));
extern const char maps_file[] __attribute__((visibility("hidden")));

static long call(long number, long a, long b, long c, long d) {
  register long fourth __asm__("r10") = d;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
}

static void copy_maps(State* s) {
  const long fd = call(kOpen, (long)maps_file, 0x80000 /* O_CLOEXEC */, 0, 0);
  if (fd < 0) return;
  uint64_t size = 0;
  while (size < s->maps_size) {
    const long got = call(kRead, fd, (long)(s->maps + size), (long)(s->maps_size - size), 0);
    if (got <= 0) break;
    size += (uint64_t)got;
  }
  call(kClose, fd, 0, 0, 0);
  s->record->maps_size = size;
}

/* Whether backtrace is to be called next. */
__attribute__((used, noinline)) int64_t stage(int signal, const char* info, const char* context) {
  State* s = state;
  const int code = *(const int*)(info + 8);
  const int first = s->record && __atomic_exchange_n(&s->stage, 1, __ATOMIC_SEQ_CST) == 0;
  if (first) {
    Record* record = s->record;
    record->code = code;
    record->address = *(const uint64_t*)(info + 16);
    record->pc = *(const uint64_t*)(context + kRip);
    record->sp = *(const uint64_t*)(context + kRsp);
    if (code > 0 && record->pc == record->address) record->caller = *(const uint64_t*)record->sp;
    __asm__("movq %%fs:16, %0" : "=r"(record->thread)); /* pthread_self() of glibc and musl */
    copy_maps(s);
    record->signal = signal;
  }
  if (!first || !s->backtrace) s->sigaction(signal, s->previous[signal], 0);
  /* A fault comes again by itself. Whoever gets a sent signal sees who sent it. */
  if (code <= 0) {
    const long self = call(kGetpid, 0, 0, 0, 0);
    call(kRtTgsigqueueinfo, self, call(kGettid, 0, 0, 0, 0), signal, (long)info);
  }
  return first && s->backtrace;
}

__asm__(
    ".section .entry,\"ax\"\n"
    "entry:\n"
    "  subq $8, %rsp\n"
    "  call stage\n"
    "  addq $8, %rsp\n"
    "  testq %rax, %rax\n"
    "  jnz 1f\n"
    "  ret\n"
    "1:\n"
    "  movq state(%rip), %rax\n"
    "  movq (%rax), %rdi\n"
    "  addq $64, %rdi\n" /* frames */
    "  movl $64, %esi\n"
    "  movq 24(%rax), %rax\n" /* backtrace */
    "  jmp *%rax\n"
    ".section .tail,\"ax\"\n"
    ".balign 8\n"
    ".globl state\n"
    ".hidden state\n"
    "state: .quad 0x5354415445484552\n" /* the mark that Python looks for */
    ".hidden maps_file\n"
    "maps_file: .asciz \"/proc/self/maps\"\n");
