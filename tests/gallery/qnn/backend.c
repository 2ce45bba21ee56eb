/* A conforming QNN backend in plain C: five operators, ION and shared-buffer memory, context binaries.
 *
 * Each oddity is this file compiled with one macro (`libraries.py`): ODD_INDEX, ODD_ADDRESS, ODD_CHATTY,
 * ODD_SLOW, ODD_POOL, ODD_FILE_IO, ODD_STATIC_IO, ODD_LATER, ODD_BOUND, ODD_DMA_BUF, ODD_NO_MEMORY,
 * ODD_RESIDENT, ODD_SHORT_TABLE. How often the odd path ran is counted in LIBRARY.count.
 *
 * The system may refuse any request: the call then answers with an error, and all is as it was before it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef uint64_t Code;
typedef uint64_t Handle;
enum { F32 = 0x232, U8 = 0x408, APP_WRITE = 0, APP_READ = 1, NATIVE = 3, STATIC = 4, RAW = 0, MEMHANDLE = 1 };
enum { ION = 1, CUSTOM = 2, DMA_BUF = 3, MOST = 8, NO_MEMORY = 1002 };

typedef struct { void* data; uint32_t size; } Buffer;
typedef struct {
  uint32_t version, pad;
  struct {
    uint32_t id; const char* name; uint32_t type, format, data_type;
    struct { uint32_t defined, encoding; float scale; int32_t offset; uint64_t rest[3]; } quantisation;
    uint32_t rank; uint32_t* dimensions; uint32_t memory;
    union { Buffer raw; Handle handle; } where;
    uint64_t rest[3];
  } v;
} TensorArgument;
_Static_assert(sizeof(TensorArgument) == 144, "Qnn_Tensor_t");
typedef struct {
  uint32_t version; const char *name, *package, *type;
  uint32_t parameters_; void* parameters;
  uint32_t input_count; TensorArgument* inputs;
  uint32_t output_count; TensorArgument* outputs;
} OpConfig;
_Static_assert(sizeof(OpConfig) == 80, "Qnn_OpConfig_t");
typedef struct { uint32_t type; uint64_t size; int32_t fd; uint64_t offset; } HtpDescriptor;
_Static_assert(sizeof(HtpDescriptor) == 32, "QnnMemHtp_Descriptor_t");
typedef struct {
  uint32_t rank; uint32_t* dimensions; const char* configuration;
  uint32_t data_type, memory_type;
  union { int32_t fd; HtpDescriptor* custom; struct { int32_t fd; void* data; } dma; } of;
} MemDescriptor;
_Static_assert(sizeof(MemDescriptor) == 48, "Qnn_MemDescriptor_t");
typedef struct { uint32_t option; union { void* custom; uint8_t deferred; } of; } ContextConfig;
typedef void (*LogCallback)(const char*, uint32_t, uint64_t, va_list);

typedef enum { BACKEND = 1, LOG, DEVICE, CONTEXT, GRAPH, MEMORY } Kind;
typedef struct Object { Kind kind; Handle value; struct Object* parent; } Object;

typedef struct {
  uint32_t id, type, data_type, rank, dimensions[MOST], memory;
  float scale; int32_t offset;
  uint64_t bytes;
  char* name;
  uint8_t* data;   /* of a STATIC tensor */
  uint8_t* inside; /* the IO buffer */
} Tensor;
typedef struct { int operator, inputs, in[2], out; } Node; /* tensors by place */
typedef struct { Object object; char* name; int finalised, tensors, nodes; Tensor* tensor; Node* node; } Graph;
typedef struct { Object object; Object* device; uint32_t ids; int deserialised; } Context;
typedef struct { Object object; LogCallback callback; uint32_t level; } Log;
typedef struct { Object object; Log* log; } Backend;
typedef struct {
  Object object;
  dev_t device; ino_t inode;
  uint32_t type; uint64_t offset, bytes, declared, length;
  uint8_t* map; int fd;
} Memory;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static void unlock(int* unused) { (void)unused; pthread_mutex_unlock(&lock); }
/* The API, and the functions in its table. */
#ifdef ODD_SHORT_TABLE
#define API_MINOR 17
#define MEMBERS 57
#else
#define API_MINOR 32
#define MEMBERS 71
#endif

#define LOCKED __attribute__((cleanup(unlock))) int locked = pthread_mutex_lock(&lock); (void)locked

/* ---- counting ---- */
static _Atomic uint64_t nowhere, *count = &nowhere;
__attribute__((unused)) static void met(void) { atomic_fetch_add(count, 1); }

/* ---- objects ---- */
static Object** objects;
static int object_count, object_space;
#ifdef ODD_INDEX
static Handle freed[1 << 16];
static int freed_count;
static Handle highest;
#endif

static Handle new_value(Object* made) {
#if defined(ODD_ADDRESS)
  met();
  return (Handle)made;
#elif defined(ODD_INDEX)
  (void)made;
  if (freed_count) { met(); return freed[--freed_count]; }
  return ++highest;
#else
  static Handle last = 0x4000000000ull;
  (void)made;
  return last += 3;
#endif
}
static void* add(Kind kind, size_t size, Object* parent) {
  if (object_count == object_space) {
    int space = object_space * 2 + 16;
    Object** larger = realloc(objects, sizeof(Object*) * space);
    if (!larger) return NULL;
    objects = larger;
    object_space = space;
  }
  Object* made = calloc(1, size);
  if (!made) return NULL;
  made->kind = kind;
  made->value = new_value(made);
  made->parent = parent;
  return objects[object_count++] = made;
}
static void* copy_of(const void* from, uint64_t bytes) {
  void* made = malloc(bytes);
  return made ? memcpy(made, from, bytes) : NULL;
}
static void* find(Kind kind, Handle value) {
  for (int i = 0; i < object_count; ++i)
    if (objects[i]->kind == kind && objects[i]->value == value) return objects[i];
  return NULL;
}
static void end(Object* gone);
static void drop(Object* gone) {
  for (int i = object_count - 1; i >= 0; --i)
    if (i < object_count && objects[i]->parent == gone) drop(objects[i]);
  for (int i = 0; i < object_count; ++i)
    if (objects[i] == gone) { objects[i] = objects[--object_count]; break; }
  end(gone);
#ifdef ODD_INDEX
  if (freed_count < (int)(sizeof freed / sizeof *freed)) freed[freed_count++] = gone->value;
#endif
  free(gone);
}

