"""MEM-15: memory that a delegate requests from the system."""

from __future__ import annotations

from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.checks import judging
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import Claims
from pytest_qnn.tflite.strategies.claimed import mixed_kinds, need_claims
from pytest_qnn.tflite.strategies.delegates import delegate_cases, target_application
from pytest_qnn.tflite.trace import DelegateTrace


def requesting(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """A delegate from its making to its end, with two invokes, and in half of the cases a resize."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        application = target_application(facts, claims[0], choice >> 1)
        return DelegateCase(graph, (application,), invokes=2, redo=choice & 1, look=("heap",))

    return delegate_cases(mixed_kinds(facts), make, 1, max_nodes=8)


@rule(
    "MEM-15",
    Level.MUST,
    "Of memory that a delegate requests it uses what it requested, for as long as it has it: it reads and "
    "writes nothing beside a block, nor a block that it has freed, and frees or unmaps nothing twice.",
    source="ISO C11 7.22.3 (the lifetime of an allocated object), 7.22.3.3 (free), 6.5.6 (addresses behind "
    "an object); POSIX munmap: other mappings may be there since",
    subject="delegate",
    gate=("refusals",),
    cases=requesting,
    weight=0.5,
)
def uses_what_it_requested(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Whoever comes to the end has: each block ends where a page begins that nobody may use.

    The process dies in the function that reads or writes there (`pytest_qnn.isolation.host.checked_heap`),
    or where a block is freed that was written beside. On the system's own heap most of that goes unnoticed.
    """
    del case
    judging.need_work(trace)
    seen = trace.heap
    if seen is None:
        return Examined(0, "blocks and mappings")  # a reduced case may look at nothing
    if seen.lacking:
        raise Unsupported(seen.lacking)
    if not seen.blocks and not seen.mappings:
        raise Unsupported("the delegate requests nothing where it can be seen", final=False)
    return Examined(seen.blocks + seen.mappings, "blocks and mappings")
