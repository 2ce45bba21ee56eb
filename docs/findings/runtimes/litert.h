/* A model on libLiteRt.so of ai-edge-litert, by the C API that it exports (litert/c of google-ai-edge/LiteRT).
 *
 * The CPU accelerator applies XNNPACK. Without it: the option "kernel_mode" of the CPU's options.
 */
#ifndef FINDINGS_LITERT_H
#define FINDINGS_LITERT_H
#include "runtimes.h"

typedef void* Object;

typedef struct {
  unsigned int rank : 7;
  unsigned int has_strides : 1;
  int32_t dimensions[8];
  uint32_t strides[8];
} Layout;

typedef struct {
  int type;
  Layout layout;
} RankedType;

static int g_must_run; /* a shape is no answer */

enum { kHostMemory = 1, kOnCpu = 1, kForReading = 0, kForWriting = 1 };

#define LITERT(NAME, ...) ((int (*)(__VA_ARGS__))function(library, "LiteRt" #NAME))

static void litert_ok(int status, const char* call) {
  if (status) answer(kRefused, "%s: status %d", call, status);
}

static void payload_kept(void* payload) { (void)payload; }

/* The type of an input or output of the first subgraph. */
static RankedType litert_type(void* library, Object subgraph, int is_output, size_t place) {
  Object tensor;
  RankedType type;
  const char* name = is_output ? "LiteRtGetSubgraphOutput" : "LiteRtGetSubgraphInput";
  litert_ok(((int (*)(Object, size_t, Object*))function(library, name))(subgraph, place, &tensor), name);
  litert_ok(LITERT(GetRankedTensorType, Object, RankedType*)(tensor, &type), "LiteRtGetRankedTensorType");
  return type;
}

static size_t elements(const Layout* layout) {
  size_t count = 1;
  for (unsigned i = 0; i < layout->rank; ++i) count *= (size_t)layout->dimensions[i];
  return count;
}

static Object litert_buffer(void* library, Object environment, const RankedType* type) {
  Object buffer;
  size_t bytes = elements(&type->layout) * size_of(type->type);
  if (!bytes) cannot("LiteRtCreateManagedTensorBuffer makes no buffer without bytes (it answers 3)");
  litert_ok(LITERT(CreateManagedTensorBuffer, Object, int, const RankedType*, size_t, Object*)(
                environment, kHostMemory, type, bytes, &buffer),
            "LiteRtCreateManagedTensorBuffer");
  return buffer;
}

static void* litert_memory(void* library, Object buffer, int mode) {
  void* address;
  litert_ok(LITERT(LockTensorBuffer, Object, void**, int)(buffer, &address, mode), "LiteRtLockTensorBuffer");
  return address;
}

static void litert_run(void* library, void* content, size_t size, int with_xnnpack) {
  Object environment, model, options, cpu, compiled, subgraph, inputs[8], outputs[8];
  static char mode[64];
  const char* kernels = g_reference ? "reference" : "builtin";
  snprintf(mode, sizeof mode, "kernel_mode = \"%s\"\n", with_xnnpack ? "xnnpack" : kernels);
  if (LITERT(CreateEnvironment, int, void*, Object*)(0, NULL, &environment)) cannot("LiteRtCreateEnvironment");
  litert_ok(LITERT(CreateModelFromBuffer, Object, void*, size_t, Object*)(environment, content, size, &model),
            "LiteRtCreateModelFromBuffer");
  if (LITERT(CreateOptions, Object*)(&options)) cannot("LiteRtCreateOptions");
  if (LITERT(SetOptionsHardwareAccelerators, Object, int)(options, kOnCpu)) cannot("accelerators");
  if (LITERT(CreateOpaqueOptions, const char*, void*, void (*)(void*), Object*)("xnnpack", mode, payload_kept, &cpu)) {
    cannot("LiteRtCreateOpaqueOptions");
  }
  if (LITERT(AddOpaqueOptions, Object, Object)(options, cpu)) cannot("LiteRtAddOpaqueOptions");
  litert_ok(LITERT(CreateCompiledModel, Object, Object, Object, Object*)(environment, model, options, &compiled),
            "LiteRtCreateCompiledModel");
  litert_ok(LITERT(GetModelSubgraph, Object, size_t, Object*)(model, 0, &subgraph), "LiteRtGetModelSubgraph");
  size_t count, results;
  LITERT(GetNumSubgraphOutputs, Object, size_t*)(subgraph, &results);
  Layout layouts[8];
  if (results > 8) cannot("%zu outputs", results);
  /* true: it allocates the tensors first */
  litert_ok(LITERT(GetCompiledModelOutputTensorLayouts, Object, size_t, size_t, Layout*, _Bool)(compiled, 0, results,
                                                                                              layouts, 1),
            "LiteRtGetCompiledModelOutputTensorLayouts");
  RankedType type = litert_type(library, subgraph, 1, 0);
  type.layout = layouts[0];
  /* A shape says enough where XNNPACK is judged; and there is no buffer to run the model with. */
  if (!elements(&type.layout) && !g_must_run) computed(NULL, type.type, (int)type.layout.rank, type.layout.dimensions);
  LITERT(GetNumSubgraphInputs, Object, size_t*)(subgraph, &count);
  for (size_t i = 0; i < count && i < 8; ++i) {
    RankedType read = litert_type(library, subgraph, 0, i);
    inputs[i] = litert_buffer(library, environment, &read);
  }
  for (size_t i = 0; i < results; ++i) {
    RankedType made = litert_type(library, subgraph, 1, i);
    made.layout = layouts[i];
    outputs[i] = litert_buffer(library, environment, &made);
  }
  for (size_t time = 0; time < g_times; ++time) {
    for (size_t i = 0; i < count && i < 8; ++i) {
      RankedType read = litert_type(library, subgraph, 0, i);
      fill(litert_memory(library, inputs[i], kForWriting), read.type, elements(&read.layout), time);
      LITERT(UnlockTensorBuffer, Object)(inputs[i]);
    }
    litert_ok(LITERT(RunCompiledModel, Object, size_t, size_t, Object*, size_t, Object*)(compiled, 0, count, inputs,
                                                                                         results, outputs),
              "LiteRtRunCompiledModel");
  }
  computed(litert_memory(library, outputs[0], kForReading), type.type, (int)type.layout.rank, type.layout.dimensions);
}
#endif
