/* A small QNN backend: element-wise operators of float32 and of 8-bit tensors, contexts, graphs, ION memory.
 *
 * It conforms. Each fault of tests/faults/faults.py replaces one piece of it, which must stand here exactly once. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qnn_abi.h"

typedef enum { kBackend = 1, kDevice, kLog, kContext, kGraph, kMemory } Kind;

typedef struct Object {
  struct Object* next;
  Kind kind;
  uintptr_t handle;
  struct Object* owner; /* of a context its backend, of a graph and of memory the context */
  struct Object* device;
} Object;

typedef struct {
  uint32_t id, type, data_type, rank, memory_type;
  uint32_t dims[kMaxRank];
  float scale;
  int32_t offset;
  size_t size;
  char* name;
  void* data; /* of a STATIC tensor; during an execute, of every tensor */
} Entry;

typedef struct {
  const struct Operator* operator;
  uint32_t in[2], out; /* places in `tensors` */
} Step;

typedef struct {
  Object base;
  char* name;
  int finalised;
  uint32_t tensors_size, steps_size;
  Entry* tensors;
  Step* steps;
} Graph;

typedef struct {
  Object base;
  dev_t device;
  ino_t file;
  size_t size;   /* of its tensor */
  size_t length; /* of its mapping */
  void* data;
} Memory;

typedef struct Operator {
  const char* name;
  uint32_t inputs;
  double (*of)(double, double);
} Operator;

static double add(double a, double b) { return a + b; }
static double multiply(double a, double b) { return a * b; }
static double subtract(double a, double b) { return a - b; }
static double relu(double a, double b) { (void)b; return a > 0 ? a : 0; }
static double same(double a, double b) { (void)b; return a; }
static const Operator operators[] = {{"ElementWiseAdd", 2, add},
                                     {"ElementWiseMultiply", 2, multiply},
                                     {"ElementWiseSubtract", 2, subtract},
                                     {"Relu", 1, relu},
                                     {"Reshape", 1, same}};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Object* objects;
static uintptr_t last_handle;
static uint32_t last_tensor;

static void unlock(int* held) {
  (void)held;
  pthread_mutex_unlock(&mutex);
}
#define ONE_AT_A_TIME                               \
  int held __attribute__((cleanup(unlock))) = 0;    \
  (void)held;                                       \
  pthread_mutex_lock(&mutex)

static const Error no_memory = 1002;
/* NULL, where there was no memory for the object, stays NULL. */
static void* adopt(Object* made, Kind kind, Object* owner) {
  if (!made) return NULL;
  made->kind = kind;
  made->owner = owner;
  made->handle = ((uintptr_t)kind << 56) | ++last_handle;
  made->next = objects;
  objects = made;
  return made;
}
static void* find(Kind kind, uintptr_t handle) {
  for (Object* each = objects; each; each = each->next) {
    if (each->kind == kind && each->handle == handle) return each;
  }
  return NULL;
}
static void clear(Graph* graph) {
  for (uint32_t i = 0; i < graph->tensors_size; ++i) {
    free(graph->tensors[i].name);
    free(graph->tensors[i].data);
  }
  free(graph->tensors);
  free(graph->steps);
  free(graph->name);
}
/* Ends an object, and first all that it owns. */
static void end(Object* ended) {
  for (Object* each = objects; each;) {
    if (each->owner == ended) {
      end(each);
      each = objects;
    } else {
      each = each->next;
    }
  }
  Object** place = &objects;
  while (*place != ended) place = &(*place)->next;
  *place = ended->next;
  if (ended->kind == kGraph) clear((Graph*)ended);
  if (ended->kind == kMemory) munmap(((Memory*)ended)->data, ((Memory*)ended)->length);
  free(ended);
}

static Error not_supported(void) { return 1000; }

/* First and last of each run of property keys that there are; and the keys that this backend supports. */
static const uint32_t known_keys[][2] = {{1, 1},       {101, 101},   {105, 108},   {201, 202},   {205, 222},
                                         {301, 323},   {401, 404},   {501, 532},   {1001, 1002}, {1101, 1104},
                                         {1201, 1203}, {1301, 1302}, {1401, 1405}, {1501, 1502}, {2001, 2002}};
static const uint32_t supported_keys[] = {101, 107, 201, 301, 311, 322,  501,
                                          502, 509, 1001, 1101, 1102, 1301, 1501};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
