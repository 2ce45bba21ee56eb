/* A model on tflite-runtime's library, which has no C API of interpreters (`nm -D`: of TensorFlow Lite's C functions it
 * exports only those of delegates, of tensors and of arrays). So its C++ functions are called by their symbols, as the
 * Itanium C++ ABI has it: `this` is the first argument, and an object that is returned goes where a first argument says.
 * Tensors are reached as a delegate reaches them, by TfLiteContext.
 *
 * The library is an extension module of Python's. Of Python nothing is called here, but 27 addresses must be there when
 * it is loaded: they are below, without contents.
 */
#ifndef FINDINGS_TFLITE_H
#define FINDINGS_TFLITE_H
#include "runtimes.h"

#define OF_PYTHON(NAME) char NAME[512];
OF_PYTHON(PyBaseObject_Type) OF_PYTHON(PyByteArray_Type) OF_PYTHON(PyCFunction_Type) OF_PYTHON(PyCapsule_Type)
OF_PYTHON(PyDict_Type) OF_PYTHON(PyExc_AttributeError) OF_PYTHON(PyExc_BufferError) OF_PYTHON(PyExc_ImportError)
OF_PYTHON(PyExc_IndexError) OF_PYTHON(PyExc_MemoryError) OF_PYTHON(PyExc_OverflowError) OF_PYTHON(PyExc_RuntimeError)
OF_PYTHON(PyExc_SystemError) OF_PYTHON(PyExc_TypeError) OF_PYTHON(PyExc_ValueError) OF_PYTHON(PyFloat_Type)
OF_PYTHON(PyInstanceMethod_Type) OF_PYTHON(PyMethod_Type) OF_PYTHON(PyModule_Type) OF_PYTHON(PyObject_GenericGetDict)
OF_PYTHON(PyObject_GenericSetDict) OF_PYTHON(PyProperty_Type) OF_PYTHON(PyType_Type) OF_PYTHON(_Py_FalseStruct)
OF_PYTHON(_Py_NoneStruct) OF_PYTHON(_Py_NotImplementedStruct) OF_PYTHON(_Py_TrueStruct)

typedef struct {
  int32_t size;
  int32_t data[];
} IntArray;

/* TfLiteTensor of 2.14. */
typedef struct {
  int type;
  void* data;
  IntArray* dims;
  float scale;
  int32_t zero_point;
  int allocation_type;
  size_t bytes;
  const void* allocation;
  const char* name;
  void* delegate;
  int buffer_handle;
  char data_is_stale, is_variable;
  int quantization_type;
  void *quantization_params, *sparsity;
  const IntArray* dims_signature;
} Tensor;

/* How TfLiteContext begins. */
typedef struct {
  size_t tensors_size;
  void* get_execution_plan;
  Tensor* tensors;
} Context;

/* TfLiteDelegate. */
typedef struct Delegate {
  void* data;
  int (*prepare)(Context*, struct Delegate*);
  void *copy_from, *copy_to, *free_handle;
  int64_t flags;
  void* opaque;
} Delegate;

static Context* g_context;

/* A delegate that claims nothing, and remembers the context. */
static int remember(Context* context, Delegate* delegate) {
  (void)delegate;
  g_context = context;
  return 0;
}

/* Places in tables of the flatbuffer: the field FIELD of the table at `at`; 0: it is absent. */
static size_t field(const uint8_t* file, size_t at, unsigned number) {
  int32_t back;
  uint16_t size, offset = 0;
  memcpy(&back, file + at, 4);
  memcpy(&size, file + at - back, 2);
  if (4 + 2 * number < size) memcpy(&offset, file + at - back + 4 + 2 * number, 2);
  return offset ? at + offset : 0;
}

static size_t followed(const uint8_t* file, size_t at) {
  uint32_t offset;
  memcpy(&offset, file + at, 4);
  return at + offset;
}

/* The inputs (1) or outputs (2) of the first subgraph: how many, and the place of the first. */
static size_t ends_of(const uint8_t* file, unsigned which, uint32_t* count) {
  size_t subgraphs = followed(file, field(file, followed(file, 0), 2));
  size_t vector = followed(file, field(file, followed(file, subgraphs + 4), which));
  memcpy(count, file + vector, 4);
  return vector + 4;
}

static Tensor* tensor_of(const uint8_t* file, unsigned which, uint32_t place) {
  uint32_t count;
  int32_t index;
  memcpy(&index, file + ends_of(file, which, &count) + 4 * place, 4);
  return g_context->tensors + index;
}