/* ---- memory that goes, now or later ---- */
#ifdef ODD_LATER
typedef struct Waiting { void* map; uint64_t length; struct Waiting* next; } Waiting;
static Waiting* waiting;
static int reaping;
static void* reap(void* unused) {
  (void)unused;
  for (;;) {
    usleep(100000);
    LOCKED;
    Waiting* all = waiting;
    waiting = NULL;
    if (!all) { reaping = 0; return NULL; }
    while (all) {
      Waiting* next = all->next;
      munmap(all->map, all->length);
      free(all);
      all = next;
    }
  }
}
static int reaper_runs(void) {
  if (reaping) return 1;
  pthread_t thread;
  pthread_attr_t detached;
  if (pthread_attr_init(&detached)) return 0;
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  reaping = !pthread_create(&thread, &detached, reap, NULL);
  pthread_attr_destroy(&detached);
  return reaping;
}
/* At once where there is no memory or no thread: what is freed must go, and nobody may come later. */
static void unmap(void* map, uint64_t length) {
  Waiting* one = reaper_runs() ? malloc(sizeof *one) : NULL;
  if (!one) { munmap(map, length); return; }
  *one = (Waiting){map, length, waiting};
  waiting = one;
  met();
}
#else
static void unmap(void* map, uint64_t length) { munmap(map, length); }
#endif

/* ---- IO buffers ---- */
#ifdef ODD_STATIC_IO
static uint8_t arena[192 << 20] __attribute__((aligned(4096)));
static struct { uint64_t begin, end; } used[256];
static int used_count;
static uint8_t* from_arena(uint64_t bytes) {
  uint64_t at = 0;
  int place = 0;
  for (; place < used_count && used[place].begin - at < bytes; ++place) at = (used[place].end + 63) & ~63ull;
  if (used_count == 256 || at + bytes > sizeof arena) return NULL;
  memmove(used + place + 1, used + place, sizeof *used * (used_count++ - place));
  used[place].begin = at;
  used[place].end = at + bytes;
  met();
  return arena + at;
}
#endif
static uint8_t* new_buffer(uint64_t bytes) {
#ifdef ODD_STATIC_IO
  uint8_t* mine = from_arena(bytes);
  if (mine) return mine;
#endif
  int fd = memfd_create("qnn-io", MFD_CLOEXEC);
  if (fd < 0) return NULL;
  void* map = MAP_FAILED;
  if (!ftruncate(fd, bytes)) map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return map == MAP_FAILED ? NULL : map;
}
static void free_buffer(uint8_t* buffer, uint64_t bytes) {
#ifdef ODD_STATIC_IO
  for (int i = 0; i < used_count; ++i)
    if (arena + used[i].begin == buffer) {
      memmove(used + i, used + i + 1, sizeof *used * (--used_count - i));
      return;
    }
#endif
  if (buffer) unmap(buffer, bytes);
}

static void free_inside(Tensor* tensor) {
  free_buffer(tensor->inside, tensor->bytes);
  tensor->inside = NULL;
}

static void let_go(Memory* memory) {
  if (memory->map) unmap(memory->map, memory->length);
  if (memory->fd >= 0) close(memory->fd);
}
static void end(Object* gone) {
  if (gone->kind == GRAPH) {
    Graph* graph = (Graph*)gone;
    for (int i = 0; i < graph->tensors; ++i) {
      free_inside(&graph->tensor[i]);
      free(graph->tensor[i].data);
      free(graph->tensor[i].name);
    }
    free(graph->tensor);
    free(graph->node);
    free(graph->name);
  } else if (gone->kind == MEMORY) {
    let_go((Memory*)gone);
  }
}

/* ---- logs ---- */
static void emit(Log* log, uint32_t level, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  log->callback(format, level, 12345, arguments);
  va_end(arguments);
}
#ifdef ODD_CHATTY
static void* chatter(void* argument) {
  Log* log = argument;
  for (int i = 0; i < 20; ++i) {
    met();
    emit(log, 1 + i % log->level, "%s %5d of %lu, %.3f%% [%c] %p\n", "chatter", i, 20ul, i / 0.2, 'x', (void*)log);
  }
  emit(log, 1, "");
  return NULL;
}
#endif
static void say(Object* of, const char* what) {
  while (of && of->kind != BACKEND) of = of->parent;
  Log* log = of ? ((Backend*)of)->log : NULL;
#ifdef ODD_CHATTY
  fprintf(stderr, "LIBODD: %s\nLIBODD: Error: this is none, %%s\n", what);
  printf("%s\n", what);
  fflush(stdout);
  met();
#endif
  if (!log || !log->callback) return;
  if (log->level >= 3) emit(log, 3, "%s: %llu objects", what, (unsigned long long)object_count);
#ifdef ODD_CHATTY
  pthread_t thread;
  if (!pthread_create(&thread, NULL, chatter, log)) pthread_join(thread, NULL);
#endif
}
static Code log_create(LogCallback callback, uint32_t level, Handle* out) {
  LOCKED;
  if (!out || level < 1 || level > 5) return 11003;
  Log* made = add(LOG, sizeof(Log), NULL);
  if (!made) return NO_MEMORY;
  made->callback = callback;
  made->level = level;
  *out = made->object.value;
  return 0;
}
static Code log_set_level(Handle value, uint32_t level) {
  LOCKED;
  Log* log = find(LOG, value);
  if (!log) return 11004;
  if (level < 1 || level > 5) return 11003;
  log->level = level;
  return 0;
}
static Code log_free(Handle value) {
  LOCKED;
  Log* log = find(LOG, value);
  if (!log) return 11004;
  for (int i = 0; i < object_count; ++i)
    if (objects[i]->kind == BACKEND && ((Backend*)objects[i])->log == log) ((Backend*)objects[i])->log = NULL;
  drop(&log->object);
  return 0;
}

/* ---- the process ---- */
#ifdef ODD_DMA_BUF
enum { HAS_ION = 0, HAS_CUSTOM = 0, HAS_DMA = 1, BACKEND_ID = 4 };
#elif defined(ODD_FILE_IO)
enum { HAS_ION = 1, HAS_CUSTOM = 0, HAS_DMA = 0, BACKEND_ID = 3 };
#elif defined(ODD_NO_MEMORY)
enum { HAS_ION = 0, HAS_CUSTOM = 0, HAS_DMA = 0, BACKEND_ID = 6 };
#else
enum { HAS_ION = 1, HAS_CUSTOM = 1, HAS_DMA = 0, BACKEND_ID = 6 };
#endif
#ifdef ODD_NO_MEMORY
enum { HAS_MEMORY = 0 };
#else
enum { HAS_MEMORY = 1 };
#endif

