"""MSC: sections of context binaries, in memory behind a handle."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error, Property
from pytest_qnn.cases import memory_section_strategies as strategies
from pytest_qnn.cases.memory import MemoryCase, Prepare
from pytest_qnn.cases.memory_sections import ApplySection, GetSection, UpdateWeights
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.oracle.memory_contents import differs
from pytest_qnn.rules.memory_graph_support import judge_contents, require_prepared
from pytest_qnn.rules.memory_support import demand_code, facts_of, own_steps, place
from pytest_qnn.trace import MemoryTrace

_KEY = Property.CONTEXT_SUPPORT_BINARY_UPDATES
_UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


def _answer(walked: Walked) -> str:
    call = walked.seen.calls[-1][0] if walked.seen.calls else "the call"
    return f"{call} answers {named(walked.code or 0)}"


def _require_sections(case: MemoryCase, trace: MemoryTrace, found: list[Walked]) -> None:
    """Raise Unsupported where sections cannot be had in raw memory, or in no memory handle at all.

    Whether they can be had is not this rule's business, nor is a property key that says so.
    """
    declared = facts_of(trace).supports(_KEY)
    said = f"property key {int(_KEY)} is {'' if declared else 'not '}supported"
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, Prepare) and step.weights_as == "updatable" and seen.code:
            raise Unsupported(f"{seen.calls[-1][0]} of updatable weights answers {named(seen.code)}; {said}")
    require_prepared(case, trace)
    for walked in found:
        if walked.allowed.valid and walked.code and not _with_handle(walked):
            raise Unsupported(f"{_answer(walked)}; {said}")
        if walked.seen.calls[0] == ("contextGetBinarySectionSize", walked.seen.code) and walked.code:
            raise Unsupported(f"{_answer(walked)}; {said}")
    through = [walked for walked in found if _with_handle(walked)]
    if through and {walked.code for walked in through} == {_UNSUPPORTED}:
        raise Unsupported(f"with a memory handle {_answer(through[0])}; {said}")


def _with_handle(walked: Walked) -> bool:
    return isinstance(walked.step, GetSection | ApplySection) and walked.step.memory != "raw"


def _demand_equal(found: list[Walked]) -> None:
    """A section is the same in any memory, as long as the weights are."""
    first: dict[str, bytes] = {}
    for walked in found:
        step = walked.step
        if isinstance(step, UpdateWeights):
            first.pop(step.graph, None)
        elif isinstance(step, GetSection) and walked.code == 0 and walked.seen.data:
            (data,) = walked.seen.data
            before = first.setdefault(step.graph, data)
            if before != data:
                difference = differs(before, data, "UFIXED_POINT_8")
                raise Violation("the bytes of the same section before", difference, place(walked))


def _judge(walked: Walked) -> None:
    """One section taken or applied: its code, and what must not be written."""
    if walked.allowed.only("unregistered"):
        demand_code(walked, walked.allowed.codes, "the memory handle is not registered")
    elif walked.allowed.only("short") and walked.code == 0:
        raise Violation(
            "a refusal, with any code: the registered memory is too small", named(0), place(walked)
        )
    elif walked.allowed.valid:
        demand_code(walked, {0}, "the memory is registered, and large enough")
    if walked.seen.counts.get("overrun"):
        seen = f"{walked.seen.counts['overrun']} bytes"
        raise Violation("nothing written but to the registered memory", seen, place(walked))


@rule(
    "MSC-01",
    Level.MAY,
    "A section of a context binary may lie in memory behind a handle, and the handle must be registered.",
    source="QnnContext.h: QnnContext_Buffer_t, QNN_CONTEXTMEMTYPE_MEMHANDLE; QnnContext_getBinarySection",
    subject="memory",
    cases=strategies.sections,
    gate=("213",),
    weight=0.5,
)
def msc_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """5000 or 1000 for a handle that is none; through one that is, the bytes of raw memory, and no more.

    What is applied through a handle shows in the next execute; what is refused does not.
    """
    kinds = UpdateWeights | GetSection | ApplySection
    found = list(own_steps(case, trace, lambda walked: isinstance(walked.step, kinds)))
    _require_sections(case, trace, found)
    for walked in found:
        _judge(walked)
    _demand_equal(found)
    judge_contents(case, trace, lambda seen: seen.where == "output", "its weights are those applied last")
    return Examined(sum(map(_with_handle, found)), "sections taken or applied with memory handles")
