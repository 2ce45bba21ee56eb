"""Scripts about buffer handles: results that a delegate keeps in buffers of its device.

The target works alone or behind a probe that takes some nodes: then results go from kernel to kernel, to the
CPU and to the client.
"""

from __future__ import annotations

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.graph import Graph
from pytest_qnn.cases.kinds import need_claims
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    CopyFrom,
    HandleOutput,
    Invoke,
    MakeDelegate,
    Open,
    Poison,
    Read,
    Resize,
    ScriptCase,
    SetInputs,
    Wrong,
)
from pytest_qnn.facts import DelegateFacts

Strategy = SearchStrategy[ScriptCase]
Steps = tuple[AnyScriptStep, ...]
POISON = (0x80, 0x7F)
"""Fills of outputs before the first and the second invoke; as int8 they are as far apart as can be."""


def kept(facts: DelegateFacts) -> Strategy:
    """Two invokes with inputs of their own; the outputs are read after each."""

    def make(case: DelegateCase) -> ScriptCase:
        return _script(case, (*_opening(case), *_use(case), *_use(case, 1)))

    return _cases(facts).map(make)


def copied(facts: DelegateFacts) -> Strategy:
    """CopyFromBufferHandle is called again, by the client, after the runtime has copied the outputs."""

    def make(case: DelegateCase) -> ScriptCase:
        copies = tuple(CopyFrom("i0", output) for output in _outputs(case))
        others = SetInputs("i0", case.data_seed + 1)
        return _script(case, (*_opening(case), *_use(case), others, *copies, Read("i0")))

    return _cases(facts).map(make)


def mistaken(facts: DelegateFacts) -> Strategy:
    """CopyFromBufferHandle is called with what is no handle."""

    def make(case: DelegateCase) -> ScriptCase:
        wrong: Wrong = "none" if case.data_seed & 2 else "unknown"
        copies = tuple(CopyFrom("i0", output, wrong) for output in _outputs(case))
        return _script(case, (*_opening(case), *_use(case), *copies))

    return _cases(facts).map(make)


def freed(facts: DelegateFacts) -> Strategy:
    """One delegate on two interpreters; the first one ends, and the second one's outputs are copied then."""

    def make(case: DelegateCase) -> ScriptCase:
        copies = tuple(CopyFrom("i1", output) for output in _outputs(case))
        second = (Open("i1"), Apply("i1", "d0"), Allocate("i1"), SetInputs("i1"), Invoke("i1"), Read("i1"))
        steps = (*_opening(case), *_use(case), *second, Close("i0"), *copies, Read("i1"), Close("i1"))
        return _script(case, steps)

    return _cases(facts).map(make)


def connected(facts: DelegateFacts) -> Strategy:
    """A probe takes a node such that one kernel of the target reads what another one of its kernels wrote."""

    def make(case: DelegateCase) -> ScriptCase:
        between = _between(case.graph)
        claim = (between[case.data_seed % len(between)],) if between else _probe_claim(case)
        opening: Steps = (
            MakeDelegate("p0", "probe", claim=claim),
            *(MakeDelegate("d0"), Open("i0"), Apply("i0", "p0"), Apply("i0", "d0"), Allocate("i0")),
        )
        return _script(case, (*opening, *_use(case), *_use(case, 1)))

    return _cases(facts).map(make)


def resized(facts: DelegateFacts) -> Strategy:
    """An input is resized to another shape and back between two invokes: delegates are undone and redone."""

    def make(case: DelegateCase) -> ScriptCase:
        shape = case.graph.tensors[case.graph.inputs[0]].shape
        away = (Resize("i0", 0, (shape[0] + 1, *shape[1:])), Resize("i0", 0, shape)) if shape else ()
        steps = (*_opening(case), *_use(case), *away, Allocate("i0"), *_use(case, 1), Close("i0"))
        return _script(case, steps)

    return _cases(facts).map(make)


def left_to_the_client(facts: DelegateFacts) -> Strategy:
    """allow_buffer_handle_output is set; the client copies the outputs after the second invoke."""

    def make(case: DelegateCase) -> ScriptCase:
        copies = tuple(CopyFrom("i0", output) for output in _outputs(case))
        first = (SetInputs("i0", case.data_seed), Invoke("i0"), SetInputs("i0", case.data_seed + 1))
        opening = (*_opening(case), HandleOutput("i0"))
        return _script(case, (*opening, *first, Invoke("i0"), *copies, Read("i0")))

    return _cases(facts).map(make)


def _cases(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    need_claims(facts)
    return cases.behind_a_probe(facts).map(_plain)


def _plain(case: DelegateCase) -> DelegateCase:
    """Without fused activations: whether they are applied is another rule's question."""
    nodes = tuple(msgspec.structs.replace(node, activation="NONE") for node in case.graph.nodes)
    return msgspec.structs.replace(case, graph=msgspec.structs.replace(case.graph, nodes=nodes))


def _script(case: DelegateCase, steps: Steps) -> ScriptCase:
    return ScriptCase((case.graph,), steps, buffers=True)


def _opening(case: DelegateCase) -> Steps:
    """The target on the interpreter ``i0``, alone or (two of three) behind the probe; allocated."""
    claims = [one.claim for one in case.applications if one.who == "target"]
    target = MakeDelegate("d0", claim=claims[0])
    if not case.data_seed % 3:
        return (target, Open("i0"), Apply("i0", "d0"), Allocate("i0"))
    probe = MakeDelegate("p0", "probe", claim=_probe_claim(case))
    return (target, probe, Open("i0"), Apply("i0", "p0"), Apply("i0", "d0"), Allocate("i0"))


def _use(case: DelegateCase, time: int = 0) -> Steps:
    return (SetInputs("i0", case.data_seed + time), Poison("i0", POISON[time]), Invoke("i0"), Read("i0"))


def _probe_claim(case: DelegateCase) -> tuple[int, ...]:
    return next(one.claim or () for one in case.applications if one.who == "probe")


def _outputs(case: DelegateCase) -> range:
    return range(len(case.graph.outputs))


def _between(graph: Graph) -> list[int]:
    """Nodes that, taken out, part a node from an earlier one whose result it reads, as it reads theirs."""
    maker = {tensor: index for index, node in enumerate(graph.nodes) for tensor in node.outputs}
    found: set[int] = set()
    for node in graph.nodes:
        makers = {maker[tensor] for tensor in node.inputs if tensor in maker}
        found |= {one for one in makers for other in makers if other < one}
    return sorted(found)