static Code has_capability(uint32_t key) {
  switch (key) {
    case 101: case 107: case 201: case 202: case 301: case 311: case 322: case 501: case 509:
    case 1001: case 1301: case 1501:
      return 0;
    case 502: case 1101: return HAS_MEMORY ? 0 : 1000;
    case 1102: return HAS_ION ? 0 : 1000;
    case 1103: return HAS_CUSTOM ? 0 : 1000;
    case 1104: return HAS_DMA ? 0 : 1000;
  }
  static const struct { uint32_t first, last; } known[] = {
      {105, 108}, {205, 222}, {302, 323}, {401, 404}, {503, 508}, {510, 532},
      {1002, 1002}, {1201, 1203}, {1302, 1302}, {1401, 1405}, {1502, 1502}, {2001, 2002}};
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
    if (key >= known[i].first && key <= known[i].last) return 1000;
  return 2000;
}
static Code get_message(Code code, const char** out) {
  static const uint16_t codes[] = {
      1000, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1100, 2000, 3000, 3001, 3002, 3100,
      3101, 3110, 3200, 4000, 4002, 4003, 4004, 4005, 4006, 4007, 4008, 4009, 4010, 4011, 4012, 5000, 5001,
      5002, 5003, 5004, 5005, 5006, 5007, 5008, 5009, 5010, 5011, 5012, 5013, 5014, 6000, 6001, 6002, 6003,
      6004, 6005, 6006, 6007, 6020, 6021, 6022, 6023, 6024, 6025, 6030, 6031, 6032, 6033, 6034, 6035, 6036,
      6037, 6038, 6039, 7001, 7002, 7003, 7004, 7005, 7006, 7007, 8000, 8001, 8002, 8003, 8004, 8005, 9000,
      9001, 9002, 9003, 9004, 9005, 10000, 10001, 11002, 11003, 11004, 12000, 12001, 12002, 14000, 14001,
      14002, 14003, 15000};
  static char texts[sizeof codes / sizeof *codes][16];
  if (!out) return 10000;
  for (size_t i = 0; i < sizeof codes / sizeof *codes; ++i)
    if (codes[i] == (code & 0xffff)) {
      snprintf(texts[i], sizeof texts[i], "error %u", codes[i]);
      *out = texts[i];
      return 0;
    }
  *out = NULL;
  return 10001;
}
static Code api_version(uint32_t* out) {
  static const uint32_t version[] = {2, API_MINOR, 0, 0, 9, 1};
  if (!out) return 4004;
  memcpy(out, version, sizeof version);
  return 0;
}
static Code build_id(const char** out) {
  if (!out) return 4004;
  *out = "";
  return 0;
}

#ifdef ODD_POOL
enum { WORKERS = 4 };
static pthread_t workers[WORKERS];
static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_there = PTHREAD_COND_INITIALIZER, work_done = PTHREAD_COND_INITIALIZER;
static struct { void (*part)(void*, uint64_t, uint64_t); void* of; uint64_t elements; int next, left, stop; } work;
static int working;
static void* serve(void* unused) {
  (void)unused;
  pthread_mutex_lock(&work_lock);
  for (;;) {
    while (!work.stop && work.next >= WORKERS) pthread_cond_wait(&work_there, &work_lock);
    if (work.stop) break;
    uint64_t part = work.next++, each = work.elements / WORKERS + 1;
    uint64_t begin = part * each, end = begin + each;
    pthread_mutex_unlock(&work_lock);
    if (end > work.elements) end = work.elements;
    met();
    if (begin < end) work.part(work.of, begin, end);
    pthread_mutex_lock(&work_lock);
    if (--work.left == 0) pthread_cond_signal(&work_done);
  }
  pthread_mutex_unlock(&work_lock);
  return NULL;
}
static void for_all(uint64_t elements, void (*part)(void*, uint64_t, uint64_t), void* of) {
  pthread_mutex_lock(&work_lock);
  work.part = part; work.of = of; work.elements = elements; work.left = WORKERS; work.next = 0;
  pthread_cond_broadcast(&work_there);
  while (work.left) pthread_cond_wait(&work_done, &work_lock);
  pthread_mutex_unlock(&work_lock);
}
static void stop_workers(void) {
  pthread_mutex_lock(&work_lock);
  work.stop = 1;
  pthread_cond_broadcast(&work_there);
  pthread_mutex_unlock(&work_lock);
  while (working) pthread_join(workers[--working], NULL);
}
static int start_workers(void) {
  work.stop = 0;
  work.next = WORKERS;
  while (working < WORKERS && !pthread_create(&workers[working], NULL, serve, NULL)) ++working;
  if (working < WORKERS) stop_workers();
  return working;
}
#else
static void for_all(uint64_t elements, void (*part)(void*, uint64_t, uint64_t), void* of) { part(of, 0, elements); }
#endif

static int backend_count;
/* Options of backends, devices and graphs have no effect; the headers list none from 16 on. */
static int unlisted(ContextConfig** config) {
  for (; config && *config; ++config)
    if ((*config)->option >= 16) return 1;
  return 0;
}
static Code backend_create(Handle log, ContextConfig** config, Handle* out) {
  LOCKED;
  if (!out) return 4004;
  Log* given = log ? find(LOG, log) : NULL;
  if (log && !given) return 4011;
  if (unlisted(config)) return 4012;
  Backend* made = add(BACKEND, sizeof(Backend), NULL);
  if (!made) return NO_MEMORY;
#ifdef ODD_POOL
  if (!backend_count && !start_workers()) { drop(&made->object); return NO_MEMORY; }
#endif
  ++backend_count;
  made->log = given;
  *out = made->object.value;
  say(&made->object, "backend");
  return 0;
}
static Code backend_free(Handle value) {
  LOCKED;
  Object* found = find(BACKEND, value);
  if (!found) return 4011;
  drop(found);
  --backend_count;
#ifdef ODD_POOL
  if (!backend_count) stop_workers();
#endif
  return 0;
}
static Code device_create(Handle log, ContextConfig** config, Handle* out) {
  LOCKED;
  if (!out) return 1004;
  if (log && !find(LOG, log)) return 14000;
  if (unlisted(config)) return 14001;
  Object* made = add(DEVICE, sizeof(Object), NULL);
  if (!made) return NO_MEMORY;
  *out = made->value;
  return 0;
}
static Code device_free(Handle value) {
  LOCKED;
  Object* found = find(DEVICE, value);
  if (!found) return 14000;
  for (int i = 0; i < object_count; ++i)
    if (objects[i]->kind == CONTEXT && ((Context*)objects[i])->device == found) return 14003;
  drop(found);
  return 0;
}

