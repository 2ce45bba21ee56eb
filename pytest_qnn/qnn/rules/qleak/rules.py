"""QLEAK: what is left behind by many rounds of the same calls (LEAK in the catalogue)."""

from __future__ import annotations

import functools
from typing import Literal

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.process_end import SOURCE, WHAT, require_end
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported
from pytest_qnn.qnn.abi.codes import Error, Property, low
from pytest_qnn.qnn.cases.case import TENSOR, Alloc, AnyStep, Churn, ContextCreate, GetBinary, MemoryCase
from pytest_qnn.qnn.cases.sizes import PAGE
from pytest_qnn.qnn.facts import MemoryFacts, memory_types
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.rules.judging import facts_of, require_memory_type, require_session
from pytest_qnn.qnn.rules.qleak.growth import FEW_ROUNDS, ROUNDS, rounds_judged
from pytest_qnn.qnn.strategies.graphs import Cases
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import GrowthCounts, MemoryTrace


def _ended(case: MemoryCase) -> MemoryCase:
    return msgspec.structs.replace(case, ends=True)


def memory(facts: MemoryFacts) -> SearchStrategy[MemoryCase]:
    """QLEAK-04: contexts with registrations, some of them ended, and perhaps a graph that was executed."""

    def core(scene: Scene, tape: Tape) -> None:
        for _ in range(1 + tape.below(2)):
            context = scene.context()
            for _ in range(1 + tape.below(2)):
                scene.register(context, scene.descriptor(tape))
            graph = scene.prepare(context, tape) if tape.chance(2) else ""
            if graph:
                scene.execute_raw(graph, tape.byte())
        if tape.chance(3):
            scene.deregister(tape.pick(list(scene.handles)))
        if tape.chance(4):
            scene.free_context(tape.pick(scene.contexts))

    return scenes(facts, core, before=1, after=0).map(_ended)


@rule(
    "QLEAK-04",
    Level.SHOULD,
    "A process can exit normally with contexts, graphs and registrations alive.",
    source=SOURCE,
    subject="memory",
    cases=memory,
    gate=("own process",),
    weight=0.5,
)
def qleak_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A process that dies of its end is a crash, which no trace of a living one can show."""
    require_session(trace)
    require_end(ended=trace.ended)
    made = any(
        isinstance(step, ContextCreate) and seen.code == 0
        for step, seen in zip(case.steps, trace.steps, strict=False)
    )
    return Examined(int(made), WHAT)


_UNSUPPORTED = int(Error.MEM_ERROR_NOT_SUPPORTED)


def _judge(case: MemoryCase, trace: MemoryTrace, what: str) -> Examined:
    """Every round did as it had to, and the process did not grow with their number."""
    require_session(trace)
    count = 0
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, Churn) or seen.skipped:
            continue
        where = f"step {index}, {step.rounds} rounds"
        if step.what == "refused" and low(seen.code or 0) == _UNSUPPORTED:
            raise Unsupported("memRegister answers 1000, not supported")
        for call, code in seen.calls:
            if low(code) == _UNSUPPORTED:
                raise Unsupported(f"{call} answers 1000, not supported")
            require_memory_type(facts_of(trace))
            after = seen.counted(GrowthCounts).rounds
            wanted = "a refusal" if step.what in ("refused", "unread") else "success"
            raise FailedCall(f"{wanted} in every round", f"{call} answers {named(code)} after {after}", where)
        count += rounds_judged(seen.counted(GrowthCounts), where)
    return Examined(count, what)


_ROUNDS = {"register": ROUNDS, "context": FEW_ROUNDS, "refused": ROUNDS, "unread": FEW_ROUNDS}
_MOST_TENSORS = 4
_SPARE = (0, PAGE)
"""Bytes of a buffer behind its tensors: where only these are unmapped, a page of its own stays."""


def _churned(facts: MemoryFacts, what: Literal["register", "context", "refused"]) -> Cases:
    def case(rounds: int, tensors: int, kind: int, spare: int) -> MemoryCase:
        context = "" if what == "context" else "c0"
        steps: tuple[AnyStep, ...] = (
            Alloc("b0", TENSOR * _MOST_TENSORS + spare),
            Churn(what, "b0", context, rounds, tensors, kind),
        )
        return MemoryCase((ContextCreate("c0"), *steps) if context else steps)

    return st.builds(
        case,
        st.sampled_from(_ROUNDS[what]),
        st.integers(1, 1 if facts.only_aligned else _MOST_TENSORS),
        st.sampled_from(memory_types(facts)),
        st.sampled_from(_SPARE),
    )


def registrations(facts: MemoryFacts) -> Cases:
    """QLEAK-01: register and deregister, over and over."""
    return _churned(facts, "register")


@rule(
    "QLEAK-01",
    Level.MUST,
    "Registering and deregistering memory repeatedly leaves nothing behind.",
    source="seed 002, deregister; QnnMem.h: QnnMem_deRegister",
    subject="memory",
    cases=registrations,
    gate=("1101",),
    weight=0.05,
)
def qleak_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors, mappings and resident bytes stay flat over up to 10,000 rounds."""
    return _judge(case, trace, "rounds of register and deregister")


def contexts(facts: MemoryFacts) -> Cases:
    """QLEAK-02: contexts freed with live registrations, over and over."""
    return _churned(facts, "context")


@rule(
    "QLEAK-02",
    Level.MUST,
    "Freeing contexts with live registrations repeatedly leaves nothing behind.",
    source="seed 002, external buffers (deregistered with their context); QnnContext.h: QnnContext_free",
    subject="memory",
    cases=contexts,
    gate=("1101",),
    weight=0.05,
)
def qleak_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors, mappings and resident bytes stay flat over up to 1,000 rounds."""
    return _judge(case, trace, "contexts freed with registrations")


def _unread(facts: MemoryFacts, rounds: int) -> MemoryCase:
    scene = Scene(facts)
    made = scene.prepare(scene.context(), Tape(b""))
    scene.add(GetBinary(scene.graphs[made].context, "f0"))
    scene.add(Churn("unread", scene.alloc(TENSOR), "", rounds))
    return scene.case()


def refusals(facts: MemoryFacts) -> Cases:
    """QLEAK-03: registrations that fail, and contexts from half a binary, over and over."""
    registrations = _churned(facts, "refused")
    if not (facts.supports(Property.CONTEXT_SUPPORT_CACHING) and facts.operators):
        return registrations
    binaries = st.sampled_from(_ROUNDS["unread"]).map(functools.partial(_unread, facts))
    return st.one_of(registrations, binaries) if facts.supports(Property.GROUP_MEMORY) else binaries


@rule(
    "QLEAK-03",
    Level.MUST,
    "Repeated failures, of registrations and of contexts from truncated binaries, leave nothing behind.",
    source="QnnMem.h: QnnMem_register, note on failure; QnnContext.h: QnnContext_createFromBinary",
    subject="memory",
    cases=refusals,
    weight=0.05,
)
def qleak_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors, mappings and resident bytes stay flat over up to 10,000 refusals."""
    return _judge(case, trace, "calls that were refused")