static Error has_capability(uint32_t key) {
  for (size_t i = 0; i < COUNT(supported_keys); ++i) {
    if (supported_keys[i] == key) return 0;
  }
  for (size_t i = 0; i < COUNT(known_keys); ++i) {
    if (known_keys[i][0] <= key && key <= known_keys[i][1]) return 1000;
  }
  return 2000;
}

static const struct {
  uint32_t code;
  const char* text;
} messages[] = {{1000, "not supported"},      {1002, "no memory"},         {1004, "invalid argument"},  {4011, "no such backend"},
                {5002, "no such context"},    {6001, "no such graph"},     {6004, "invalid tensor"},
                {7004, "invalid parameter"},  {8000, "invalid argument"},  {8001, "no such memory"},
                {8002, "already registered"}, {8003, "cannot be mapped"},  {8004, "invalid shape"},
                {8005, "unsupported type"}};
static Error get_message(Error code, const char** text) {
  if (!text) return 10000;
  *text = NULL;
  for (size_t i = 0; i < COUNT(messages); ++i) {
    if (messages[i].code == (code & 0xFFFF)) *text = messages[i].text;
  }
  return *text ? 0 : 10001;
}

static Error log_create(void* callback, uint32_t level, uintptr_t* out) {
  ONE_AT_A_TIME;
  (void)callback; /* it has nothing to say */
  if (!out || level < 1 || level > 5) return 11003;
  const Object* made = adopt(calloc(1, sizeof(Object)), kLog, NULL);
  if (!made) return no_memory;
  *out = made->handle;
  return 0;
}
static Error log_set_level(uintptr_t log, uint32_t level) {
  ONE_AT_A_TIME;
  if (!find(kLog, log)) return 11004;
  return level < 1 || level > 5 ? 11003 : 0;
}
static Error log_free(uintptr_t log) {
  ONE_AT_A_TIME;
  Object* found = find(kLog, log);
  if (!found) return 11004;
  end(found);
  return 0;
}

static Error get_api_version(uint32_t* out) {
  static const uint32_t version[] = {2, 32, 0, 0, 1, 0};
  if (!out) return 4004;
  memcpy(out, version, sizeof version);
  return 0;
}
static Error get_build_id(const char** out) {
  if (!out) return 4004;
  *out = "faults";
  return 0;
}
/* Options have no effect, but none is taken that no header lists: theirs are below 16. */
static int has_unlisted(const ContextConfig** config) {
  for (; config && *config; ++config) {
    if ((*config)->option >= 16) return 1;
  }
  return 0;
}
static Error backend_create(uintptr_t log, const ContextConfig** config, uintptr_t* out) {
  ONE_AT_A_TIME;
  if (!out) return 4004;
  if (log && !find(kLog, log)) return 4011;
  if (has_unlisted(config)) return 4012;
  const Object* made = adopt(calloc(1, sizeof(Object)), kBackend, NULL);
  if (!made) return no_memory;
  *out = made->handle;
  return 0;
}
static Error backend_free(uintptr_t backend) {
  ONE_AT_A_TIME;
  Object* found = find(kBackend, backend);
  if (!found) return 4011;
  end(found);
  return 0;
}
static Error device_create(uintptr_t log, const ContextConfig** config, uintptr_t* out) {
  ONE_AT_A_TIME;
  if (!out) return 1004;
  if (log && !find(kLog, log)) return 14000;
  if (has_unlisted(config)) return 14001;
  const Object* made = adopt(calloc(1, sizeof(Object)), kDevice, NULL);
  if (!made) return no_memory;
  *out = made->handle;
  return 0;
}
static Error device_free(uintptr_t device) {
  ONE_AT_A_TIME;
  Object* found = find(kDevice, device);
  if (!found) return 14000;
  for (Object* each = objects; each; each = each->next) {
    if (each->device == found) return 14003;
  }
  end(found);
  return 0;
}

