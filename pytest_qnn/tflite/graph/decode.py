"""Bytes -> Graph: every byte string is a valid graph, and smaller bytes are simpler graphs.

A graph is a header and one record per node. Zero in a record's first byte leaves the node out, so that
Hypothesis removes any node by zeroing one byte. Decoding is linear in the number of records.

Float graphs stay finite for inputs up to `EXTREME`: the builder keeps a bound on the magnitude of every
tensor, and where an operator would take it beyond `_LIMIT` it is given a constant operand of magnitude at
most 1 instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from pytest_qnn.tflite.graph.constants import (
    EXTREME,
    PARAMS,
    SHIFTED,
    SYMMETRIC,
    Params,
    activation,
    constant,
)
from pytest_qnn.tflite.graph.graph import Activation, Graph, Node, Op, Tensor
from pytest_qnn.tflite.graph.scales import NONE, Scale

HEADER = 5
"""Bytes: number of records, dtype, shape, quantisation, whether an input is an output."""
RECORD = 4
"""Bytes: operator (and its variant: quantisation of the result), first operand, second operand, options.
One byte of claims may follow."""

MAX_ELEMENTS = 64
_MAX_INPUTS = 4
LATEST = 96
"""A first operand chosen by less is the latest activation."""
_MOST_BROADCAST = 4
"""Dimensions of operands that both runtimes broadcast in every operator."""
_MOST_CONSTANT = 1 << 17
"""Elements of a constant: it is in every case file."""
_LIMIT = 2.0**60
_SHAPES: tuple[tuple[int, ...], ...] = (
    (2,),
    (1,),
    (3,),
    (2, 3),
    (1, 1, 1, 2),
    (4, 2),
    (1, 2, 3),
    (2, 3, 3),
    (1, 5),
    (1, 2, 2, 1),
    (1, 2, 2, 2),
    (1, 3, 3, 2),
    (1, 4, 3, 3),
    (2, 3, 2, 3),
    (1, 5, 2, 1),
)
_LARGE: tuple[tuple[int, ...], ...] = ((17,), (4, 5), (2, 3, 3), (1, 4, 3, 3), (2, 3, 2, 3))
"""Enough elements for statistics on how they are rounded."""
_OF_RANK = {rank: tuple(shape for shape in _SHAPES if len(shape) == rank) for rank in (1, 2, 3, 4)}
_ACTIVATIONS: tuple[Activation, ...] = ("NONE", "NONE", "RELU", "RELU6")


class Builder:
    """A graph under construction.

    ``choice`` bytes are those of a record; a larger byte never means a simpler choice.
    """

    __slots__ = (
        "_base",
        "bounds",
        "inputs",
        "nodes",
        "params",
        "peak",
        "peers",
        "pool",
        "ranks",
        "readers",
        "scale",
        "tensors",
    )

    gives_weights: ClassVar[bool] = True
    """An input may have the weights of a layer."""

    def __init__(
        self,
        quantised: bool,
        shape: int,
        params: int,
        *,
        zero_points: bool | None = None,
        large: bool = False,
        scale: Scale = NONE,
    ) -> None:
        """``zero_points``: none of an int8 graph's is 0, or all are; None: as it comes.

        ``large``: no small shapes. ``scale``: the class of size, which has shapes of its own.
        """
        self.scale = scale
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.inputs: list[int] = []
        self.readers: dict[int, int] = {}
        """How often nodes read a tensor."""
        self.pool: list[int] = []
        """Activations in order of creation."""
        self.peers: dict[tuple[int, ...], list[int]] = {}
        """Activations by shape."""
        self.bounds: dict[int, float] = {}
        self.peak = EXTREME
        """The largest bound so far."""
        choices = PARAMS if zero_points is None else SHIFTED if zero_points else SYMMETRIC
        self.params = tuple(choices[(params + i) % len(choices)] for i in range(3)) if quantised else ()
        shapes = scale.shapes(quantised=quantised) or (_LARGE if large else _SHAPES)
        self._base = shapes[shape % len(shapes)]
        self.ranks: dict[int, list[int]] = {}
        """Activations by rank."""

    # Tensors ------------------------------------------------------------------------------------

    def constant(self, tensor: Tensor) -> int:
        """Add a tensor with contents."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def activation(self, shape: tuple[int, ...], params: Params | None, bound: float) -> int:
        """Add a tensor that a node or the client fills, with magnitudes up to ``bound``."""
        index = len(self.tensors)
        self.tensors.append(activation(shape, params))
        self.pool.append(index)
        self.peers.setdefault(shape, []).append(index)
        self.ranks.setdefault(len(shape), []).append(index)
        self.bounds[index] = bound
        self.peak = max(self.peak, bound)
        return index

    @property
    def may_have_input(self) -> bool:
        """The graph has fewer inputs than it may have."""
        return len(self.inputs) < _MAX_INPUTS

    def graph_input(self, shape: tuple[int, ...], choice: int = 0) -> int:
        """Add an input of the graph."""
        index = self.activation(shape, self.out_params(choice), EXTREME)
        self.inputs.append(index)
        return index

    def out_params(self, choice: int) -> Params | None:
        """Quantisation of a result that may have any; None in a float graph."""
        return self.params[choice % 3] if self.params else None

    def params_of(self, index: int) -> Params | None:
        """Quantisation of an int8 activation; None in a float graph."""
        tensor = self.tensors[index]
        return (tensor.scales[0], tensor.zero_points[0]) if self.params else None

    # Operands -----------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Rank of the latest activation; of the input that the first node reads while there is none."""
        return len(self.tensors[self.pool[-1]].shape if self.pool else self._base)

    def operand(self, choice: int, rank: int = 0) -> int:
        """The activation that a node reads, of ``rank`` if given: the latest one, any one, or a new input."""
        pool = self.ranks.get(rank) if rank else self.pool
        shape = self._base
        if rank and len(shape) != rank:
            shapes = self._of_rank(rank)
            shape = shapes[choice % len(shapes)]
        if not pool:
            return self.graph_input(shape, choice)
        if choice < 240 or not self.may_have_input:
            return _pick(pool, choice)
        return self.graph_input(shape, choice)

    def _of_rank(self, rank: int) -> Sequence[tuple[int, ...]]:
        """Shapes of inputs of one rank: of the graph's class, or else the usual ones."""
        own = [shape for shape in self.scale.shapes(quantised=bool(self.params)) if len(shape) == rank]
        return own or _OF_RANK[rank]

    def partner(
        self, first: int, choice: int, *, same_params: bool, growing: bool, whole: bool = False
    ) -> int:
        """A second operand for ``first``: of its shape, or a constant that broadcasts to it.

        ``same_params``: also of its quantisation. ``growing``: a constant is wanted, since an activation
        would take the result's bound beyond the limit. ``whole``: of its shape in any case.
        """
        shape = self.tensors[first].shape
        if self.scale.partner == "itself" and not growing and not 160 <= choice < 240:
            return first
        if self.scale.partner == "constant":
            choice = 160 + choice % 80
        if not growing and choice < 160:
            peers = self.peers[shape]
            other = _pick(peers, choice * 3 // 2)
            return first if same_params and self.params_of(other) != self.params_of(first) else other
        params = self.params_of(first) if same_params else self.out_params(choice)
        if not growing and choice >= 240 and self.may_have_input:
            index = self.activation(shape, params, EXTREME)
            self.inputs.append(index)
            return index
        if elements(shape) > _MOST_CONSTANT and (whole or not 208 <= choice < 240):
            return first
        operand_shape = shape if whole else self._broadcasting(shape, choice)
        return self.constant(constant(operand_shape, params, choice % 16))

    def apart(self, first: int, choice: int, *, same_params: bool) -> int:
        """A second operand of another shape than ``first`` has, to which the two broadcast together.

        An activation, while there may be inputs: below 64 one that is there, if it fits.
        """
        params = self.params_of(first) if same_params else self.out_params(choice)
        shape = self.tensors[first].shape
        if choice < 64:
            fitting = [
                other
                for other in self.pool
                if _are_apart(shape, self.tensors[other].shape)
                and (not same_params or self.params_of(other) == params)
            ]
            if fitting:
                return _pick(fitting, 4 * choice)
        if not self.may_have_input:
            return self.constant(constant(self._broadcasting(shape, 208 + choice % 32), params, choice % 16))
        index = self.activation(_beside(shape, choice), params, EXTREME)
        self.inputs.append(index)
        return index

    def _broadcasting(self, shape: tuple[int, ...], choice: int) -> tuple[int, ...]:
        """The shape of a constant operand: the same, the last dimension, or all dimensions but one."""
        if not 208 <= choice < 240:
            return shape
        if choice & 1 and 0 < len(shape) <= _MOST_BROADCAST:
            axis = (choice >> 1) % len(shape)
            narrow = (*shape[:axis], 1, *shape[axis + 1 :])
            if elements(narrow) <= _MOST_CONSTANT:
                return narrow
        return shape[-1:] if len(shape) > 1 else shape

    def bound(self, index: int) -> float:
        """Largest magnitude that tensor ``index`` can have; 1 for constants."""
        return self.bounds.get(index, 1.0)

    def grows_beyond(self, bound: float) -> bool:
        """A result of this bound would be too large for a float graph."""
        return not self.params and bound > _LIMIT

    # Nodes --------------------------------------------------------------------------------------

    def node(
        self,
        op: Op,
        operands: tuple[int, ...],
        shape: tuple[int, ...],
        params: Params | None,
        bound: float,
        activation: Activation = "NONE",
        *,
        axis: int = 0,
        keep_dims: bool = False,
        same_padding: bool = True,
        stride: tuple[int, int] = (1, 1),
        dilation: tuple[int, int] = (1, 1),
    ) -> None:
        """Add a node and its output."""
        readers = self.readers
        for operand in operands:
            readers[operand] = readers.get(operand, 0) + 1
        output = self.activation(shape, params, bound)
        window = (same_padding, stride, dilation)
        self.nodes.append(Node(op, operands, (output,), activation, axis, keep_dims, *window))

    def finish(self, extra: list[int], input_too: bool) -> Graph:
        """The graph. Whatever nobody reads is an output, ``extra`` node numbers' results too."""
        chosen = {self.nodes[number].outputs[0] for number in extra}
        if input_too and self.inputs:
            chosen.add(self.inputs[0])
        chosen.update(index for index in self.pool if index not in self.readers)
        self._protect_reshaped(chosen)
        outputs = tuple(index for index in self.pool if index in chosen)
        return Graph(tuple(self.tensors), tuple(self.nodes), tuple(self.inputs), outputs)

    def _protect_reshaped(self, chosen: set[int]) -> None:
        """Make the result of a RESHAPE an output where its operand is needed elsewhere.

        Both runtimes let RESHAPE share its operand's memory, and ADD, SUB or MUL overwrite an operand that
        has no other reader; they forget that the memory is shared. So RESHAPE, ADD and a later reader of
        the RESHAPE's operand give wrong results without any delegate (measured). Outputs are not overwritten.
        """
        for node in self.nodes:
            if node.op == "RESHAPE" and (self.readers[node.inputs[0]] > 1 or node.inputs[0] in chosen):
                chosen.add(node.outputs[0])


def _pick(tensors: list[int], choice: int) -> int:
    """One of ``tensors``: below 96 the latest; below 168 counted from the first one, then from the last.

    Counting from the first keeps a tensor's readers together while Hypothesis leaves nodes out.
    """
    if choice < LATEST:
        return tensors[-1]
    return tensors[(choice - 96) % len(tensors)] if choice < 168 else tensors[-1 - choice % len(tensors)]


def together(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which two that fit are broadcast."""
    rank = max(len(one), len(other))
    padded = ((1,) * (rank - len(shape)) + shape for shape in (one, other))
    return tuple(map(max, zip(*padded, strict=True)))


def _are_apart(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two different shapes of one rank can be broadcast together."""
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and one != other and all(1 in pair or len({*pair}) == 1 for pair in pairs)


def _beside(shape: tuple[int, ...], choice: int) -> tuple[int, ...]:
    """A shape with 1 in place of a length, a length in place of 1, or mostly both: [2, 1] beside [1, 3]."""
    short = [axis for axis, length in enumerate(shape) if length == 1]
    long = [axis for axis, length in enumerate(shape) if length > 1]
    found = list(shape)
    if short and (choice & 7 != 2 or not long):
        found[short[(choice >> 2) % len(short)]] = 2 + (choice >> 5 & 1)
    if long and (choice & 7 != 3 or not short):
        found[long[(choice >> 3) % len(long)]] = 1
    return tuple(found)


def shape_of_rank(rank: int, choice: int) -> int:
    """A header's byte that stands for a shape of ``rank``, 1 to 4, in a graph of no class of size."""
    found = [index for index, shape in enumerate(_SHAPES) if len(shape) == rank]
    return found[choice % len(found)]


def fused(choice: int) -> Activation:
    """The fused activation that the two lowest bits stand for."""
    return _ACTIVATIONS[choice & 3]


def elements(shape: tuple[int, ...]) -> int:
    """Number of elements."""
    return prod(shape)
