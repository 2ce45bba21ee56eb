#include <errno.h>
#include <limits.h>
#include <link.h>

/* What a library asks the system for, and the refusal of one such request.
 *
 * A library calls malloc, mmap, dup, pthread_create and their like through a table of its own, which the loader fills
 * in (DT_JMPREL and DT_RELA of the ELF specification). There this program puts functions of its own, which count, and
 * refuse where they are told to; so what anybody else asks for is neither counted nor refused. It does so for the
 * library, and for what else of its folder is loaded. The tables stay as they are until the process ends.
 */
typedef uintptr_t word;

enum { kMemory, kNew, kMapping, kDescriptor, kThread, kKinds };
static const char* const kind_names[kKinds] = {"memory", "new", "mapping", "descriptor", "thread"};

/* Each function, what it asks for, what it returns where that is refused, and errno then; 0: it is left alone. */
#define FUNCTIONS(EACH)                     \
  EACH(malloc, kMemory, 0, ENOMEM)          \
  EACH(calloc, kMemory, 0, ENOMEM)          \
  EACH(realloc, kMemory, 0, ENOMEM)         \
  EACH(reallocarray, kMemory, 0, ENOMEM)    \
  EACH(aligned_alloc, kMemory, 0, ENOMEM)   \
  EACH(memalign, kMemory, 0, ENOMEM)        \
  EACH(valloc, kMemory, 0, ENOMEM)          \
  EACH(strdup, kMemory, 0, ENOMEM)          \
  EACH(__strdup, kMemory, 0, ENOMEM)        \
  EACH(strndup, kMemory, 0, ENOMEM)         \
  EACH(__strndup, kMemory, 0, ENOMEM)       \
  EACH(posix_memalign, kMemory, ENOMEM, 0)  \
  EACH(_ZnwmRKSt9nothrow_t, kMemory, 0, 0)  \
  EACH(_ZnamRKSt9nothrow_t, kMemory, 0, 0)  \
  EACH(_Znwm, kNew, 0, 0) /* operator new */ \
  EACH(_Znam, kNew, 0, 0)                   \
  EACH(_ZnwmSt11align_val_t, kNew, 0, 0)    \
  EACH(_ZnamSt11align_val_t, kNew, 0, 0)    \
  EACH(mmap, kMapping, -1, ENOMEM)          \
  EACH(mmap64, kMapping, -1, ENOMEM)        \
  EACH(mremap, kMapping, -1, ENOMEM)        \
  EACH(dup, kDescriptor, -1, EMFILE)        \
  EACH(dup3, kDescriptor, -1, EMFILE)       \
  EACH(memfd_create, kDescriptor, -1, EMFILE) \
  EACH(fcntl, kDescriptor, -1, EMFILE)      \
  EACH(fcntl64, kDescriptor, -1, EMFILE)    \
  EACH(pthread_create, kThread, EAGAIN, 0)

enum {
#define NUMBER(name, kind, result, error) number_of_##name,
  FUNCTIONS(NUMBER)
};

static struct {
  unsigned counted; /* bits: the kinds of requests that are counted now */
  long left;        /* requests up to the one that is refused, itself included; 0 or less: it was, or none is */
  int lasting;      /* so is each one after it */
  long asked, refused;
} requests;

/* Any thread of the library may come here. */
static int is_refused(int kind) {
  if (!(requests.counted >> kind & 1)) return 0;
  __atomic_add_fetch(&requests.asked, 1, __ATOMIC_SEQ_CST);
  long left = __atomic_sub_fetch(&requests.left, 1, __ATOMIC_SEQ_CST);
  if (left > 0 || (left < 0 && !requests.lasting)) return 0;
  __atomic_add_fetch(&requests.refused, 1, __ATOMIC_SEQ_CST);
  return 1;
}

typedef word function_of_words(word, word, word, word, word, word);
static void (*throw_bad_alloc)(void);
static word requested(int number, word a, word b, word c, word d, word e, word f);

/* None of these functions has more arguments than six, each of them a number or a pointer. */
#define STAND_IN(name, kind, result, error)                                               \
  static word instead_of_##name(word a, word b, word c, word d, word e, word f) { \
    return requested(number_of_##name, a, b, c, d, e, f);                                 \
  }