static Error context_create(uintptr_t backend, uintptr_t device, const ContextConfig** config, uintptr_t* out) {
  ONE_AT_A_TIME;
  if (!out) return 5000;
  Object* owner = find(kBackend, backend);
  Object* used = find(kDevice, device);
  if (!owner || (device && !used)) return 5002;
  for (; config && *config; ++config) {
    const int is_set = (*config)->option == kDeferInit && (*config)->deferred;
    if (is_set || ((*config)->option != kPriority && (*config)->option != kReporting && (*config)->option != kDeferInit)) {
      return 1000;
    }
  }
  Object* made = adopt(calloc(1, sizeof(Object)), kContext, owner);
  if (!made) return no_memory;
  made->device = used;
  *out = made->handle;
  return 0;
}
static Error context_free(uintptr_t context, uintptr_t profile) {
  ONE_AT_A_TIME;
  Object* found = find(kContext, context);
  if (!found) return 5002;
  if (profile) return 5000;
  end(found);
  return 0;
}

static Graph* named(Object* context, const char* name) {
  for (Object* each = objects; each; each = each->next) {
    if (each->kind == kGraph && each->owner == context && !strcmp(((Graph*)each)->name, name)) return (Graph*)each;
  }
  return NULL;
}
static Error graph_create(uintptr_t context, const char* name, const ContextConfig** config, uintptr_t* out) {
  ONE_AT_A_TIME;
  Object* owner = find(kContext, context);
  if (!out) return 6000;
  if (!owner) return 6001;
  if (!name || named(owner, name)) return 6003;
  if (has_unlisted(config)) return 6000;
  char* copy = strdup(name);
  if (!copy) return no_memory;
  Graph* made = adopt(calloc(1, sizeof(Graph)), kGraph, owner);
  if (!made) {
    free(copy);
    return no_memory;
  }
  made->name = copy;
  *out = made->base.handle;
  return 0;
}
static Error graph_retrieve(uintptr_t context, const char* name, uintptr_t* out) {
  ONE_AT_A_TIME;
  Object* owner = find(kContext, context);
  if (!owner) return 6001;
  if (!out || !name) return 6003;
  Graph* found = named(owner, name);
  if (!found) return 6002;
  *out = found->base.handle;
  return 0;
}

/* Bytes of an element; 0 for a type that there is not. The low byte spells the width in bits. */
static size_t item_size(uint32_t data_type) {
  static const uint32_t types[] = {kInt8,   0x016, 0x032, 0x064, 0x108, 0x116, 0x132, 0x164, 0x216,
                                   kFloat32, 0x308, 0x316, 0x332, kUfixed8, 0x416, 0x508};
  for (size_t i = 0; i < COUNT(types); ++i) {
    const uint32_t bits = data_type & 0xFF;
    if (types[i] == data_type) return bits == 0x08 ? 1 : bits == 0x16 ? 2 : bits == 0x32 ? 4 : 8;
  }
  return 0;
}
/* Bytes of a tensor; 0 if its shape or its type is none. */
static size_t size_of(uint32_t rank, const uint32_t* dims, uint32_t data_type) {
  size_t size = rank && rank <= kMaxRank && dims ? item_size(data_type) : 0;
  for (uint32_t i = 0; size && i < rank; ++i) size *= dims[i];
  return size;
}
/* What a client says of a tensor, without its name and data. */
static int read_tensor(const Tensor* given, Entry* made) {
  memset(made, 0, sizeof *made);
  const int is_io = given->type == kAppWrite || given->type == kAppRead;
  if (!given->name || (!is_io && given->type != kNative && given->type != kStatic)) return 0;
  made->size = size_of(given->rank, given->dims, given->data_type);
  if (!made->size || (given->memory_type != kRaw && given->memory_type != kMemhandle)) return 0;
  made->scale = 1;
  if (given->data_type == kUfixed8) {
    if (given->encoding_defined != 1 || given->encoding_kind != 0 || !(given->scale > 0)) return 0;
    made->scale = given->scale;
    made->offset = given->offset;
  }
  made->id = given->id;
  made->type = given->type;
  made->data_type = given->data_type;
  made->rank = given->rank;
  made->memory_type = given->memory_type;
  memcpy(made->dims, given->dims, given->rank * sizeof(uint32_t));
  return 1;
}
static Error create_tensor(uintptr_t graph, Tensor* given) {
  ONE_AT_A_TIME;
  Graph* owner = find(kGraph, graph);
  if (!owner) return 7001;
  Entry made;
  if (!given || (given->version != 1 && given->version != 2)) return 7004;
  if (owner->finalised) return 6024;
  if (!read_tensor(given, &made)) return 7004;
  const int is_io = made.type == kAppWrite || made.type == kAppRead;
  if (is_io && given->pointer) return 7004;
  if (made.type == kStatic && (made.memory_type != kRaw || !given->pointer || given->data_size < made.size)) return 7004;
  for (uint32_t i = 0; i < owner->tensors_size; ++i) {
    if (!strcmp(owner->tensors[i].name, given->name)) return 7003;
  }
  Entry* tensors = realloc(owner->tensors, (owner->tensors_size + 1) * sizeof(Entry));
  if (!tensors) return no_memory;
  owner->tensors = tensors;
  made.name = strdup(given->name);
  made.data = made.type == kStatic ? malloc(made.size) : NULL;
  if (!made.name || (made.type == kStatic && !made.data)) {
    free(made.name);
    free(made.data);
    return no_memory;
  }
  if (made.type == kStatic) memcpy(made.data, given->pointer, made.size);
  made.id = given->id = ++last_tensor;
  owner->tensors[owner->tensors_size++] = made;
  return 0;
}

