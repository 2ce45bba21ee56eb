"""QLEAK-05: what is left of a session that is over."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Measured, Unsupported
from pytest_qnn.qnn.abi.codes import Error, low
from pytest_qnn.qnn.cases.case import MemoryCase, QnnDType, QnnOp, WholeSession
from pytest_qnn.qnn.cases.sizes import arity, nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.growth import MALLOC, RESIDENT
from pytest_qnn.qnn.rules.judging import require_session
from pytest_qnn.qnn.strategies.scene import Scene
from pytest_qnn.qnn.trace import GrowthCounts, MemoryTrace, StepSeen

_MIB = 1 << 20
_OPERATOR: tuple[QnnOp, QnnDType] = ("ElementWiseAdd", "UFIXED_POINT_8")
_SIZES = (2 * _MIB, 4 * _MIB)
"""Bytes of the weights: what an allocator keeps for itself is less than half of them."""


def whole_sessions(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """One session, with weights of some mebibytes; of the operator that controls have, where it composes."""
    operators = [each for each in Scene(facts).operators if arity(each[0]) == 2]
    if not operators:
        raise NothingToJudge("no operator with weights composes on this target", unsupported=True)
    op, dtype = _OPERATOR if _OPERATOR in operators else operators[0]

    def case(size: int) -> MemoryCase:
        return MemoryCase((WholeSession(op, dtype, (1, 64, 64, size // nbytes((1, 64, 64, 1), dtype))),))

    return st.sampled_from(_SIZES).map(case)


def carried_out(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[str, WholeSession, StepSeen]]:
    """(place, session, what it gave) of each session of which every call succeeded.

    Raises:
        FailedCall, Unsupported: a call did not.
    """
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, WholeSession) or seen.skipped:
            continue
        where = f"step {index}"
        for call, code in seen.calls:
            require_session(trace)
            if low(code) == Error.COMMON_ERROR_NOT_SUPPORTED:
                raise Unsupported(f"{call} answers 1000, not supported")
            raise FailedCall("success of each call of a session", f"{call} answers {named(code)}", where)
        yield where, step, seen


@rule(
    "QLEAK-05",
    Level.SHOULD,
    "Once a session is over, its backend freed last, the memory that its graphs took is given back.",
    source="QnnBackend.h: QnnBackend_free; onnxruntime#22511 (700 MB stay in use after a session's end)",
    subject="memory",
    cases=whole_sessions,
    weight=0.05,
)
def qleak_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The process has grown by less than half of the weights, a second after the end at the latest.

    A session with a graph of one element comes before, so that what a library loads and makes once does not
    count. Of malloc's blocks those count that are given out, and only where both large sessions leave some:
    libQnnHtp on a host makes something once for large graphs. Of other memory what is resident counts.
    """
    count = 0
    for where, step, seen in carried_out(case, trace):
        counts = seen.counted(GrowthCounts)
        most = nbytes(step.shape, step.dtype) // 2
        for what, grown in ((MALLOC, counts.heap), (RESIDENT, counts.rss)):
            if grown > most:
                wanted = f"at most {most} more {what} than before a session with {2 * most} bytes of weights"
                raise Measured(wanted, f"{grown} more", where)
        count += 1
    return Examined(count, "sessions that were over")