/* ---- contexts ---- */
static Code check_config(ContextConfig** config) {
  for (; config && *config; ++config) {
    if ((*config)->option == 0) return (*config)->of.custom ? 5010 : 5000;
    if ((*config)->option == 9 && !(*config)->of.deferred) continue;
    if ((*config)->option != 1 && (*config)->option != 2) return 1000;
  }
  return 0;
}
static Code new_context(Handle backend, Handle device, ContextConfig** config, Context** made) {
  Object *owner = find(BACKEND, backend), *on = device ? find(DEVICE, device) : NULL;
  if (!owner || (device && !on)) return 5002;
  Code code = check_config(config);
  if (code) return code;
#ifdef ODD_RESIDENT
  static int kept = -1;
  if (kept < 0) kept = open("/dev/null", O_RDONLY | O_CLOEXEC);
  met();
#endif
#ifdef ODD_SLOW
  usleep(2000);
  met();
#endif
  *made = add(CONTEXT, sizeof(Context), owner);
  if (!*made) return NO_MEMORY;
  (*made)->device = on;
  say(owner, "context");
  return 0;
}
static Code context_create(Handle backend, Handle device, ContextConfig** config, Handle* out) {
  LOCKED;
  Context* made;
  if (!out) return 5000;
  Code code = new_context(backend, device, config, &made);
  if (!code) *out = made->object.value;
  return code;
}
static Code context_free(Handle value, Handle profile) {
  LOCKED;
  Object* found = find(CONTEXT, value);
  if (!found) return 5002;
  if (profile) return 5000;
  say(found, "context freed");
  drop(found);
  return 0;
}

/* ---- graphs ---- */
static Graph* named(Object* context, const char* name) {
  for (int i = 0; i < object_count; ++i)
    if (objects[i]->kind == GRAPH && objects[i]->parent == context && !strcmp(((Graph*)objects[i])->name, name))
      return (Graph*)objects[i];
  return NULL;
}
static Graph* new_graph(Context* context, const char* name) {
  Graph* made = add(GRAPH, sizeof(Graph), &context->object);
  if (made && !(made->name = strdup(name))) { drop(&made->object); return NULL; }
  return made;
}
static Code graph_create(Handle context, const char* name, ContextConfig** config, Handle* out) {
  LOCKED;
  if (!out) return 6000;
  Context* owner = find(CONTEXT, context);
  if (!owner) return 6001;
  if (owner->deserialised) return 1005;
  if (!name || named(&owner->object, name)) return 6003;
  if (unlisted(config)) return 6000;
  Graph* made = new_graph(owner, name);
  if (!made) return NO_MEMORY;
  *out = made->object.value;
  return 0;
}
static Code graph_retrieve(Handle context, const char* name, Handle* out) {
  LOCKED;
  Object* owner = find(CONTEXT, context);
  if (!owner) return 6001;
  if (!out || !name) return 6003;
  Graph* found = named(owner, name);
  if (!found) return 6002;
  *out = found->object.value;
  return 0;
}
static uint64_t item_size(uint32_t type) {
  switch (type) {
    case 0x008: case 0x108: case 0x308: case 0x408: case 0x508: return 1;
    case 0x016: case 0x116: case 0x216: case 0x316: case 0x416: return 2;
    case 0x032: case 0x132: case 0x232: case 0x332: case 0x432: return 4;
    case 0x064: case 0x164: case 0x264: return 8;
  }
  return 0;
}
/* Bytes of a shape; 0 where it has none, or more than there can be. */
static uint64_t bytes_of(uint32_t type, uint32_t rank, const uint32_t* dimensions) {
  uint64_t bytes = item_size(type);
  for (uint32_t i = 0; i < rank; ++i)
    if (__builtin_mul_overflow(bytes, (uint64_t)dimensions[i], &bytes)) return 0;
  return bytes;
}
static Code read_tensor(const TensorArgument* given, Tensor* made) {
  memset(made, 0, sizeof *made);
  if (given->version != 1 && given->version != 2) return 7004;
  int known = given->v.type == APP_WRITE || given->v.type == APP_READ || given->v.type == NATIVE || given->v.type == STATIC;
  if (!known || !given->v.name || given->v.rank > MOST || (given->v.rank && !given->v.dimensions)) return 7004;
  if (given->v.memory != RAW && given->v.memory != MEMHANDLE) return 7004;
  made->bytes = bytes_of(given->v.data_type, given->v.rank, given->v.dimensions);
  if (!made->bytes) return 7004;
  made->scale = 1;
  if (given->v.data_type == U8) {
    if (given->v.quantisation.defined != 1 || given->v.quantisation.encoding != 0) return 7004;
    made->scale = given->v.quantisation.scale;
    made->offset = given->v.quantisation.offset;
    if (!(made->scale > 0) || !isfinite(made->scale)) return 7004;
  }
  made->id = given->v.id; made->type = given->v.type; made->data_type = given->v.data_type;
  made->memory = given->v.memory; made->rank = given->v.rank;
  memcpy(made->dimensions, given->v.dimensions, 4 * given->v.rank);
  if (made->type == STATIC) {
    if (made->memory != RAW || !given->v.where.raw.data || given->v.where.raw.size < made->bytes) return 7004;
  } else if (made->type != NATIVE) {
    if (made->memory == RAW ? given->v.where.raw.data != NULL : given->v.where.handle != 0) return 7004;
  }
  return 0;
}
static int append_tensor(Graph* graph, const Tensor* made) {
  Tensor* larger = realloc(graph->tensor, sizeof(Tensor) * (graph->tensors + 1));
  if (!larger) return 0;
  graph->tensor = larger;
  graph->tensor[graph->tensors++] = *made;
  return 1;
}
static Code create_tensor(Handle value, TensorArgument* given) {
  LOCKED;
  Graph* graph = find(GRAPH, value);
  if (!graph) return 7001;
  if (!given) return 7004;
  if (graph->finalised) return 6024;
  Tensor made;
  Code code = read_tensor(given, &made);
  if (code) return code;
  for (int i = 0; i < graph->tensors; ++i)
    if (!strcmp(graph->tensor[i].name, given->v.name)) return 7003;
  uint32_t* ids = &((Context*)graph->object.parent)->ids;
  made.name = strdup(given->v.name);
  made.id = 7000 + 11 * *ids;
  if (made.type == STATIC) made.data = copy_of(given->v.where.raw.data, made.bytes);
  if (!made.name || (made.type == STATIC && !made.data) || !append_tensor(graph, &made)) {
    free(made.name);
    free(made.data);
    return NO_MEMORY;
  }
  ++*ids;
  given->v.id = made.id;
  return 0;
}
static const struct { const char* name; int arity; } operators[] = {
    {"ElementWiseAdd", 2}, {"ElementWiseMultiply", 2}, {"ElementWiseSubtract", 2}, {"Relu", 1}, {"Reshape", 1}};