/* The operator of a node that this backend computes; NULL: `code` says why not. */
static const Operator* accepted(const OpConfig* config, const Entry* in, const Entry* out, Error* code) {
  const Operator* found = NULL;
  *code = 4005;
  if (config->version != 1 || !config->package || strcmp(config->package, "qti.aisw") || !config->type) return NULL;
  for (size_t i = 0; i < COUNT(operators); ++i) {
    if (!strcmp(operators[i].name, config->type)) found = &operators[i];
  }
  if (!found) return NULL;
  *code = 3110;
  if (config->inputs_size != found->inputs || config->outputs_size != 1) return NULL;
  if (!out || (out->data_type != kFloat32 && out->data_type != kUfixed8)) return NULL;
  for (uint32_t i = 0; i < found->inputs; ++i) {
    const int alike = in[i].rank == out->rank && !memcmp(in[i].dims, out->dims, out->rank * sizeof(uint32_t));
    if (in[i].data_type != out->data_type) return NULL;
    if (found->of == same ? in[i].size != out->size : !alike) return NULL;
  }
  *code = 0;
  return found;
}
/* Whether its tensors are where its counts say, and no more than this backend takes. */
static int has_its_tensors(const OpConfig* config) {
  return config->inputs_size <= 2 && config->outputs_size == 1 && (config->inputs || !config->inputs_size) &&
         config->outputs;
}
static Error validate(uintptr_t backend, OpConfig config) {
  ONE_AT_A_TIME;
  if (!find(kBackend, backend)) return 4011;
  Entry in[2], out;
  int known = has_its_tensors(&config) && read_tensor(&config.outputs[0], &out);
  for (uint32_t i = 0; known && i < config.inputs_size; ++i) known = read_tensor(&config.inputs[i], &in[i]);
  Error code;
  accepted(&config, in, known ? &out : NULL, &code);
  return code;
}
static Entry* of_id(Graph* graph, uint32_t id) {
  for (uint32_t i = 0; i < graph->tensors_size; ++i) {
    if (graph->tensors[i].id == id) return &graph->tensors[i];
  }
  return NULL;
}
static int is_produced(const Graph* graph, const Entry* tensor) {
  for (uint32_t i = 0; i < graph->steps_size; ++i) {
    if (&graph->tensors[graph->steps[i].out] == tensor) return 1;
  }
  return 0;
}
static int is_result(const Entry* tensor) { return tensor->type == kAppRead || tensor->type == kNative; }
static Error add_node(uintptr_t graph, OpConfig config) {
  ONE_AT_A_TIME;
  Graph* owner = find(kGraph, graph);
  if (!owner) return 6001;
  if (owner->finalised) return 6024;
  if (!config.name || !has_its_tensors(&config)) return 6005;
  Step step = {0};
  Entry in[2] = {{0}};
  Entry* out = of_id(owner, config.outputs[0].id);
  if (!out || !is_result(out) || is_produced(owner, out)) return 6005;
  int connected = 1;
  for (uint32_t i = 0; i < config.inputs_size; ++i) {
    Entry* read = of_id(owner, config.inputs[i].id);
    if (!read) return 6005;
    in[i] = *read;
    step.in[i] = (uint32_t)(read - owner->tensors);
    connected &= !is_result(read) || is_produced(owner, read);
  }
  Error code;
  step.operator = accepted(&config, in, out, &code);
  if (code) return 6005;
  if (!connected) return 6007;
  step.out = (uint32_t)(out - owner->tensors);
  Step* steps = realloc(owner->steps, (owner->steps_size + 1) * sizeof(Step));
  if (!steps) return no_memory;
  owner->steps = steps;
  owner->steps[owner->steps_size++] = step;
  return 0;
}
static Error graph_finalize(uintptr_t graph, uintptr_t profile, uintptr_t signal) {
  ONE_AT_A_TIME;
  Graph* owner = find(kGraph, graph);
  if (!owner) return 6001;
  if (owner->finalised || profile || signal) return 1000;
  if (!owner->steps_size) return 6022;
  for (uint32_t i = 0; i < owner->tensors_size; ++i) {
    if (owner->tensors[i].type == kAppRead && !is_produced(owner, &owner->tensors[i])) return 6020;
  }
  owner->finalised = 1;
  return 0;
}

