"""Targets that obey every rule but for one deed: the reference as a library, and the example's delegate.

A rule whose cases never come to the deed must be judged as on the target without it; so the same
libraries are built with a deed that only leaves a note, which tells the rules that come to it.
"""

from __future__ import annotations

from pathlib import Path

from hostile import Deed
from native import build

BACKEND = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t Error;
typedef Error (*Entry)(void*, void*, void*, void*, void*, void*, void*);
struct Interface {
  uint32_t backend_id;
  const char* name;
  uint32_t version[6];
  void* table[71 + 64];
};
static struct Interface interface;
static struct Interface* providers[] = {&interface};
static Entry obedient;

static Error entry(void* a, void* b, void* c, void* d, void* e, void* f, void* g) {
  deed();
  return obedient(a, b, c, d, e, f, g);
}

__attribute__((visibility("default"))) Error QnnInterface_getProviders(struct Interface*** list,
                                                                       uint32_t* count) {
  void* library = dlopen(REFERENCE, RTLD_NOW);
  Error (*get)(struct Interface***, uint32_t*) = library ? dlsym(library, "QnnInterface_getProviders") : NULL;
  Error code = get ? get(list, count) : 1000;
  if (code || !list) return code;
  memcpy(&interface, **list, offsetof(struct Interface, table) + 71 * sizeof(void*));
  obedient = (Entry)interface.table[PLACE];
  interface.table[PLACE] = (void*)entry;
  *list = providers;
  return 0;
}
"""
PLACE = 21
"""graphExecute in the interface's table: no target is asked for it before its rules are judged."""

_DELEGATE = Path(__file__).parents[2] / "examples" / "delegate_repo" / "src" / "arithmetic_delegate.c"
_COMPUTES = "    const size_t count = out.tensor->bytes"


def hostile_backend(folder: Path, reference: Path, deed: Deed) -> Path:
    """The library ``reference``, which does the deed at each graphExecute, and then what it is asked for."""
    macros = {"REFERENCE": f'"{reference}"', "PLACE": str(PLACE)}
    return build(folder, deed.source() + BACKEND, "libqnnhostile.so", beside=deed.beside, **macros)


def hostile_delegate(folder: Path, deed: Deed) -> Path:
    """The example's delegate, which does the deed whenever it computes a MUL, and then computes it."""
    source = _DELEGATE.read_text()
    assert source.count(_COMPUTES) == 1
    source = source.replace(_COMPUTES, f"    if (step->op == kBuiltinMul) deed();\n{_COMPUTES}")
    return build(folder, deed.source() + source, "libhostile.so", beside=deed.beside)
