#define HELPER static __attribute__((unused))
#define UNTOUCHED ((void*)0x5555555555555555)
#define UNTOUCHED_NUMBER UINT64_C(0x5555555555555555)
#define UNKNOWN ((void*)0x0B06050B0605) /* a handle that nobody has given out */
#define AT(pointer, offset) ((void*)((char*)(pointer) + (offset)))

/* What the process that makes the calls tells the one that judges. */
static struct {
  volatile int step, call, done, stopped;
  volatile signed char seen[SLOTS + 1]; /* 0: not looked at, 1: as it was found, 2: otherwise */
}* shared;

static const QnnInterface_ImplementationV2_32_t* qnn;
static void* (*rpcmem_alloc)(int heap, uint32_t flags, int size);
static void* (*rpcmem_alloc2)(int heap, uint32_t flags, size_t size);
static void (*rpcmem_free)(void* pointer);
static int (*rpcmem_to_fd)(void* pointer);
static const QnnInterface_t* interface;
static uint64_t (*get_providers)(const QnnInterface_t*** list, uint32_t* count);
static __thread uint64_t code __attribute__((unused));
static __thread int thread_number; /* 0: that of the case's other calls */
static __thread const char* calling;
static const char* backend_path __attribute__((unused));
static int process __attribute__((unused)); /* of those that the case needs, one after the other */
static int failed __attribute__((unused)); /* a call failed, as it did when this was found: what needs its object is left out */

HELPER void finish(void) {
  shared->done = 1;
  fflush(stdout);
  _exit(0);
}

HELPER void stop(const char* why) {
  printf("the calls end here: %s\n", why);
  shared->stopped = 1;
  finish();
}

/* What was found did not fail here. */
HELPER void otherwise(const char* why) {
  shared->seen[0] = 2;
  stop(why);
}

static int is_quiet; /* what is repeated is not told of */

HELPER void begin(int number, const char* name) {
  shared->call = number;
  calling = name;
  if (is_quiet || thread_number) return;
  printf("step %d: %s", shared->step, name);
  fflush(stdout);
}

HELPER uint64_t end(uint64_t result) {
  if (is_quiet) return result;
  if (thread_number)
    printf("step %d, thread %d: %s -> %" PRIu64 "\n", shared->step, thread_number, calling, result);
  else
    printf(" -> %" PRIu64 "\n", result);
  fflush(stdout);
  return result;
}

#define CALL(number, name, call) (code = (begin(number, name), end(call)))

HELPER void observe(int slot, const char* what, int as_found) {
  shared->seen[slot] = as_found ? 1 : 2;
  printf("        %s: %s\n", what, as_found ? "yes" : "no");
  fflush(stdout);
}

/* The control bits of MXCSR, and above them the x87 control word: a call leaves both as it finds them. */
HELPER uint32_t control_words(void) {
#ifdef __x86_64__
  unsigned short x87;
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  return (uint32_t)(x87 & 0xf7f) << 16 | (__builtin_ia32_stmxcsr() & 0xffc0);
#else
  return 0;
#endif
}

/* CRC-32 of some bytes. */
HELPER uint32_t digest(const void* pointer, size_t size) {
  uint32_t found = 0xffffffffu;
  for (size_t i = 0; i < size; ++i) {
    found ^= ((const unsigned char*)pointer)[i];
    for (int bit = 0; bit < 8; ++bit) found = found >> 1 ^ (found & 1 ? 0xedb88320u : 0);
  }
  return ~found;
}

/* What one process hands on to the next: in memory that all of them share. */
#define HANDED_BYTES ((size_t)1 << 28)
#define HANDED 1024
static struct {
  size_t used, at[HANDED], size[HANDED];
  unsigned char bytes[];
}* handed;

HELPER void hand_on(int number, const void* pointer, size_t size) {
  if (number >= HANDED || size > HANDED_BYTES - sizeof *handed - handed->used) stop("there is too much to hand on");
  memcpy(handed->bytes + handed->used, pointer, size);
  handed->at[number] = handed->used;
  handed->size[number] = size;
  handed->used += (size + 15) / 16 * 16;
}

