/* External delegates of the gallery: one conforming plugin, and a freedom that it uses for each macro ODD_NAME.
 *
 * It takes float32 ADD, SUB, MUL, MAXIMUM, NEG, ABS and RELU of operands of one shape. A kernel computes its
 * nodes one after another; what stays inside has memory of the kernel's own. Each use of the freedom is counted
 * in the file MET_FILE, which all processes share.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tflite_abi.h"

#define EXPORT __attribute__((visibility("default")))

enum { kMaximum = 55, kNeg = 59, kAbs = 101, kRelu = 19, kDynamic = 4 };
typedef void (*Report)(const char*);

static long alone, *met = &alone;
static void note(void) { __atomic_fetch_add(met, 1, __ATOMIC_RELAXED); }
#ifdef ODD_CONSTRUCTOR
static int device = -1;
#endif
__attribute__((constructor)) static void on_load(void) {
  int fd = open(MET_FILE, O_RDWR | O_CLOEXEC);
  if (fd >= 0) {
    void* shared = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED) met = shared;
    close(fd);
  }
#ifdef ODD_CONSTRUCTOR
  device = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  if (device >= 0) note();
#endif
}
#ifdef ODD_CONSTRUCTOR
__attribute__((destructor)) static void on_unload(void) {
  if (device >= 0) close(device);
}
#endif

/* Memory of kernels. */
#ifdef ODD_MAPPED
typedef struct { size_t size; char pad[56]; } Head;
static void* take(size_t size) {
  Head* head = mmap(NULL, size + sizeof(Head), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (head == MAP_FAILED) return NULL;
  note();
  head->size = size + sizeof(Head);
  return head + 1;
}
static void give_back(void* memory) {
  if (memory) munmap((Head*)memory - 1, ((Head*)memory - 1)->size);
}
#else
static void* take(size_t size) { return calloc(1, size ? size : 1); }
static void give_back(void* memory) { free(memory); }
#endif

typedef struct {
  int code;
  int activation;
  int in[2];
  int made[2]; /* number of the step that makes the operand; -1: the runtime holds it */
  int out;
  size_t count;
  float* inside; /* where its result is, if no output of the kernel */
  int fused; /* of a MUL: the ADD that takes its product; the MUL itself is not computed */
} Step;
typedef struct Kernel {
  int count;
  int ready;
  Delegate* owner;
  Step steps[];
} Kernel;

#ifdef ODD_STATELESS
typedef struct Known { struct Known* next; Context* context; int node; Step step; } Known;
#endif
#ifdef ODD_WORKER
typedef struct { Context* context; Kernel* kernel; Node* node; int state; int status; } Job;
#endif
typedef struct Plugin {
#ifdef ODD_INTERIOR
  char before[72];
#endif
  Delegate delegate;
#ifdef ODD_STATELESS
  Known* known;
  pthread_mutex_t lock;
#endif
#ifdef ODD_WORKER
  pthread_t thread;
  pthread_mutex_t lock, turn;
  pthread_cond_t changed;
  Job job;
  int ends;
#endif
#ifdef ODD_HANDLES
  struct { float* data; size_t bytes; } buffers[4096];
  int freed[4096], free_count, used;
  pthread_mutex_t lock;
#endif
  int in_use;
} Plugin;
static Plugin* plugin_of(Delegate* self) { return (Plugin*)((char*)self - offsetof(Plugin, delegate)); }

/* What a kernel computes. */
static float activated(float value, int activation) {
  if (activation == kActNone) return value;
  if (value < 0) value = 0;
  return activation == kActRelu6 && value > 6 ? 6 : value;
}
static float computed(int code, float a, float b) {
  switch (code) {
    case kBuiltinAdd: return a + b;
    case kBuiltinSub: return a - b;
    case kBuiltinMul: return a * b;
    case kMaximum: return a > b ? a : b;
    case kNeg: return -a;
    case kAbs: return fabsf(a);
    default: return a < 0 ? 0 : a;
  }
}
static int is_binary(int code) { return code != kNeg && code != kAbs && code != kRelu; }
static size_t elements(const IntArray* dims) {
  size_t count = 1;
  for (int i = 0; i < dims->size; ++i) count *= dims->data[i];
  return count;
}
static int is_output(const Node* node, int tensor) {
  for (int i = 0; i < node->outputs->size; ++i)
    if (node->outputs->data[i] == tensor) return 1;
  return 0;
}
static void forget_inside(Kernel* kernel) {
  for (int i = 0; i < kernel->count; ++i) {
    give_back(kernel->steps[i].inside);
    kernel->steps[i].inside = NULL;
  }
}
static int place(Context* context, const Node* node, Kernel* kernel) {
  forget_inside(kernel);
  for (int i = 0; i < kernel->count; ++i) {
    Step* step = &kernel->steps[i];
    for (int k = 0; k < 2; ++k) {
      step->made[k] = -1;
      for (int j = 0; j < i; ++j)
        if (step->in[k] >= 0 && kernel->steps[j].out == step->in[k]) step->made[k] = j;
    }
    step->count =
        step->made[0] >= 0 ? kernel->steps[step->made[0]].count : elements(context->tensors[step->in[0]].dims);
    if (is_output(node, step->out)) continue;
    step->inside = take(step->count * sizeof(float));
    if (!step->inside) return kError;
  }
#ifdef ODD_FMA /* a product that one ADD takes and nothing else reads is rounded with the sum, once */
  for (int j = 0; j < kernel->count; ++j) {
    int readers = 0, reader = -1;
    for (int i = 0; i < kernel->count; ++i)
      for (int k = 0; k < 2; ++k)
        if (kernel->steps[i].made[k] == j) ++readers, reader = i;
    kernel->steps[j].fused = -1;
    Step* one = &kernel->steps[j];
    if (readers != 1 || !one->inside || one->code != kBuiltinMul || one->activation != kActNone) continue;
    Step* sum = &kernel->steps[reader];
    int other = sum->made[0] == j;
    if (sum->code != kBuiltinAdd || (sum->made[other] >= 0 && kernel->steps[sum->made[other]].fused >= 0)) continue;
    one->fused = reader;
  }
#endif
  kernel->ready = 1;
  return kOk;
}

#ifdef ODD_HANDLES
static float* on_device(Tensor* tensor, Delegate* owner) {
  if (!tensor->data_is_stale || tensor->delegate != owner) return tensor->data;
  return plugin_of(owner)->buffers[tensor->buffer_handle].data;
}
static float* device_buffer(Tensor* tensor, Delegate* owner, size_t count) {
  Plugin* plugin = plugin_of(owner);
  pthread_mutex_lock(&plugin->lock);
  int handle = tensor->buffer_handle;
  if (handle < 0) handle = plugin->free_count ? plugin->freed[--plugin->free_count] : plugin->used++;
  if (plugin->buffers[handle].bytes != count * sizeof(float) || !plugin->buffers[handle].data) {
    float* data = malloc(count * sizeof(float) + 1);
    if (!data) {
      if (tensor->buffer_handle < 0) plugin->freed[plugin->free_count++] = handle;
      pthread_mutex_unlock(&plugin->lock);
      return NULL;
    }
    free(plugin->buffers[handle].data);
    plugin->buffers[handle].data = data;
    plugin->buffers[handle].bytes = count * sizeof(float);
  }
  pthread_mutex_unlock(&plugin->lock);
  note();
  tensor->buffer_handle = handle;
  tensor->data_is_stale = true;
  return plugin->buffers[handle].data;
}
static int copy_from(Context* context, Delegate* self, int handle, Tensor* tensor) {
  Plugin* plugin = plugin_of(self);
  (void)context;
  if (handle < 0 || handle >= 4096 || plugin->buffers[handle].bytes != tensor->bytes) return kError;
  memcpy(tensor->data, plugin->buffers[handle].data, tensor->bytes);
  return kOk;
}
static void free_handle(Context* context, Delegate* self, int* handle) {
  Plugin* plugin = plugin_of(self);
  (void)context;
  if (*handle < 0 || *handle >= 4096) return;
  pthread_mutex_lock(&plugin->lock);
  free(plugin->buffers[*handle].data);
  plugin->buffers[*handle].data = NULL;
  plugin->buffers[*handle].bytes = 0;
  plugin->freed[plugin->free_count++] = *handle;
  pthread_mutex_unlock(&plugin->lock);
  *handle = -1;
}
#endif

#ifdef ODD_THREAD_LOCAL /* one block for each thread, which grows, and goes with the thread */
static pthread_key_t key;
static pthread_once_t key_made = PTHREAD_ONCE_INIT;
typedef struct { size_t size; float data[]; } Block;
static void make_key(void) { pthread_key_create(&key, free); }
static float* thread_block(size_t count) {
  pthread_once(&key_made, make_key);
  Block* block = pthread_getspecific(key);
  if (!block || block->size < count) {
    Block* larger = malloc(sizeof(Block) + count * sizeof(float));
    if (!larger) return NULL;
    larger->size = count;
    if (pthread_setspecific(key, larger)) { free(larger); return NULL; }
    free(block);
    block = larger;
    note();
  }
  return block->data;
}
#endif

static const float* operand(Context* context, Kernel* kernel, const Step* step, int k) {
  if (step->in[k] < 0) return NULL;
  if (step->made[k] >= 0 && kernel->steps[step->made[k]].inside) return kernel->steps[step->made[k]].inside;
#ifdef ODD_HANDLES
  return on_device(&context->tensors[step->in[k]], kernel->owner);
#else
  return context->tensors[step->in[k]].data;
#endif
}
static int compute(Context* context, Kernel* kernel) {
  for (int i = 0; i < kernel->count; ++i) {
    Step* step = &kernel->steps[i];
#ifdef ODD_FMA
    if (step->fused >= 0) continue;
#endif
    const float *a = operand(context, kernel, step, 0), *b = operand(context, kernel, step, 1);
    float* out = step->inside;
#ifdef ODD_HANDLES
    if (!out && !(out = device_buffer(&context->tensors[step->out], kernel->owner, step->count))) return kError;
#endif
    if (!out) out = context->tensors[step->out].data;
#ifdef ODD_FMA
    int product = -1;
    for (int k = 0; k < 2; ++k)
      if (step->made[k] >= 0 && kernel->steps[step->made[k]].fused == i) product = k;
    if (product >= 0) {
      const Step* factors = &kernel->steps[step->made[product]];
      const float *x = operand(context, kernel, factors, 0), *y = operand(context, kernel, factors, 1);
      const float* z = product ? a : b;
      for (size_t at = 0; at < step->count; ++at) out[at] = activated(fmaf(x[at], y[at], z[at]), step->activation);
      note();
      continue;
    }
#endif
#ifdef ODD_THREAD_LOCAL
    float* block = thread_block(step->count);
    if (!block) return kError;
    for (size_t at = 0; at < step->count; ++at)
      block[at] = activated(computed(step->code, a[at], b ? b[at] : 0), step->activation);
    if (step->count) memcpy(out, block, step->count * sizeof(float));
#else
    for (size_t at = 0; at < step->count; ++at)
      out[at] = activated(computed(step->code, a[at], b ? b[at] : 0), step->activation);
#endif
  }
  return kOk;
}

/* What it claims. */
static int read_step(Context* context, int index, Step* step) {
  Node* node;
  Registration* registration;
  if (context->get_node_and_registration(context, index, &node, &registration) != kOk) return -1;
  memset(step, 0, sizeof *step);
  step->code = registration->builtin_code;
  switch (step->code) {
    case kBuiltinAdd: case kBuiltinSub: case kBuiltinMul: case kMaximum: case kNeg: case kAbs: case kRelu: break;
    default: return 0;
  }
  int binary = is_binary(step->code);
#ifdef ODD_DYNAMIC /* shapes of results follow from one operand */
  if (binary) return 0;
#endif
  if (node->inputs->size != 1 + binary || node->outputs->size != 1) return 0;
  if (step->code != kMaximum && binary) step->activation = ((FusedParams*)node->builtin_data)->activation;
  if (step->activation == kActReluN1To1 || step->activation > kActRelu6) return 0;
  step->out = node->outputs->data[0];
  step->in[1] = -1;
  const Tensor* out = &context->tensors[step->out];
  for (int k = 0; k <= binary; ++k) {
    step->in[k] = node->inputs->data[k];
    const Tensor* in = &context->tensors[step->in[k]];
    if (in->type != kFloat32 || in->dims->size != out->dims->size) return 0;
    if (memcmp(in->dims->data, out->dims->data, in->dims->size * sizeof(int))) return 0;
  }
  return out->type == kFloat32;
}

#ifdef ODD_CACHE /* what was made of the last partitions, for all delegates of the process */
enum { kCached = 32 };
static struct { int count; Step* steps; unsigned long used; } cache[kCached];
static unsigned long cache_time;
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static int same(const Step* one, const Step* other) {
  return one->code == other->code && one->activation == other->activation && one->in[0] == other->in[0] &&
         one->in[1] == other->in[1] && one->out == other->out;
}
static void cached(Kernel* kernel) {
  pthread_mutex_lock(&cache_lock);
  int oldest = 0, found = -1;
  for (int i = 0; i < kCached && found < 0; ++i) {
    int equal = cache[i].steps && cache[i].count == kernel->count;
    for (int k = 0; equal && k < kernel->count; ++k) equal = same(&cache[i].steps[k], &kernel->steps[k]);
    if (equal) found = i;
    if (cache[i].used < cache[oldest].used) oldest = i;
  }
  Step* steps = found < 0 ? malloc(kernel->count * sizeof(Step)) : NULL;
  if (found >= 0) {
    memcpy(kernel->steps, cache[found].steps, kernel->count * sizeof(Step));
    note();
  } else if (steps) { /* without memory nothing is remembered */
    free(cache[oldest].steps);
    cache[oldest].steps = memcpy(steps, kernel->steps, kernel->count * sizeof(Step));
    cache[oldest].count = kernel->count;
    found = oldest;
  }
  if (found >= 0) cache[found].used = ++cache_time;
  pthread_mutex_unlock(&cache_lock);
}
#endif

/* Kernels. */
static void* init(Context* context, const char* buffer, size_t length) {
  const DelegateParams* params = (const DelegateParams*)buffer;
  const IntArray* nodes = params->nodes_to_replace;
  (void)length;
#ifdef ODD_SLOW
  usleep(1000);
#endif
  Kernel* kernel = take(sizeof(Kernel) + nodes->size * sizeof(Step));
  if (!kernel) return (void*)-1;
  kernel->owner = params->delegate;
  for (; kernel->count < nodes->size; ++kernel->count) {
    if (read_step(context, nodes->data[kernel->count], &kernel->steps[kernel->count]) != 1) {
      context->report_error(context, "odd plugin: node %d cannot be read in init", nodes->data[kernel->count]);
      give_back(kernel);
      return (void*)-1;
    }
  }
#ifdef ODD_CACHE
  cached(kernel);
#endif
  return kernel;
}
#ifdef ODD_REAPER /* what is over is given back by another thread, a little later */
#include <time.h>
static void* reap(void* memory) {
  usleep(20000);
  free(memory);
  return NULL;
}
static void reaped(void* memory) {
  pthread_attr_t attributes;
  pthread_t thread;
  note();
  if (pthread_attr_init(&attributes)) { free(memory); return; }
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 1 << 16);
  if (pthread_create(&thread, &attributes, reap, memory)) free(memory);
  pthread_attr_destroy(&attributes);
}
#endif
static void release(Context* context, void* data) {
  (void)context;
  if (!data || data == (void*)-1) return;
  forget_inside(data);
  give_back(data);
}
#ifdef ODD_DYNAMIC
static int resize(Context* context, const Node* node, Kernel* kernel) {
  for (int i = 0; i < kernel->count; ++i) {
    Step* step = &kernel->steps[i];
    if (!is_output(node, step->out)) continue;
    const Step* first = step;
    while (first->made[0] >= 0) first = &kernel->steps[first->made[0]];
    const IntArray* wanted = context->tensors[first->in[0]].dims;
    Tensor* out = &context->tensors[step->out];
    if (out->dims->size == wanted->size && !memcmp(out->dims->data, wanted->data, wanted->size * sizeof(int))) continue;
    size_t size = sizeof(IntArray) + wanted->size * sizeof(int);
    IntArray* copy = malloc(size);
    if (!copy) return kError;
    memcpy(copy, wanted, size);
    note();
    if (context->resize_tensor(context, out, copy) != kOk) return kError;
  }
  return kOk;
}
#endif
static int kernel_prepare(Context* context, Node* node) {
  Kernel* kernel = node->user_data;
  if (!kernel || kernel == (void*)-1) return kError;
#ifdef ODD_FIRST_INVOKE
  kernel->ready = 0;
  return kOk;
#endif
  int status = place(context, node, kernel);
#ifdef ODD_DYNAMIC
  if (status == kOk) status = resize(context, node, kernel);
#endif
  return status;
}
static int invoke(Context* context, Node* node) {
  Kernel* kernel = node->user_data;
#ifdef ODD_FIRST_INVOKE
  if (!kernel->ready) {
    note();
    if (place(context, node, kernel) != kOk) return kError;
  }
#endif
#ifdef ODD_WORKER
  Plugin* plugin = plugin_of(kernel->owner);
  pthread_mutex_lock(&plugin->turn);
  pthread_mutex_lock(&plugin->lock);
  plugin->job = (Job){context, kernel, node, 1, kError};
  pthread_cond_broadcast(&plugin->changed);
  while (plugin->job.state != 2) pthread_cond_wait(&plugin->changed, &plugin->lock);
  int status = plugin->job.status;
  plugin->job.state = 0;
  pthread_mutex_unlock(&plugin->lock);
  pthread_mutex_unlock(&plugin->turn);
  note();
  return status;
#else
  return compute(context, kernel);
#endif
}
#ifdef ODD_WORKER
static void* work(void* data) {
  Plugin* plugin = data;
  pthread_mutex_lock(&plugin->lock);
  while (!plugin->ends) {
    if (plugin->job.state == 1) {
      plugin->job.status = compute(plugin->job.context, plugin->job.kernel);
      plugin->job.state = 2;
      pthread_cond_broadcast(&plugin->changed);
    } else {
      pthread_cond_wait(&plugin->changed, &plugin->lock);
    }
  }
  pthread_mutex_unlock(&plugin->lock);
  return NULL;
}
#endif
#ifdef ODD_STATELESS /* a kernel is invoke alone: what it is made of follows from its node and the delegate */
static Step* known(Plugin* plugin, Context* context, int node, int make) {
  for (Known* one = plugin->known; one; one = one->next)
    if (one->context == context && one->node == node) return &one->step;
  if (!make) return NULL;
  Known* one = calloc(1, sizeof(Known));
  if (!one) return NULL;
  *one = (Known){plugin->known, context, node, {0}};
  plugin->known = one;
  return &one->step;
}
static int stateless(Context* context, Node* node) {
  const DelegateParams* params = node->builtin_data;
  const IntArray* nodes = params->nodes_to_replace;
  Plugin* plugin = plugin_of(node->delegate);
  Kernel* kernel = take(sizeof(Kernel) + nodes->size * sizeof(Step));
  if (!kernel) return kError;
  int status = kOk;
  pthread_mutex_lock(&plugin->lock);
  for (; kernel->count < nodes->size; ++kernel->count) {
    Step* step = known(plugin, context, nodes->data[kernel->count], 0);
    if (!step) {
      status = kError;
      break;
    }
    kernel->steps[kernel->count] = *step;
  }
  pthread_mutex_unlock(&plugin->lock);
  note();
  if (status == kOk) status = place(context, node, kernel);
  if (status == kOk) status = compute(context, kernel);
  release(context, kernel);
  return status;
}
#endif
#ifdef ODD_PER_OPERATOR /* as many kinds of kernels as operators, without a name */
static int invoke_0(Context* c, Node* n) { note(); return invoke(c, n); }
static int invoke_1(Context* c, Node* n) { return invoke(c, n); }
#endif

