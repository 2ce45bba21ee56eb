"""Smaller delegate cases: fewer nodes, outputs, applications, claimed nodes and invokes.

A graph without a node is still one that `pytest_qnn.cases.graphs` might have made: what nobody reads is an
output, the results of RESHAPE that need it stay outputs, and no magnitude grows, since what becomes an
input was an activation of at least an input's bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

import msgspec

from pytest_qnn.cases.delegate import Application, DelegateCase
from pytest_qnn.cases.graph import Graph, Node


def smaller_delegate(case: DelegateCase) -> Iterator[DelegateCase]:
    """Cases with fewer nodes, then fewer applications, then plainer in everything else; boldest first."""
    for kept in kept_nodes(len(case.graph.nodes) if is_plain(case.graph) else 0):
        for join in (True, False):
            graph = restricted(case.graph, frozenset(kept), join=join)
            yield msgspec.structs.replace(case, graph=graph, applications=_renumbered(case, kept))
    yield from _fewer_applications(case)
    yield from _fewer_claims(case)
    yield from _fewer_outputs(case)
    yield from _plainer(case)


def with_more_outputs(case: DelegateCase) -> Iterator[DelegateCase]:
    """The graph cut where numbers may have gone wrong: results inside it become outputs of the graph.

    First all of them at once, which a delegate that fuses nodes may answer in another way; then each one
    beside the outputs there are, in the order of the nodes.
    """
    written = [tensor for node in case.graph.nodes for tensor in node.outputs]
    inside = [tensor for tensor in written if tensor not in case.graph.outputs]
    if not inside or not is_plain(case.graph):
        return
    for more in (inside, *([tensor] for tensor in inside if len(inside) > 1)):
        chosen = {*case.graph.outputs, *more}
        _protect_reshaped(list(case.graph.nodes), chosen)
        graph = msgspec.structs.replace(case.graph, outputs=tuple(sorted(chosen)))
        yield msgspec.structs.replace(case, graph=graph)


def is_plain(graph: Graph) -> bool:
    """Nodes can be taken from the graph: each has one result, and no shape or way hangs on data."""
    return (
        not graph.subgraphs
        and graph.control_edges is None
        and all(len(node.outputs) == 1 and node.inputs for node in graph.nodes)
        and all(t.dtype in ("float32", "int8") or t.data is not None for t in graph.tensors)
    )


def kept_nodes(count: int) -> Iterator[list[int]]:
    """One node alone; all but chunks of halves, quarters, ...; all but each one."""
    if count > 2:
        yield from ([node] for node in range(count))
    size = count // 2
    while size:
        for end in range(count, 0, -size):
            gone = range(max(0, end - size), end)
            yield [node for node in range(count) if node not in gone]
        size //= 2


def _renumbered(case: DelegateCase, kept: list[int]) -> tuple[Application, ...]:
    numbers = {old: new for new, old in enumerate(kept)}
    return tuple(
        application
        if application.claim is None
        else _claiming(application, tuple(numbers[node] for node in application.claim if node in numbers))
        for application in case.applications
    )


def _claiming(application: Application, claim: tuple[int, ...]) -> Application:
    return msgspec.structs.replace(application, claim=claim)


def restricted(graph: Graph, kept: Set[int], *, join: bool) -> Graph:
    """The graph of the nodes ``kept``, at least one.

    Args:
        graph: the whole.
        kept: node indices.
        join: readers of a node that goes read its first operand of the same shape, type and quantisation
            instead. Without one, and with ``join=False``, its result becomes an input of the graph.
    """
    instead: dict[int, int] = {}
    nodes: list[Node] = []
    for index, node in enumerate(graph.nodes):
        inputs = tuple(instead.get(tensor, tensor) for tensor in node.inputs)
        if index in kept:
            nodes.append(msgspec.structs.replace(node, inputs=inputs))
        elif join and (operand := _same(graph, inputs, node.outputs[0])) is not None:
            instead[node.outputs[0]] = operand
    outputs = {instead.get(tensor, tensor) for tensor in graph.outputs}
    return _tidy(graph, nodes, outputs)


def _same(graph: Graph, operands: tuple[int, ...], result: int) -> int | None:
    """The first operand that is as its node's result is."""
    like = graph.tensors[result]
    return next((tensor for tensor in operands if tensor >= 0 and graph.tensors[tensor] == like), None)