HELPER void* taken_over(int number, uint64_t* size) {
  if (size) *size = handed->size[number];
  return handed->bytes + handed->at[number];
}

HELPER size_t differing(const void* one, const void* other, size_t size) {
  size_t found = 0;
  for (size_t i = 0; i < size; ++i) found += ((const char*)one)[i] != ((const char*)other)[i];
  return found;
}

HELPER size_t not_filled(const void* pointer, size_t size, unsigned char byte) {
  size_t found = 0;
  for (size_t i = 0; i < size; ++i) found += ((const unsigned char*)pointer)[i] != byte;
  return found;
}

HELPER void* copy_of(const void* pointer, size_t size) {
  void* made = malloc(size ? size : 1);
  if (!made) stop("there is no memory");
  return memcpy(made, pointer, size);
}

/* Numbers that are well mixed: what inputs are full of. */
HELPER uint32_t mixed(uint32_t word, uint32_t seed) {
  word += seed * UINT32_C(0x9E3779B1);
  word ^= word >> 16;
  word *= UINT32_C(0x85EBCA6B);
  word ^= word >> 13;
  word *= UINT32_C(0xC2B2AE35);
  return word ^ word >> 16;
}

HELPER void fill_bytes(void* pointer, size_t size, uint32_t seed) {
  for (size_t i = 0; i < size; ++i) {
    uint32_t word = seed ? mixed((uint32_t)(i / 4), seed) >> (8 * (i % 4)) : (uint32_t)i;
    ((unsigned char*)pointer)[i] = (unsigned char)word;
  }
}

HELPER void fill_floats(void* pointer, size_t size, uint32_t seed) {
  for (size_t i = 0; i < size; i += 4) {
    float value = (float)(i / 4 % 8 + 1) * (i / 4 % 2 ? -1.0f : 1.0f);
    if (seed) value = (float)((int32_t)mixed((uint32_t)(i / 4), seed) >> 24) / 8.0f;
    memcpy((char*)pointer + i, &value, size - i < 4 ? size - i : 4);
  }
}

/* Memory whose last byte stands in front of a page that nobody can touch. */
HELPER void* guarded(size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (size + page - 1) / page * page;
  if (!body) body = page;
  char* begun = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (begun == MAP_FAILED || mprotect(begun + body, page, PROT_NONE)) stop("there is no memory");
  return begun + body - size;
}

/* Shared memory of the client's own. */
HELPER void* own_memory(size_t size, int* fd) {
  *fd = memfd_create("own", MFD_CLOEXEC);
  if (*fd < 0 || ftruncate(*fd, (off_t)size)) return NULL;
  void* made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
  return made == MAP_FAILED ? NULL : made;
}