enum { ADD, MULTIPLY, SUBTRACT, RELU, RESHAPE, OPERATORS };
static int operator_of(const OpConfig* config) {
  if (config->version != 1 || !config->type || !config->package || strcmp(config->package, "qti.aisw")) return -1;
  for (int i = 0; i < OPERATORS; ++i)
    if (!strcmp(operators[i].name, config->type)) return i;
  return -1;
}
static int fits(int operator, const Tensor* const* inputs, uint32_t input_count, const Tensor* output) {
  if ((int)input_count != operators[operator].arity) return 0;
  if (output->data_type != F32 && output->data_type != U8) return 0;
  for (uint32_t i = 0; i < input_count; ++i) {
    if (inputs[i]->data_type != output->data_type || inputs[i]->bytes != output->bytes) return 0;
    if (operator == RESHAPE) continue;
    if (inputs[i]->rank != output->rank || memcmp(inputs[i]->dimensions, output->dimensions, 4 * output->rank)) return 0;
  }
  return 1;
}
static Code validate(Handle backend, OpConfig config) {
  LOCKED;
  if (!find(BACKEND, backend)) return 4011;
  int operator = operator_of(&config);
  if (operator < 0) return 4005;
  Tensor inputs[2], output;
  const Tensor* in[] = {&inputs[0], &inputs[1]};
  if (config.input_count > 2 || config.output_count != 1 || !config.inputs || !config.outputs) return 3110;
  for (uint32_t i = 0; i < config.input_count; ++i)
    if (read_tensor(&config.inputs[i], &inputs[i])) return 3110;
  if (read_tensor(&config.outputs[0], &output)) return 3110;
  return fits(operator, in, config.input_count, &output) ? 0 : 3110;
}
static int place_of(Graph* graph, uint32_t id) {
  for (int i = 0; i < graph->tensors; ++i)
    if (graph->tensor[i].id == id) return i;
  return -1;
}
static int is_made(Graph* graph, int place) {
  if (graph->tensor[place].type == APP_WRITE || graph->tensor[place].type == STATIC) return 1;
  for (int i = 0; i < graph->nodes; ++i)
    if (graph->node[i].out == place) return 1;
  return 0;
}
static Code add_node(Handle value, OpConfig config) {
  LOCKED;
  Graph* graph = find(GRAPH, value);
  if (!graph) return 6001;
  if (graph->finalised) return 6024;
  Node made = {.operator = operator_of(&config), .inputs = config.input_count};
  if (made.operator < 0 || !config.name || config.input_count > 2 || config.output_count != 1) return 6005;
  if (!config.inputs || !config.outputs) return 6005;
  const Tensor* in[2] = {0};
  for (int i = 0; i < made.inputs; ++i) {
    made.in[i] = place_of(graph, config.inputs[i].v.id);
    if (made.in[i] < 0) return 6005;
    in[i] = &graph->tensor[made.in[i]];
  }
  made.out = place_of(graph, config.outputs[0].v.id);
  if (made.out < 0) return 6005;
  Tensor* out = &graph->tensor[made.out];
  if ((out->type != APP_READ && out->type != NATIVE) || is_made(graph, made.out)) return 6005;
  if (!fits(made.operator, in, config.input_count, out)) return 6005;
  for (int i = 0; i < made.inputs; ++i)
    if (!is_made(graph, made.in[i])) return 6007;
  Node* larger = realloc(graph->node, sizeof(Node) * (graph->nodes + 1));
  if (!larger) return NO_MEMORY;
  graph->node = larger;
  graph->node[graph->nodes++] = made;
  return 0;
}
static int is_io(const Tensor* tensor) { return tensor->type == APP_WRITE || tensor->type == APP_READ; }
static Code prepare(Graph* graph) {
  for (int i = 0; i < graph->tensors; ++i) {
    Tensor* tensor = &graph->tensor[i];
    if (!is_io(tensor) || tensor->memory != RAW || (tensor->inside = new_buffer(tensor->bytes))) continue;
    while (i--) free_inside(&graph->tensor[i]);
    return NO_MEMORY;
  }
  graph->finalised = 1;
  return 0;
}
static Code graph_finalize(Handle value, Handle profile, Handle signal) {
  LOCKED;
  Graph* graph = find(GRAPH, value);
  if (!graph) return 6001;
  if (graph->finalised || profile || signal) return 1000;
  if (!graph->nodes) return 6022;
  for (int i = 0; i < graph->tensors; ++i)
    if (graph->tensor[i].type == APP_READ && !is_made(graph, i)) return 6020;
#ifdef ODD_SLOW
  usleep(20000);
  met();
#endif
  Code code = prepare(graph);
  say(&graph->object, "graph");
  return code;
}

