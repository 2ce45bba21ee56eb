/* What litert.h and tflite.h share: how a value is written into an input, and how an answer is given. */
#ifndef FINDINGS_RUNTIMES_H
#define FINDINGS_RUNTIMES_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How a process ends that carries a model out. */
enum { kComputed = 0, kRefused = 1, kCannot = 2 };

/* Types of elements: TfLiteType, and the same numbers in LiteRtElementType. */
enum {
  kFloat32 = 1,
  kInt32 = 2,
  kUInt8 = 3,
  kInt64 = 4,
  kBool = 6,
  kInt16 = 7,
  kInt8 = 9,
  kFloat16 = 10,
};

/* Where the answer goes. */
static int g_said = 1;

static _Noreturn void cannot(const char* format, ...) {
  va_list rest;
  va_start(rest, format);
  printf("cannot run: ");
  vprintf(format, rest);
  printf("\n");
  fflush(stdout);
  _exit(kCannot);
}

static _Noreturn void answer(int status, const char* format, ...) {
  va_list rest;
  va_start(rest, format);
  vdprintf(g_said, format, rest);
  _exit(status);
}

/* A function of the library; the program cannot go on without it. */
static void* function(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (!found) cannot("the library has no %s", name);
  return found;
}

static void* read_all(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) cannot("no file %s", path);
  *size = (size_t)ftell(file);
  rewind(file);
  void* content = aligned_alloc(64, (*size / 64 + 1) * 64);
  if (!content || fread(content, 1, *size, file) != *size) cannot("%s cannot be read", path);
  fclose(file);
  return content;
}

static size_t size_of(int type) {
  switch (type) {
    case kFloat32: case kInt32: return 4;
    case kInt64: return 8;
    case kInt16: case kFloat16: return 2;
    case kUInt8: case kInt8: case kBool: return 1;
  }
  cannot("elements of type %d are not known here", type);
}

/* The reference kernels in place of the builtin ones, where XNNPACK is left out. */
static int g_reference;

/* How often a model is carried out; what the last time gives is the answer. */
static size_t g_times = 1;

/* FIRST, FIRST + 1, ...: as _Float16 is not in every compiler, its bits are made by hand. */
static void fill(void* data, int type, size_t count, size_t first) {
  for (size_t at = 0; at < count; ++at) {
    size_t i = at + first;
    int exponent = 0;
    while (i >> (exponent + 1)) ++exponent;
    switch (type) {
      case kFloat32: ((float*)data)[at] = (float)i; break;
      case kInt32: ((int32_t*)data)[at] = (int32_t)i; break;
      case kInt64: ((int64_t*)data)[at] = (int64_t)i; break;
      case kInt16: ((int16_t*)data)[at] = (int16_t)i; break;
      case kFloat16:
        ((uint16_t*)data)[at] = (uint16_t)(i ? (exponent + 15) << 10 | ((i << 10 >> exponent) & 0x3ff) : 0);
        break;
      case kBool: ((uint8_t*)data)[at] = i > 0; break;
      default: ((uint8_t*)data)[at] = (uint8_t)i;
    }
  }
}

static double number(const void* data, int type, size_t i) {
  switch (type) {
    case kFloat32: return ((const float*)data)[i];
    case kInt32: return ((const int32_t*)data)[i];
    case kInt64: return (double)((const int64_t*)data)[i];
    case kInt16: return ((const int16_t*)data)[i];
    case kInt8: return ((const int8_t*)data)[i];
    case kFloat16: {
      int half = ((const uint16_t*)data)[i], exponent = half >> 10 & 31, fraction = half & 0x3ff;
      double value = exponent == 31 ? (fraction ? __builtin_nan("") : __builtin_inf())
                                    : (exponent ? fraction + 1024 : fraction) / 16777216.0 *
                                          (double)(1 << (exponent ? exponent - 1 : 0));
      return half >> 15 ? -value : value;
    }
  }
  return ((const uint8_t*)data)[i];
}

/* The answer: a shape, and the first eight numbers. */
static _Noreturn void computed(const void* data, int type, int rank, const int32_t* dimensions) {
  size_t count = 1;
  dprintf(g_said, "[");
  for (int i = 0; i < rank; ++i) {
    count *= (size_t)dimensions[i];
    dprintf(g_said, i ? ", %d" : "%d", dimensions[i]);
  }
  dprintf(g_said, "]");
  for (size_t i = 0; i < count && i < 8; ++i) dprintf(g_said, " %g", number(data, type, i));
  _exit(kComputed);
}
#endif