FUNCTIONS(STAND_IN)

#define ROW(name, kind, result, error) {#name, kind, (word)(result), error, NULL, instead_of_##name},
static struct {
  const char* name;
  int kind;
  word result;
  int error;
  function_of_words *real, *instead;
} functions[] = {FUNCTIONS(ROW)};
enum { kFunctions = sizeof functions / sizeof functions[0] };

static word requested(int number, word a, word b, word c, word d, word e, word f) {
  int by_command = number == number_of_fcntl || number == number_of_fcntl64;
  int makes_one = !by_command || (int)b == F_DUPFD || (int)b == F_DUPFD_CLOEXEC;
  if (!makes_one || !is_refused(functions[number].kind)) return functions[number].real(a, b, c, d, e, f);
  if (functions[number].kind == kNew) throw_bad_alloc();
  if (functions[number].error) errno = functions[number].error;
  return functions[number].result;
}

static void* found_by(void* library, const char* name) {
  void* found = dlsym(library, name);
  return found ? found : dlsym(RTLD_DEFAULT, name);
}

/* Of C++ the runtime that the library was built with has them: an exception of another one passes by its handlers. */
static void find_functions(void* library) {
  *(void**)&throw_bad_alloc = found_by(library, "_ZSt17__throw_bad_allocv");
  for (int i = 0; i < kFunctions; ++i) {
    int is_of_c = strncmp(functions[i].name, "_Z", 2) != 0;
    void* real = is_of_c ? dlsym(RTLD_DEFAULT, functions[i].name) : found_by(library, functions[i].name);
    *(void**)&functions[i].real = functions[i].kind == kNew && !throw_bad_alloc ? NULL : real;
  }
}

#if defined(__x86_64__)
enum { kDirect = R_X86_64_64, kGlobal = R_X86_64_GLOB_DAT, kJump = R_X86_64_JUMP_SLOT };
#elif defined(__aarch64__)
enum { kDirect = R_AARCH64_ABS64, kGlobal = R_AARCH64_GLOB_DAT, kJump = R_AARCH64_JUMP_SLOT };
#else
#error "the relocations of this machine are not known here"
#endif

/* A variable that the library may have changed since is overwritten only if it has not been. */
static void put(word* place, int number, int direct) {
  word page = (word)sysconf(_SC_PAGESIZE);
  if (direct && *place != (word)functions[number].real) return;
  mprotect((void*)((word)place / page * page), page, PROT_READ | PROT_WRITE); /* the loader may have closed it */
  *place = (word)functions[number].instead;
}

static void put_into(const struct link_map* object, const ElfW(Rela) * table, size_t bytes, const ElfW(Sym) * symbols,
                     const char* strings) {
  for (size_t i = 0; i < bytes / sizeof *table; ++i) {
    unsigned kind = (unsigned)(table[i].r_info & 0xffffffff), symbol = (unsigned)(table[i].r_info >> 32);
    if ((kind != kDirect && kind != kGlobal && kind != kJump) || !symbol || table[i].r_addend) continue;
    const char* name = strings + symbols[symbol].st_name;
    for (int number = 0; number < kFunctions; ++number)
      if (functions[number].real && !strcmp(name, functions[number].name))
        put((word*)(object->l_addr + table[i].r_offset), number, kind == kDirect);
  }
}

static void put_into_tables(const struct link_map* object) {
  word tags[DT_JMPREL + 1] = {0};
  for (const ElfW(Dyn)* entry = object->l_ld; entry && entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag > 0 && entry->d_tag <= DT_JMPREL) tags[entry->d_tag] = entry->d_un.d_ptr;
  /* The loader has added the base to addresses; the kernel's own object (vdso) it leaves as it is. */
  if (!tags[DT_STRTAB] || tags[DT_SYMTAB] < object->l_addr) return;
  const ElfW(Sym)* symbols = (const ElfW(Sym)*)tags[DT_SYMTAB];
  const char* strings = (const char*)tags[DT_STRTAB];
  if (tags[DT_RELA])
    put_into(object, (const ElfW(Rela)*)tags[DT_RELA], tags[DT_RELASZ], symbols, strings);
  if (tags[DT_JMPREL])
    put_into(object, (const ElfW(Rela)*)tags[DT_JMPREL], tags[DT_PLTRELSZ], symbols, strings);
}