def _tidy(graph: Graph, nodes: list[Node], outputs: set[int]) -> Graph:
    """Only the tensors that nodes name, renumbered; inputs and outputs as the nodes demand."""
    read = {tensor for node in nodes for tensor in node.inputs if tensor >= 0}
    written = {tensor for node in nodes for tensor in node.outputs}
    used = sorted(read | written)
    number = {old: new for new, old in enumerate(used)} | {-1: -1}
    inputs = [t for t in used if t not in written and graph.tensors[t].data is None]
    chosen = {t for t in outputs if t in written or t in inputs} | (written - read)
    _protect_reshaped(nodes, chosen)
    return Graph(
        tensors=tuple(graph.tensors[old] for old in used),
        nodes=tuple(
            msgspec.structs.replace(
                node,
                inputs=tuple(number[tensor] for tensor in node.inputs),
                outputs=tuple(number[tensor] for tensor in node.outputs),
            )
            for node in nodes
        ),
        inputs=tuple(number[tensor] for tensor in inputs),
        outputs=tuple(number[tensor] for tensor in used if tensor in chosen),
    )


def _protect_reshaped(nodes: list[Node], chosen: set[int]) -> None:
    """Add the results of RESHAPE whose operand is needed elsewhere, for the reason that `Builder` gives."""
    readers = Counter(tensor for node in nodes for tensor in node.inputs)
    for node in nodes:
        if node.op == "RESHAPE" and (readers[node.inputs[0]] > 1 or node.inputs[0] in chosen):
            chosen.add(node.outputs[0])


def _fewer_applications(case: DelegateCase) -> Iterator[DelegateCase]:
    """Each application left out, but for the last one of the target."""
    for index in reversed(range(len(case.applications))):
        left = (*case.applications[:index], *case.applications[index + 1 :])
        if any(application.who == "target" for application in left):
            yield msgspec.structs.replace(case, applications=left)


def _fewer_claims(case: DelegateCase) -> Iterator[DelegateCase]:
    """Each claimed node left out of its claim."""
    for index, application in enumerate(case.applications):
        for node in reversed(application.claim or ()):
            shorter = tuple(other for other in application.claim or () if other != node)
            left = (
                *case.applications[:index],
                _claiming(application, shorter),
                *case.applications[index + 1 :],
            )
            yield msgspec.structs.replace(case, applications=left)


def _fewer_outputs(case: DelegateCase) -> Iterator[DelegateCase]:
    """Each output left out that need not be one."""
    for output in reversed(case.graph.outputs) if is_plain(case.graph) else ():
        left = set(case.graph.outputs) - {output}
        graph = _tidy(case.graph, list(case.graph.nodes), left)
        if len(graph.outputs) < len(case.graph.outputs):
            yield msgspec.structs.replace(case, graph=graph)


def _plainer(case: DelegateCase) -> Iterator[DelegateCase]:
    """Fewer invokes, nothing watched or overwritten, the simplest contents, no fused activation."""
    for invokes in sorted(n for n in {1, case.invokes - 1} if 0 < n < case.invokes):
        first = {"poison": case.poison[:invokes], "reseed": case.reseed[:invokes]}
        yield msgspec.structs.replace(case, invokes=invokes, **first)
    simple: tuple[dict[str, object], ...] = (
        {"watch": False},
        {"poison": ()},
        {"reseed": ()},
        {"again": ""},
        {"late": False},
        {"redo": 0},
        {"look": ()},
        {"data_seed": 0},
    )
    for change in simple:
        plain = msgspec.structs.replace(case, **change)
        if plain != case:
            yield plain
    for index, node in enumerate(case.graph.nodes):
        if node.activation != "NONE":
            bare = msgspec.structs.replace(node, activation="NONE")
            nodes = (*case.graph.nodes[:index], bare, *case.graph.nodes[index + 1 :])
            yield msgspec.structs.replace(case, graph=msgspec.structs.replace(case.graph, nodes=nodes))
