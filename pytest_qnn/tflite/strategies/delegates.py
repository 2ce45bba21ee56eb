"""Delegate cases: one factory for each kind of question that rules of several areas ask."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded, prefixed
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase, Fault, Fill
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.decode import HEADER, RECORD
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import Claims, Kind, decode_graph
from pytest_qnn.tflite.graph.rare import with_grouped
from pytest_qnn.tflite.graph.scales import NONE, scale_of
from pytest_qnn.tflite.strategies.claimed import claimed_kinds, mixed_kinds, need_claims

POISON = (0xEE, 0x99)
"""Fills of outputs before the first and second invoke: float32 -3.7e28 and -1.6e-23, int8 -18 and -103."""

_EXTRA = 5
"""Bytes before the graph's: class of size, shape of the case, seed (2), contents."""
_FILLS: tuple[Fill, ...] = ("mixed", "extreme", "ramp")
MILD: tuple[Fill, ...] = ("mixed", "ramp")
"""Where only grave errors count: no values of very different size, whose difference loses precision."""
_FAULTS: tuple[Fault, ...] = ("prepare", "kernel-prepare", "init")

Make = Callable[[Graph, Claims, int], DelegateCase]
"""(graph, claims, choice 0..255) -> case; contents of the inputs are filled in afterwards."""


Factory = Callable[[DelegateFacts], SearchStrategy[DelegateCase]]
"""What a rule's ``cases`` is."""


