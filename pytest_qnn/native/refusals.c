/* What stands in the place of malloc, mmap, dup, pthread_create and their like in a library's table of imported
 * functions, and refuses the nth request: what `pytest_qnn.isolation.host.refusals` has as machine code.
 *
 * Entry i, at 16 * i, stands for function i. It asks `decide`, with the registers of the call kept, and goes on to
 * the function itself, or returns what the function returns where the system has no more to give. A function that
 * throws (operator new) is refused by going on to another one that throws, in whose eyes the library is its caller.
 * Any thread may enter it.
 *
 *     python -m pytest_qnn.native.machine_code refusals
 *
 * compiles this file with gcc, for Linux on x86-64, and prints it in base64.
 */
#include <stdint.h>

enum { kFunctions = 32 };
enum { kDupFd = 0, kDupFdCloexec = 1030 }; /* commands of fcntl that make a descriptor */

typedef struct {
  int64_t left;    /* requests up to the one that is refused, itself included; 0 or less: it was */
  int64_t lasting; /* not 0: so is each one after it */
  int64_t asked;   /* requests so far */
  int64_t refused;
  uint64_t counted; /* bit i: a call of function i is a request */
  int* (*errno_location)(void);
  int64_t results[kFunctions];  /* what a refused call returns */
  int64_t errors[kFunctions];   /* what errno is then; 0: it is left alone */
  int64_t commands[kFunctions]; /* not 0: only with one of the commands above as second argument */
  void* instead[kFunctions];    /* NULL: a refused call returns; else where it goes on */
  void* real[kFunctions];
} State;

/* Eight bytes of the code that are overwritten with the address of the state. */
extern State* const state __attribute__((visibility("hidden")));

/* Where the call goes on; NULL: it returns. */
__attribute__((used, noinline)) void* decide(uint64_t function, int64_t second) {
  State* s = state;
  void* real = s->real[function];
  if (!(s->counted >> function & 1)) return real;
  if (s->commands[function] && (int)second != kDupFd && (int)second != kDupFdCloexec) return real;
  __atomic_add_fetch(&s->asked, 1, __ATOMIC_SEQ_CST);
  const int64_t left = __atomic_sub_fetch(&s->left, 1, __ATOMIC_SEQ_CST);
  if (left > 0 || (left < 0 && !s->lasting)) return real;
  __atomic_add_fetch(&s->refused, 1, __ATOMIC_SEQ_CST);
  if (s->errors[function]) *s->errno_location() = (int)s->errors[function];
  return s->instead[function];
}

__asm__(
    ".section .entry,\"ax\"\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "  .balign 16\n"
    "  pushq $\\n\n"
    "  jmp 1f\n"
    ".endr\n"
    "  .balign 16\n"
    "1:\n"
    "  pushq %rax\n" /* al: vector registers of a variadic call */
    "  pushq %rdi\n"
    "  pushq %rsi\n"
    "  pushq %rdx\n"
    "  pushq %rcx\n"
    "  pushq %r8\n"
    "  pushq %r9\n"
    "  subq $8, %rsp\n"
    "  movq 64(%rsp), %rdi\n"
    "  call decide\n"
    "  movq %rax, %r11\n"
    "  addq $8, %rsp\n"
    "  popq %r9\n"
    "  popq %r8\n"
    "  popq %rcx\n"
    "  popq %rdx\n"
    "  popq %rsi\n"
    "  popq %rdi\n"
    "  popq %rax\n"
    "  popq %r10\n"
    "  testq %r11, %r11\n"
    "  jz 2f\n"
    "  jmp *%r11\n"
    "2:\n"
    "  movq state(%rip), %rax\n"
    "  movq 48(%rax,%r10,8), %rax\n" /* results */
    "  ret\n"
    ".section .tail,\"ax\"\n"
    ".balign 8\n"
    ".globl state\n"
    ".hidden state\n"
    "state: .quad 0x5354415445484552\n" /* the mark that Python looks for */
);