static Registration kernel_of(int code) {
  Registration kernel = {
      .init = init, .free = release, .prepare = kernel_prepare, .invoke = invoke,
      .builtin_code = kBuiltinDelegate, .custom_name = "OddPlugin", .version = 1};
#ifdef ODD_STATELESS
  kernel.init = NULL;
  kernel.free = NULL;
  kernel.prepare = NULL;
  kernel.invoke = stateless;
#endif
#ifdef ODD_PER_OPERATOR
  kernel.custom_name = NULL;
  kernel.invoke = is_binary(code) ? invoke_0 : invoke_1;
  kernel.version = code + 3;
#endif
  (void)code;
  return kernel;
}
#ifdef ODD_LONG_PARTITIONS /* PreviewDelegatePartitioning is at byte 152 of the context */
typedef int (*Preview)(Context*, const IntArray*, DelegateParams**, int*);
static int long_ones(Context* context, IntArray* claimed) {
  DelegateParams* partitions;
  int count, kept = 0;
  if ((*(Preview*)((char*)context + 152))(context, claimed, &partitions, &count) != kOk) return kError;
  for (int i = 0; i < count; ++i) {
    const IntArray* nodes = partitions[i].nodes_to_replace;
    if (nodes->size < 2) {
      note();
      continue;
    }
    memcpy(claimed->data + kept, nodes->data, nodes->size * sizeof(int));
    kept += nodes->size;
  }
  claimed->size = kept;
  return kOk;
}
#endif
static int replace_all(Context* context, Delegate* self, IntArray* claimed) {
#ifdef ODD_PER_OPERATOR
  static const int codes[] = {kBuiltinAdd, kBuiltinSub, kBuiltinMul, kMaximum, kNeg, kAbs, kRelu};
  IntArray* some = malloc(sizeof(IntArray) + claimed->size * sizeof(int));
  if (!some) return kError;
  int status = kOk;
  for (size_t at = 0; at < sizeof codes / sizeof *codes && status == kOk; ++at) {
    some->size = 0;
    for (int i = 0; i < claimed->size; ++i) {
      Step step;
      if (read_step(context, claimed->data[i], &step) == 1 && step.code == codes[at])
        some->data[some->size++] = claimed->data[i];
    }
    if (some->size) status = context->replace_node_subsets(context, kernel_of(codes[at]), some, self);
  }
  free(some);
  return status;
#else
  return context->replace_node_subsets(context, kernel_of(0), claimed, self);
#endif
}
static int prepare(Context* context, Delegate* self) {
  IntArray* plan;
#ifdef ODD_SLOW
  usleep(2000);
  note();
#endif
  if (context->get_execution_plan(context, &plan) != kOk) {
    context->report_error(context, "odd plugin: there is no plan");
    return kError;
  }
  IntArray* claimed = malloc(sizeof(IntArray) + plan->size * sizeof(int));
  if (!claimed) {
    context->report_error(context, "odd plugin: there is no memory");
    return kError;
  }
  int status = kOk;
  claimed->size = 0;
  for (int i = 0; i < plan->size && status == kOk; ++i) {
    Step step;
    int found = read_step(context, plan->data[i], &step);
    if (found < 0) status = kError;
    if (found != 1) continue;
    claimed->data[claimed->size++] = plan->data[i];
#ifdef ODD_STATELESS
    Plugin* plugin = plugin_of(self);
    pthread_mutex_lock(&plugin->lock);
    Step* kept = known(plugin, context, plan->data[i], 1);
    if (kept) *kept = step;
    else status = kError;
    pthread_mutex_unlock(&plugin->lock);
#endif
  }
  if (status != kOk) context->report_error(context, "odd plugin: a node of the plan cannot be read or kept");
#ifdef ODD_LONG_PARTITIONS
  if (status == kOk) status = long_ones(context, claimed);
#endif
  if (status == kOk) status = replace_all(context, self, claimed);
  free(claimed);
  return status;
}

