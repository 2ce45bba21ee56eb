"""What was done in the process before a case: ordinary life with the same delegates."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

MOST_MADE = 256
MOST_USED = 64
MOST_KEPT = 4
MOST_FAILED = 16
MOST_INVOKED = 128
MOST_REPEATED = 48

Made = Annotated[int, Meta(ge=0, le=MOST_MADE)]
Used = Annotated[int, Meta(ge=0, le=MOST_USED)]
Kept = Annotated[int, Meta(ge=0, le=MOST_KEPT)]
Failed = Annotated[int, Meta(ge=0, le=MOST_FAILED)]
Invokes = Annotated[int, Meta(ge=0, le=MOST_INVOKED)]
Repeated = Annotated[int, Meta(ge=0, le=MOST_REPEATED)]


class History(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What is done before a case, in the order of the fields, on interpreters that the case does not know.

    Each of them has delegates of its own: the whole target, with the claim that the case's first one has.
    """

    made: Made = 0
    """Delegates of the target that are made and destroyed, applied to nothing."""
    failed: Failed = 0
    """Interpreters on which calls fail that must: see `pytest_qnn.tflite.runner.history`."""
    used: Used = 0
    """Interpreters that the target is applied to, allocated, invoked and destroyed."""
    invokes: Invokes = 1
    """How often each of them, and of those that are kept, is invoked."""
    resized: bool = False
    """Each of them is resized and resized back before its last invoke."""
    profiled: bool = False
    """A profiler is attached to each of them, and to the case's own (of a `DelegateCase`)."""
    repeated: Repeated = 0
    """How often the case itself is carried out, each time with objects of its own that are destroyed then.

    What it gives is not looked at: the last time, which is judged, is the case. Scripts that repeat steps,
    measure, use threads or end the process are not repeated."""
    kept: Kept = 0
    """Interpreters that are used in the same way and not destroyed before the case has ended, or a script
    unloads a library: before each invoke of the case one of them is invoked, by turns."""
    warm: Invokes = 0
    """Of a `DelegateCase` only: invokes of its own interpreter, with other inputs, before the first that is
    looked at; the inputs of the last of them begin as the case's do. None where a delegate fails on
    purpose."""


def smaller_history(history: History) -> list[History | None]:
    """None at all; then less of it, one field at a time; the boldest first."""
    found: list[History | None] = [None]
    nothing = History()
    changed = [name for name in history.__struct_fields__ if getattr(history, name) != getattr(nothing, name)]
    if len(changed) > 1:
        # Each alone, then each left out: what is needed is most often one of them.
        alone = (msgspec.structs.replace(nothing, **{name: getattr(history, name)}) for name in changed)
        found += [one for one in alone if one != nothing]
    for name in changed:
        value, least = getattr(history, name), getattr(nothing, name)
        fewer = (least,) if isinstance(value, bool) else (least, (value + least) // 2, value - 1)
        for count in dict.fromkeys(number for number in fewer if number < value):
            found.append(msgspec.structs.replace(history, **{name: count}))
    return found