/* ---- computing ---- */
typedef struct { Graph* graph; Node* node; uint8_t** values; } Job;
static void compute(void* argument, uint64_t begin, uint64_t end) {
  Job* job = argument;
  const Tensor* tensor = job->graph->tensor;
  const Tensor* out = &tensor[job->node->out];
  const int *in = job->node->in, binary = job->node->inputs == 2;
  if (out->data_type == F32) {
    const float* a = (float*)job->values[in[0]];
    const float* b = binary ? (float*)job->values[in[1]] : a;
    float* to = (float*)job->values[job->node->out];
    for (uint64_t i = begin; i < end; ++i) switch (job->node->operator) {
        case ADD: to[i] = a[i] + b[i]; break;
        case MULTIPLY: to[i] = a[i] * b[i]; break;
        case SUBTRACT: to[i] = a[i] - b[i]; break;
        case RELU: to[i] = a[i] < 0 ? 0 : a[i]; break;
        default: to[i] = a[i];
      }
    return;
  }
  const uint8_t *a = job->values[in[0]], *b = binary ? job->values[in[1]] : a;
  const Tensor *of_a = &tensor[in[0]], *of_b = binary ? &tensor[in[1]] : of_a;
  for (uint64_t i = begin; i < end; ++i) {
    double x = ((double)a[i] + of_a->offset) * of_a->scale, y = ((double)b[i] + of_b->offset) * of_b->scale;
    switch (job->node->operator) {
      case ADD: x += y; break;
      case MULTIPLY: x *= y; break;
      case SUBTRACT: x -= y; break;
      case RELU: x = x < 0 ? 0 : x; break;
      default: break;
    }
    double steps = floor(x / out->scale - out->offset + 0.5);
    job->values[job->node->out][i] = steps < 0 ? 0 : steps > 255 ? 255 : (uint8_t)steps;
  }
}
typedef struct { Tensor* tensor; uint8_t* raw; Memory* memory; int fresh; } Bound; /* fresh: of this execute */
static Code bind(Graph* graph, const TensorArgument* given, uint32_t given_count, uint32_t type, Bound* bound) {
  uint32_t wanted = 0;
  for (int i = 0; i < graph->tensors; ++i) wanted += graph->tensor[i].type == type;
  if (given_count != wanted) return 6004;
  for (uint32_t i = 0; i < given_count; ++i) {
    int place = place_of(graph, given[i].v.id);
    if (place < 0 || graph->tensor[place].type != type) return 6004;
    Bound* one = &bound[place];
    if (one->tensor) return 6004;
    one->tensor = &graph->tensor[place];
    if (given[i].v.memory == MEMHANDLE) {
      one->memory = find(MEMORY, given[i].v.where.handle);
      if (!one->memory || one->memory->object.parent != graph->object.parent) return 6004;
      if (one->memory->bytes < one->tensor->bytes) return 6004;
    } else if (given[i].v.memory == RAW) {
      if (!given[i].v.where.raw.data || given[i].v.where.raw.size < one->tensor->bytes) return 6004;
      one->raw = given[i].v.where.raw.data;
    } else {
      return 6004;
    }
  }
  return 0;
}
static void fetch(Bound* from, uint8_t* to) {
#ifdef ODD_FILE_IO
  if (from->memory) {
    met();
    if (pread(from->memory->fd, to, from->tensor->bytes, from->memory->offset) < 0) memset(to, 0, from->tensor->bytes);
    return;
  }
#endif
  if (from->memory) memcpy(to, from->memory->map + from->memory->offset, from->tensor->bytes);
  else memcpy(to, memcpy(from->tensor->inside, from->raw, from->tensor->bytes), from->tensor->bytes);
}
static void deliver(Bound* at, const uint8_t* from) {
#ifdef ODD_FILE_IO
  if (at->memory) {
    met();
    if (pwrite(at->memory->fd, from, at->tensor->bytes, at->memory->offset) < 0) return;
    return;
  }
#endif
  if (at->memory) memcpy(at->memory->map + at->memory->offset, from, at->tensor->bytes);
  else memcpy(at->raw, memcpy(at->tensor->inside, from, at->tensor->bytes), at->tensor->bytes);
}
/* Memory for all values, and IO buffers that the graph has not yet. */
static Code make_room(Graph* graph, Bound* bound, uint8_t** values) {
  for (int i = 0; i < graph->tensors; ++i) {
    Tensor* tensor = &graph->tensor[i];
    if (!(values[i] = malloc(tensor->bytes))) return NO_MEMORY;
    if (!bound[i].raw || tensor->inside) continue;
    if (!(tensor->inside = new_buffer(tensor->bytes))) return NO_MEMORY;
    bound[i].fresh = 1;
  }
  return 0;
}
static Code graph_execute(Handle value, const TensorArgument* inputs, uint32_t input_count, TensorArgument* outputs,
                          uint32_t output_count, Handle profile, Handle signal) {
  LOCKED;
  Graph* graph = find(GRAPH, value);
  if (!graph) return 6001;
  if (!graph->finalised) return 6023;
  if (profile || signal) return 1000;
  if (!inputs || !outputs || !input_count || !output_count) return 6000;
  Bound* bound = calloc(graph->tensors, sizeof(Bound));
  uint8_t** values = calloc(graph->tensors, sizeof(uint8_t*));
  if (!bound || !values) { free(bound); free(values); return NO_MEMORY; }
  Code code = bind(graph, inputs, input_count, APP_WRITE, bound);
  if (!code) code = bind(graph, outputs, output_count, APP_READ, bound);
  if (!code) code = make_room(graph, bound, values);
#ifdef ODD_SLOW
  if (!code) { usleep(3000); met(); }
#endif
  if (!code) {
    for (int i = 0; i < graph->tensors; ++i) {
      Tensor* tensor = &graph->tensor[i];
      if (tensor->type == APP_WRITE) fetch(&bound[i], values[i]);
      if (tensor->type == STATIC) memcpy(values[i], tensor->data, tensor->bytes);
    }
    for (int i = 0; i < graph->nodes; ++i) {
      Job job = {graph, &graph->node[i], values};
      for_all(graph->tensor[job.node->out].bytes / item_size(graph->tensor[job.node->out].data_type), compute, &job);
    }
    for (int i = 0; i < graph->tensors; ++i)
      if (graph->tensor[i].type == APP_READ) deliver(&bound[i], values[i]);
    say(&graph->object, "execute");
  }
  for (int i = 0; i < graph->tensors; ++i) {
    if (code && bound[i].fresh) free_inside(&graph->tensor[i]);
    free(values[i]);
  }
  free(values);
  free(bound);
  return code;
}

