/* A delegate for a little arithmetic: ADD, SUB and MUL of tensors of one shape (float32 and int8), and
 * FULLY_CONNECTED (float32). */
#include <stdlib.h>
#include <string.h>

#include "tflite_abi.h"

enum { kMaxInputs = 3, kAbsent = -1 };

typedef struct {
  int op;
  int activation;
  int inputs[kMaxInputs]; /* tensor indices; kAbsent: no bias */
  int output;
} Step;

/* One kernel: the steps of one partition, and memory for the tensors inside of it, which the runtime
 * does not allocate. */
typedef struct {
  int steps_size;
  Step* steps;
  int room;      /* for so many steps */
  void** inside; /* per step; NULL where its output lives in the runtime */
} Kernel;

/* What a step computes with, at the time of invoke. */
typedef struct {
  const Tensor* tensor;
  void* data;
} Operand;

static bool same_shape(const Tensor* a, const Tensor* b) {
  if (a->dims->size != b->dims->size) return false;
  return memcmp(a->dims->data, b->dims->data, sizeof(int) * (size_t)a->dims->size) == 0;
}

static int activation_of(const Node* node) {
  return ((const FusedParams*)node->builtin_data)->activation;
}

static bool is_elementwise(int op) {
  return op == kBuiltinAdd || op == kBuiltinSub || op == kBuiltinMul;
}

static bool is_supported(Context* context, const Node* node, const Registration* registration) {
  const int op = registration->builtin_code;
  if (!is_elementwise(op) && op != kBuiltinFullyConnected) return false;
  const int activation = activation_of(node);
  if (activation != kActNone && activation != kActRelu && activation != kActRelu6) return false;
  const Tensor* out = &context->tensors[node->outputs->data[0]];
  if (out->type != kFloat32 && (out->type != kInt8 || op == kBuiltinFullyConnected)) return false;
  for (int i = 0; i < node->inputs->size; ++i) {
    const int index = node->inputs->data[i];
    if (index == kAbsent) continue;
    const Tensor* in = &context->tensors[index];
    if (in->type != out->type) return false;
    if (is_elementwise(op) && !same_shape(in, out)) return false;
  }
  return op != kBuiltinFullyConnected ||
         ((const FusedParams*)node->builtin_data)->weights_format == kWeightsPlain;
}

static void kernel_free(Context* context, void* user_data) {
  (void)context;
  Kernel* kernel = user_data;
  if (!kernel) return;
  for (int i = 0; i < kernel->room; ++i) free(kernel->inside[i]);
  free(kernel->inside);
  free(kernel->steps);
  free(kernel);
}

static bool is_output(const DelegateParams* params, int tensor) {
  for (int i = 0; i < params->output_tensors->size; ++i) {
    if (params->output_tensors->data[i] == tensor) return true;
  }
  return false;
}

static bool add_step(Context* context, const DelegateParams* params, Kernel* kernel, int index) {
  Node* node;
  Registration* registration;
  if (context->get_node_and_registration(context, index, &node, &registration) != kOk) return false;
  const int number = kernel->steps_size++;
  Step* step = &kernel->steps[number];
  step->op = registration->builtin_code;
  step->activation = activation_of(node);
  for (int i = 0; i < kMaxInputs; ++i) {
    step->inputs[i] = i < node->inputs->size ? node->inputs->data[i] : kAbsent;
  }
  step->output = node->outputs->data[0];
  if (is_output(params, step->output)) return true;
  const size_t bytes = context->tensors[step->output].bytes;
  kernel->inside[number] = malloc(bytes ? bytes : 1);
  return kernel->inside[number] != NULL;
}

static void* kernel_init(Context* context, const char* buffer, size_t length) {
  (void)length;
  const DelegateParams* params = (const DelegateParams*)buffer;
  const int size = params->nodes_to_replace->size;
  Kernel* kernel = calloc(1, sizeof(Kernel));
  if (!kernel) return NULL;
  kernel->steps = calloc((size_t)size, sizeof(Step));
  kernel->inside = calloc((size_t)size, sizeof(void*));
  bool ok = kernel->steps && kernel->inside;
  if (kernel->inside) kernel->room = size;
  for (int i = 0; ok && i < size; ++i) {
    ok = add_step(context, params, kernel, params->nodes_to_replace->data[i]);
  }
  if (ok) return kernel;
  kernel_free(context, kernel);
  return NULL;
}

/* The shapes of a static graph are known at init; a missing kernel is an init that failed. */
static int kernel_prepare(Context* context, Node* node) {
  (void)context;
  return node->user_data ? kOk : kError;
}

static float load(Operand from, size_t place) {
  if (from.tensor->type == kFloat32) return ((const float*)from.data)[place];
  return from.tensor->params.scale *
         (float)(((const int8_t*)from.data)[place] - from.tensor->params.zero_point);
}

