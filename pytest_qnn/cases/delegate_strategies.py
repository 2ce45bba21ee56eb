"""Hypothesis strategies for delegate cases: one factory for each kind of question that rules ask.

Each case is one draw of bytes: those of the graph with its claims (`pytest_qnn.cases.graphs`), followed by
a few that choose the order of delegates, the contents of the inputs and the like. Zero is the simplest
choice throughout, so cases shrink towards one small graph with the simplest contents.

A target that cannot be told what to claim (``facts.steerable`` is False) is never told; it decides itself.
Graphs are rich in what it was seen to claim (`pytest_qnn.cases.kinds`); where it claims nothing at all,
strategies that need work of it raise `pytest_qnn.facts.NothingToJudge`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases.delegate import Application, DelegateCase, Fault, Fill
from pytest_qnn.cases.graph import Graph, Op
from pytest_qnn.cases.graph_decode import HEADER, RECORD
from pytest_qnn.cases.graph_kinds import Claims, Kind, decode_graph
from pytest_qnn.cases.kinds import claimed_kinds, mixed_kinds, need_claims, option_kinds
from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.facts import DelegateFacts

ELEMENTWISE: tuple[Op, ...] = (
    "ADD",
    "SUB",
    "MUL",
    "MAXIMUM",
    "RELU",
    "ABS",
    "NEG",
    "PRELU",
    "RESHAPE",
    "CONCATENATION",
)
"""Operators with one correctly rounded operation (or none) per element of the result."""
SUMS: tuple[Op, ...] = ("MEAN", "FULLY_CONNECTED", "CONV_2D")
"""Operators that add up many terms, in an order of their own choice."""

POISON = (0xEE, 0x99)
"""Fills of outputs before the first and second invoke: float32 -3.7e28 and -1.6e-23, int8 -18 and -103."""

_EXTRA = 4
"""Bytes after the graph's: shape of the case, seed (2), contents."""
_FILLS: tuple[Fill, ...] = ("mixed", "extreme", "ramp")
_MILD: tuple[Fill, ...] = ("mixed", "ramp")
"""Where only grave errors count: no values of very different size, whose difference loses precision."""
_FAULTS: tuple[Fault, ...] = ("prepare", "kernel-prepare", "init")

Make = Callable[[Graph, Claims, int], DelegateCase]
"""(graph, claims, choice 0..255) -> case; contents of the inputs are filled in afterwards."""


Factory = Callable[[DelegateFacts], SearchStrategy[DelegateCase]]
"""What a rule's ``cases`` is."""