/* ---- QnnMem ---- */
static Code read_descriptor(Object* context, const MemDescriptor* given, Memory* made, int* fd) {
  uint32_t type = given->memory_type;
  if (type < ION || type > DMA_BUF) return 8005;
  if (type == ION ? !HAS_ION : type == CUSTOM ? !HAS_CUSTOM : !HAS_DMA) return 8005;
  if (!item_size(given->data_type) || (given->rank && !given->dimensions)) return 8000;
  if (!given->rank || given->rank > MOST || given->configuration) return 8004;
  for (uint32_t i = 0; i < given->rank; ++i)
    if (!given->dimensions[i]) return 8004;
  made->bytes = bytes_of(given->data_type, given->rank, given->dimensions);
  if (!made->bytes) return 8004;
  made->type = type;
  *fd = given->of.fd;
  if (type == CUSTOM) {
    if (!given->of.custom) return 8000;
    if (given->of.custom->type != 1) return 8005;
    *fd = given->of.custom->fd;
    made->offset = given->of.custom->offset;
    made->declared = given->of.custom->size;
  } else if (type == DMA_BUF) {
    *fd = given->of.dma.fd;
    if (!given->of.dma.data) return 8000;
  }
  struct stat found;
  if (*fd < 0 || fstat(*fd, &found) || !S_ISREG(found.st_mode)) return 8003;
  made->device = found.st_dev;
  made->inode = found.st_ino;
  made->length = found.st_size;
  uint64_t total = type == CUSTOM ? made->declared : made->length, last;
  if (total > made->length || __builtin_add_overflow(made->offset, made->bytes, &last) || last > total) return 8000;
  for (int i = 0; i < object_count; ++i) {
    Memory* other = (Memory*)objects[i];
    if (other->object.kind != MEMORY || other->object.parent != context) continue;
    if (other->device != made->device || other->inode != made->inode) continue;
    if (other->type != CUSTOM || type != CUSTOM || other->offset == made->offset) return 8002;
    if (other->declared != made->declared) return 8000;
  }
  return 0;
}
static Code register_one(Object* context, const MemDescriptor* given, Handle* out) {
  Memory read = {.fd = -1};
  int fd;
  Code code = read_descriptor(context, given, &read, &fd);
  if (code) return code;
  void* map = mmap(NULL, read.length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return 8003;
  read.map = map;
#ifdef ODD_FILE_IO
  munmap(map, read.length);
  read.map = NULL;
  read.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (read.fd < 0) return 8003;
#endif
#ifdef ODD_DMA_BUF
  met();
#endif
#ifdef ODD_SLOW
  usleep(5000);
  met();
#endif
  Memory* made = add(MEMORY, sizeof(Memory), context);
  if (!made) { let_go(&read); return NO_MEMORY; }
  Object kept = made->object;
  *made = read;
  made->object = kept;
  *out = kept.value;
  return 0;
}
static Code mem_register(Handle context, const MemDescriptor* descriptors, uint32_t number, Handle* handles) {
  LOCKED;
  for (uint32_t i = 0; handles && i < number; ++i) handles[i] = 0;
  if (!descriptors || !handles || !number) return 8000;
  Object* owner = find(CONTEXT, context);
  if (!owner) return 8001;
  for (uint32_t i = 0; i < number; ++i) {
    Code code = register_one(owner, &descriptors[i], &handles[i]);
    if (!code) continue;
    for (uint32_t j = 0; j < i; ++j) {
      drop(find(MEMORY, handles[j]));
      handles[j] = 0;
    }
    return code;
  }
  say(owner, "registered");
  return 0;
}
static Code mem_deregister(const Handle* handles, uint32_t number) {
  LOCKED;
  if (!handles || !number) return 8000;
  Code code = 0;
  for (uint32_t i = 0; i < number; ++i) {
    Object* found = handles[i] ? find(MEMORY, handles[i]) : NULL;
    if (found) drop(found);
    else code = 8001;
  }
  return code;
}

/* ---- context binaries ---- */
typedef struct { uint8_t* at; uint64_t size, space; int bad; } Writer; /* bad: memory was refused */
static void put(Writer* to, const void* from, uint64_t bytes) {
  if (to->bad) return;
  if (to->size + bytes > to->space) {
    uint64_t space = 2 * (to->size + bytes);
    uint8_t* larger = realloc(to->at, space);
    if (!larger) { to->bad = 1; return; }
    to->at = larger;
    to->space = space;
  }
  if (bytes) memcpy(to->at + to->size, from, bytes);
  to->size += bytes;
}
static void put_number(Writer* to, uint64_t number) { put(to, &number, 8); }
static void put_text(Writer* to, const char* text) { put_number(to, strlen(text)); put(to, text, strlen(text)); }
typedef struct { const uint8_t *at, *end; Code bad; } Reader;
static void fail(Reader* from, Code code) { if (!from->bad) from->bad = code; }
static const void* get(Reader* from, uint64_t bytes) {
  static const uint64_t zero;
  if (from->bad || (uint64_t)(from->end - from->at) < bytes) { fail(from, 5005); return &zero; }
  const void* found = from->at;
  from->at += bytes;
  return found;
}
static uint64_t get_number(Reader* from) { uint64_t number; memcpy(&number, get(from, 8), 8); return number; }
static char* get_text(Reader* from) {
  uint64_t length = get_number(from);
  const char* text = get(from, length);
  char* made = from->bad ? NULL : strndup(text, length);
  if (!made) fail(from, NO_MEMORY);
  return made;
}
static uint64_t checksum(const uint8_t* at, uint64_t bytes) {
  uint64_t sum = 1469598103934665603ull;
  for (uint64_t i = 0; i < bytes; ++i) sum = (sum ^ at[i]) * 1099511628211ull;
  return sum;
}
static const char MAGIC[8] = "ODD-QNN";
enum { HEADER = 24, BOUND = 65536 };
#ifdef ODD_BOUND
static void cover(uint8_t* at, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) at[i] ^= (uint8_t)(i * 37 + 11);
}
#endif
static void write_graph(Writer* to, Graph* graph) {
  put_text(to, graph->name);
  put_number(to, graph->tensors);
  for (int i = 0; i < graph->tensors; ++i) {
    Tensor* tensor = &graph->tensor[i];
    put_text(to, tensor->name);
    put(to, tensor, offsetof(Tensor, bytes));
    put_number(to, tensor->bytes);
    if (tensor->data) put(to, tensor->data, tensor->bytes);
  }
  put_number(to, graph->nodes);
  put(to, graph->node, sizeof(Node) * graph->nodes);
}
static Code serialise(Handle value, Writer* made) {
  Context* owner = find(CONTEXT, value);
  if (!owner) return 5002;
  if (owner->deserialised) return 1005;
  Writer body = {0};
  uint64_t graphs = 0;
  for (int i = 0; i < object_count; ++i)
    if (objects[i]->kind == GRAPH && objects[i]->parent == &owner->object) {
      if (!((Graph*)objects[i])->finalised) { free(body.at); return 5003; }
      write_graph(&body, (Graph*)objects[i]);
      ++graphs;
    }
  Writer whole = {0};
  put(&whole, MAGIC, 8);
  put_number(&whole, body.size + 8);
  put_number(&whole, 0);
  put_number(&whole, graphs);
  put(&whole, body.at, body.size);
  free(body.at);
  if (body.bad || whole.bad) { free(whole.at); return NO_MEMORY; }
  uint64_t sum = checksum(whole.at + HEADER, whole.size - HEADER);
  memcpy(whole.at + 16, &sum, 8);
#ifdef ODD_BOUND
  cover(whole.at + HEADER, whole.size - HEADER);
  met();
#endif
  *made = whole;
  return 0;
}
static Code binary_size(Handle context, uint64_t* out) {
  LOCKED;
  if (!find(CONTEXT, context)) return 5002;
  if (!out) return 5000;
  Writer made = {0};
  Code code = serialise(context, &made);
  if (!code) *out = made.size;
#ifdef ODD_BOUND
  if (!code) *out = (made.size + BOUND) / BOUND * BOUND;
#endif
  free(made.at);
  return code;
}
static Code get_binary(Handle context, void* buffer, uint64_t size, uint64_t* written) {
  LOCKED;
  if (!find(CONTEXT, context)) return 5002;
  if (!buffer || !size || !written) return 5000;
  Writer made = {0};
  Code code = serialise(context, &made);
  if (!code && size < made.size) code = 5007;
  if (!code) {
    memcpy(buffer, made.at, made.size);
    *written = made.size;
  }
  free(made.at);
  return code;
}
static void read_graph(Reader* from, Context* context) {
  char* name = get_text(from);
  Graph* graph = name ? new_graph(context, name) : NULL;
  free(name);
  if (!graph) { fail(from, NO_MEMORY); return; }
  uint64_t tensors = get_number(from);
  for (uint64_t i = 0; i < tensors && !from->bad; ++i) {
    Tensor made;
    memset(&made, 0, sizeof made);
    made.name = get_text(from);
    const void* fixed = get(from, offsetof(Tensor, bytes));
    if (!from->bad) memcpy(&made, fixed, offsetof(Tensor, bytes));
    made.bytes = get_number(from);
    if (made.rank > MOST || made.bytes != bytes_of(made.data_type, made.rank, made.dimensions)) fail(from, 5005);
    if (made.type == STATIC && !from->bad) {
      const void* data = get(from, made.bytes);
      if (!from->bad && !(made.data = copy_of(data, made.bytes))) fail(from, NO_MEMORY);
    }
    if (!from->bad && append_tensor(graph, &made)) continue;
    fail(from, NO_MEMORY);
    free(made.name);
    free(made.data);
  }
  uint64_t nodes = get_number(from);
  if (nodes > (1 << 20)) fail(from, 5005);
  const void* fixed = get(from, sizeof(Node) * nodes);
  if (from->bad) return;
  graph->node = copy_of(fixed, sizeof(Node) * nodes);
  if (graph->node) graph->nodes = nodes;
  else fail(from, NO_MEMORY);
}
static Code from_binary(Handle backend, Handle device, ContextConfig** config, const void* buffer, uint64_t size,
                        Handle* out, Handle profile) {
  LOCKED;
  if (!out || !buffer || !size || profile) return 5000;
  Context* made;
  Code code = new_context(backend, device, config, &made);
  if (code) return code;
  made->deserialised = 1;
  uint8_t* copy = copy_of(buffer, size);
  if (!copy) { drop(&made->object); return NO_MEMORY; }
  Reader from = {copy, copy + size, 0};
  const void* magic = get(&from, 8);
  if (!from.bad && memcmp(magic, MAGIC, 8)) fail(&from, 5005);
  uint64_t length = get_number(&from), sum = get_number(&from);
  if (!from.bad && length != size - HEADER) fail(&from, 5005);
#ifdef ODD_BOUND
  if (!from.bad) { cover(copy + HEADER, size - HEADER); met(); }
#endif
  if (!from.bad && sum != checksum(copy + HEADER, size - HEADER)) fail(&from, 5005);
  uint64_t graphs = get_number(&from);
  for (uint64_t i = 0; i < graphs && !from.bad; ++i) read_graph(&from, made);
  if (from.at != from.end) fail(&from, 5005);
  code = from.bad;
  for (int i = 0; i < object_count && !code; ++i)
    if (objects[i]->kind == GRAPH && objects[i]->parent == &made->object) code = prepare((Graph*)objects[i]);
  free(copy);
  if (code) drop(&made->object);
  else *out = made->object.value;
  return code;
}

