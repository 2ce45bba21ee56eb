"""From bytes to graphs: the kinds of graph that there are, and which one some bytes stand for.

No Hypothesis here: the processes that carry cases out make graphs of one node with it, too
(`tflite/runner/learn.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pytest_qnn.tflite.graph.combinations import Combination, Form
from pytest_qnn.tflite.graph.decode import HEADER, LATEST, RECORD, Builder
from pytest_qnn.tflite.graph.floors import USUAL, Floor, plain, raised
from pytest_qnn.tflite.graph.graph import DType, Graph, Op, Tensor
from pytest_qnn.tflite.graph.operators import MAKE, Choices
from pytest_qnn.tflite.graph.scales import MANY_TIMES, MOST_OF_MANY, MOST_PARTED, NONE, Scale

Claims = tuple[tuple[int, ...], ...]

OPS: dict[DType, tuple[Op, ...]] = {
    "float32": tuple(MAKE),
    # NEG: the int8 kernel is missing from tflite-runtime 2.14 (it fails at invoke).
    "int8": tuple(op for op in MAKE if op != "NEG"),
}
"""The operators of generated graphs per dtype, from the simplest to the richest."""

Wants = dict[int, tuple[Combination, ...]]
"""By rank of the first operand: kinds of one operator's nodes, of which a record makes one."""


class Kind(NamedTuple):
    """A kind of graph that bytes are decoded to."""

    dtype: DType
    slots: Sequence[Op | Wants]
    """What a record's operator byte chooses from: an operator in any form, or wanted kinds of node."""
    zero_points: bool | None = None
    """As for `pytest_qnn.tflite.graph.decode.Builder`, as is the next."""
    large: bool = False
    floor: Floor = USUAL
    """No graph is smaller: no tensor of fewer elements, and no fewer nodes, for which records stand again."""


_VARIANTS = 20
_FIRST_EXTRA = 15
"""From this variant of an operator on (one in four), its result is a graph output in any case."""


def size_of(max_nodes: int, n_claims: int) -> int:
    """Bytes that `decode_graph` wants. Hypothesis takes about 2 us for each, so they are few."""
    return HEADER + n_claims + max_nodes * (RECORD + (n_claims > 0))


