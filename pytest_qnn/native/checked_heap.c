/* What stands in the place of malloc, free, munmap and their like in a library's table of imported functions, and
 * tells of what is written or read beside a block, or after it was given back: what
 * `pytest_qnn.isolation.host.checked_heap` has as machine code.
 *
 * A block that is requested while the heap is checked lies in pages of its own. It ends (but for what its alignment
 * leaves, of which each byte is known) where a page begins that nobody may use, and its pages are taken away for ever
 * when it is freed: whoever reads or writes there dies of it, at once and in the function that does so. What was
 * unmapped stays taken, so that it can be told from memory that somebody else has mapped since.
 *
 * Entry i, at 16 * i, stands for function i. It asks `decide`, with the registers of the call kept, and goes on to
 * the function itself, or returns what `decide` has for it, or goes on to abort, in whose eyes the library is its
 * caller. Any thread may enter it.
 *
 *     python -m pytest_qnn.native.machine_code checked_heap
 *
 * compiles this file with gcc, for Linux on x86-64, and prints it in base64.
 */
#include <stdint.h>

enum Function {
  kMalloc,
  kCalloc,
  kRealloc,
  kReallocarray,
  kAlignedAlloc, /* and memalign: alignment, then size */
  kValloc,
  kPosixMemalign,
  kStrdup,
  kStrndup,
  kNew,
  kNewAligned, /* size, then alignment */
  kFree,
  kUsableSize,
  kMunmap,
  kMmap,
  kReallocElsewhere, /* of a library that is not checked */
  kReallocarrayElsewhere,
  kOtherNew, /* of arrays, and those that do not throw */
  kOtherNewAligned = 20,
  kDelete, /* each form of it has the block first */
  kFunctions = 32
};
/* Each of the first blocks is checked, which costs 14 us; behind them one in sixteen: compilers of graphs request a
 * hundred thousand. */
enum { kAll = 4096, kShift = 60 };
enum { kPage = 4096, kBefore = 64, kRanges = 4096, kMostFilled = 1 << 20 };
enum { kLive = 1, kFreed = 2 };
enum { kWrite = 1, kMmapCall = 9, kMprotect = 10, kMadvise = 28 };
enum { kNone = 0, kReadWrite = 3, kPrivateAnonymous = 0x4022, kFixed = 0x10, kFixedNoReplace = 0x100000 };
enum { kDontNeed = 4 };
enum { kMark = 0xA5, kUnwritten = 0xCB };

/* What is told of a block or a mapping: texts by these numbers. */
enum Misuse { kNoBlock = 1, kFreedTwice, kBehind, kBeforeIt, kUnmappedTwice, kMisuses };

typedef struct {
  uint64_t bytes;
  uint64_t state; /* of the block that begins in this page; its offset in the page is above the lowest 8 bits */
} Page;

typedef struct {
  uint64_t first;
  uint64_t end; /* 0: none */
} Range;

typedef struct {
  int64_t checked; /* not 0: blocks that are requested now are checked */
  int64_t blocks;  /* that were so far */
  uint64_t asked; /* requests so far */
  int64_t mappings; /* that were unmapped so far and are kept */
  char* arena;
  uint64_t size;
  uint64_t used;
  Page* pages; /* of the arena */
  Range* ranges;
  int64_t lock; /* of the ranges */
  void* abort;
  const char* texts[kMisuses];
  void* real[kFunctions];
} State;

typedef struct {
  void* go;         /* NULL: the call returns */
  uint64_t result;
} Answer;

/* Eight bytes of the code that are overwritten with the address of the state. */
extern State* const state __attribute__((visibility("hidden")));

static long call(long number, long a, long b, long c, long d) {
  register long fourth __asm__("r10") = d;
  register long fifth __asm__("r8") = -1;
  register long sixth __asm__("r9") = 0;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                   : "rcx", "r11", "memory");
  return result;
}

static void fill(char* at, int value, uint64_t bytes) {
  __asm__ volatile("rep stosb" : "+D"(at), "+c"(bytes) : "a"(value) : "memory");
}

