/* Calls of several threads at once. */
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define KEPT 1024
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int active, waiting;
  long turn;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
static pthread_mutex_t one_by_one __attribute__((unused)) = PTHREAD_MUTEX_INITIALIZER;
static struct {
  const char* call;
  uint64_t code;
} failures[64];
static int failure_count;
static int alone; /* the threads' work is done by one of them after the other */
static time_t rounds_end __attribute__((unused)); /* of threads that call again and again */
static volatile int begun __attribute__((unused)), ended __attribute__((unused));
static uint32_t kept[KEPT] __attribute__((unused)); /* what came out of executes alone */

/* What a client's log callback was called with. */
static struct {
  volatile int wanted, freed, count, loud, strange, null_formats, late;
} heard;

HELPER void on_threads_log(const char* format, uint32_t level, uint64_t time, void* arguments) {
  (void)time, (void)arguments;
  __atomic_add_fetch(&heard.late, heard.freed, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&heard.null_formats, !format, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&heard.strange, level < 1, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&heard.loud, level > (uint32_t)heard.wanted, __ATOMIC_SEQ_CST);
  if (__atomic_add_fetch(&heard.count, 1, __ATOMIC_SEQ_CST) % 8 == 0) usleep(200); /* others come between */
}

static void open_gate(void) {
  gate.waiting = 0;
  ++gate.turn;
  pthread_cond_broadcast(&gate.changed);
}

/* A round begins when all threads that have not ended are here. */
HELPER void together(void) {
  pthread_mutex_lock(&gate.lock);
  long turn = gate.turn;
  if (++gate.waiting >= gate.active) open_gate();
  while (turn == gate.turn) pthread_cond_wait(&gate.changed, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
}

static void leave(void) {
  pthread_mutex_lock(&gate.lock);
  --gate.active;
  if (gate.waiting && gate.waiting >= gate.active) open_gate();
  pthread_mutex_unlock(&gate.lock);
}

HELPER void fails(const char* call, uint64_t with) {
  pthread_mutex_lock(&gate.lock);
  if (failure_count < 64) {
    failures[failure_count].call = call;
    failures[failure_count++].code = with;
  }
  pthread_mutex_unlock(&gate.lock);
  begun = 1;
}

HELPER int has_failed(const char* call, uint64_t with) {
  for (int i = 0; i < failure_count; ++i)
    if (!strcmp(failures[i].call, call) && failures[i].code == with) return 1;
  return 0;
}

struct work {
  void (*function)(void);
  int number;
};

static void* in_thread(void* given) {
  struct work* own = given;
  thread_number = own->number;
  own->function();
  leave();
  return NULL;
}

static void run_together(int count, void (*const* functions)(void)) {
  pthread_t threads[64];
  struct work works[64];
  begun = ended = 0;
  rounds_end = time(NULL) + 5;
  gate.active = count;
  gate.waiting = 0;
  for (int i = 0; i < count; ++i) {
    works[i].function = functions[i];
    works[i].number = i + 1;
    if (pthread_create(&threads[i], NULL, in_thread, &works[i])) stop("there is no thread to be had");
  }
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
}

HELPER void run_alone(int count, void (*const* functions)(void)) {
  alone = is_quiet = 1;
  for (int i = 0; i < count; ++i) {
    run_together(1, functions + i);
    if (failure_count) stop("a call fails without other threads, too");
  }
  alone = is_quiet = 0;
}

/* What an execute has given is what the same one gave without other threads. */
HELPER int as_alone(int place, const void* pointer, size_t size) {
  uint32_t found = digest(pointer, size);
  if (alone) kept[place % KEPT] = found;
  return kept[place % KEPT] == found;
}

/* The memory is what its descriptor leads to. */
HELPER int holds(void* pointer, int fd, size_t size, int mark) {
  unsigned char* found = malloc(size);
  if (!found) stop("there is no memory");
  memset(pointer, mark, size);
  int good = fd >= 0 && pread(fd, found, size, 0) == (ssize_t)size && !not_filled(found, size, (unsigned char)mark);
  free(found);
  return good;
}
