"""QNN delegates in C that tests build with gcc: by their own interface alone, or as external delegates too.

The delegate is that of `native_plugins`, with custom memory; its struct of options has members behind those
that the suite knows, as vendors' have. Faults are chosen by macros.
"""

from __future__ import annotations

from pathlib import Path

import native_plugins
from native import build

MEMORY = r"""
#define _GNU_SOURCE
#include <sys/mman.h>
static struct { void* memory; size_t bytes; } blocks[64];
void* TfLiteQnnDelegateAllocCustomMem(size_t bytes, size_t alignment) {
  int i = 0;
  while (i < 64 && blocks[i].memory) ++i;
  if (i == 64 || !bytes || bytes > 1 << 30 || alignment > 4096) return NULL;
  void* memory = mmap(0, bytes, PROT_READ | PROT_WRITE, SHARING | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  blocks[i].memory = memory;
  blocks[i].bytes = bytes;
  return memory;
}
void TfLiteQnnDelegateFreeCustomMem(void* pointer) {
  for (int i = 0; i < 64; ++i)
    if (pointer && blocks[i].memory == pointer) {
      munmap(pointer, blocks[i].bytes);
      blocks[i].memory = NULL;
    }
}
"""
"""The two functions of custom memory; SHARING is a flag of mmap."""

_OWN = r"""
enum { kUndefined, kGpu, kHtp, kDsp };
typedef struct {
  int backend_type;
  const char *library_path, *skel_library_dir;
  struct { int precision, mode; const char* folder; } gpu;
  int others[90];
  const char* cache;
  int last;
} Options;
#ifndef DEFAULT_TYPE
#define DEFAULT_TYPE kUndefined
#endif
#ifndef TAKES
#define TAKES type == kHtp
#endif
Options TfLiteQnnDelegateOptionsDefault(void) {
  Options options = {.backend_type = DEFAULT_TYPE, .library_path = "", .skel_library_dir = ""};
  options.cache = "cache";
  options.last = 4711;
  return options;
}
Plugin* TfLiteQnnDelegateCreate(const Options* options) {
  int type = options->backend_type;
  if (!(TAKES) || options->last != 4711 || strcmp(options->cache, "cache")) return NULL;
  if (!strcmp(options->library_path, "missing") || !options->skel_library_dir) return NULL;
#ifdef IN_OWN_CREATE /* what a test puts there */
  IN_OWN_CREATE;
#endif
  return create(NULL, NULL, 0, NULL);
}
void TfLiteQnnDelegateDelete(Plugin* plugin) { destroy(plugin); }
"""
_EXTERNAL = r"""
#ifndef NAMES
#define NAMES !strcmp(text, "htp")
#endif
Plugin* tflite_plugin_create_delegate(char** keys, char** values, size_t count, Report report) {
  int known = MISSING_IS_HTP;
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(keys[i], "backend_type")) return refuse(report, "there is no such option");
    const char* text = values[i];
    if (!(NAMES)) return refuse(report, "there is no such backend");
    known = 1;
  }
  return known ? create(NULL, NULL, 0, report) : refuse(report, "the option backend_type is mandatory");
}
void tflite_plugin_destroy_delegate(Plugin* plugin) { destroy(plugin); }
"""


def _source(*, external: bool) -> str:
    # The plugin's two functions get other names, which nobody sees.
    plugin = native_plugins.SOURCE.replace("Plugin* CREATE(", "static Plugin* create(")
    plugin = plugin.replace("void DESTROY(", "static void destroy(")
    return plugin + MEMORY + _OWN + (_EXTERNAL if external else "")


def own_only(folder: Path, **macros: str) -> Path:
    """A library with TfLiteQnnDelegateCreate and without tflite_plugin_create_delegate."""
    return _built(folder, _source(external=False), macros)


def with_both(folder: Path, **macros: str) -> Path:
    """A library with both, as Qualcomm's; its one external option is ``backend_type=htp``."""
    return _built(folder, _source(external=True), {"MISSING_IS_HTP": "0"} | macros)


def _built(folder: Path, source: str, macros: dict[str, str]) -> Path:
    name = f"libQnnTFLiteDelegate{len(list(folder.iterdir()))}.so"
    return build(folder, source, name, **({"SHARING": "MAP_SHARED"} | macros))