/* ---- the table ---- */
typedef struct {
  uint32_t id;
  const char* name;
  uint32_t version[6];
  void* table[MEMBERS];
#ifdef ODD_SHORT_TABLE
  uint64_t asked[16];
#else
  void* spare[64];
#endif
} Interface;
static Interface interface = {.id = BACKEND_ID, .name = "ODD", .version = {2, API_MINOR, 0, 0, 9, 1}};
static Interface* providers[] = {&interface};
static Code unsupported(void) { return 1000; }

__attribute__((visibility("default"))) Code QnnInterface_getProviders(Interface*** list, uint32_t* number) {
  if (!list || !number) return 1004;
#ifdef ODD_SHORT_TABLE
  for (int i = 0; i < 16; ++i) ++interface.asked[i];
  met();
#endif
  *list = providers;
  *number = 1;
  return 0;
}

#ifdef ODD_RESIDENT
static void* sleeper(void* unused) {
  for (;;) pause();
  return unused;
}
static void at_end(void) { usleep(30000); }
#endif

__attribute__((constructor)) static void loaded(void) {
  Dl_info here;
  char path[4096];
  if (dladdr((void*)loaded, &here)) {
    snprintf(path, sizeof path, "%s.count", here.dli_fname);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && !ftruncate(fd, 8)) {
      void* map = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (map != MAP_FAILED) count = map;
    }
    if (fd >= 0) close(fd);
  }
  void* known[71] = {
      [0] = has_capability, [1] = backend_create, [3] = api_version, [4] = build_id, [7] = validate,
      [8] = backend_free, [9] = context_create, [11] = binary_size, [12] = get_binary, [13] = from_binary,
      [14] = context_free, [15] = graph_create, [18] = add_node, [19] = graph_finalize, [20] = graph_retrieve,
      [21] = graph_execute, [24] = create_tensor, [25] = log_create, [26] = log_set_level, [27] = log_free,
      [35] = mem_register, [36] = mem_deregister, [40] = device_create, [43] = device_free, [48] = get_message};
  for (int i = 0; i < MEMBERS; ++i) {
    interface.table[i] = known[i] ? known[i] : (void*)unsupported;
#ifdef ODD_INDEX
    if (!known[i]) interface.table[i] = NULL;
#endif
  }
#ifdef ODD_NO_MEMORY
  interface.table[35] = interface.table[36] = NULL;
  met();
#endif
#ifdef ODD_RESIDENT
  pthread_t thread;
  pthread_create(&thread, NULL, sleeper, NULL);
  atexit(at_end);
#endif
}