/* The folder of a file, where it really is; empty: that is not known. */
static void folder_of(const char* path, char* folder) {
  char* end = *path && realpath(path, folder) ? strrchr(folder, '/') : NULL;
  *(end ? end : folder) = '\0';
}

/* It was not seen, and nothing can be said of it, also where the finding is that the process died. */
static void cannot_tell(const char* why) {
  printf("the calls end here: %s\n", why);
  fflush(stdout);
  _exit(2);
}

static const struct link_map* objects_met[256];
static int objects_met_count;

static int is_met(const struct link_map* object) {
  for (int i = 0; i < objects_met_count; ++i)
    if (objects_met[i] == object) return 1;
  if (objects_met_count < 256) objects_met[objects_met_count++] = object;
  return 0;
}

/* Have what is loaded by now ask here. */
static void watch_requests(void) {
  static char own[PATH_MAX], folder[PATH_MAX];
  static struct link_map* library;
  if (!library) {
    void* handle = dlopen(backend_path, RTLD_NOW | RTLD_NOLOAD);
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &library)) cannot_tell("the library's tables cannot be found");
    find_functions(handle);
    folder_of(library->l_name, own);
  }
  struct link_map* object = library;
  while (object->l_prev) object = object->l_prev;
  for (; object; object = object->l_next) {
    folder_of(object->l_name, folder);
    if (*folder && !strcmp(folder, own) && !is_met(object)) put_into_tables(object);
  }
}

/* Lives: the ordinary calls from beginning to end. In the first nothing is refused; requests are counted, and outputs
 * kept. In the second one a request of each of some calls is refused. Where something is amiss then, a life for each
 * of these calls alone follows, up to the first in which something is. Last, if there are rounds, the second life as
 * often again, and as often without a refusal, around which is counted what the process holds.
 */
enum { kMostCalls = 32, kOutputs = 8, kOutputBytes = 64, kWarmUp = 2 };

static struct {
  const char* const* names; /* of the calls */
  int count, nth, lasting, rounds;
  unsigned counted;    /* bits: kinds of requests */
  const char* wanted;  /* their name */
  unsigned left_out;   /* bits: calls that fail although nothing is refused */
  long asked[kMostCalls]; /* requests of each call where nothing is refused */
  unsigned char outputs[kOutputs][kOutputBytes];
  int turn;
  struct held before[2], after[2]; /* with refusals, and without */
} lives;

static struct life {
  unsigned chosen;      /* bits: calls of which a request is refused */
  unsigned met;         /* those that were made */
  unsigned refused;     /* those of which a request was refused */
  unsigned failing;     /* those of them that answered with an error */
  uint64_t answer;      /* the first of these errors */
  const char* failed;   /* the first call that failed although nothing was refused any more */
  uint64_t failed_code; /* what it answered */
  int differs;          /* an output is another one than in the first life */
  int complete, last;   /* all calls were made; else the last one's number */
} life, together, amiss;

HELPER void begin_lives(const char* wanted, int nth, int lasting, int rounds, const char* const* names, int count) {
  memset(&lives, 0, sizeof lives);
  memset(&amiss, 0, sizeof amiss);
  lives.names = names;
  lives.count = count;
  lives.nth = nth;
  lives.lasting = lasting;
  lives.rounds = rounds;
  lives.wanted = wanted;
  lives.turn = -1;
  for (int kind = 0; kind < kKinds; ++kind)
    if (!strcmp(wanted, kind_names[kind]) || (!strcmp(wanted, "any") && kind != kNew)) lives.counted |= 1u << kind;
}

/* Some of these calls are not left out. */
HELPER int has(unsigned calls) { return (lives.left_out & calls) != calls; }