static void store(Operand to, size_t place, float value, int activation) {
  if (activation != kActNone && value < 0.0f) value = 0.0f;
  if (activation == kActRelu6 && value > 6.0f) value = 6.0f;
  if (to.tensor->type == kFloat32) {
    ((float*)to.data)[place] = value;
    return;
  }
  float units = value / to.tensor->params.scale + (float)to.tensor->params.zero_point;
  if (units < -128.0f) units = -128.0f;
  if (units > 127.0f) units = 127.0f;
  ((int8_t*)to.data)[place] = (int8_t)(units + (units < 0.0f ? -0.5f : 0.5f)); /* to nearest */
}

static void elementwise(const Step* step, const Operand* in, Operand out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float a = load(in[0], i), b = load(in[1], i);
    const float value = step->op == kBuiltinAdd ? a + b : step->op == kBuiltinSub ? a - b : a * b;
    store(out, i, value, step->activation);
  }
}

static void fully_connected(const Step* step, const Operand* in, Operand out, size_t count) {
  const size_t units = (size_t)in[1].tensor->dims->data[0];
  const size_t depth = (size_t)in[1].tensor->dims->data[1];
  for (size_t i = 0; i < count; ++i) {
    const size_t row = i / units, unit = i % units;
    float sum = in[2].data ? load(in[2], unit) : 0.0f;
    for (size_t k = 0; k < depth; ++k) sum += load(in[0], row * depth + k) * load(in[1], unit * depth + k);
    store(out, i, sum, step->activation);
  }
}

static void* inside_of(const Kernel* kernel, int tensor) {
  for (int i = 0; i < kernel->steps_size; ++i) {
    if (kernel->steps[i].output == tensor) return kernel->inside[i];
  }
  return NULL;
}

/* Asked for at each invoke, because the runtime may move its tensors in between. */
static Operand operand(const Context* context, const Kernel* kernel, int index) {
  if (index == kAbsent) return (Operand){NULL, NULL};
  const Tensor* tensor = &context->tensors[index];
  void* inside = inside_of(kernel, index);
  return (Operand){tensor, inside ? inside : tensor->data};
}

/* A tensor without elements has no memory, and needs none. */
static bool has_no_memory(Operand operand) { return !operand.data && operand.tensor->bytes > 0; }

static int kernel_invoke(Context* context, Node* node) {
  const Kernel* kernel = node->user_data;
  for (int i = 0; i < kernel->steps_size; ++i) {
    const Step* step = &kernel->steps[i];
    const Operand out = operand(context, kernel, step->output);
    Operand in[kMaxInputs];
    for (int k = 0; k < kMaxInputs; ++k) {
      in[k] = operand(context, kernel, step->inputs[k]);
      if (in[k].tensor && has_no_memory(in[k])) return kError;
    }
    if (has_no_memory(out)) return kError;
    const size_t count = out.tensor->bytes / (out.tensor->type == kFloat32 ? sizeof(float) : 1);
    (is_elementwise(step->op) ? elementwise : fully_connected)(step, in, out, count);
  }
  return kOk;
}

/* Its text reaches the application: in Python, as the exception's. */
static int failure(Context* context, const char* what) {
  context->report_error(context, "ArithmeticDelegate: %s", what);
  return kError;
}

static int delegate_prepare(Context* context, Delegate* delegate) {
  IntArray* plan;
  if (context->get_execution_plan(context, &plan) != kOk) return failure(context, "there is no plan");
  IntArray* claimed = malloc(sizeof(int) * ((size_t)plan->size + 1));
  if (!claimed) return failure(context, "there is no memory for a claim");
  claimed->size = 0;
  for (int i = 0; i < plan->size; ++i) {
    Node* node;
    Registration* registration;
    if (context->get_node_and_registration(context, plan->data[i], &node, &registration) != kOk) {
      free(claimed);
      return failure(context, "a node of the plan cannot be read");
    }
    if (is_supported(context, node, registration)) claimed->data[claimed->size++] = plan->data[i];
  }
  const Registration kernel = {.init = kernel_init,
                               .free = kernel_free,
                               .prepare = kernel_prepare,
                               .invoke = kernel_invoke,
                               .builtin_code = kBuiltinDelegate,
                               .custom_name = "ArithmeticDelegate",
                               .version = 1};
  const int status = context->replace_node_subsets(context, kernel, claimed, delegate);
  free(claimed);
  return status;
}

__attribute__((visibility("default"))) Delegate* tflite_plugin_create_delegate(
    char** keys, char** values, size_t num_options, void (*report_error)(const char*)) {
  (void)keys;
  (void)values;
  if (num_options != 0) {
    if (report_error) report_error("ArithmeticDelegate has no options");
    return NULL;
  }
  Delegate* delegate = calloc(1, sizeof(Delegate));
  if (!delegate && report_error) report_error("ArithmeticDelegate: there is no memory");
  if (delegate) delegate->prepare = delegate_prepare;
  return delegate;
}

__attribute__((visibility("default"))) void tflite_plugin_destroy_delegate(Delegate* delegate) {
  free(delegate);
}
