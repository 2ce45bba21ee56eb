"""QLEAK-04 and LIFE-14: the end of a process in good order, which runs the destructors of what it loaded."""

from __future__ import annotations

from pytest_qnn.cases import ending_strategies as cases
from pytest_qnn.cases.memory import ContextCreate, MemoryCase
from pytest_qnn.cases.script import MakeDelegate, ScriptCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported
from pytest_qnn.rules.memory_support import require_session
from pytest_qnn.rules.script_support import need_trace, numbered
from pytest_qnn.trace import MemoryTrace, ScriptTrace

_WHAT = "processes that ended in good order"
_SOURCE = "inference: exit(3) runs the functions of atexit(3) and the destructors of all that is loaded"


@rule(
    "QLEAK-04",
    Level.SHOULD,
    "A process can end in good order with contexts, graphs and registrations alive.",
    source=_SOURCE,
    subject="memory",
    cases=cases.memory,
    gate=("own process",),
    weight=0.5,
)
def qleak_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A process that dies of its end is a crash, which no trace of a living one can show."""
    require_session(trace)
    _require_end(ended=trace.ended)
    made = any(
        isinstance(step, ContextCreate) and seen.code == 0
        for step, seen in zip(case.steps, trace.steps, strict=False)
    )
    return Examined(int(made), _WHAT)


@rule(
    "LIFE-14",
    Level.SHOULD,
    "A process can end in good order while a delegate is in use, and after its use.",
    source=_SOURCE,
    subject="delegate",
    cases=cases.delegate,
    gate=("own process",),
    weight=0.5,
)
def life_14(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """As QLEAK-04."""
    need_trace(trace)
    _require_end(ended=trace.ended)
    made = any(isinstance(step, MakeDelegate) and seen.ok for _, step, seen in numbered(case, trace))
    return Examined(int(made), _WHAT)


def _require_end(*, ended: bool) -> None:
    if not ended:
        raise Unsupported("cases run in pytest's own process, which does not end with them")