HELPER int is_writable(void* pointer) {
  int ends[2];
  if (pipe(ends)) return 0;
  int good = write(ends[1], "", 1) == 1 && read(ends[0], pointer, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return good;
}

HELPER void* through(int fd, size_t size) {
  struct stat file;
  if (fstat(fd, &file) || (size_t)file.st_size < size) return NULL;
  void* made = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
  return made == MAP_FAILED ? NULL : made;
}

/* A descriptor of something else than shared memory. */
HELPER int odd_fd(const char* kind, size_t size) {
  int fds[2] = {-1, -1};
  if (!strcmp(kind, "pipe")) return pipe(fds) ? -1 : fds[0];
  if (!strcmp(kind, "socket")) return socketpair(AF_UNIX, SOCK_STREAM, 0, fds) ? -1 : fds[0];
  if (!strcmp(kind, "file")) {
    FILE* file = tmpfile();
    if (!file || ftruncate(fileno(file), (off_t)size)) return -1;
    return fileno(file);
  }
  if (!strcmp(kind, "readonly")) {
    char path[64];
    int whole = memfd_create("readonly", MFD_CLOEXEC);
    if (whole < 0 || ftruncate(whole, (off_t)size)) return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", whole);
    fds[0] = open(path, O_RDONLY | O_CLOEXEC);
    close(whole);
    return fds[0];
  }
  fds[0] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (strcmp(kind, "closed")) return fds[0];
  /* The lowest number would be the next descriptor's: the target may open one in the call. */
  int high = fcntl(fds[0], F_DUPFD_CLOEXEC, 1000);
  close(fds[0]);
  if (high < 0) return fds[0];
  close(high);
  return high;
}

/* Where one byte of a sixteenth is changed: from its middle on, and then around, the first that is not 0. */
HELPER size_t changed_byte(const unsigned char* bytes, size_t length, size_t sixteenth) {
  size_t begin = length * sixteenth / 16, end = length * (sixteenth + 1) / 16, middle = (begin + end) / 2;
  for (size_t i = middle; i < end; ++i)
    if (bytes[i]) return i;
  for (size_t i = begin; i < middle; ++i)
    if (bytes[i]) return i;
  return middle;
}

/* A copy of a binary, damaged in a way; its size changes with it. */
HELPER unsigned char* damaged(const unsigned char* bytes, size_t* size, const char* way) {
  size_t length = *size, middle = length / 2;
  unsigned char* made = malloc(length + 1);
  if (!made) stop("there is no memory");
  memcpy(made, bytes, length);
  made[length] = 0;
  if (!strcmp(way, "empty")) *size = 0;
  if (!strcmp(way, "truncated")) *size = middle;
  if (!strcmp(way, "trailing")) *size = length + 1;
  if (!strcmp(way, "zeros")) memset(made, 0, middle);
  if (!strcmp(way, "flipped") && length) made[middle] ^= 0x10;
  if (!strcmp(way, "flipped-end") && length) made[length - 1] ^= 0x10;
  else if (!strncmp(way, "flipped-", 8) && length) made[changed_byte(made, length, strtoul(way + 8, NULL, 10))] ^= 0xFF;
  for (size_t i = 0; i < length && !strcmp(way, "garbage"); ++i) made[i] = (unsigned char)(7 + 13 * (i % 19));
  return made;
}

HELPER long open_descriptors(void) {
  long found = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (folder && readdir(folder)) ++found;
  if (folder) closedir(folder);
  return found;
}

/* Mappings: those of memfds where fd is -1, else those of the file behind it. */
HELPER long mappings(int fd) {
  char* line = NULL;
  size_t room = 0;
  long found = 0;
  struct stat file;
  if (fd >= 0 && fstat(fd, &file)) return -1;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps && getline(&line, &room, maps) > 0) {
    unsigned long inode = 0;
    if (sscanf(line, "%*s %*s %*s %*s %lu", &inode) != 1) continue;
    found += fd >= 0 ? inode == (unsigned long)file.st_ino : strstr(line, "/memfd:") != NULL;
  }
  free(line);
  if (maps) fclose(maps);
  return found;
}

/* Nanoseconds of processor time of the threads of this process but this one. */
HELPER int64_t computed(void) {
  struct timespec all, own;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
  return (int64_t)(all.tv_sec - own.tv_sec) * 1000000000 + all.tv_nsec - own.tv_nsec;
}

/* Whether to wait a millisecond more: two seconds in which nothing is computed are enough, or eight in all. */
HELPER int is_to_come(int waited, int64_t* before) {
  if (waited % 2000 == 0) {
    int64_t now = computed();
    if (waited && (waited >= 8000 || now - *before < 10000000)) return 0;
    *before = now;
  }
  usleep(1000);
  return 1;
}

/* What a worker of the library's gives back within a second is given back. */
HELPER long patiently(long (*look)(int), int fd, long wanted) {
  long found = look(fd);
  for (int i = 0; i < 100 && found > wanted; ++i) {
    usleep(10000);
    found = look(fd);
  }
  return found;
}

HELPER long open_now(int unused) {
  (void)unused;
  return open_descriptors();
}

/* What the process holds. */
struct held {
  long fds, mappings, heap, resident;
};

