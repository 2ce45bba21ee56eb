"""The example delegate with one fault each in what it does where the system refuses it something.

They were written from the sentences of the rules NOM-01 to NOM-06, each as a mistake in C (or in C++).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.faults import faults, throwing
from tests.faults.faults import Fault

_CLAIM: Final = '  if (!claimed) return failure(context, "there is no memory for a claim");\n'
_KERNEL: Final = "  Kernel* kernel = calloc(1, sizeof(Kernel));\n  if (!kernel) return NULL;\n"
_STEPS: Final = "  kernel->steps = calloc((size_t)size, sizeof(Step));\n"
_MADE: Final = "  bool ok = kernel->steps && kernel->inside;\n"
_GIVEN_UP: Final = "  kernel_free(context, kernel);\n  return NULL;\n"
_CREATE: Final = '  if (!delegate && report_error) report_error("ArithmeticDelegate: there is no memory");\n'


def _fault(what: str, owner: str, piece: str, by: str, timeout: float = faults.TIMEOUT) -> Fault:
    return Fault("delegate", what, owner, piece, by, timeout)


REFUSED: Final[dict[str, Fault]] = {
    "claim-is-not-looked-at": _fault(
        "Prepare writes to the claim that it has no memory for.", "NOM-01", _CLAIM, ""
    ),
    "create-aborts": _fault(
        "tflite_plugin_create_delegate aborts where it has no memory.",
        "NOM-01",
        _CREATE,
        "  if (!delegate) abort();\n",
    ),
    "claim-throws": _fault(
        "Prepare lets the exception of operator new through.",
        "NOM-02",
        "  IntArray* claimed = malloc(sizeof(int) * ((size_t)plan->size + 1));\n",
        "  void* throwing(size_t);\n"
        "  IntArray* claimed = throwing(sizeof(int) * ((size_t)plan->size + 1));\n",
    ),
    "init-throws": _fault(
        "The init of a kernel lets the exception of operator new through.",
        "NOM-02",
        _STEPS,
        "  void* throwing(size_t);\n  kernel->steps = throwing((size_t)size * sizeof(Step));\n",
    ),
    "init-gives-up": _fault(
        "The init of a kernel without memory for its steps makes one that computes nothing.",
        "NOM-03",
        _MADE,
        f"  if (!kernel->steps) return kernel;\n{_MADE}",
    ),
    "oldest-is-given-up": _fault(
        "The init of a kernel without memory makes the oldest kernel one that computes nothing.",
        "NOM-04",
        _KERNEL,
        "  Kernel* kernel = calloc(1, sizeof(Kernel));\n  if (!kernel) {\n"
        "    if (oldest) oldest->steps_size = 0;\n    return NULL;\n  }\n"
        "  if (!oldest) oldest = kernel;\n",
    ),
    "create-stays-locked": _fault(
        "tflite_plugin_create_delegate without memory leaves a lock taken, and fails once more.",
        "NOM-05",
        _CREATE,
        "  static int locked;\n  if (locked) {\n    locked = 0;\n    free(delegate);\n    return NULL;\n  }\n"
        "  locked = !delegate;\n",
    ),
    "claim-stays-locked": _fault(
        "Prepare without memory leaves a lock taken, and fails once more.",
        "NOM-05",
        _CLAIM,
        "  static int locked;\n  if (locked) {\n    locked = 0;\n    free(claimed);\n"
        '    return failure(context, "locked");\n  }\n'
        "  locked = !claimed;\n" + _CLAIM,
    ),
    "init-keeps-its-kernel": _fault(
        "The init of a kernel without memory for all of it keeps what it has.",
        "NOM-06",
        _GIVEN_UP,
        "  return NULL;\n",
    ),
}
"""By name."""
_FREE: Final = "static void kernel_free(Context* context, void* user_data) {\n"
FURTHER: Final = {
    "oldest-is-given-up": (
        _FREE,
        f"static Kernel* oldest;\n\n{_FREE}  if (user_data == oldest) oldest = NULL;\n",
    )
}
"""By name, what else is replaced: so that a fault is no other one too."""
CATCHING, THROWING = "catching", "throwing"
"""No fault: all memory is by operator new, whose exception is caught; and the same without a catch."""


def built(name: str, folder: Path) -> Path:
    """Build the library with a fault, `CATCHING` or `THROWING` into the folder.

    Raises:
        ValueError: what the fault replaces does not stand in the source once.
    """
    return faults.build(
        folder,
        "delegate",
        name,
        source(name),
        beside=throwing.compiled(name, folder),
        libraries=("-lstdc++",),
    )


def source(name: str) -> str:
    """The text in C. Raises ValueError."""
    whole = faults.conforming("delegate")
    if name in (CATCHING, THROWING):
        whole = re.sub(r"\bcalloc\((.*?), (sizeof\([\w*]+\))\)", rf"{name}((\1) * \2)", whole)
        whole = re.sub(r"\bmalloc\(", f"{name}(", whole)
        whole = re.sub(r"\bfree\(", "give_back(", whole)
        return f"#include <stddef.h>\nvoid* {name}(size_t);\nvoid give_back(void*);\n{whole}"
    fault = REFUSED[name]
    pieces = ((fault.piece, fault.by), *(FURTHER[each] for each in FURTHER if each == name))
    for piece, by in pieces:
        if whole.count(piece) != 1:
            raise ValueError(f"{name}: what it replaces stands {whole.count(piece)} times")
        whole = whole.replace(piece, by)
    return whole