def anything(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Any graph, any claim, the target alone."""

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, (_target(facts, claims[0], choice),))

    return _cases(mixed_kinds(facts), make, 1, max_nodes=20)


def routing(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Partitions of several nodes, inputs and outputs; plain operators without fused activations."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(_plain(graph), (_target(facts, claims[0], choice),))

    return _cases(mixed_kinds(facts), make, 1, min_nodes=2, max_nodes=16, fills=_MILD)


def fan_out(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """As `routing`, invoked twice with different bytes in the outputs beforehand."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        target = _target(facts, claims[0], choice)
        return DelegateCase(_plain(graph), (target,), invokes=2, poison=POISON)

    return _cases(mixed_kinds(facts), make, 1, min_nodes=2, max_nodes=16, fills=_MILD)


def behind_a_probe(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """A probe takes some nodes, then the target is applied."""

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, (_probe(claims[0]), _target(facts, claims[1], choice)))

    return _cases(mixed_kinds(facts), make, 2, min_nodes=2, max_nodes=16)


def between_probes(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """The target first, last and in the middle of one or two probes; claims may overlap."""

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        first, last = _probe(claims[0]), _probe(claims[1])
        target = _target(facts, claims[2], choice >> 2)
        orders = ((first, target), (target, first), (first, target, last), (first, last, target))
        return DelegateCase(_plain(graph), orders[choice & 3])

    return _cases(mixed_kinds(facts), make, 3, min_nodes=2, max_nodes=16, fills=_MILD)


def before_probes(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """The target, then one or two probes: each makes the runtime prepare the target's kernels again."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        probes = tuple(_probe(claim) for claim in claims[1 : 2 + (choice & 1)])
        return DelegateCase(_plain(graph), (_target(facts, claims[0], choice >> 1), *probes))

    return _cases(mixed_kinds(facts), make, 3, max_nodes=12, fills=_MILD)


def before_a_failure(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """The target, then a probe that fails: in its Prepare, or in init or prepare of a kernel.

    Never the other way round: tensors of a failed delegate stay marked as its own (RT-01), and the runtime
    refuses later delegates for it.
    """

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        fault = _FAULTS[(choice & 15) % len(_FAULTS)]
        failing = Application("probe", claims[1], fault)
        return DelegateCase(graph, (_target(facts, claims[0], choice >> 4), failing))

    return _cases(mixed_kinds(facts), make, 2, min_nodes=2, max_nodes=12)


def nothing_to_claim(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Graphs that leave the target nothing: a probe has taken all; or it is told so; or as it comes."""

    def make(graph: Graph, _: Claims, choice: int) -> DelegateCase:
        target = Application(claim=() if facts.steerable else None)
        return DelegateCase(graph, (target,) if choice & 1 else (Application("probe"), target))

    return _cases(mixed_kinds(facts), make, 0, max_nodes=6)


def watched(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Any graph and claim; writes of kernels outside their outputs are looked for."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, (_target(facts, claims[0], choice),), watch=True)

    return _cases(mixed_kinds(facts), make, 1, max_nodes=10)


def repeated(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Any graph and claim, invoked four times."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, (_target(facts, claims[0], choice),), invokes=4)

    return _cases(mixed_kinds(facts), make, 1, max_nodes=10)


def poisoned(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Any graph and claim, invoked twice with different bytes in the outputs beforehand."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, (_target(facts, claims[0], choice),), invokes=2, poison=POISON)

    return _cases(mixed_kinds(facts), make, 1, max_nodes=10)


def elementwise(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Up to three float32 element-wise nodes, all for the target."""
    return _cases(claimed_kinds(facts, ops=ELEMENTWISE, dtypes=("float32",)), _alone, 0, max_nodes=3)


def sums(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One float32 node that adds up terms, for the target."""
    return _cases(claimed_kinds(facts, ops=SUMS, dtypes=("float32",)), _alone, 0, max_nodes=1)


def quantised(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One int8 node, for the target."""
    return _cases(claimed_kinds(facts, dtypes=("int8",)), _alone, 0, max_nodes=1)


def saturating(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One int8 node with inputs of -128 and 127 only, for the target."""

    def make(graph: Graph, _: Claims, __: int) -> DelegateCase:
        return DelegateCase(graph, fill="extreme")

    return _cases(claimed_kinds(facts, dtypes=("int8",)), make, 0, max_nodes=1, fills=("extreme",))


def permuted(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Two to four delegates, the target and probes, in every order; claims may overlap."""

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        probes = [_probe(claim) for claim in claims[1 : 2 + choice % 3]]
        place = len(probes) - (choice >> 2) % (len(probes) + 1)
        order = (*probes[:place], _target(facts, claims[0], choice >> 4), *probes[place:])
        return DelegateCase(_plain(graph), order)

    return _cases(mixed_kinds(facts), make, 4, min_nodes=2, max_nodes=16, fills=_MILD)


def single_nodes(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One node of a kind that the target claims, one parameter at a time."""
    return _cases(option_kinds(facts), _alone, 0, max_nodes=1, fills=_MILD)


def twice(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Any graph, given to the target on two interpreters; it claims what it wants.

    Three cases of four resize an input there and back too, once or more, so that the target claims again.
    """

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        target = _target(facts, claims[0], choice)
        return DelegateCase(graph, (target,), invokes=0, twin="alone", redo=(choice >> 1) % 4)

    return _cases(mixed_kinds(facts), make, 1, max_nodes=10)


def beside_foreign_kernels(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One or two probes and the target behind them; and what the target claims without them."""

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        probes = tuple(_probe(claim) for claim in claims[1 : 2 + (choice & 1)])
        order = (*probes, _target(facts, claims[0], choice >> 1))
        return DelegateCase(graph, order, invokes=0, twin="alone")

    need_claims(facts)
    return _cases(mixed_kinds(facts), make, 3, min_nodes=3, max_nodes=16)


def limited(option: str, values: tuple[int, ...]) -> Factory:
    """Graphs that fall into several partitions, with ``option`` at each of ``values`` for the target.

    A target without the option has no such cases: NothingToJudge says how that was learned.
    """

    def cases(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
        need_claims(facts)
        reason = facts.limits.get(option, "it was not learned what options the delegate has")
        if reason:
            raise NothingToJudge(reason, unsupported=True)

        def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
            value = str(values[choice % len(values)])
            target = _target(facts, claims[0], choice >> 3)
            target = msgspec.structs.replace(target, options=((option, value),))
            return DelegateCase(graph, (_probe(claims[1]), target), invokes=0, twin="plain")

        return _cases(mixed_kinds(facts), make, 2, min_nodes=8, max_nodes=20, chained=True)

    return cases


def with_work(factory: Factory) -> Factory:
    """As ``factory``, for rules that have nothing to look at where the target claims nothing at all."""

    @functools.wraps(factory)
    def working(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
        need_claims(facts)
        return factory(facts)

    return working


def _alone(graph: Graph, _: Claims, __: int) -> DelegateCase:
    return DelegateCase(graph)


def _target(facts: DelegateFacts, claim: tuple[int, ...], choice: int) -> Application:
    """The target: it takes all that it supports, or (steerable, every second choice) the claim."""
    return Application(claim=claim if facts.steerable and choice & 1 else None)


def _probe(claim: tuple[int, ...]) -> Application:
    return Application("probe", claim)


def _plain(graph: Graph) -> Graph:
    """The graph without fused activations: whether they are applied is another rule's question."""
    nodes = tuple(msgspec.structs.replace(node, activation="NONE") for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=nodes)


def _cases(
    kinds: Sequence[Kind],
    make: Make,
    n_claims: int,
    *,
    min_nodes: int = 1,
    max_nodes: int,
    fills: Sequence[Fill] = _FILLS,
    chained: bool = False,
) -> SearchStrategy[DelegateCase]:
    """Cases decoded from one draw of bytes. ``chained``: nodes read the latest result nine times of ten."""
    size = _EXTRA + HEADER + n_claims + max_nodes * (RECORD + n_claims)

    def decode(data: bytes) -> DelegateCase:
        choice, seed, fill = data[0], int.from_bytes(data[1:3], "big"), fills[data[3] % len(fills)]
        rest = _chained(data[_EXTRA:], n_claims) if chained else data[_EXTRA:]
        graph, claims = decode_graph(rest, kinds, n_claims, min_nodes, max_nodes)
        return msgspec.structs.replace(make(graph, claims, choice), data_seed=seed, fill=fill)

    return decoded(size, decode)


def _chained(data: bytes, n_claims: int) -> bytes:
    """The same bytes; those that choose a first operand are brought down to where they mean the latest."""
    changed = bytearray(data)
    start, stride = HEADER + n_claims, RECORD + (n_claims > 0)
    for at in range(start + 1, len(data), stride):
        changed[at] = data[at] * 107 >> 8
    return bytes(changed)