/* std::vector of nothing, which the resolver answers when it is asked for its default delegates. */
static void* no_delegates(void* answered, const void* self) {
  (void)self;
  return memset(answered, 0, 24);
}

/* A BuiltinOpResolver, or a BuiltinRefOpResolver, whose virtual GetDelegateCreators is the above: else XNNPACK is applied without being asked for. */
static void** resolver_of(void* library) {
  enum { kPlaces = 16 };
  static void* table[2 + kPlaces];
  const void* replaced = function(library, "_ZNK6tflite17MutableOpResolver19GetDelegateCreatorsEv");
  void** made = calloc(1, 1 << 16);
  const char* maker = g_reference ? "_ZN6tflite3ops7builtin20BuiltinRefOpResolverC1Ev"
                                  : "_ZN6tflite3ops7builtin17BuiltinOpResolverC1Ev";
  ((void (*)(void*))function(library, maker))(made);
  memcpy(table, (void**)made[0] - 2, sizeof table);
  int place = 2;
  while (place < 2 + kPlaces && table[place] != replaced) ++place;
  if (place == 2 + kPlaces) cannot("BuiltinOpResolver has its functions elsewhere");
  table[place] = (void*)no_delegates;
  made[0] = table + 2;
  return made;
}

static Delegate* xnnpack_of(void* library) {
  static char options[1024]; /* larger than TfLiteXNNPackDelegateOptions, which is returned through memory */
  ((void* (*)(void*))function(library, "TfLiteXNNPackDelegateOptionsDefault"))(options);
  Delegate* made = ((Delegate * (*)(void*)) function(library, "TfLiteXNNPackDelegateCreate"))(options);
  if (!made) cannot("TfLiteXNNPackDelegateCreate");
  return made;
}

static void tflite_run(void* library, void* content, size_t size, int with_xnnpack) {
  void *model = NULL, *interpreter = NULL, *builder = calloc(1, 4096);
  ((void* (*)(void**, void*, size_t, void*))function(
      library, "_ZN6tflite4impl15FlatBufferModel15BuildFromBufferEPKcmPNS_13ErrorReporterE"))(&model, content, size, NULL);
  if (!model) answer(kRefused, "BuildFromBuffer: no model");
  ((void (*)(void*, void*, void*, void*))function(
      library,
      "_ZN6tflite4impl18InterpreterBuilderC1ERKNS0_15FlatBufferModelERKNS_10OpResolverEPKNS_18InterpreterOptionsE"))(
      builder, model, resolver_of(library), NULL);
  ((int (*)(void*, void**))function(
      library, "_ZN6tflite4impl18InterpreterBuilderclEPSt10unique_ptrINS0_11InterpreterESt14default_deleteIS3_EE"))(
      builder, &interpreter);
  if (!interpreter) answer(kRefused, "InterpreterBuilder: no interpreter");
  int (*apply)(void*, Delegate*) =
      (int (*)(void*, Delegate*))function(library, "_ZN6tflite4impl11Interpreter23ModifyGraphWithDelegateEP14TfLiteDelegate");
  static Delegate looks = {.prepare = remember, .flags = 1 /* kTfLiteDelegateFlagsAllowDynamicTensors */};
  if (apply(interpreter, &looks) || !g_context) cannot("a delegate that claims nothing is refused");
  if (with_xnnpack) {
    int applied = apply(interpreter, xnnpack_of(library));
    if (applied) fprintf(stderr, "ModifyGraphWithDelegate of XNNPACK: status %d; the CPU goes on\n", applied);
  }
  int status = ((int (*)(void*))function(library, "_ZN6tflite4impl11Interpreter15AllocateTensorsEv"))(interpreter);
  if (status) answer(kRefused, "AllocateTensors: status %d", status);
  uint32_t count;
  ends_of(content, 1, &count);
  for (size_t time = 0; time < g_times; ++time) {
    for (uint32_t i = 0; i < count; ++i) {
      Tensor* input = tensor_of(content, 1, i);
      fill(input->data, input->type, input->bytes / size_of(input->type), time);
    }
    status = ((int (*)(void*))function(library, "_ZN6tflite4impl11Interpreter6InvokeEv"))(interpreter);
    if (status) answer(kRefused, "Invoke: status %d", status);
  }
  Tensor* output = tensor_of(content, 2, 0);
  computed(output->data, output->type, output->dims->size, output->dims->data);
}
#endif
