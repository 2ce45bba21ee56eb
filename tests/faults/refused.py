"""The example backend with one fault each in what it does where the system refuses it something.

They were written from the sentences of the rules OOM-01 to OOM-06, each as a mistake in C (or in C++).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.faults import faults, throwing
from tests.faults.faults import Fault


def _made(kind: str) -> str:
    """How an object of this kind is made."""
    return f"  const Object* made = adopt(calloc(1, sizeof(Object)), {kind}, NULL);\n  if (!made) "


_EXECUTE: Final = "  if (!data) return no_memory;\n"
_CONTEXT: Final = (
    "  Object* made = adopt(calloc(1, sizeof(Object)), kContext, owner);\n  if (!made) return no_memory;\n"
)
_MEMORY: Final = "  if (!*made) {\n    munmap(data, (size_t)file.st_size);\n    return no_memory;\n  }\n"


def _fault(what: str, owner: str, piece: str, by: str, timeout: float = faults.TIMEOUT) -> Fault:
    return Fault("memory", what, owner, piece, by, timeout)


REFUSED: Final[dict[str, Fault]] = {
    "context-is-not-looked-at": _fault(
        "QnnContext_create writes to the object that it has no memory for.",
        "OOM-01",
        _CONTEXT,
        "  Object* first = calloc(1, sizeof(Object));\n  first->kind = kContext;\n  free(first);\n"
        + _CONTEXT,
    ),
    "execute-is-not-looked-at": _fault(
        "QnnGraph_execute writes to the table that it has no memory for.", "OOM-01", _EXECUTE, ""
    ),
    "device-aborts": _fault(
        "QnnDevice_create aborts where it has no memory.",
        "OOM-01",
        _made("kDevice") + "return no_memory;\n",
        _made("kDevice") + "abort();\n",
    ),
    "tensors-are-lost": _fault(
        "QnnTensor_createGraphTensor forgets where the tensors are when there is no memory for one more.",
        "OOM-01",
        "  if (!tensors) return no_memory;\n  owner->tensors = tensors;\n",
        "  owner->tensors = tensors;\n  if (!tensors) {\n    owner->tensors_size += !owner->tensors_size;\n"
        "    return no_memory;\n  }\n",
    ),
    "context-throws": _fault(
        "QnnContext_create lets the exception of operator new through.",
        "OOM-02",
        _CONTEXT,
        "  void* throwing(size_t);\n  Object* made = adopt(throwing(sizeof(Object)), kContext, owner);\n"
        "  if (!made) return no_memory;\n",
    ),
    "execute-throws": _fault(
        "QnnGraph_execute lets the exception of operator new through.",
        "OOM-02",
        "  void** data = calloc(owner->tensors_size, sizeof(void*));\n",
        "  void* throwing(size_t);\n  void** data = throwing(owner->tensors_size * sizeof(void*));\n",
    ),
    "execute-gives-up": _fault(
        "QnnGraph_execute without memory computes nothing and answers success.",
        "OOM-03",
        _EXECUTE,
        "  if (!data) return 0;\n",
    ),
    "node-is-lost": _fault(
        "QnnGraph_addNode without memory for the node answers success.",
        "OOM-03",
        "  if (!steps) return no_memory;\n",
        "  if (!steps) return 0;\n",
    ),
    "log-is-none": _fault(
        "QnnLog_create without memory answers success, and gives no log.",
        "OOM-03",
        _made("kLog") + "return no_memory;\n",
        _made("kLog") + "return 0;\n",
    ),
    "other-memory": _fault(
        "QnnMem_register of memory that cannot be mapped takes other memory in its place.",
        "OOM-03",
        "  if (data == MAP_FAILED) return 8003;\n",
        "  static char other[1 << 16];\n  if (data == MAP_FAILED) data = other;\n",
    ),
    "everything-ends": _fault(
        "QnnContext_create without memory ends all contexts, to have some.",
        "OOM-04",
        _CONTEXT,
        "  Object* made = adopt(calloc(1, sizeof(Object)), kContext, owner);\n"
        "  for (Object* each = objects; !made && each;) {\n"
        "    Object* context = each->kind == kContext ? each : NULL;\n    each = each->next;\n"
        "    if (context) end(context), each = objects;\n  }\n"
        "  if (!made) return no_memory;\n",
    ),
    "registrations-end": _fault(
        "QnnMem_register without memory ends the registrations of all other contexts.",
        "OOM-04",
        _MEMORY,
        "  if (!*made) {\n    munmap(data, (size_t)file.st_size);\n"
        "    for (Object* each = objects; each;) {\n      Object* next = each->next;\n"
        "      if (each->kind == kMemory && each->owner != context) end(each);\n      each = next;\n    }\n"
        "    return no_memory;\n  }\n",
    ),
    "half-a-batch": _fault(
        "QnnMem_register leaves the first memory of a batch registered when there is none for the next.",
        "OOM-05",
        "    while (i--) {\n",
        "    while (i-- && code != no_memory) {\n",
    ),
    "graph-is-unfinished": _fault(
        "QnnGraph_execute without memory makes its graph one that is not finalised.",
        "OOM-05",
        _EXECUTE,
        "  if (!data) {\n    owner->finalised = 0;\n    return no_memory;\n  }\n",
    ),
    "stays-mapped": _fault(
        "QnnMem_register leaves memory mapped that it has no entry for.",
        "OOM-06",
        _MEMORY,
        "  if (!*made) return no_memory;\n",
    ),
}
"""By name."""
CONFORMING: Final = _fault(
    "No fault: contexts are allocated with operator new, and its exception is caught.",
    "",
    _CONTEXT,
    "  void* catching(size_t);\n  Object* made = adopt(catching(sizeof(Object)), kContext, owner);\n"
    "  if (!made) return no_memory;\n",
)


def built(name: str, folder: Path) -> Path:
    """Build the library with a fault, or ``conforming``, into the folder.

    Raises:
        ValueError: what the fault replaces does not stand in the source once.
    """
    fault = CONFORMING if name == "conforming" else REFUSED[name]
    source = faults.conforming("memory")
    if source.count(fault.piece) != 1:
        raise ValueError(f"{name}: what it replaces stands {source.count(fault.piece)} times")
    source = source.replace(fault.piece, fault.by)
    beside = throwing.compiled(name, folder)
    # A program in C that loads it has no C++ runtime, other than Python with a runtime of models.
    return faults.build(folder, "memory", name, source, beside=beside, libraries=("-lstdc++",))
