"""What a row of the matrix is: one action of a library at one moment, and what the suite must say of it.

Each library is a conforming one of tests/faults, with a call at the moment in question into a C file of its
own, so that no name of the action meets one of the library. What is expected was written before any was
judged.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_qnn.core.rule import Subject
from tests.faults import faults

Moment = Literal["load", "open", "prepare", "work", "close", "unload"]
"""When it acts: in a constructor; in QnnBackend_create or tflite_plugin_create_delegate; where a graph with a
multiplication is finalised, or Prepare meets one; where that is executed; in QnnContext_free or
tflite_plugin_destroy_delegate; in a destructor."""

Expected = Literal["pass", "crash", "hang", "owner", "unloadable", "any"]
"""What the rules must say:

* ``pass``: as of the conforming library;
* ``crash``, ``hang``: that is the verdict of the rule that owns the call, and no other rule accuses;
* ``owner``: the rule that owns the call may say anything, and no other rule accuses;
* ``unloadable``: the run says that the library cannot be loaded, and no rule passes;
* ``any``: it may be found by any rule, since it harms every case or the library itself, but each rule has a
  verdict, or is named as not judged."""

Kind = Literal[
    "death",
    "hang",
    "flood",
    "left-over",
    "process state",
    "limits",
    "attack",
    "reply",
    "load and unload",
    "file system",
]
SIDES: tuple[Subject, ...] = ("memory", "delegate")
RULES: dict[Subject, tuple[str, ...]] = {
    "memory": ("IF-12", "CTX-09", "PRE-10", "PRE-11", "EXE-21", "REG-01", "DRG-01", "CTX-01"),
    "delegate": ("ABI-02", "RUN-01", "PART-03", "NUM-10", "DET-01", "MEM-02"),
}
"""The rules that judge each row: those that own the calls, and neighbours that meet the same calls."""
OWNERS: dict[Subject, dict[Moment, str]] = {
    "memory": {"open": "IF-12", "prepare": "PRE-11", "work": "EXE-21", "close": "CTX-01"},
    "delegate": {"open": "ABI-02", "prepare": "RUN-01", "work": "RUN-01", "close": "RUN-01"},
}
"""Whose finding is a death in such a call; of ``load`` and ``unload`` nobody's."""


class Action(NamedTuple):
    """One thing that a library does, once at each time that its moment comes."""

    name: str
    kind: Kind
    moment: Moment
    expected: Expected
    what: str
    """As a sentence without a full stop, whose subject is the library."""
    c: str
    """C statements; functions of `hostile.h` may be called."""
    before: str = ""
    """C source in front of the function that they stand in."""
    leaves: tuple[str, ...] = ()
    """Names of files that it may leave outside its folder: nobody can tell that they are its own."""
    why: str = ""
    """Why something else is expected than was, before any row was judged."""
    of_delegate: Expected | None = None
    """What is expected of a delegate, where that is something else than of a backend."""

    def on(self, side: Subject) -> Action:
        """The same with what is expected of this side."""
        return self._replace(expected=self.of_delegate) if self.of_delegate and side == "delegate" else self


_MOMENTS: dict[Subject, dict[Moment, tuple[str, str]]] = {
    "memory": {
        "open": ("  const Object* made = adopt(calloc(1, sizeof(Object)), kBackend, NULL);\n", "1"),
        "prepare": ("  owner->finalised = 1;\n", "owner->steps[0].operator->of == multiply"),
        "work": ("  if (!code) compute(owner, data);\n", "owner->steps[0].operator->of == multiply"),
        "close": ("  end(found);\n  return 0;\n}\n\nstatic Graph* named(", "1"),
    },
    "delegate": {
        "open": ("  if (delegate) delegate->prepare = delegate_prepare;\n", "delegate"),
        "prepare": (
            "    if (is_supported(context, node, registration)) claimed",
            "registration->builtin_code == kBuiltinMul",
        ),
        "work": (
            (
                "    const size_t count = out.tensor->bytes / "
                "(out.tensor->type == kFloat32 ? sizeof(float) : 1);\n"
            ),
            "step->op == kBuiltinMul",
        ),
        "close": ("  free(delegate);\n}\n", "delegate"),
    },
}
"""The piece of the conforming library that the call stands in front of, and its condition."""

_HERE = Path(__file__).parent


def source(action: Action, side: Subject) -> str:
    """The conforming library with a call of ``hostile`` at the action's moment.

    Raises:
        ValueError: the piece that marks the moment does not stand in the source once.
    """
    conforming = faults.conforming(side)
    if action.moment in {"load", "unload"}:
        return conforming
    piece, condition = _MOMENTS[side][action.moment]
    if conforming.count(piece) != 1:
        raise ValueError(f"{side}, {action.moment}: {piece!r} stands {conforming.count(piece)} times")
    called = conforming.replace(piece, f"  if ({condition}) hostile();\n{piece}")
    return f"void hostile(void);\n{called}"


_MARKS = {"load": "__attribute__((constructor))", "unload": "__attribute__((destructor))"}


def build(action: Action, side: Subject, folder: Path) -> Path:
    """Build the library of a row into the folder; it needs gcc."""
    written = folder / "action.c"
    written.write_text(
        f'#include "hostile.h"\n{action.before}\n'
        f'{_MARKS.get(action.moment, "")} __attribute__((visibility("hidden"))) void hostile(void) {{\n'
        f"  {action.c}\n}}\n"
    )
    compiled = folder / "action.o"
    flags = ["-c", "-fPIC", "-O0", "-g", "-w", f"-I{_HERE}"]
    subprocess.run(
        ["gcc", *flags, "-o", str(compiled), str(written)], check=True, capture_output=True, timeout=60
    )
    return faults.build(folder, side, action.name, source(action, side), beside=compiled)