def decode_graph(
    data: bytes,
    choices: Sequence[Kind | tuple[DType, Sequence[Op]]],
    n_claims: int,
    min_nodes: int,
    max_nodes: int,
    scale: Scale = NONE,
) -> tuple[Graph, Claims]:
    """The graph and claims that ``data`` stands for.

    ``choices`` are the kinds of graph, or just dtypes and their operators. ``scale`` is the class of size.
    """
    dtype, slots, zero_points, large, floor = _chosen(choices, data[1], scale)
    scale = raised(scale, floor)
    build = Builder(dtype == "int8", data[2], data[3], zero_points=zero_points, large=large, scale=scale)
    modes = data[HEADER : HEADER + n_claims]
    claims: list[list[int]] = [[] for _ in modes]
    extra: list[int] = []
    left = min_nodes + data[0] * (max_nodes - min_nodes + 1) // 256
    stride = RECORD + (n_claims > 0)
    if scale.most:
        left = min(left, max(min_nodes, scale.most))
    if scale.many:
        start = HEADER + n_claims
        times = -(-MOST_PARTED // max_nodes) if scale.parted else MANY_TIMES
        data = data[:start] + data[start : start + max_nodes * stride] * times
        most = (scale.most or MOST_PARTED) if scale.parted else MOST_OF_MANY
        min_nodes = left = min(most, times * max_nodes)
    if floor.nodes > 1:
        min_nodes, left = max(min_nodes, floor.nodes), max(left, floor.nodes)
        start = HEADER + n_claims
        data = data[:start] + data[start : start + max_nodes * stride] * -(-left // max_nodes)
    for at in range(HEADER + n_claims, HEADER + n_claims + left * stride, stride):
        number = len(build.nodes)
        left -= 1
        if not data[at] and number + left >= min_nodes:
            continue
        variant, place = divmod(max(data[at] - 1, 0), len(slots))
        slot = slots[place]
        first, second, options = data[at + 1 : at + 4]
        first = first * (LATEST if scale.parted else 256) >> 8
        if isinstance(slot, str):
            variant %= _VARIANTS
            op = "RELU" if slot in scale.without else slot
            MAKE[op](build, Choices(first, second, options, variant))
        else:
            # Bytes that no other choice depends on together: their sum is as good as one more byte.
            want = _one_of(slot, build.rank, 31 * first + 17 * second + 7 * options)
            if want.op in scale.without:
                want = Combination("RELU", want.dtype, want.rank)
            if scale.rank_of(want) != want.rank:
                want = msgspec.structs.replace(want, rank=scale.rank_of(want))
            variant = (variant + first + second + options) % _VARIANTS
            MAKE[want.op](build, Choices(first, second, options, variant, want))
        if variant >= _FIRST_EXTRA:
            extra.append(number)
        for k, mode in enumerate(modes):
            taken = _by_turns(number, k, modes) if scale.parted else _claimed(data[at + RECORD], k, mode)
            if taken:
                claims[k].append(number)
    graph = build.finish(extra, input_too=data[4] >= 192)
    return graph, tuple(map(tuple, claims))


_EARLY, _EARLY_END = 64, 112
"""Between them a second operand is one of the activations of its shape, counted from the first."""


def joined(data: bytes, n_claims: int) -> bytes:
    """The same bytes, in which a node of two operands reads an early result of the first one's shape."""
    changed = bytearray(data)
    for at in range(HEADER + n_claims + 2, len(data), RECORD + (n_claims > 0)):
        changed[at] = _EARLY + (data[at] * (_EARLY_END - _EARLY) >> 8)
    return bytes(changed)


def _one_of(wants: Wants, rank: int, choice: int) -> Combination:
    """A wanted kind, of a first operand's rank that the graph has to offer where there is such a one."""
    of_rank = wants.get(rank) or next(iter(wants.values()))
    return of_rank[choice % len(of_rank)]


def graph_of(want: Combination, floor: Floor = USUAL) -> Graph:
    """The simplest graph of one node of this kind, or of as many as the floor has, of the same operands.

    Of a floor in a chain the first operand is the result before, if these are alike.
    """
    build = Builder(want.dtype == "int8", 0, 0, zero_points=want.zero_points, scale=plain(floor))
    MAKE[want.op](build, Choices(0, 0, 0, 0, want))
    graph = build.finish([], input_too=False)
    return chained(graph, floor.nodes) if floor.chain else copied(graph, floor.nodes)


_INSIDE = (4, 4)
"""Choices of a CONV_2D whose window lies inside its image: 3 by 3 (dilated: 2 by 2) in 4 by 3."""


def asked_about(want: Combination, floor: Floor = USUAL) -> Graph:
    """The graph by which it is learned whether a target claims this kind, and how it computes it.

    As `graph_of`, but that the simplest CONV_2D has an image of one element: a target may leave windows that
    are larger than their image to the CPU, and compute any other.
    """
    if want.op != "CONV_2D":
        return graph_of(want, floor)
    build = Builder(want.dtype == "int8", 0, 0, zero_points=want.zero_points, scale=plain(floor))
    first, options = _INSIDE
    MAKE[want.op](build, Choices(first, 0, options, 0, want))
    return _as_often(build.finish([], input_too=False), floor)


def _as_often(graph: Graph, floor: Floor) -> Graph:
    return chained(graph, floor.nodes) if floor.chain else copied(graph, floor.nodes)


def copied(graph: Graph, copies: int) -> Graph:
    """A graph of one node with so many of it, which read the same operands and have results of their own."""
    node, result = graph.nodes[0], graph.tensors[graph.nodes[0].outputs[0]]
    first = len(graph.tensors)
    outputs = (*graph.outputs, *range(first, first + copies - 1))
    tensors: tuple[Tensor, ...] = graph.tensors + (result,) * (copies - 1)
    nodes = tuple(msgspec.structs.replace(node, outputs=(output,)) for output in outputs)
    return msgspec.structs.replace(graph, tensors=tensors, nodes=nodes, outputs=outputs)


def chained(graph: Graph, copies: int) -> Graph:
    """As `copied`, but each node's first operand is the result of the one before, if these are alike."""
    node = graph.nodes[0]
    operand, result = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    beside = copied(graph, copies)
    if msgspec.structs.replace(operand, signature=()) != result:
        return beside
    nodes = [node]
    for copy in beside.nodes[1:]:
        before = nodes[-1].outputs[0]
        inputs = tuple(before if index == node.inputs[0] else index for index in copy.inputs)
        nodes.append(msgspec.structs.replace(copy, inputs=inputs))
    return msgspec.structs.replace(beside, nodes=tuple(nodes))


def _chosen(choices: Sequence[Kind | tuple[DType, Sequence[Op]]], byte: int, scale: Scale) -> Kind:
    kinds = [Kind(*choice) for choice in choices]
    if scale.parted:
        # Many nodes of which a target is known to claim none are no partitions.
        kinds = [kind for kind in kinds if _is_wanted(kind)] or kinds
    kind = kinds[byte % len(kinds)]
    if scale.units:
        return kind._replace(slots=_those(kind.slots, _LAYERS) or kind.slots)
    if scale.partner == "other shape":
        return kind._replace(slots=_those(kind.slots, _OF_TWO_SHAPES, ("broadcast",)) or kind.slots)
    return kind


_LAYERS: tuple[Op, ...] = ("FULLY_CONNECTED", "CONV_2D")
_OF_TWO_SHAPES: tuple[Op, ...] = ("ADD", "SUB", "MUL", "MAXIMUM")


def _those(
    slots: Sequence[Op | Wants], ops: Sequence[Op], forms: Sequence[Form] | None = None
) -> list[Op | Wants]:
    """Those of the slots that make such nodes; none where a target is known to claim others only.

    ``forms``: of wanted nodes; None: any.
    """
    found: list[Op | Wants] = []
    for slot in slots:
        if isinstance(slot, str):
            found += [slot] if slot in ops else []
            continue
        wants = {
            rank: tuple(kind for kind in kinds if kind.op in ops and (not forms or kind.form in forms))
            for rank, kinds in slot.items()
        }
        left = {rank: kinds for rank, kinds in wants.items() if kinds}
        found += [left] if left else []
    known = any(not isinstance(slot, str) for slot in slots)
    return found if not known or any(not isinstance(slot, str) for slot in found) else []


def _is_wanted(kind: Kind) -> bool:
    """Some of its nodes are such as the target claims."""
    return any(not isinstance(slot, str) for slot in kind.slots)


def _by_turns(number: int, claim: int, modes: bytes) -> bool:
    """One node after the other is in each claim; of the first claim's mode depends whether two are."""
    return number // (1 + modes[0] // 192) % max(2, len(modes)) == claim


def _claimed(byte: int, claim: int, mode: int) -> bool:
    """Whether a node is in a claim: about 1/2, 3/4, 1/4 or (almost) all of the nodes are, by ``mode``."""
    one, other = byte >> claim & 1, byte >> (claim + 3) % 8 & 1
    return bool((one, one | other, one & other, byte)[mode & 3])