static double load(const Entry* from, const void* data, size_t place) {
  if (from->data_type == kFloat32) return ((const float*)data)[place];
  return ((double)((const uint8_t*)data)[place] + from->offset) * from->scale;
}
static void store(const Entry* to, void* data, size_t place, double value) {
  if (to->data_type == kFloat32) {
    ((float*)data)[place] = (float)value;
    return;
  }
  double steps = floor(value / to->scale - to->offset + 0.5);
  ((uint8_t*)data)[place] = (uint8_t)(steps < 0 ? 0 : steps > 255 ? 255 : steps);
}
/* Where the data of each tensor of a graph is, by its place. */
static void compute(const Graph* graph, void** data) {
  for (const Step* step = graph->steps; step < graph->steps + graph->steps_size; ++step) {
    const Entry *in[2] = {&graph->tensors[step->in[0]], &graph->tensors[step->in[1]]};
    const Entry* out = &graph->tensors[step->out];
    const size_t count = out->size / item_size(out->data_type);
    for (size_t i = 0; i < count; ++i) {
      const double a = load(in[0], data[step->in[0]], i);
      const double b = step->operator->inputs == 2 ? load(in[1], data[step->in[1]], i) : 0;
      store(out, data[step->out], i, step->operator->of(a, b));
    }
  }
}
/* The memory that an execute gives to a tensor; NULL if it will not do. */
static void* bound(const Graph* graph, const Entry* tensor, const Tensor* given) {
  if (given->memory_type == kMemhandle) {
    Memory* found = find(kMemory, (uintptr_t)given->pointer);
    return found && found->base.owner == graph->base.owner && found->size >= tensor->size ? found->data : NULL;
  }
  return given->memory_type == kRaw && given->data_size >= tensor->size ? given->pointer : NULL;
}
static Error bind(Graph* graph, uint32_t type, const Tensor* given, uint32_t size, void** data) {
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < graph->tensors_size; ++i) wanted += graph->tensors[i].type == type;
  for (uint32_t i = 0; i < size; ++i) {
    Entry* tensor = of_id(graph, given[i].id);
    if (!tensor || tensor->type != type || data[tensor - graph->tensors]) return 6004;
    data[tensor - graph->tensors] = bound(graph, tensor, &given[i]);
    if (!data[tensor - graph->tensors]) return 6004;
  }
  return size == wanted ? 0 : 6004;
}
static Error graph_execute(uintptr_t graph, const Tensor* in, uint32_t in_size, const Tensor* out, uint32_t out_size,
                           uintptr_t profile, uintptr_t signal) {
  ONE_AT_A_TIME;
  Graph* owner = find(kGraph, graph);
  if (!owner) return 6001;
  if (!owner->finalised) return 6023;
  if (profile || signal) return 1000;
  if (!in || !out || !in_size || !out_size) return 6000;
  void** data = calloc(owner->tensors_size, sizeof(void*));
  if (!data) return no_memory;
  Error code = bind(owner, kAppWrite, in, in_size, data);
  if (!code) code = bind(owner, kAppRead, out, out_size, data);
  for (uint32_t i = 0; !code && i < owner->tensors_size; ++i) {
    Entry* tensor = &owner->tensors[i];
    if (tensor->type == kStatic) data[i] = tensor->data;
    if (tensor->type != kNative) continue;
    data[i] = malloc(tensor->size);
    if (!data[i]) code = no_memory;
  }
  if (!code) compute(owner, data);
  for (uint32_t i = 0; i < owner->tensors_size; ++i) {
    if (owner->tensors[i].type == kNative) free(data[i]);
  }
  free(data);
  return code;
}