static void copy(char* to, const char* from, uint64_t bytes) {
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

static uint64_t length(const char* text, uint64_t most) {
  uint64_t n = 0;
  while (n < most && text[n]) ++n;
  return n;
}

/* A text, a number and a word to stderr. */
static void tell(const State* s, int misuse, uint64_t bytes) {
  char line[160];
  uint64_t n = length(s->texts[misuse], 100);
  copy(line, s->texts[misuse], n);
  char digits[24];
  int count = 0;
  do digits[count++] = (char)('0' + bytes % 10);
  while (bytes /= 10);
  while (count) line[n++] = digits[--count];
  line[n++] = ' ';
  line[n++] = 'B';
  line[n++] = '\n';
  call(kWrite, 2, (long)line, (long)n, 0);
}

/* A block, or 0 where there is no place for one. */
static uint64_t request(State* s, uint64_t bytes, uint64_t alignment) {
  if (bytes > (uint64_t)1 << 32 || alignment > kPage) return 0;
  if (alignment < 16) alignment = 16;
  const uint64_t room = (bytes + alignment - 1) & -alignment;
  const uint64_t taken = (room + kBefore + kPage - 1) & -(uint64_t)kPage;
  const uint64_t at = __atomic_fetch_add(&s->used, taken + kPage, __ATOMIC_SEQ_CST);
  if (at + taken + kPage > s->size) return 0;
  if (call(kMprotect, (long)(s->arena + at), (long)taken, kReadWrite, 0) != 0) return 0;
  char* const block = s->arena + at + taken - room;
  fill(block - kBefore, kMark, kBefore);
  if (bytes <= kMostFilled) fill(block, kUnwritten, bytes);
  fill(block + bytes, kMark, room - bytes);
  Page* page = &s->pages[(uint64_t)(block - s->arena) / kPage];
  page->bytes = bytes;
  page->state = ((uint64_t)block % kPage) << 8 | kLive;
  __atomic_add_fetch(&s->blocks, 1, __ATOMIC_SEQ_CST);
  return (uint64_t)block;
}

/* Multiplied by the golden ratio numbers are spread evenly, and follow no pattern of the library's. */
static int is_chosen(State* s) {
  const uint64_t number = __atomic_fetch_add(&s->asked, 1, __ATOMIC_SEQ_CST);
  return number < kAll || number * 0x9E3779B97F4A7C15u >> kShift == 0;
}

static int is_ours(const State* s, uint64_t block) {
  return block - (uint64_t)s->arena < s->size;
}

static int intact(const char* at, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i)
    if ((unsigned char)at[i] != kMark) return 0;
  return 1;
}

