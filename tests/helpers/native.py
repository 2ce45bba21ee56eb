"""Small C libraries that the tests build with gcc: a QNN backend that misbehaves where it is told to."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

QNN_SOURCE = r"""
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t Error;
struct Interface {
  uint32_t backend_id;
  const char* name;
  uint32_t version[6];
  void* table[71 + 64];
};
static Error unsupported(void) { return 1000; }
static uintptr_t next_handle = 0x100;
static Error create2(void* a, void* b, uintptr_t* out) { (void)a; (void)b; *out = ++next_handle; return 0; }
static Error backend_create(void* a, void* b, uintptr_t* out) {
  ON_BACKEND;
  return create2(a, b, out);
}
static void* log_callback;
static Error log_create(void* a, uint32_t b, uintptr_t* out) {
  log_callback = a;
  return create2(a, (void*)(long)b, out);
}
static Error ok1(void* a) { (void)a; return 0; }
static Error ok2(void* a, void* b) { (void)a; (void)b; return 0; }
static Error context_create(void* a, void* b, void* c, uintptr_t* out) {
  (void)a; (void)b; (void)c;
  BEHAVIOUR;
  *out = ++next_handle;
  return 0;
}
static struct Interface interface = {.backend_id = 99, .name = "MISBEHAVING", .version = {2, 32, 0, 1, 0, 0}};
static struct Interface* providers[] = {&interface};

__attribute__((constructor)) static void on_load(void) { ON_LOAD; }

Error QnnInterface_getProviders(struct Interface*** list, uint32_t* count) {
  if (!list || !count) return 1004;
  for (int i = 0; i < 71; ++i) interface.table[i] = (void*)unsupported;
  interface.table[1] = (void*)backend_create; /* backendCreate */
  interface.table[8] = (void*)ok1;            /* backendFree */
  interface.table[9] = (void*)context_create; /* contextCreate */
  interface.table[14] = (void*)ok2;           /* contextFree */
  interface.table[25] = (void*)log_create;    /* logCreate */
  interface.table[27] = (void*)ok1;           /* logFree */
  interface.table[40] = (void*)create2;       /* deviceCreate */
  interface.table[43] = (void*)ok1;           /* deviceFree */
  *list = providers;
  *count = PROVIDERS;
  return 0;
}
"""


DELEGATE_SOURCE = r"""
#include <stdlib.h>
#include "tflite_abi.h"

static int provoked; /* by a graph with a MUL; ADD is harmless */

static void* init(Context* context, const char* buffer, size_t length) {
  (void)context; (void)buffer; (void)length;
  return &provoked;
}
static void release(Context* context, void* data) { (void)context; (void)data; }
static int kernel_prepare(Context* context, Node* node) { (void)context; (void)node; return kOk; }
static int invoke(Context* context, Node* node) {
  Tensor* tensors = context->tensors;
  const float* a = tensors[node->inputs->data[0]].data;
  Tensor* out = &tensors[node->outputs->data[0]];
  for (size_t i = 0; i < out->bytes / sizeof(float); ++i) ((float*)out->data)[i] = COMPUTE;
  if (provoked) { ON_INVOKE; }
  return kOk;
}
static int prepare(Context* context, Delegate* self) {
  IntArray* plan;
  if (context->get_execution_plan(context, &plan) != kOk) return kError;
  IntArray* claimed = malloc(sizeof(IntArray) + plan->size * sizeof(int));
  claimed->size = 0;
  provoked = 0;
  for (int i = 0; i < plan->size; ++i) {
    Node* node;
    Registration* registration;
    context->get_node_and_registration(context, plan->data[i], &node, &registration);
    if (registration->builtin_code == kBuiltinMul) provoked = 1;
    claimed->data[claimed->size++] = plan->data[i];
  }
  if (provoked) { ON_PREPARE; }
  Registration kernel = {init, release, kernel_prepare, invoke};
  kernel.builtin_code = kBuiltinDelegate;
  kernel.custom_name = "Hostile";
  kernel.version = 1;
  int status = context->replace_node_subsets(context, kernel, claimed, self);
  free(claimed);
  return status;
}
Delegate* tflite_plugin_create_delegate(char** keys, char** values, size_t count, void* report) {
  (void)keys; (void)values; (void)count; (void)report;
  Delegate* delegate = calloc(1, sizeof(Delegate));
  delegate->prepare = prepare;
  return delegate;
}
void tflite_plugin_destroy_delegate(Delegate* delegate) { free(delegate); }
"""

_ABI = Path(__file__).parents[2] / "examples" / "delegate_repo" / "src"


def build(folder: Path, source: str, name: str = "libbuilt.so", *, beside: str = "", **macros: str) -> Path:
    """Compile C source to a shared library in ``folder``; macros become ``-DNAME=VALUE``.

    ``beside`` is C++ source that is linked to it.
    """
    path = folder / name
    source_path = path.with_suffix(".c")
    source_path.write_text(source)
    defines = [f"-D{key}={value}" for key, value in macros.items()]
    flags = ["-fPIC", "-O0", "-w", f"-I{_ABI}"]
    command = ["gcc", "-shared", *flags, *defines, "-o", str(path), str(source_path)]
    if beside:
        if shutil.which("g++") is None:
            pytest.skip("there is no C++ compiler (g++)")
        beside_path = path.with_suffix(".cc")
        beside_path.write_text(beside)
        thrower = path.with_suffix(".o")
        _run(["g++", "-c", *flags, "-o", str(thrower), str(beside_path)])
        command += [str(thrower), "-lstdc++"]
    _run(command)
    return path


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def qnn_library(
    folder: Path,
    behaviour: str = "",
    *,
    on_load: str = "",
    on_backend: str = "",
    providers: int = 1,
    before: str = "",
    beside: str = "",
) -> Path:
    """A QNN backend that carries out ``behaviour`` in contextCreate.

    ``on_load`` is carried out when it is loaded, ``on_backend`` in backendCreate. ``before`` is C source in
    front of it, ``beside`` C++ source linked to it.
    """
    name = f"libqnn{len(list(folder.iterdir()))}.so"
    macros = {"BEHAVIOUR": behaviour, "ON_LOAD": on_load, "ON_BACKEND": on_backend}
    return build(folder, before + QNN_SOURCE, name, beside=beside, **macros, PROVIDERS=str(providers))


def delegate_library(
    folder: Path,
    *,
    on_prepare: str = "",
    on_invoke: str = "",
    compute: str = "a[i]",
    before: str = "",
    beside: str = "",
) -> Path:
    """A delegate plugin that takes every node, and misbehaves in graphs with a MUL.

    ``on_prepare`` is carried out in Prepare, ``on_invoke`` in the kernel's invoke, after it has written
    ``compute`` to each element ``i`` of its first output (``a`` is its first input).
    """
    name = f"libdelegate{len(list(folder.iterdir()))}.so"
    macros = {"ON_PREPARE": on_prepare, "ON_INVOKE": on_invoke, "COMPUTE": compute}
    return build(folder, before + DELEGATE_SOURCE, name, beside=beside, **macros)