static Error register_one(Object* context, const MemDescriptor* given, Memory** made) {
  if (given->memory_type != 1) return 8005;
  if (!item_size(given->data_type) || (given->rank && !given->dims)) return 8000;
  const size_t size = given->shape_config ? 0 : size_of(given->rank, given->dims, given->data_type);
  if (!size) return 8004;
  struct stat file;
  if (given->fd < 0 || fstat(given->fd, &file) || !S_ISREG(file.st_mode)) return 8003;
  if ((size_t)file.st_size < size) return 8000;
  for (Object* each = objects; each; each = each->next) {
    const Memory* other = (const Memory*)each;
    if (each->kind != kMemory || each->owner != context) continue;
    if (other->device == file.st_dev && other->file == file.st_ino) return 8002;
  }
  void* data = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, given->fd, 0);
  if (data == MAP_FAILED) return 8003;
  *made = adopt(calloc(1, sizeof(Memory)), kMemory, context);
  if (!*made) {
    munmap(data, (size_t)file.st_size);
    return no_memory;
  }
  (*made)->device = file.st_dev;
  (*made)->file = file.st_ino;
  (*made)->size = size;
  (*made)->length = (size_t)file.st_size;
  (*made)->data = data;
  return 0;
}
static Error mem_register(uintptr_t context, const MemDescriptor* given, uint32_t size, uintptr_t* out) {
  ONE_AT_A_TIME;
  for (uint32_t i = 0; out && i < size; ++i) out[i] = 0;
  if (!given || !out || !size) return 8000;
  Object* owner = find(kContext, context);
  if (!owner) return 8001;
  for (uint32_t i = 0; i < size; ++i) {
    Memory* made;
    const Error code = register_one(owner, &given[i], &made);
    if (!code) {
      out[i] = made->base.handle;
      continue;
    }
    while (i--) {
      end(find(kMemory, out[i]));
      out[i] = 0;
    }
    return code;
  }
  return 0;
}
static Error mem_deregister(const uintptr_t* handles, uint32_t size) {
  ONE_AT_A_TIME;
  if (!handles || !size) return 8000;
  Error code = 0;
  for (uint32_t i = 0; i < size; ++i) {
    Object* found = find(kMemory, handles[i]);
    if (!found) code = 8001;
    if (found) end(found);
  }
  return code;
}

static Interface provided = {.backend_id = 99, .name = "EXAMPLE", .version = {2, 32, 0, 0, 1, 0}};
static Interface* providers[] = {&provided};

__attribute__((visibility("default"))) Error QnnInterface_getProviders(Interface*** list, uint32_t* count) {
  if (!list || !count) return 1004;
  ONE_AT_A_TIME;
  static int is_filled;
  if (!is_filled) {
    for (int i = 0; i < kFunctions; ++i) provided.table[i] = (void*)not_supported;
    provided.table[0] = (void*)has_capability;
    provided.table[1] = (void*)backend_create;
    provided.table[3] = (void*)get_api_version;
    provided.table[4] = (void*)get_build_id;
    provided.table[7] = (void*)validate;
    provided.table[8] = (void*)backend_free;
    provided.table[9] = (void*)context_create;
    provided.table[14] = (void*)context_free;
    provided.table[15] = (void*)graph_create;
    provided.table[18] = (void*)add_node;
    provided.table[19] = (void*)graph_finalize;
    provided.table[20] = (void*)graph_retrieve;
    provided.table[21] = (void*)graph_execute;
    provided.table[24] = (void*)create_tensor;
    provided.table[25] = (void*)log_create;
    provided.table[26] = (void*)log_set_level;
    provided.table[27] = (void*)log_free;
    provided.table[35] = (void*)mem_register;
    provided.table[36] = (void*)mem_deregister;
    provided.table[40] = (void*)device_create;
    provided.table[43] = (void*)device_free;
    provided.table[48] = (void*)get_message;
    is_filled = 1;
  }
  *list = providers;
  *count = 1;
  return 0;
}
