/* Several threads that make calls at once, round after round: what `pytest_qnn.isolation.host.call_threads` has as
 * machine code. Calls that Python threads make hardly ever meet, since each waits for Python's lock before and behind
 * its call; these follow each other within nanoseconds.
 *
 * The entry, `run`, is given a State. It starts the threads, lets them begin together, and returns when all have
 * ended: each after `most_rounds` rounds, once `nanoseconds` have passed, or once something is wrong in one of them.
 * Threads wait for one another before each round. Where one of them had to be woken, they mostly do so before each
 * eighth round only: on a busy machine, whoever is woken comes too late to meet anybody. They never stop doing so,
 * since a thread that misses its wake-up in a call must not be woken by a later call of another thread. Pauses before
 * rounds have the calls meet in all ways.
 *
 *     python -m pytest_qnn.native.machine_code call_threads
 *
 * compiles this file with gcc, for Linux on x86-64, and prints it in base64.
 */
#include <stdint.h>

enum { kArguments = 8, kStruct = 10, kMostThreads = 16 };
enum { kCall, kCallWithStruct, kCopy, kCompare, kPublish, kMeet };
enum { kMostPause = 128, kSpins = 2000, kApart = 8, kOften = 4, kSlow = 200000 };
enum { kClosed, kOpen };
enum { kCode = 0xffff }; /* of an error; the bits above it are the backend's own */
enum { kFutex = 202, kWait = 128, kWake = 129 }; /* FUTEX_WAIT and FUTEX_WAKE, of this process alone */

/* kCall: function(arguments...). kCallWithStruct: function(arguments[0], the struct at arguments[1], by value).
 * kCopy: of arguments[2] bytes to arguments[0] from arguments[1]. kCompare: arguments[2] bytes at arguments[0] with
 * those at arguments[1]; where they differ, they are copied to arguments[3]. kPublish: the arguments[1] values at
 * arguments[0] are copied to arguments[2], for others to see, and looked for among the arguments[4] values at
 * arguments[3], those at arguments[2] left out: another thread has such a one, and has not withdrawn it by writing 0.
 * kMeet: the threads wait for one another, if they did so before the round. */
typedef struct {
  uint64_t kind;
  void* function;
  uint64_t arguments[kArguments];
  uint64_t loaded; /* bit i: argument i stands at the address arguments[i] */
  uint64_t expected;
} Action;

typedef struct {
  uint64_t words[kStruct];
} Struct;

typedef struct State State;

typedef struct {
  State* state;
  const Action* actions;
  uint64_t count;
  uint64_t random;
  uint64_t rounds; /* that were begun */
  int64_t wrong; /* the action that went otherwise than expected; -1: none did */
  uint64_t code; /* what it answered */
  uint64_t id;   /* pthread_t */
} Thread;

struct State {
  uint64_t count; /* threads */
  uint64_t most_rounds;
  uint64_t nanoseconds;
  int (*create)(uint64_t*, const void*, void* (*)(void*), void*);
  int (*join)(uint64_t, void**);
  int (*gettime)(int, int64_t*);
  long (*syscall)(long, ...);
  uint64_t ends; /* time of the monotonic clock */
  uint32_t gate; /* closed until all threads are there */
  uint32_t stops;
  uint32_t lock; /* of what follows */
  uint32_t active;
  uint32_t waiting;
  uint32_t asleep; /* some of those that wait */
  uint32_t rounds; /* up to the next time that they wait */
  uint32_t turn;
  Thread threads[kMostThreads];
};

typedef uint64_t (*Function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef uint64_t (*WithStruct)(uint64_t, Struct);

static uint64_t now(State* state) {
  int64_t found[2];
  state->gettime(1, found); /* CLOCK_MONOTONIC */
  return (uint64_t)found[0] * 1000000000u + (uint64_t)found[1];
}

/* Waits for the word to become another one, without use of the processor. */
static void wait_while(State* state, uint32_t* word, uint32_t value) {
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value) state->syscall(kFutex, word, kWait, (long)value, 0L);
}

static void take(State* state) {
  while (__atomic_exchange_n(&state->lock, 1, __ATOMIC_SEQ_CST)) __asm__ volatile("pause");
}

/* The next rounds begin where all that have not ended wait. The lock is held, and given back. */
static void go_on(State* state) {
  const int all = state->waiting && state->waiting >= state->active;
  if (all) {
    state->waiting = 0;
    state->rounds = state->asleep && state->turn % kOften ? kApart : 1;
    state->asleep = 0;
    __atomic_add_fetch(&state->turn, 1, __ATOMIC_SEQ_CST);
  }
  __atomic_store_n(&state->lock, 0, __ATOMIC_SEQ_CST);
  if (all) state->syscall(kFutex, &state->turn, kWake, 1 << 30, 0L);
}

static void together(State* state) {
  take(state);
  const uint32_t turn = state->turn;
  ++state->waiting;
  go_on(state);
  for (int left = kSpins; left && __atomic_load_n(&state->turn, __ATOMIC_SEQ_CST) == turn; --left)
    __asm__ volatile("pause");
  if (__atomic_load_n(&state->turn, __ATOMIC_SEQ_CST) != turn) return;
  take(state);
  state->asleep |= state->turn == turn;
  __atomic_store_n(&state->lock, 0, __ATOMIC_SEQ_CST);
  wait_while(state, &state->turn, turn);
}

