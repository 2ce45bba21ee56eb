"""External delegates in C that tests build with gcc: a conforming one, and copies of it with one fault each.

The delegate takes float32 NEG, and has one option, ``threads``, from 1 to 64. Faults are chosen by macros.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from native import build

SOURCE = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tflite_abi.h"
#ifdef OWN_ALLOCATOR /* its memory is not malloc's: OWN_ALLOCATOR are flags of mmap beside the usual ones */
#include <sys/mman.h>
typedef union Block { union Block* next; char bytes[256]; } Block;
static Block *arena, *given_back;
static size_t taken;
static void* own_calloc(size_t count, size_t size) {
  if (!arena) arena = mmap(0, 1 << 22, 3, MAP_PRIVATE | MAP_ANONYMOUS | OWN_ALLOCATOR, -1, 0);
  Block* block = given_back;
  if (block) given_back = block->next; else block = arena + taken++;
  return memset(block, 0, sizeof *block);
}
static void own_free(void* memory) {
  if (!memory) return;
  ((Block*)memory)->next = given_back;
  given_back = memory;
}
#define malloc(size) own_calloc(1, size)
#define calloc(count, size) own_calloc(count, size)
#define free(memory) own_free(memory)
#endif

enum { kBuiltinNeg = 59 };
typedef void (*Report)(const char*);

typedef struct {
  Delegate delegate;
#ifdef OLD_STRUCT /* headers that end at byte 48: what follows lies where the builder is looked for */
#define STATE(self) (*(char**)((char*)(self) + 48))
#else
#define STATE(self) (((Plugin*)(self))->state)
#endif
  char* state;
  char* threads;
  Report report;
} Plugin;

typedef struct {
  int nodes;
  int invokes;
#ifdef IN_HALVES
  int pairs[64][2]; /* input and output of each node */
#endif
#ifdef KEEPS_TABLE /* the tensors of an interpreter, looked up once */
  Tensor* tensors;
#define TENSORS(context, node) (((Kernel*)(node)->user_data)->tensors)
#else
#define TENSORS(context, node) ((context)->tensors)
#endif
} Kernel;

static void* init(Context* context, const char* buffer, size_t length) {
  (void)context; (void)length;
  Kernel* kernel = calloc(1, sizeof(Kernel));
  const IntArray* nodes = ((const DelegateParams*)buffer)->nodes_to_replace;
  kernel->nodes = nodes->size;
#ifdef KEEPS_TABLE
  kernel->tensors = context->tensors;
#endif
#ifdef IN_HALVES
  for (int i = 0; i < nodes->size; ++i) {
    Node* node;
    Registration* registration;
    if (context->get_node_and_registration(context, nodes->data[i], &node, &registration) != kOk) return NULL;
    kernel->pairs[i][0] = node->inputs->data[0];
    kernel->pairs[i][1] = node->outputs->data[0];
  }
#endif
  return kernel;
}
static Context* first; /* the interpreter that is invoked first, while it has kernels */
static void release(Context* context, void* data) {
  if (context == first) first = NULL; /* another one may have its address next */
#ifdef LEAKS_KERNEL
  (void)data;
#else
  free(data);
#endif
}
static int64_t elements(const IntArray* dims) {
  int64_t count = 1;
  for (int i = 0; i < dims->size; ++i) count *= dims->data[i];
  return count;
}
static int kernel_prepare(Context* context, Node* node) {
#ifdef IN_KERNEL_PREPARE /* what a test puts there; it may ask for the elements of `dims` */
  const IntArray* dims = context->tensors[node->inputs->data[0]].dims;
  IN_KERNEL_PREPARE;
#endif
#ifdef LEAKS_PREPARE /* what was kept for the shape before */
  *(volatile char*)malloc(24) = 1;
#endif
  (void)context;
  return node->user_data ? kOk : kError;
}
/* A kernel of many nodes: each output is an input or its negative, as many NEGs lie between them. */
#ifdef IN_HALVES
static void negate(Context* context, const Kernel* kernel, int output) {
  int from = output, sign = 1;
  for (int i = kernel->nodes - 1; i >= 0; --i) {
    if (kernel->pairs[i][1] != from) continue;
    from = kernel->pairs[i][0];
    sign = -sign;
  }
  const float* a = context->tensors[from].data;
  Tensor* out = &context->tensors[output];
  for (size_t i = 0; i < out->bytes / sizeof(float); ++i) ((float*)out->data)[i] = sign * a[i];
}
static int invoke(Context* context, Node* node) {
  for (int i = 0; i < node->outputs->size; ++i) negate(context, node->user_data, node->outputs->data[i]);
  return kOk;
}
#else
/* One node for each kernel: NEG of its input. */
static int invoke(Context* context, Node* node) {
  if (!node->outputs->size) return kOk; /* nobody reads what it would compute */
  const Tensor* in = &TENSORS(context, node)[node->inputs->data[0]];
  Tensor* out = &TENSORS(context, node)[node->outputs->data[0]];
  const float* a = in->data;
#ifdef IN_INVOKE /* what a test puts there: `in` and `out` are the tensors */
  IN_INVOKE;
#endif
#ifndef FAILS_ANYWHERE
#define FAILS_ANYWHERE 0
#endif
#ifdef FAILS_SECOND /* each kernel of the interpreter that is invoked first, or of any, loses its device */
  static int lost;
  if (!first) first = context;
  int turn = ++((Kernel*)node->user_data)->invokes;
  if (turn == 2 && (context == first || FAILS_ANYWHERE)) {
    lost = 1;
    FAILS_SECOND;
    return kError;
  }
#ifdef STALE_WHEN /* and says from then on that all is well, without doing anything */
  if (STALE_WHEN) return kOk;
#endif
#endif
  for (size_t i = 0; i < out->bytes / sizeof(float); ++i) ((float*)out->data)[i] = -a[i];
  return kOk;
}
#endif
static int number(const char* text) {
#ifdef LOOSE
  return atoi(text) >= 0;
#else
  char* end;
  long value = strtol(text, &end, 10);
  return *text && !*end && value >= 1 && value <= 64;
#endif
}
static int is_neg(Context* context, int index, Node** node) {
  Registration* registration;
  if (context->get_node_and_registration(context, index, node, &registration) != kOk) return 0;
  const Tensor* out = &context->tensors[(*node)->outputs->data[0]];
  return registration->builtin_code == kBuiltinNeg && out->type == kFloat32;
}
static int claim_all(Context* context, const IntArray* nodes, Delegate* self) {
  Registration kernel = {init, release, kernel_prepare, invoke};
  kernel.builtin_code = kBuiltinDelegate;
  kernel.custom_name = "Neg";
  kernel.version = 1;
#ifdef OLD_REGISTRATION /* headers that end at byte 64: the rest is what the stack holds */
  typedef struct { char bytes[64]; } Short;
  struct { Short registration; char stack[88]; } frame;
  memset(&frame, 0x5A, sizeof frame);
  memcpy(&frame.registration, &kernel, 64);
  return ((int (*)(Context*, Short, const void*, Delegate*))context->replace_node_subsets)(
      context, frame.registration, nodes, self);
#else
  return context->replace_node_subsets(context, kernel, nodes, self);
#endif
}
static int claim(Context* context, int index, Delegate* self) {
  struct { int size; int node; } nodes = {1, index};
  return claim_all(context, (const IntArray*)&nodes, self);
}
#ifdef IN_HALVES /* the first half of its nodes by one call, the others by a second one */
static int claim_in_halves(Context* context, const int* plan, int count, Delegate* self) {
  struct { int size; int data[64]; } mine = {0}, half;
  for (int i = 0; i < count && mine.size < 64; ++i) {
    Node* node;
    if (is_neg(context, plan[i], &node)) mine.data[mine.size++] = plan[i];
  }
  for (int at = 0; at < 2; ++at) {
    int begin = at * (mine.size / 2), end = at ? mine.size : mine.size / 2;
    half.size = end - begin;
    memcpy(half.data, mine.data + begin, half.size * sizeof(int));
    if (half.size && claim_all(context, (const IntArray*)&half, self) != kOk) return kError;
  }
  return kOk;
}
#endif
static int prepare(Context* context, Delegate* self) {
  Plugin* plugin = (Plugin*)self;
  (void)plugin;
#ifdef IN_PREPARE /* what a test puts there: it happens once for each interpreter */
  IN_PREPARE;
#endif
#ifdef KEEPS_OPTIONS
  if (plugin->threads && !number(plugin->threads)) return kError;
#endif
#ifdef KEEPS_REPORT
  if (plugin->report) plugin->report("preparing");
#endif
  IntArray* plan;
  if (context->get_execution_plan(context, &plan) != kOk) return kError;
  int count = plan->size, status = kOk;
  int* copy = malloc(count * sizeof(int) + 1);
  memcpy(copy, plan->data, count * sizeof(int));
#ifdef IN_HALVES
  status = claim_in_halves(context, copy, count, self);
#else
  for (int i = 0; i < count && status == kOk; ++i) {
    Node* node;
    if (is_neg(context, copy[i], &node)) status = claim(context, copy[i], self);
  }
#endif
  free(copy);
  return status;
}
typedef struct {
  void* data;
  int (*prepare)(Context*, Delegate*, void*);
  void *from, *to, *release;
  int64_t flags;
} Builder;
static int opaque_prepare(Context* context, Delegate* self, void* data) {
  (void)data;
  return prepare(context, self);
}
static Builder builder = {0, opaque_prepare, 0, 0, 0, 0};
static int copy_from(Context* context, Delegate* self, int handle, Tensor* tensor) {
  (void)context; (void)self; (void)handle; (void)tensor;
  return kOk;
}

#ifdef HAS_WORKER /* told to end by destroy, which calls this with it */
static volatile int working;
static pthread_t worker;
static void* work(void* nothing) {
  while (working) usleep(200);
  return nothing;
}
#define IN_CREATE working = 1; pthread_create(&worker, NULL, work, NULL)
#define IN_DESTROY working = 0; HAS_WORKER(worker)
#endif
#ifdef KEEPS_WORKER
static void* work(void* nothing) {
  for (;;) usleep(200);
  return nothing;
}
static void employ(void) {
  static pthread_t worker;
  if (!worker) pthread_create(&worker, NULL, work, NULL);
}
#endif

static Plugin* refuse(Report report, const char* text) {
  (void)text;
#ifdef LEAKS_REFUSED
  *(volatile char*)malloc(256) = 1;
#endif
#ifdef SILENT
  (void)report;
#elif defined REPORTS_ALWAYS
  report(text);
#else
  if (report) report(text);
#endif
  return NULL;
}
#ifndef CREATE
#define CREATE tflite_plugin_create_delegate
#define DESTROY tflite_plugin_destroy_delegate
#endif
#ifdef NEEDS_TFLITE
extern IntArray* TfLiteIntArrayCreate(int);
#endif
#ifdef EXPORTS_TFLITE
IntArray* TfLiteIntArrayCreate(int size) { return calloc(size + 1, sizeof(int)); }
#endif
Plugin* CREATE(char** keys, char** values, size_t count, Report report) {
  char* threads = NULL;
#ifdef READS_FIRST_KEY
  if (keys[0][0] == '-') return NULL;
#endif
#ifdef READS_TO_NULL
  size_t given = 0;
  while (keys && keys[given]) ++given;
  if (given < count) count = given;
#endif
#ifdef ONE_TOO_MANY
  for (size_t i = 0; i <= count; ++i) {
#else
  for (size_t i = 0; i < count; ++i) {
#endif
#ifdef SHORT_LABEL
    if (!strcmp(keys[i], "label")) {
      char label[64];
      strcpy(label, values[i]);
      continue;
    }
#endif
    if (!strcmp(keys[i], "threads")) {
      if (!number(values[i])) return refuse(report, "threads is no number from 1 to 64");
      threads = values[i];
    } else {
#ifndef IGNORES_UNKNOWN
      return refuse(report, "there is no such option");
#endif
    }
  }
#ifdef CUTS
  if (threads) threads[0] = 0;
#endif
#ifdef KEEPS_WORKER
  employ();
#endif
  Plugin* plugin = calloc(1, sizeof(Plugin));
  plugin->delegate.prepare = prepare;
  plugin->threads = threads;
  plugin->report = report;
#ifdef OPAQUE
  plugin->delegate.prepare = NULL;
  plugin->delegate.opaque_delegate_builder = &builder;
#endif
#ifdef MIXES
  plugin->delegate.copy_from_buffer_handle = copy_from;
#endif
#ifdef NEEDS_TFLITE
  free(TfLiteIntArrayCreate(1));
#endif
  STATE(plugin) = malloc(64);
#ifdef IN_CREATE /* what a test puts there */
  IN_CREATE;
#endif
  return plugin;
}
void DESTROY(Plugin* plugin) {
#ifndef READS_NULL
  if (!plugin) return;
#endif
#ifdef IN_DESTROY
  IN_DESTROY;
#endif
#ifndef LEAKS
  free(STATE(plugin));
#else
  (void)STATE(plugin);
#endif
#ifdef OTHER_BASE
  free((char*)plugin + 16);
#else
  free(plugin);
#endif
}
"""

