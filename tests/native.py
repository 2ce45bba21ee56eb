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
static Error log_create(void* a, uint32_t b, uintptr_t* out) { (void)a; (void)b; *out = ++next_handle; return 0; }
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
  interface.table[1] = (void*)create2;        /* backendCreate */
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


def qnn_library(folder: Path, behaviour: str = "", on_load: str = "", providers: int = 1) -> Path:
    """A QNN backend that carries out ``behaviour`` in contextCreate and ``on_load`` when it is loaded."""
    name = f"libqnn{abs(hash((behaviour, on_load, providers))) % 10**8}.so"
    return build(folder, QNN_SOURCE, name, BEHAVIOUR=behaviour, ON_LOAD=on_load, PROVIDERS=str(providers))
