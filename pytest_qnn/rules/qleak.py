"""QLEAK: what is left behind by many rounds of the same calls (the catalogue's LEAK, memory half)."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error, low
from pytest_qnn.cases import memory_load_strategies as strategies
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.cases.memory_probes import Churn
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Measured, Unsupported, Violation
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.rules.memory_support import facts_of, require_memory_type, require_session
from pytest_qnn.trace import MemoryTrace

_UNSUPPORTED = int(Error.MEM_ERROR_NOT_SUPPORTED)
_FDS = 4
"""Descriptors that may be opened once, whatever the number of rounds."""
_MAPPINGS = 16
"""The same for mappings: an allocator's arenas."""
_RESIDENT = 1 << 20
"""Bytes by which the process may grow, whatever the number of rounds: allocators keep what they are given."""
_HEAP = 1 << 16
"""The same for what malloc has given out, which is counted exactly."""
_RESIDENT_PER_ROUND = 64
"""Bytes for each round on top: it is less than what any table needs for an entry with a descriptor."""


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
            after = seen.counts.get("rounds", 0)
            wanted = "a refusal" if step.what in ("refused", "unread") else "success"
            raise Violation(f"{wanted} in every round", f"{call} answers {named(code)} after {after}", where)
        _demand_flat(seen.counts, step.rounds, where)
        count += step.rounds
    return Examined(count, what)


def _demand_flat(counts: dict[str, int], rounds: int, where: str) -> None:
    bounds = {
        "fds": (_FDS, "open descriptors"),
        "mappings": (_MAPPINGS, "mappings"),
        "rss": (_RESIDENT + _RESIDENT_PER_ROUND * rounds, "resident bytes"),
        "heap": (_HEAP + _RESIDENT_PER_ROUND * rounds, "bytes of malloc in use"),
    }
    for counted, (bound, called) in bounds.items():
        grown = counts.get(counted, 0)
        if grown > bound:
            raise Measured(f"at most {bound} more {called} than before", f"{grown} more", where)


@rule(
    "QLEAK-01",
    Level.MUST,
    "Registering and deregistering again and again leaves nothing behind.",
    source="seed 002, deregister; QnnMem.h: QnnMem_deRegister",
    subject="memory",
    cases=strategies.registrations,
    gate=("1101",),
    weight=0.05,
)
def qleak_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors, mappings and resident bytes stay flat over up to 10,000 rounds."""
    return _judge(case, trace, "rounds of register and deregister")


@rule(
    "QLEAK-02",
    Level.MUST,
    "Freeing contexts with live registrations again and again leaves nothing behind.",
    source="seed 002, external buffers (deregistered with their context); QnnContext.h: QnnContext_free",
    subject="memory",
    cases=strategies.contexts,
    gate=("1101",),
    weight=0.05,
)
def qleak_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors, mappings and resident bytes stay flat over up to 1,000 rounds."""
    return _judge(case, trace, "contexts freed with registrations")


@rule(
    "QLEAK-03",
    Level.MUST,
    "Registrations, and contexts from half a binary, that fail again and again leave nothing behind.",
    source="QnnMem.h: QnnMem_register, note on failure; QnnContext.h: QnnContext_createFromBinary",
    subject="memory",
    cases=strategies.refusals,
    weight=0.05,
)
def qleak_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors, mappings and resident bytes stay flat over up to 10,000 refusals."""
    return _judge(case, trace, "calls that were refused")
