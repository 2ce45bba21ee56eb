"""EXT: what becomes of external memory and of the binary, from contextFinalize to contextFree."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.cases import memory_external_strategies as strategies
from pytest_qnn.cases.memory import ContextFinalize, MemoryCase, Read, Register
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory import Walked, walk
from pytest_qnn.oracle.memory_external import SPILL, WEIGHTS
from pytest_qnn.rules.binary_support import (
    demand_refused,
    executed_after_release,
    judge_flow,
    require_external,
    require_finalize,
    require_needed,
)
from pytest_qnn.rules.memory_support import bytes_read, demand_code, own_steps, place
from pytest_qnn.trace import MemoryTrace

_FLOW = "seed 002, external weights and spill-fill buffers"
_GATE = ("202", "217", "1101", "1103")


def _reads(case: MemoryCase, trace: MemoryTrace) -> dict[str, list[tuple[Walked, bytes]]]:
    """By buffer, what the client read there, in order."""
    found: dict[str, list[tuple[Walked, bytes]]] = {}
    for walked in walk(case, trace):
        data = bytes_read(walked.seen)
        if isinstance(walked.step, Read) and data is not None:
            found.setdefault(walked.step.buffer, []).append((walked, data))
    return found


def _external(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[Walked, Register]]:
    """Registrations of external memory that are in order."""
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        if isinstance(walked.step, Register) and walked.allowed.notes & {"weights", "spill"}:
            yield walked, walked.step


def _around_finalize(case: MemoryCase, trace: MemoryTrace) -> list[tuple[bytes, list[tuple[Walked, bytes]]]]:
    """Of each weights buffer: what was last read of it before contextFinalize, and each read after it."""
    owners: dict[str, str] = {}
    finalised: dict[str, int] = {}
    for walked in walk(case, trace):
        if isinstance(walked.step, Register) and "weights" in walked.allowed.notes and walked.code == 0:
            owners |= {each.buffer: walked.step.context for each in walked.step.descriptors}
        elif isinstance(walked.step, ContextFinalize) and walked.code == 0:
            finalised[walked.step.context] = walked.index
    found = []
    for buffer, reads in _reads(case, trace).items():
        end = finalised.get(owners.get(buffer, ""), -1)
        before = [data for walked, data in reads if walked.index < end]
        if before:
            found.append((before[-1], [(walked, data) for walked, data in reads if walked.index > end]))
    return found


@rule(
    "EXT-17",
    Level.MUST,
    "contextFinalize puts the weights of the context into its external weights memory.",
    source=f"{_FLOW}, step 5",
    subject="memory",
    cases=strategies.weights_stored,
    gate=_GATE,
)
def ext_17(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The buffer holds zeros before, other bytes after it, and the same ones after executes."""
    require_external(case, trace)
    require_needed(case, trace, WEIGHTS)
    judge_flow(case, trace, "the context has external weights memory")
    count = 0
    for before, after in _around_finalize(case, trace):
        if after and before == after[0][1]:
            seen = "the buffer is as it was before contextFinalize"
            raise Violation("weights in the external weights memory", seen, place(after[0][0]))
        for again, data in after[1:]:
            if data != after[0][1]:
                raise Violation("weights that stay as they are", "other bytes", place(again))
        count += bool(after)
    return Examined(count, "weights buffers")


@rule(
    "EXT-19",
    Level.MUST,
    "The binary and the configuration may go once contextFinalize has returned.",
    source=f"{_FLOW}, step 5",
    subject="memory",
    cases=strategies.released,
    gate=("202", "217"),
)
def ext_19(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Both are overwritten after finalising; retrieving and executing give what they must."""
    require_finalize(case, trace)
    judge_flow(case, trace, "the binary was released after contextFinalize")
    return Examined(executed_after_release(case, trace), "executes after the binary was released")


@rule(
    "EXT-21",
    Level.MUST,
    "External memory cannot be deregistered once its context is finalised.",
    source=f"{_FLOW}, step 5",
    subject="memory",
    cases=strategies.kept,
    gate=_GATE,
)
def ext_21(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """MemDeRegister is refused, with whatever code, and the graphs go on."""
    require_external(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only("fixed-handle")):
        demand_refused(walked, "the context uses the memory")
        count += 1
    judge_flow(case, trace, "deregistering was refused")
    return Examined(count, "external memory deregistered after contextFinalize")


@rule(
    "EXT-22",
    Level.MUST,
    "contextFree deregisters the external memory of its context.",
    source=f"{_FLOW}, step 5",
    subject="memory",
    cases=strategies.given_back,
    gate=_GATE,
)
def ext_22(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The handle is none any more (8001), and the memory serves another context."""
    require_external(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only("dead-handle")):
        demand_code(walked, walked.allowed.codes, "its context was freed")
        count += 1
    for walked, _ in _external(case, trace):
        demand_code(walked, {0}, "the context that had this memory was freed")
    judge_flow(case, trace, "the context that had this memory was freed")
    return Examined(count, "handles of contexts that were freed")


@rule(
    "EXT-23",
    Level.SHOULD,
    "Before contextFinalize external memory can be deregistered: the context then does without it.",
    source=f"{_FLOW}, step 4 (what is not registered is allocated by QNN)",
    subject="memory",
    cases=strategies.taken_back,
    gate=_GATE,
)
def ext_23(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """MemDeRegister answers 0, finalising and executing succeed, and the buffer is left alone."""
    require_external(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid and "taken-back" in w.allowed.notes):
        demand_code(walked, {0}, "the context is not finalised yet")
        count += 1
    judge_flow(case, trace, "external memory was taken back")
    for reads in _reads(case, trace).values():
        for walked, data in reads[1:]:
            if data != reads[0][1]:
                raise Violation("a buffer that was taken back stays as it is", "other bytes", place(walked))
    return Examined(count, "external memory taken back")


@rule(
    "EXT-26",
    Level.MUST,
    "Graphs that share spill-fill memory may be executed in turns.",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=strategies.spill_shared,
    gate=("202", "217", "1101", "1103", "spill-fill"),
)
def ext_26(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Each output is right, whichever graph was executed before."""
    require_external(case, trace)
    require_needed(case, trace, SPILL)
    shared = sum("spill-shared" in walked.allowed.notes for walked in walk(case, trace))
    count = judge_flow(case, trace, "the graphs are executed in turns")
    return Examined(count if shared else 0, "executes over shared spill-fill memory")