OPTIONS = {"threads": "2"}
FAILING = {"FAILS_SECOND": ""}
"""A conforming library: each kernel of the first interpreter fails in its second invoke, and only there."""


class Fault(NamedTuple):
    """One fault: the rule that must find it, the macros that bring it in, and the options it needs."""

    rule: str
    macros: dict[str, str]
    options: Mapping[str, str] = MappingProxyType({})


FAULTS = {
    "mangled": Fault(
        "ABI-01",
        {
            "CREATE": "_Z29tflite_plugin_create_delegatePPcS0_mPFvPKcE",
            "DESTROY": "_Z30tflite_plugin_destroy_delegateP6Plugin",
        },
    ),
    "reads-first-key": Fault("ABI-02", {"READS_FIRST_KEY": "1"}),
    "loose": Fault("ABI-03", {"LOOSE": "1"}, OPTIONS),
    "cuts": Fault("ABI-03", {"CUTS": "1"}, OPTIONS),
    "ignores-unknown": Fault("ABI-04", {"IGNORES_UNKNOWN": "1"}),
    "silent": Fault("ABI-04", {"SILENT": "1"}),
    "short-label": Fault("ABI-04", {"SHORT_LABEL": "1"}, {"label": "x"}),
    "keeps-options": Fault("ABI-05", {"KEEPS_OPTIONS": "1"}, OPTIONS),
    "keeps-report": Fault("ABI-06", {"KEEPS_REPORT": "1"}),
    "reports-always": Fault("ABI-06", {"REPORTS_ALWAYS": "1"}),
    "reads-null": Fault("ABI-07", {"READS_NULL": "1"}),
    "leaks": Fault("ABI-08", {"LEAKS": "1"}),
    "other-base": Fault("ABI-08", {"OTHER_BASE": "1"}),
    "old-struct": Fault("ABI-09", {"OLD_STRUCT": "1"}),
    "mixes": Fault("ABI-10", {"OPAQUE": "1", "MIXES": "1"}),
    "opaque-plain": Fault("ABI-11", {"OPAQUE": "1"}),
    "needs-tflite": Fault("ABI-12", {"NEEDS_TFLITE": "1"}),
    "old-registration": Fault("ABI-13", {"OLD_REGISTRATION": "1"}),
    "exports-tflite": Fault("ABI-14", {"EXPORTS_TFLITE": "1"}),
    "reads-to-null": Fault("ABI-16", {"READS_TO_NULL": "1"}),
    "one-too-many": Fault("ABI-16", {"ONE_TOO_MANY": "1"}),
    "keeps-worker": Fault("OWN-05", {"KEEPS_WORKER": "1"}),
    "leaks-refused": Fault("LEAK-04", {"LEAKS_REFUSED": "1"}),
    "keeps-table": Fault("PREC-09", {"KEEPS_TABLE": "1"}),
}


def plugin(folder: Path, **macros: str) -> Path:
    """Build the plugin; without macros it conforms."""
    return build(folder, SOURCE, f"libplugin{len(list(folder.iterdir()))}.so", **macros)