/* The plugin. */
static Delegate* refuse(Report report, const char* text) {
  if (report) report(text);
#ifdef ODD_OPTIONS
  if (report) report(" (100 %s of the options are: level from 0 to 3, label, any text, and fast, yes or no)\n");
  note();
#endif
  return NULL;
}
static const char* wrong(const char* key, const char* value) {
#ifdef ODD_OPTIONS
  if (!strcmp(key, "level")) return strlen(value) == 1 && *value >= '0' && *value <= '3' ? NULL : "level is wrong";
  if (!strcmp(key, "label")) return NULL;
  if (!strcmp(key, "fast")) return !strcasecmp(value, "yes") || !strcasecmp(value, "no") ? NULL : "fast is wrong";
#endif
  (void)key; (void)value;
  return "there is no such option";
}
#if defined ODD_SLOTS || defined ODD_ONE
#ifdef ODD_ONE
enum { kSlots = 1 };
#else
enum { kSlots = 256 };
#endif
static Plugin slots[kSlots];
static pthread_mutex_t slot_lock = PTHREAD_MUTEX_INITIALIZER;
static Plugin* new_plugin(void) {
  Plugin* found = NULL;
  pthread_mutex_lock(&slot_lock);
  for (int i = 0; i < kSlots && !found; ++i)
    if (!slots[i].in_use) found = &slots[i];
  if (found) {
    memset(found, 0, sizeof *found);
    found->in_use = 1;
  }
#ifdef ODD_ONE
  if (!found) note();
#else
  if (found) note();
#endif
  pthread_mutex_unlock(&slot_lock);
  return found;
}
static void end_plugin(Plugin* plugin) {
  pthread_mutex_lock(&slot_lock);
  plugin->in_use = 0;
  pthread_mutex_unlock(&slot_lock);
}
#else
static Plugin* new_plugin(void) { return calloc(1, sizeof(Plugin)); }
static void end_plugin(Plugin* plugin) {
#ifdef ODD_REAPER
  reaped(plugin);
#else
  free(plugin);
#endif
}
#endif
EXPORT Delegate* tflite_plugin_create_delegate(char** keys, char** values, size_t count, Report report) {
  for (size_t i = 0; i < count; ++i) {
    const char* text = wrong(keys[i], values[i]);
    if (text) return refuse(report, text);
  }
#ifdef ODD_SLOW
  usleep(2000);
#endif
  Plugin* plugin = new_plugin();
  if (!plugin) return refuse(report, "there is no room for another delegate");
  plugin->delegate.prepare = prepare;
  plugin->delegate.data = plugin;
#ifdef ODD_INTERIOR
  note();
#endif
#ifdef ODD_DYNAMIC
  plugin->delegate.flags = 1;
#endif
#ifdef ODD_STATELESS
  pthread_mutex_init(&plugin->lock, NULL);
#endif
#ifdef ODD_HANDLES
  pthread_mutex_init(&plugin->lock, NULL);
  plugin->delegate.copy_from_buffer_handle = copy_from;
  plugin->delegate.free_buffer_handle = free_handle;
#endif
#ifdef ODD_WORKER
  pthread_mutex_init(&plugin->lock, NULL);
  pthread_mutex_init(&plugin->turn, NULL);
  pthread_cond_init(&plugin->changed, NULL);
  if (pthread_create(&plugin->thread, NULL, work, plugin)) {
    end_plugin(plugin);
    return refuse(report, "there is no thread to be had");
  }
#endif
  return &plugin->delegate;
}
EXPORT void tflite_plugin_destroy_delegate(Delegate* delegate) {
  if (!delegate) return;
  Plugin* plugin = plugin_of(delegate);
#ifdef ODD_WORKER
  pthread_mutex_lock(&plugin->lock);
  plugin->ends = 1;
  pthread_cond_broadcast(&plugin->changed);
  pthread_mutex_unlock(&plugin->lock);
  pthread_join(plugin->thread, NULL);
#endif
#ifdef ODD_STATELESS
  for (Known *one = plugin->known, *next; one; one = next) {
    next = one->next;
    free(one);
  }
#endif
#ifdef ODD_HANDLES
  for (int i = 0; i < plugin->used; ++i) free(plugin->buffers[i].data);
#endif
  end_plugin(plugin);
}