HELPER struct held held_now(void) {
  struct held found = {open_descriptors(), 0, 0, 0};
  long size = 0, pages = 0;
  char* line = NULL;
  size_t room = 0;
  FILE* file = fopen("/proc/self/maps", "r");
  while (file && getline(&line, &room, file) > 0) ++found.mappings;
  if (file) fclose(file);
  free(line);
  file = fopen("/proc/self/statm", "r");
  if (file && fscanf(file, "%ld %ld", &size, &pages) == 2) found.resident = pages * sysconf(_SC_PAGESIZE);
  if (file) fclose(file);
#if __GLIBC_PREREQ(2, 33)
  struct mallinfo2 heap = mallinfo2();
  found.heap = (long)(heap.uordblks + heap.hblkhd);
#endif
  return found;
}

/* It grew with the turns, and by more than what is made once. */
HELPER int grown(const struct held* before, const struct held* after, long turns, const char* what) {
  if (!strcmp(what, "fds")) return after->fds - before->fds > 4;
  if (!strcmp(what, "mappings")) return after->mappings - before->mappings > 16;
  if (!strcmp(what, "heap")) return after->heap - before->heap > (1L << 16) + 64 * turns;
  return after->resident - before->resident > (1L << 20) + 64 * turns;
}

/* What a worker of the library's gives back within a second is given back. */
HELPER struct held held_again(const struct held* before, long turns) {
  struct held found = held_now();
  for (int i = 0; i < 50; ++i) {
    const char* const each[] = {"fds", "mappings", "heap", "resident"};
    int grows = 0;
    for (int what = 0; what < 4; ++what) grows += grown(before, &found, turns, each[what]);
    if (!grows) break;
    usleep(20000);
    found = held_now();
  }
  return found;
}

/* Bytes of private memory that were written to, swapped out or not. */
HELPER long written_now(void) {
  long found = 0, size = 0;
  char line[256];
  malloc_trim(0);
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "Anonymous: %ld", &size) == 1 || sscanf(line, "Swap: %ld", &size) == 1) found += size << 10;
  }
  if (file) fclose(file);
  return found;
}

/* Whether there is so much more a second later. */
HELPER int written_more(long before, long most) {
  for (int i = 0; i < 50 && written_now() - before > most; ++i) usleep(20000);
  return written_now() - before > most;
}

/* How well a client of API 2.32 is served by a provider: by one of its major and no older as well as by any. */
static uint32_t fits(const QnnInterface_t* provider) {
  const uint32_t minor = provider->apiVersion.coreApiVersion.minor;
  if (provider->apiVersion.coreApiVersion.major != 2) return 0;
  return 1 + (minor < 32 ? minor : 32);
}

/* The provider that a client takes: the first of those that serve it best. */
static uint64_t provided(const QnnInterface_t** chosen) {
  const QnnInterface_t** list = NULL;
  uint32_t count = 0;
  uint64_t result = get_providers(&list, &count);
  *chosen = NULL;
  for (uint32_t i = 0; i < count && !result && list; ++i) {
    if (list[i] && (!*chosen || fits(list[i]) > fits(*chosen))) *chosen = list[i];
  }
  return result;
}

static int taken[4096], taken_count __attribute__((unused));
static struct rlimit allowed __attribute__((unused));

/* From now on no more than so many descriptors can be opened; memory that is shared is behind one. */
HELPER void few_descriptors(int count) {
  int highest = 0;
  struct dirent* entry;
  DIR* folder = opendir("/proc/self/fd");
  while (folder && (entry = readdir(folder)))
    if (atoi(entry->d_name) > highest) highest = atoi(entry->d_name);
  if (folder) closedir(folder);
  getrlimit(RLIMIT_NOFILE, &allowed);
  struct rlimit few = allowed;
  few.rlim_cur = (rlim_t)(highest + 2 + count);
  setrlimit(RLIMIT_NOFILE, &few);
  while (taken_count < 4096 && (taken[taken_count] = dup(0)) >= 0) ++taken_count;
  for (int i = 0; i < count && taken_count; ++i) close(taken[--taken_count]);
}

HELPER void enough_descriptors(void) {
  while (taken_count) close(taken[--taken_count]);
  setrlimit(RLIMIT_NOFILE, &allowed);
}

static void* symbol(void* library, const char* name, int needed) {
  void* found = dlsym(library, name);
  if (!found && needed) {
    printf("%s is not exported\n", name);
    fflush(stdout);
    _exit(2);
  }
  return found;
}