/* 0, or what is wrong with giving it back, which is told. */
static int give_back(State* s, uint64_t block) {
  Page* page = &s->pages[(block - (uint64_t)s->arena) / kPage];
  uint64_t live = (block % kPage) << 8 | kLive;
  const uint64_t freed = (block % kPage) << 8 | kFreed;
  int misuse = 0;
  if (!__atomic_compare_exchange_n(&page->state, &live, freed, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    misuse = live == freed ? kFreedTwice : kNoBlock;
  } else {
    char* const at = (char*)block;
    const uint64_t behind = (kPage - (block + page->bytes) % kPage) % kPage;
    if (!intact(at - kBefore, kBefore)) misuse = kBeforeIt;
    if (!intact(at + page->bytes, behind)) misuse = kBehind;
    if (!misuse) {
      char* const first = (char*)((block - kBefore) & -(uint64_t)kPage);
      const long taken = at + page->bytes + behind - first;
      call(kMadvise, (long)first, taken, kDontNeed, 0);
      call(kMprotect, (long)first, taken, kNone, 0);
    }
  }
  if (misuse) tell(s, misuse, page->bytes);
  return misuse;
}

static void hold(State* s) {
  while (__atomic_exchange_n(&s->lock, 1, __ATOMIC_ACQUIRE)) __asm__ volatile("pause");
}

static void release(State* s) { __atomic_store_n(&s->lock, 0, __ATOMIC_RELEASE); }

/* A range that was unmapped and meets this one; NULL: none. */
static Range* met(const State* s, uint64_t first, uint64_t end) {
  for (int i = 0; i < kRanges; ++i)
    if (s->ranges[i].first < end && first < s->ranges[i].end) return &s->ranges[i];
  return 0;
}

static Answer unmap(State* s, uint64_t first, uint64_t bytes) {
  const Answer real = {s->real[kMunmap], 0}, done = {0, 0};
  const uint64_t end = first + ((bytes + kPage - 1) & -(uint64_t)kPage);
  if (first % kPage || end <= first) return real;
  hold(s);
  const int again = met(s, first, end) != 0;
  Range* place = s->ranges;
  while (place < s->ranges + kRanges && place->end) ++place;
  int kept = 0;
  if (!again && s->checked && place < s->ranges + kRanges) {
    kept = call(kMmapCall, (long)first, (long)(end - first), kNone, kPrivateAnonymous | kFixed) == (long)first;
    if (kept) *place = (Range){first, end};
  }
  release(s);
  if (again) {
    tell(s, kUnmappedTwice, bytes);
    return (Answer){s->abort, 0};
  }
  if (kept) __atomic_add_fetch(&s->mappings, 1, __ATOMIC_SEQ_CST);
  return kept ? done : real;
}

/* Where the call goes on, or what it returns. */
__attribute__((used, noinline)) Answer decide(uint64_t function, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  State* s = state;
  const Answer real = {s->real[function], 0};
  const Answer none = {0, 0};
  uint64_t made = 0, bytes = a, alignment = 16, text = 0;
  int again = 0; /* one of our blocks is to have another size */
  const uint64_t kind = function >= kDelete             ? kFree
                        : function == kOtherNewAligned ? kNewAligned
                        : function >= kOtherNew        ? kNew
                                                       : function;
  switch (kind) {
    case kFree:
      if (!is_ours(s, a)) return real;
      return (Answer){give_back(s, a) ? s->abort : 0, 0};
    case kUsableSize:
      if (!is_ours(s, a)) return real;
      return (Answer){0, s->pages[(a - (uint64_t)s->arena) / kPage].bytes};
    case kMunmap:
      return unmap(s, a, b);
    case kMmap:
      /* Who maps something at a certain place may do so, and unmap that again. */
      if (d & (kFixed | kFixedNoReplace)) {
        hold(s);
        for (Range* each; (each = met(s, a, a + b));) each->end = 0;
        release(s);
      }
      return real;
    case kRealloc:
    case kReallocarray:
    case kReallocElsewhere:
    case kReallocarrayElsewhere:
      if (a ? !is_ours(s, a) : function >= kReallocElsewhere) return real;
      again = a != 0;
      if (function == kReallocarray || function == kReallocarrayElsewhere) {
        if (__builtin_mul_overflow(b, c, &b)) return again ? none : real;
      }
      bytes = b;
      break;
    case kCalloc:
      if (__builtin_mul_overflow(a, b, &bytes)) return real;
      break;
    case kAlignedAlloc:
      alignment = a;
      bytes = b;
      break;
    case kValloc:
      alignment = kPage;
      break;
    case kPosixMemalign:
      alignment = b;
      bytes = c;
      if (alignment < 8) return real;
      break;
    case kStrdup:
    case kStrndup:
      text = length((const char*)a, function == kStrndup ? b : UINT64_MAX);
      bytes = text + 1;
      break;
    case kNewAligned:
      alignment = b;
      break;
    default:
      break;
  }
  if (alignment & (alignment - 1)) return real;
  if ((s->checked && is_chosen(s)) || again) made = request(s, bytes, alignment);
  if (!made) return again ? none : real;
  if (function == kCalloc) fill((char*)made, 0, bytes);
  if (function == kStrdup || function == kStrndup) {
    copy((char*)made, (const char*)a, text);
    ((char*)made)[text] = 0;
  }
  if (again) {
    const uint64_t old = s->pages[(a - (uint64_t)s->arena) / kPage].bytes;
    copy((char*)made, (const char*)a, old < bytes ? old : bytes);
    if (give_back(s, a)) return (Answer){s->abort, 0};
  }
  if (function == kPosixMemalign) {
    *(uint64_t*)a = made;
    made = 0;
  }
  return (Answer){0, made};
}

__asm__(
    ".pushsection .entry,\"ax\"\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "  .balign 16\n"
    "  pushq $\\n\n"
    "  jmp 1f\n"
    ".endr\n"
    "  .balign 16\n"
    "1:\n"
    "  pushq %rdi\n"
    "  pushq %rsi\n"
    "  pushq %rdx\n"
    "  pushq %rcx\n"
    "  pushq %r8\n"
    "  pushq %r9\n"
    "  movq 48(%rsp), %rdi\n" /* the function; then its arguments */
    "  movq 16(%rsp), %r8\n"
    "  movq 24(%rsp), %rcx\n"
    "  movq 32(%rsp), %rdx\n"
    "  movq 40(%rsp), %rsi\n"
    "  call decide\n"
    "  movq %rax, %r11\n"
    "  movq %rdx, %rax\n"
    "  popq %r9\n"
    "  popq %r8\n"
    "  popq %rcx\n"
    "  popq %rdx\n"
    "  popq %rsi\n"
    "  popq %rdi\n"
    "  leaq 8(%rsp), %rsp\n"
    "  testq %r11, %r11\n"
    "  jz 2f\n"
    "  jmp *%r11\n"
    "2:\n"
    "  ret\n"
    ".popsection\n"
    ".pushsection .tail,\"ax\"\n"
    ".balign 8\n"
    ".globl state\n"
    ".hidden state\n"
    "state: .quad 0x5441454844454b43\n" /* the mark that Python looks for */
    ".popsection\n"
);