def anything(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Any graph, any claim, the target alone."""

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, (target_application(facts, claims[0], choice),))

    return delegate_cases(mixed_kinds(facts), make, 1, max_nodes=20)


_RARE = 10
"""From this sixteenth of a leading byte's values on, a case of `with_rare` has such a node."""
_LAST = 64
"""Values of another byte for which it is not the last one."""


def with_rare(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """As `anything`; in six of sixteen cases with a node that the grid does not hold, mostly the last."""

    def make(case: DelegateCase, data: bytes) -> DelegateCase:
        if data[0] >> 4 < _RARE:
            return case
        count = len(case.graph.nodes)
        place = data[1] * (count + 1) // _LAST if data[1] < _LAST else count
        applications = (
            one
            if one.claim is None
            else msgspec.structs.replace(one, claim=(*(n + (n >= place) for n in one.claim), place))
            for one in case.applications
        )
        graph = with_grouped(case.graph, place, data[2])
        return msgspec.structs.replace(case, graph=graph, applications=tuple(applications))

    return prefixed(3, anything(facts), make)


def routing(facts: DelegateFacts, *, scaled: bool | Sequence[str] = True) -> SearchStrategy[DelegateCase]:
    """Partitions of several nodes, inputs and outputs; plain operators without fused activations.

    ``scaled``: also large ones, as for `delegate_cases`. Not for rules that repeat them many times.
    """
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(plain_case(graph), (target_application(facts, claims[0], choice),))

    kinds = mixed_kinds(facts)
    return delegate_cases(kinds, make, 1, min_nodes=2, max_nodes=16, fills=MILD, scaled=scaled)


def behind_a_probe(facts: DelegateFacts, *, scaled: bool = True) -> SearchStrategy[DelegateCase]:
    """A probe takes some nodes, then the target is applied."""

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(
            graph, (probe_application(claims[0]), target_application(facts, claims[1], choice))
        )

    return delegate_cases(mixed_kinds(facts), make, 2, min_nodes=2, max_nodes=16, scaled=scaled)


def between_probes(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """The target first, last and in the middle of one or two probes; claims may overlap."""

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        first, last = probe_application(claims[0]), probe_application(claims[1])
        target = target_application(facts, claims[2], choice >> 2)
        orders = ((first, target), (target, first), (first, target, last), (first, last, target))
        return DelegateCase(plain_case(graph), orders[choice & 3])

    return delegate_cases(mixed_kinds(facts), make, 3, min_nodes=2, max_nodes=16, fills=MILD)


def before_probes(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """The target, then one or two probes: each makes the runtime prepare the target's kernels again."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        probes = tuple(probe_application(claim) for claim in claims[1 : 2 + (choice & 1)])
        return DelegateCase(plain_case(graph), (target_application(facts, claims[0], choice >> 1), *probes))

    return delegate_cases(mixed_kinds(facts), make, 3, max_nodes=12, fills=MILD)


def before_a_failure(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """The target, then a probe that fails: in its Prepare, or in init or prepare of a kernel.

    Never the other way round: tensors of a failed delegate stay marked as its own (RT-01), and the runtime
    refuses later delegates for it.
    """

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        fault = _FAULTS[(choice & 15) % len(_FAULTS)]
        failing = Application("probe", claims[1], fault)
        return DelegateCase(graph, (target_application(facts, claims[0], choice >> 4), failing))

    return delegate_cases(mixed_kinds(facts), make, 2, min_nodes=2, max_nodes=30)


def quantised(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One int8 node, for the target."""
    return delegate_cases(claimed_kinds(facts, dtypes=("int8",)), claimed_alone, 0, max_nodes=1)


def saturating(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One int8 node with inputs of -128 and 127 only, for the target."""

    def make(graph: Graph, _: Claims, __: int) -> DelegateCase:
        return DelegateCase(graph, fill="extreme")

    return delegate_cases(claimed_kinds(facts, dtypes=("int8",)), make, 0, max_nodes=1, fills=("extreme",))


def with_work(factory: Factory) -> Factory:
    """As ``factory``, for rules that have nothing to look at where the target claims nothing at all."""

    @functools.wraps(factory)
    def working(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
        need_claims(facts)
        return factory(facts)

    return working


def claimed_alone(graph: Graph, _: Claims, __: int) -> DelegateCase:
    """One graph with the target alone, which claims all that it supports."""
    return DelegateCase(graph)


def target_application(facts: DelegateFacts, claim: tuple[int, ...], choice: int) -> Application:
    """The target: it takes all that it supports, or (steerable, every second choice) the claim."""
    return Application(claim=claim if facts.steerable and choice & 1 else None)


def probe_application(claim: tuple[int, ...]) -> Application:
    """The suite's own delegate, with a claim."""
    return Application("probe", claim)


def plain_case(graph: Graph) -> Graph:
    """The graph without fused activations: whether they are applied is another rule's question."""
    nodes = tuple(msgspec.structs.replace(node, activation="NONE") for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=nodes)


def delegate_cases(
    kinds: Sequence[Kind],
    make: Make,
    n_claims: int,
    *,
    min_nodes: int = 1,
    max_nodes: int,
    fills: Sequence[Fill] = _FILLS,
    chained: bool = False,
    scaled: bool | Sequence[str] = True,
) -> SearchStrategy[DelegateCase]:
    """Cases decoded from one draw of bytes. ``chained``: nodes read the latest result nine times of ten.

    ``scaled``: in the classes of `pytest_qnn.tflite.graph.scales`, or in those with these names.
    """
    only = None if isinstance(scaled, bool) else scaled
    size = _EXTRA + HEADER + n_claims + max_nodes * (RECORD + n_claims)

    def decode(data: bytes) -> DelegateCase:
        choice, seed, fill = data[1], int.from_bytes(data[2:4], "big"), fills[data[4] % len(fills)]
        scale = scale_of(data[0], max_nodes, only) if scaled else NONE
        choice |= scale.parted  # so that a steerable target has its claim
        rest = _chained(data[_EXTRA:], n_claims) if chained else data[_EXTRA:]
        graph, claims = decode_graph(rest, kinds, n_claims, min_nodes, max_nodes, scale)
        return msgspec.structs.replace(make(graph, claims, choice), data_seed=seed, fill=fill)

    return decoded(size, decode)


def _chained(data: bytes, n_claims: int) -> bytes:
    """The same bytes; those that choose a first operand are brought down to where they mean the latest."""
    changed = bytearray(data)
    start, stride = HEADER + n_claims, RECORD + (n_claims > 0)
    for at in range(start + 1, len(data), stride):
        changed[at] = data[at] * 107 >> 8
    return bytes(changed)