/* OPTIONAL */

/* A client's log. */
HELPER void on_log(const char* format, uint32_t level, uint64_t time, void* arguments) {
  (void)format, (void)level, (void)time, (void)arguments;
}

static void* opened(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  if (!library) {
    printf("%s\n", dlerror());
    fflush(stdout);
    _exit(2);
  }
  return library;
}

static void open_libraries(const char* backend, const char* rpcmem) {
  backend_path = backend;
  dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_GLOBAL); /* some backends bring an unwinder of their own */
  void* library = opened(backend);
  void* memory = NEEDS_RPCMEM ? opened(rpcmem) : NULL;
  if (memory) {
    *(void**)&rpcmem_alloc = symbol(memory, "rpcmem_alloc", 1);
    *(void**)&rpcmem_free = symbol(memory, "rpcmem_free", 1);
    *(void**)&rpcmem_to_fd = symbol(memory, "rpcmem_to_fd", 1);
    *(void**)&rpcmem_alloc2 = symbol(memory, "rpcmem_alloc2", 0);
  }
  *(void**)&get_providers = symbol(library, "QnnInterface_getProviders", 1);
  provided(&interface);
  if (interface) qnn = &interface->implementation;
}

#define NEXT (-1)
/* 1: what was found is there, 0: it is not, 2: it cannot be told. */
static int judged(int status) {
  if (WIFSIGNALED(status)) {
    printf("\nthe process died of signal %d (%s), step %d\n", WTERMSIG(status), strsignal(WTERMSIG(status)),
           shared->step);
    return FOUND_SIGNAL == WTERMSIG(status) && FOUND_STEP == shared->step ? 1 : 2;
  }
  if (WIFEXITED(status) && !shared->done) {
    printf("\nthe process ended with status %d, step %d\n", WEXITSTATUS(status), shared->step);
    return FOUND_EXIT == WEXITSTATUS(status) && FOUND_STEP == shared->step ? 1 : 2;
  }
  if (FOUND_SIGNAL || FOUND_EXIT || FOUND_HANG) return 0;
  int missing = 0;
  for (int i = 0; i < SLOTS; ++i) {
    if (shared->seen[i] == 2) return 0;
    missing += !shared->seen[i];
  }
  return missing ? 2 : 1;
}

/* Make the calls of one process in a child; NEXT: it has come to its end, and there is another one. */
static int result_of_process(const char* backend, const char* rpcmem) {
  shared->done = 0;
  pid_t child = fork();
  if (child < 0) return 2;
  if (!child) {
    open_libraries(backend, rpcmem);
    make_calls();
    finish();
  }
  int status = 0;
  for (int i = 0; i < 100 * SECONDS; ++i) {
    if (waitpid(child, &status, WNOHANG) == child) {
      int good = WIFEXITED(status) && shared->done && !shared->stopped;
      return good && process + 1 < PROCESSES ? NEXT : judged(status);
    }
    usleep(10000);
  }
  printf("\nno answer within %d s, step %d\n", SECONDS, shared->step);
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return FOUND_HANG && FOUND_STEP == shared->step ? 1 : 2;
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc < 2) {
    printf("usage: %s BACKEND.so [LIBCDSPRPC.so]\n", argv[0]);
    return 2;
  }
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  handed = mmap(NULL, HANDED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (handed == MAP_FAILED) return 2;
  int result = 0;
  for (int run = 0; run < RUNS && result != 1; ++run) {
    memset((void*)shared, 0, sizeof *shared);
    shared->step = -1;
    result = NEXT;
    for (process = 0; process < PROCESSES && result == NEXT; ++process)
      result = result_of_process(argv[1], argc > 2 ? argv[2] : "libcdsprpc.so");
  }
  printf("\nexpected:  %s\nseen then: %s\n", EXPECTED, SEEN); // then: when it was found
  printf("%s\n", result == 1   ? "1: this is seen here"
                 : result == 0 ? "0: this is not seen here"
                               : "2: whether it is so cannot be told here");
  return result;
}
