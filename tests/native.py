"""Small C libraries that the tests build with gcc: a QNN backend that misbehaves where it is told to."""

from __future__ import annotations

import subprocess
from pathlib import Path

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
static Error log_create(void* a, uint32_t b, uintptr_t* out) { return create2(a, (void*)(long)b, out); }
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


def build(folder: Path, source: str, name: str = "libbuilt.so", **macros: str) -> Path:
    """Compile C source to a shared library in ``folder``; macros become ``-DNAME=VALUE``."""
    path = folder / name
    source_path = path.with_suffix(".c")
    source_path.write_text(source)
    defines = [f"-D{key}={value}" for key, value in macros.items()]
    command = ["gcc", "-shared", "-fPIC", "-O0", "-w", *defines, "-o", str(path), str(source_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return path


def qnn_library(
    folder: Path, behaviour: str = "", *, on_load: str = "", on_backend: str = "", providers: int = 1
) -> Path:
    """A QNN backend that carries out ``behaviour`` in contextCreate.

    ``on_load`` is carried out when it is loaded, ``on_backend`` in backendCreate.
    """
    name = f"libqnn{len(list(folder.iterdir()))}.so"
    macros = {"BEHAVIOUR": behaviour, "ON_LOAD": on_load, "ON_BACKEND": on_backend}
    return build(folder, QNN_SOURCE, name, **macros, PROVIDERS=str(providers))
