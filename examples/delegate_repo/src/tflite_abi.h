/* The part of TensorFlow Lite's C interface that an external delegate needs (Linux, 64 bit).
 *
 * A delegate in a real repository includes the headers of the TensorFlow Lite it is built for. This
 * example declares the few structures itself, so that it builds with a C compiler and nothing else. */
#ifndef TFLITE_ABI_H
#define TFLITE_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { kOk = 0, kError = 1 };
enum { kFloat32 = 1, kInt8 = 9 };
enum {
  kBuiltinAdd = 0,
  kBuiltinFullyConnected = 9,
  kBuiltinMul = 18,
  kBuiltinSub = 41,
  kBuiltinDelegate = 51
};
enum { kActNone = 0, kActRelu = 1, kActReluN1To1 = 2, kActRelu6 = 3 };
enum { kWeightsPlain = 0 };

typedef struct {
  int size;
  int data[];
} IntArray;

typedef struct {
  int type;
  void* data;
  IntArray* dims;
  struct {
    float scale;
    int32_t zero_point;
  } params;
  int allocation_type;
  size_t bytes;
  const void* allocation;
  const char* name;
  struct Delegate* delegate;
  int buffer_handle;
  bool data_is_stale;
  bool is_variable;
  struct {
    int type;
    void* params;
  } quantization;
  void* sparsity;
  const IntArray* dims_signature;
} Tensor;

typedef struct {
  IntArray* inputs;
  IntArray* outputs;
  IntArray* intermediates;
  IntArray* temporaries;
  void* user_data;
  void* builtin_data;
  const void* custom_initial_data;
  int custom_initial_data_size;
  struct Delegate* delegate;
  bool might_have_side_effect;
} Node;

typedef struct Context Context;

typedef struct {
  void* (*init)(Context*, const char* buffer, size_t length);
  void (*free)(Context*, void* user_data);
  int (*prepare)(Context*, Node*);
  int (*invoke)(Context*, Node*);
  const char* (*profiling_string)(const Context*, const Node*);
  int32_t builtin_code;
  const char* custom_name;
  int version;
  void* registration_external;
  void* async_kernel;
  uint64_t inplace_operator;
} Registration;

typedef struct Delegate {
  void* data;
  int (*prepare)(Context*, struct Delegate*);
  int (*copy_from_buffer_handle)(Context*, struct Delegate*, int, Tensor*);
  int (*copy_to_buffer_handle)(Context*, struct Delegate*, int, Tensor*);
  void (*free_buffer_handle)(Context*, struct Delegate*, int*);
  int64_t flags;
  void* opaque_delegate_builder;
} Delegate;

typedef struct {
  Delegate* delegate;
  IntArray* nodes_to_replace;
  IntArray* input_tensors;
  IntArray* output_tensors;
} DelegateParams;

struct Context {
  size_t tensors_size;
  int (*get_execution_plan)(Context*, IntArray** plan);
  Tensor* tensors;
  void* impl;
  int (*resize_tensor)(Context*, Tensor*, IntArray*);
  void (*report_error)(Context*, const char* format, ...);
  int (*add_tensors)(Context*, int count, int* first);
  int (*get_node_and_registration)(Context*, int index, Node**, Registration**);
  int (*replace_node_subsets)(Context*, Registration, const IntArray* nodes, Delegate*);
};

/* ADD, SUB, MUL and FULLY_CONNECTED: the activation is the first member of their parameters. */
typedef struct {
  int activation;
  int weights_format; /* FULLY_CONNECTED only */
} FusedParams;

#endif
