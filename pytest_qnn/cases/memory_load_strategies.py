"""Cases of the rules about many rounds (QLEAK) and about threads (QTHR): each is one dear step.

As in `pytest_qnn.cases.memory_graph_strategies`, each function of `MemoryFacts` is the strategy of one rule.
"""

from __future__ import annotations

import functools
from typing import Literal

import msgspec
from hypothesis import strategies as st

from pytest_qnn.cases.memory import Alloc, AnyStep, ContextCreate, GetBinary, MemoryCase
from pytest_qnn.cases.memory_probes import TENSOR, Churn, Parallel
from pytest_qnn.cases.memory_scene import Scene, Tape, memory_types, scenes
from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.facts import MemoryFacts

Cases = st.SearchStrategy[MemoryCase]
_ROUNDS = {
    "register": (1000, 300, 10_000),
    "context": (1000, 300),
    "refused": (1000, 300, 10_000),
    "unread": (1000, 300),
}
_MOST_TENSORS = 4
_LOG_BYTES = 12
_CACHING, _MEMORY = 202, 1101
"""QNN_PROPERTY_CONTEXT_SUPPORT_CACHING, QNN_PROPERTY_GROUP_MEMORY."""
_EXECUTE, _UNKNOWN_KEY = 311, 2000
"""QNN_PROPERTY_GRAPH_SUPPORT_EXECUTE, and the answer of a target that is older than the key."""


def _churned(facts: MemoryFacts, what: Literal["register", "context", "refused"]) -> Cases:
    def case(rounds: int, tensors: int, kind: int) -> MemoryCase:
        context = "" if what == "context" else "c0"
        steps: tuple[AnyStep, ...] = (
            Alloc("b0", TENSOR * _MOST_TENSORS),
            Churn(what, "b0", context, rounds, tensors, kind),
        )
        return MemoryCase((ContextCreate("c0"), *steps) if context else steps)

    return st.builds(
        case,
        st.sampled_from(_ROUNDS[what]),
        st.integers(1, _MOST_TENSORS),
        st.sampled_from(memory_types(facts)),
    )


def registrations(facts: MemoryFacts) -> Cases:
    """QLEAK-01: register and deregister, over and over."""
    return _churned(facts, "register")


def contexts(facts: MemoryFacts) -> Cases:
    """QLEAK-02: contexts freed with live registrations, over and over."""
    return _churned(facts, "context")


def refusals(facts: MemoryFacts) -> Cases:
    """QLEAK-03: registrations that fail, and contexts from half a binary, over and over."""
    registrations = _churned(facts, "refused")
    if not (facts.supports(_CACHING) and facts.operators):
        return registrations
    binaries = st.sampled_from(_ROUNDS["unread"]).map(functools.partial(_unread, facts))
    return st.one_of(registrations, binaries) if facts.supports(_MEMORY) else binaries


def _unread(facts: MemoryFacts, rounds: int) -> MemoryCase:
    scene = Scene(facts)
    made = scene.prepare(scene.context(), Tape(b""))
    scene.add(GetBinary(scene.graphs[made].context, "f0"))
    scene.add(Churn("unread", scene.alloc(TENSOR), "", rounds))
    return scene.case()


def _threads(facts: MemoryFacts, step: Parallel, *, most: int = 8) -> Cases:
    def core(scene: Scene, tape: Tape) -> None:
        op, dtype = tape.pick(scene.operators) if scene.operators else ("ElementWiseAdd", "UFIXED_POINT_8")
        changed = msgspec.structs.replace(
            step,
            threads=2 + tape.below(most - 1),
            rounds=4 + tape.below(8),
            mem_type=tape.pick(scene.types),
            op=op,
            dtype=dtype,
        )
        scene.add(changed)

    return scenes(facts, core, before=1, after=0)


def backends(facts: MemoryFacts) -> Cases:
    """QTHR-01: backendCreate and backendFree in several threads."""
    return _threads(facts, Parallel("backends"))


def siblings(facts: MemoryFacts) -> Cases:
    """QTHR-03: registrations and executes in sibling contexts, one thread each."""
    if not facts.operators:
        raise NothingToJudge("no operator of the suite composes on this target", unsupported=True)
    return _threads(facts, Parallel("contexts"), most=4)


_LEVELS = (4, 4, 4, 5, 3)
"""QnnLog_Level_t; below INFO there is little to hear of calls that succeed."""
_LOWERED = (1, 2, 3, 0)
_HANDLES = 502
"""QNN_PROPERTY_TENSOR_SUPPORT_MEMHANDLE_TYPE."""


def logs(facts: MemoryFacts) -> Cases:
    """QTHR-04: all that a backend may tell a log of, in several threads; most logs want less halfway."""
    if not facts.operators:
        raise NothingToJudge("no operator of the suite composes on this target", unsupported=True)
    operators = Scene(facts).operators
    offered = facts.supports(_MEMORY) and facts.supports(_HANDLES)
    # Behind _MEMORY come the keys of the memory types, in the order of Qnn_MemType_t.
    types = tuple(kind for kind in memory_types(facts) if offered and facts.supports(_MEMORY + kind)) or (0,)

    def decode(data: bytes) -> MemoryCase:
        tape = Tape(data)
        op, dtype = tape.pick(operators)
        level = tape.pick(_LEVELS)
        step = Parallel(
            "logs",
            threads=2 + tape.below(3),
            rounds=2 + tape.below(4),
            mem_type=tape.pick(types),
            op=op,
            dtype=dtype,
            level=level,
            lowered=min(tape.pick(_LOWERED), level - 1),
        )
        return MemoryCase((step,))

    return decoded(_LOG_BYTES, decode)


def races(facts: MemoryFacts) -> Cases:
    """QTHR-05: an execute while its context is freed; not where graphs are not executed at all."""
    if facts.capabilities.get(_EXECUTE, 0) not in (0, _UNKNOWN_KEY):
        raise NothingToJudge("property key 311 says that graphs are not executed", unsupported=True)
    if not facts.operators:
        raise NothingToJudge("no operator of the suite composes on this target", unsupported=True)
    return _threads(facts, Parallel("race"))