static void leave(State* state) {
  take(state);
  --state->active;
  go_on(state);
}

static uint64_t random_bits(Thread* own) {
  own->random = own->random * 6364136223846793005u + 1442695040888963407u;
  return own->random >> 33;
}

/* Every scale of pause comes as often as every other one: windows are of nanoseconds and of microseconds. */
static void pause_somewhat(Thread* own) {
  const uint64_t bits = random_bits(own);
  for (uint64_t left = (bits >> 4) % kMostPause >> bits % 8; left; --left) __asm__ volatile("pause");
}

/* Where calls are slow, threads that wait for one lock call by turns, and always the same calls meet: each second
 * time a thread is late by up to half of a round. */
static void be_late(Thread* own, uint64_t round) {
  const uint64_t bits = random_bits(own);
  if (round < kSlow || bits & 1) return;
  const uint64_t until = now(own->state) + (bits >> 1) % (round / 2);
  while (now(own->state) < until) __asm__ volatile("pause");
}

static uint64_t argument(const Action* action, int number) {
  const uint64_t given = action->arguments[number];
  return action->loaded >> number & 1 ? *(const uint64_t*)given : given;
}

static void copy(uint8_t* to, const uint8_t* from, uint64_t count) {
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
}

static int differ(const uint8_t* one, const uint8_t* other, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    if (((const volatile uint8_t*)one)[i] != other[i]) return 1;
  return 0;
}

static uint64_t publish(const uint64_t* own, uint64_t count, uint64_t* place, const uint64_t* first, uint64_t all) {
  for (uint64_t i = 0; i < count; ++i) __atomic_store_n(place + i, own[i], __ATOMIC_SEQ_CST);
  for (uint64_t i = 0; i < all; ++i) {
    if (first + i >= place && first + i < place + count) continue;
    const uint64_t theirs = __atomic_load_n(first + i, __ATOMIC_SEQ_CST);
    for (uint64_t j = 0; j < count; ++j)
      if (theirs && theirs == own[j]) return 1;
  }
  return 0;
}

static uint64_t carry_out(const Action* action) {
  uint64_t given[kArguments];
  for (int i = 0; i < kArguments; ++i) given[i] = argument(action, i);
  if (action->kind == kCallWithStruct)
    return ((WithStruct)action->function)(given[0], *(const Struct*)given[1]);
  if (action->kind == kCall)
    return ((Function)action->function)(given[0], given[1], given[2], given[3], given[4], given[5], given[6],
                                        given[7]);
  if (action->kind == kCompare) {
    if (!differ((const uint8_t*)given[0], (const uint8_t*)given[1], given[2])) return 0;
    copy((uint8_t*)given[3], (const uint8_t*)given[0], given[2]);
    return 1;
  }
  if (action->kind == kPublish)
    return publish((const uint64_t*)given[0], given[1], (uint64_t*)given[2], (const uint64_t*)given[3], given[4]);
  copy((uint8_t*)given[0], (const uint8_t*)given[1], given[2]);
  return 0;
}

static int is_expected(const Action* action, uint64_t code) {
  return code == action->expected || (action->expected && !((code ^ action->expected) & kCode));
}

static void* work(void* given) {
  Thread* own = given;
  State* state = own->state;
  uint32_t left = 0; /* rounds up to the next one before which the threads wait */
  uint64_t begun = 0, round = 0; /* nanoseconds; `round`: of the last one */
  wait_while(state, &state->gate, kClosed);
  while (!__atomic_load_n(&state->stops, __ATOMIC_SEQ_CST) && own->rounds < state->most_rounds) {
    const uint64_t time = now(state);
    if (time > state->ends) break;
    round = begun ? time - begun : 0;
    const int meets = !left;
    if (meets) {
      together(state);
      left = state->rounds;
    }
    --left;
    ++own->rounds;
    begun = now(state);
    pause_somewhat(own);
    be_late(own, round);
    for (uint64_t i = 0; i < own->count; ++i) {
      if (own->actions[i].kind == kMeet) {
        if (!meets) continue;
        together(state);
        be_late(own, round);
        continue;
      }
      const uint64_t code = carry_out(own->actions + i);
      if (is_expected(own->actions + i, code)) continue;
      own->wrong = (int64_t)i;
      own->code = code;
      __atomic_store_n(&state->stops, 1, __ATOMIC_SEQ_CST);
      break;
    }
  }
  leave(state);
  return 0;
}

/* How many threads could be started: with fewer than wanted nothing is called. */
__attribute__((used, section(".entry"))) uint64_t run(State* state) {
  uint64_t started = 0;
  while (started < state->count) {
    Thread* thread = state->threads + started;
    if (state->create(&thread->id, 0, work, thread)) break;
    ++started;
  }
  state->stops = started < state->count;
  state->active = (uint32_t)started;
  state->ends = now(state) + state->nanoseconds;
  __atomic_store_n(&state->gate, kOpen, __ATOMIC_SEQ_CST);
  state->syscall(kFutex, &state->gate, kWake, 1 << 30, 0L);
  for (uint64_t i = 0; i < started; ++i) state->join(state->threads[i].id, 0);
  return started;
}
