"""Graph: a TensorFlow Lite graph as immutable data.

Tensor ``i`` is called ``t<i>`` and the graph ``main`` in the emitted model, so that every name is unique
(LiteRT's Qualcomm compiler refuses unnamed ones). Node indices are positions in ``nodes``, which is also
the order of execution before any delegate.

Subgraphs are numbered as in the model: 0 is the graph itself, ``k`` is ``subgraphs[k - 1]``, whose tensors
are called ``s<k>t<i>``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

DType = Literal["float32", "int8", "int32", "bool", "resource"]
Op = Literal[
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
    "MEAN",
    "FULLY_CONNECTED",
    "CONV_2D",
    "LESS",
    "IF",
    "WHILE",
    "VAR_HANDLE",
    "READ_VARIABLE",
    "ASSIGN_VARIABLE",
]
Activation = Literal["NONE", "RELU", "RELU6"]
MOST_NODES = 500
MOST_RANK = 5
Axis = Annotated[int, Meta(ge=-MOST_RANK, le=MOST_RANK - 1)]
Stride = Annotated[int, Meta(ge=1, le=64)]
ZeroPoint = Annotated[int, Meta(ge=-128, le=127)]
Indices = Annotated[tuple[int, ...], Meta(max_length=16)]


class Tensor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One tensor: its shape, type, quantisation and, for a constant, its bytes."""

    shape: tuple[int, ...]
    dtype: DType = "float32"
    scales: tuple[float, ...] = ()
    """Quantisation scales: none, one per tensor, or one per slice of ``axis``."""
    zero_points: tuple[ZeroPoint, ...] = ()
    axis: int = 0
    data: bytes | None = None
    """Little-endian contents of a constant, C order."""
    signature: tuple[int, ...] = ()
    """shape_signature: the shape with -1 where a length may change; empty: the model says nothing."""


class Node(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One operator with its operands (tensor indices; -1 is an absent optional input) and options."""

    op: Op
    inputs: Indices
    outputs: Indices
    activation: Activation = "NONE"
    axis: Axis = 0
    """CONCATENATION: the axis that grows."""
    keep_dims: bool = False
    """MEAN: keep reduced axes with length 1. The axes are its second, constant input."""
    same_padding: bool = True
    """CONV_2D: SAME padding, else VALID."""
    stride: tuple[Stride, Stride] = (1, 1)
    """CONV_2D: (height, width)."""
    dilation: tuple[Stride, Stride] = (1, 1)
    """CONV_2D: (height, width)."""
    subgraphs: tuple[int, ...] = ()
    """IF: the subgraphs for true and for false. WHILE: condition and body."""
    variable: str = ""
    """VAR_HANDLE: shared_name of the resource."""


class Graph(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A directed acyclic graph in execution order.

    The shape of a result whose shape depends on contents (a RESHAPE by a tensor that is no constant, and
    what follows from it) is the one that the model states; a runtime finds another one out.
    """

    tensors: Annotated[tuple[Tensor, ...], Meta(min_length=1, max_length=1000)]
    nodes: Annotated[tuple[Node, ...], Meta(max_length=MOST_NODES)]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    subgraphs: Annotated[tuple[Graph, ...], Meta(max_length=16)] = ()
    """Of the main graph only: what IF and WHILE call, and whatever else the model holds."""
    validation: bool = False
    """A subgraph: its name begins with ``VALIDATION:``, and so it is not delegated."""
    control_edges: Annotated[tuple[tuple[int, int], ...], Meta(max_length=MOST_NODES)] | None = None
    """Pairs of nodes (first, then): the metadata ``model_control_dependencies``; None: there is none."""