/* From now on the nth request is refused, if one of this call's is in this life; all are counted. */
HELPER void refuse(int call) {
  long asked = lives.asked[call];
  int chosen = life.chosen >> call & 1;
  watch_requests();
  requests.asked = requests.refused = 0;
  requests.left = chosen && asked ? 1 + (lives.nth - 1) % asked : 0;
  requests.lasting = lives.lasting && requests.left > 0;
  if (requests.left && !is_quiet)
    printf("        refused (%s): request %ld of %ld%s of %s\n", lives.wanted, requests.left, asked,
           lives.lasting ? " and each behind it" : "", lives.names[call]);
  requests.counted = chosen || !lives.turn ? lives.counted : 0;
}

/* The call has returned. Whether it is to be made again, with nothing refused: it failed since something was. */
HELPER int again(int call) {
  unsigned bit = 1u << call;
  requests.counted = 0;
  if (life.met & bit) return 0;
  life.met |= bit;
  if (!lives.turn) lives.asked[call] = requests.asked;
  if (!(life.chosen & bit) || !requests.refused) return 0;
  life.refused |= bit;
  if (!code) return 0;
  life.failing |= bit;
  if (!life.answer) life.answer = code;
  return 1;
}

HELPER void fails(const char* name) {
  if (life.failed) return;
  life.failed = name;
  life.failed_code = code;
}

HELPER void output_is(int place, const void* pointer, size_t size) {
  if (!lives.turn)
    memcpy(lives.outputs[place], pointer, size);
  else if (memcmp(lives.outputs[place], pointer, size))
    life.differs = 1;
}

HELPER void end_life(void) { life.last = shared->call; }

/* The call of this number has succeeded, in this life. */
HELPER int reached(int number) { return life.complete || life.last > number; }

static int is_amiss(const struct life* seen) { return seen->failed || !seen->complete || seen->differs; }

static int begin_life(unsigned chosen) {
  memset(&life, 0, sizeof life);
  life.chosen = chosen & ~lives.left_out;
  return 1;
}

/* A library may declare a call that it has not: the others are made without it. */
static void leave_out(const char* name) {
  unsigned all = (1u << lives.count) - 1;
  for (int call = 0; call < lives.count; ++call)
    if (name && !strcmp(name, lives.names[call]) && ((lives.left_out | 1u << call) != all)) {
      lives.left_out |= 1u << call;
      return;
    }
  cannot_tell("a call fails though nothing is refused");
}

/* Behind the lives that show what is amiss: those around which is counted. */
static int next_round(int done) {
  int each = kWarmUp + lives.rounds, part = done / each;
  is_quiet = 1;
  if (done && done % each == 0) {
    lives.after[part - 1] = held_again(&lives.before[part - 1], lives.rounds);
    if (part == 2) {
      is_quiet = 0;
      return 0;
    }
  }
  if (done % each == kWarmUp) lives.before[part] = held_now();
  return begin_life(part ? 0 : together.failing);
}

/* Begin the next life; 0: there is none. */
HELPER int next_life(void) {
  int done = lives.turn;
  if (done == 0 && is_amiss(&life)) {
    leave_out(life.failed);
    return begin_life(0);
  }
  ++lives.turn;
  if (done < 0) return begin_life(0);
  if (done == 0) {
    long asked = 0;
    for (int call = 0; call < lives.count; ++call) asked += lives.asked[call];
    if (!lives.nth) return 0;
    if (!asked) otherwise("these calls ask the system for nothing of the kind");
    return begin_life(~0u);
  }
  if (done == 1) {
    together = life;
    amiss = is_amiss(&life) ? life : amiss;
    if (lives.rounds && !life.failing) otherwise("the calls succeed though a request is refused");
    if (!is_amiss(&life)) lives.turn = 2 + lives.count;
  }
  if (done > 1 && done < 2 + lives.count && life.refused && is_amiss(&life)) {
    amiss = life;
    lives.turn = 2 + lives.count;
  }
  if (lives.turn < 2 + lives.count) return begin_life(1u << (lives.turn - 2));
  return lives.rounds ? next_round(lives.turn - 2 - lives.count) : 0;
}

/* What the process holds has grown with the refusals, and not without. */
HELPER int grows_by_refusals(const char* what) {
  return grown(&lives.before[0], &lives.after[0], lives.rounds, what) &&
         !grown(&lives.before[1], &lives.after[1], lives.rounds, what);
}
