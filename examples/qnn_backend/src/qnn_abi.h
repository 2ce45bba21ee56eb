/* The part of the QNN interface 2.32 that example_backend.c needs (Linux, 64 bit). Layouts are those of
 * pytest_qnn/qnn/abi/layouts.py. */
#ifndef QNN_ABI_H
#define QNN_ABI_H

#include <stdint.h>

typedef uint64_t Error;
enum { kFunctions = 71, kSpare = 64, kMaxRank = 8 };
enum { kAppWrite = 0, kAppRead = 1, kNative = 3, kStatic = 4 };
enum { kRaw = 0, kMemhandle = 1 };
enum { kInt8 = 0x008, kFloat32 = 0x232, kUfixed8 = 0x408 };
enum { kPriority = 1, kReporting = 2, kDeferInit = 9 };

typedef struct {
  uint32_t backend_id;
  const char* name;
  uint32_t version[6];
  void* table[kFunctions + kSpare];
} Interface;

/* Qnn_Tensor_t, 144 bytes; version 2 has the same members up to the union. */
typedef struct {
  uint32_t version;
  uint32_t id __attribute__((aligned(8)));
  const char* name;
  uint32_t type, data_format, data_type;
  uint32_t encoding_defined __attribute__((aligned(8))), encoding_kind;
  float scale;
  int32_t offset;
  char other_encodings[24];
  uint32_t rank;
  const uint32_t* dims;
  uint32_t memory_type;
  void* pointer; /* of client memory, or a memory handle */
  uint32_t data_size;
  char of_version_2[24];
} Tensor;

/* Qnn_OpConfig_t, 80 bytes. */
typedef struct {
  uint32_t version;
  const char *name, *package, *type;
  uint32_t params_size;
  void* params;
  uint32_t inputs_size;
  Tensor* inputs;
  uint32_t outputs_size;
  Tensor* outputs;
} OpConfig;

/* Qnn_MemDescriptor_t, 48 bytes. */
typedef struct {
  uint32_t rank;
  const uint32_t* dims;
  const char* shape_config;
  uint32_t data_type, memory_type;
  int32_t fd;
  void* dma_data;
} MemDescriptor;

/* QnnContext_Config_t, 16 bytes. */
typedef struct {
  uint32_t option;
  union {
    uint8_t deferred;
    void* other;
  };
} ContextConfig;

_Static_assert(sizeof(Tensor) == 144 && sizeof(OpConfig) == 80, "Qnn_Tensor_t, Qnn_OpConfig_t");
_Static_assert(sizeof(MemDescriptor) == 48 && sizeof(ContextConfig) == 16, "descriptors and configurations");

#endif
