/* A delegate for element-wise float arithmetic: ADD, SUB and MUL of tensors of one shape. */
#include <stdlib.h>
#include <string.h>

#include "tflite_abi.h"

typedef struct {
  int op;
  int activation;
  int left, right, out; /* tensor indices */
} Step;

/* One kernel: the steps of one partition, and memory for the tensors inside of it, which the runtime
 * does not allocate. */
typedef struct {
  int steps_size;
  Step* steps;
  size_t tensors_size;
  float** inside; /* per tensor index; NULL where the tensor lives in the runtime */
} Kernel;

static bool same_shape(const Tensor* a, const Tensor* b) {
  if (a->dims->size != b->dims->size) return false;
  return memcmp(a->dims->data, b->dims->data, sizeof(int) * (size_t)a->dims->size) == 0;
}

static bool is_supported(Context* context, const Node* node, const Registration* registration) {
  const int op = registration->builtin_code;
  if (op != kBuiltinAdd && op != kBuiltinSub && op != kBuiltinMul) return false;
  if (node->inputs->size != 2 || node->outputs->size != 1) return false;
  const Tensor* left = &context->tensors[node->inputs->data[0]];
  const Tensor* right = &context->tensors[node->inputs->data[1]];
  const Tensor* out = &context->tensors[node->outputs->data[0]];
  if (left->type != kFloat32 || right->type != kFloat32 || out->type != kFloat32) return false;
  if (!same_shape(left, right) || !same_shape(left, out)) return false;
  const int activation = ((const ElementwiseParams*)node->builtin_data)->activation;
  return activation == kActNone || activation == kActRelu || activation == kActRelu6;
}

static void kernel_free(Context* context, void* user_data) {
  (void)context;
  Kernel* kernel = user_data;
  if (!kernel) return;
  for (size_t i = 0; i < kernel->tensors_size; ++i) free(kernel->inside[i]);
  free(kernel->inside);
  free(kernel->steps);
  free(kernel);
}

static bool is_boundary(const DelegateParams* params, int tensor) {
  for (int i = 0; i < params->output_tensors->size; ++i) {
    if (params->output_tensors->data[i] == tensor) return true;
  }
  return false;
}

static void* kernel_init(Context* context, const char* buffer, size_t length) {
  (void)length;
  const DelegateParams* params = (const DelegateParams*)buffer;
  const int size = params->nodes_to_replace->size;
  Kernel* kernel = calloc(1, sizeof(Kernel));
  if (!kernel) return NULL;
  kernel->steps = calloc((size_t)size, sizeof(Step));
  kernel->tensors_size = context->tensors_size;
  kernel->inside = calloc(context->tensors_size, sizeof(float*));
  if (!kernel->steps || !kernel->inside) goto failed;
  for (int i = 0; i < size; ++i) {
    Node* node;
    Registration* registration;
    const int index = params->nodes_to_replace->data[i];
    if (context->get_node_and_registration(context, index, &node, &registration) != kOk) goto failed;
    Step* step = &kernel->steps[kernel->steps_size++];
    step->op = registration->builtin_code;
    step->activation = ((const ElementwiseParams*)node->builtin_data)->activation;
    step->left = node->inputs->data[0];
    step->right = node->inputs->data[1];
    step->out = node->outputs->data[0];
    if (!is_boundary(params, step->out)) {
      kernel->inside[step->out] = malloc(context->tensors[step->out].bytes);
      if (!kernel->inside[step->out]) goto failed;
    }
  }
  return kernel;
failed:
  if (!kernel->inside) kernel->tensors_size = 0;
  kernel_free(context, kernel);
  return NULL;
}

/* The shapes of a static graph are known at init; a missing kernel is an init that failed. */
static int kernel_prepare(Context* context, Node* node) {
  (void)context;
  return node->user_data ? kOk : kError;
}

static float apply(int op, int activation, float a, float b) {
  float value = op == kBuiltinAdd ? a + b : op == kBuiltinSub ? a - b : a * b;
  if (activation != kActNone && value < 0.0f) value = 0.0f;
  if (activation == kActRelu6 && value > 6.0f) value = 6.0f;
  return value;
}

static int kernel_invoke(Context* context, Node* node) {
  const Kernel* kernel = node->user_data;
  for (int i = 0; i < kernel->steps_size; ++i) {
    const Step* step = &kernel->steps[i];
    float* const* inside = kernel->inside;
    const Tensor* tensors = context->tensors; /* pointers may change between invokes */
    const float* left = inside[step->left] ? inside[step->left] : tensors[step->left].data;
    const float* right = inside[step->right] ? inside[step->right] : tensors[step->right].data;
    float* out = inside[step->out] ? inside[step->out] : tensors[step->out].data;
    const size_t count = tensors[step->out].bytes / sizeof(float);
    if (count && (!left || !right || !out)) return kError;
    for (size_t k = 0; k < count; ++k) out[k] = apply(step->op, step->activation, left[k], right[k]);
  }
  return kOk;
}

static int delegate_prepare(Context* context, Delegate* delegate) {
  IntArray* plan;
  if (context->get_execution_plan(context, &plan) != kOk) return kError;
  IntArray* claimed = malloc(sizeof(int) * ((size_t)plan->size + 1));
  if (!claimed) return kError;
  claimed->size = 0;
  for (int i = 0; i < plan->size; ++i) {
    Node* node;
    Registration* registration;
    if (context->get_node_and_registration(context, plan->data[i], &node, &registration) != kOk) {
      free(claimed);
      return kError;
    }
    if (is_supported(context, node, registration)) claimed->data[claimed->size++] = plan->data[i];
  }
  const Registration kernel = {.init = kernel_init,
                               .free = kernel_free,
                               .prepare = kernel_prepare,
                               .invoke = kernel_invoke,
                               .builtin_code = kBuiltinDelegate,
                               .custom_name = "ElementwiseDelegate",
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
    if (report_error) report_error("ElementwiseDelegate has no options");
    return NULL;
  }
  Delegate* delegate = calloc(1, sizeof(Delegate));
  if (delegate) delegate->prepare = delegate_prepare;
  return delegate;
}

__attribute__((visibility("default"))) void tflite_plugin_destroy_delegate(Delegate* delegate) {
  free(delegate);
}
