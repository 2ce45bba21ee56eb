"""Graph: a TensorFlow Lite graph as immutable data.

Tensor ``i`` is called ``t<i>`` and the only subgraph ``main`` in the emitted model, so that every name is
unique (LiteRT's Qualcomm compiler refuses unnamed ones). Node indices are positions in ``nodes``, which
is also the order of execution before any delegate.
"""

from __future__ import annotations

from typing import Literal

import msgspec

DType = Literal["float32", "int8", "int32"]
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
]
Activation = Literal["NONE", "RELU", "RELU6"]


class Tensor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One tensor: its shape, type, quantisation and, for a constant, its bytes."""

    shape: tuple[int, ...]
    dtype: DType = "float32"
    scales: tuple[float, ...] = ()
    """Quantisation scales: none, one per tensor, or one per slice of ``axis``."""
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    data: bytes | None = None
    """Little-endian contents of a constant, C order."""


class Node(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One operator with its operands (tensor indices; -1 is an absent optional input) and options."""

    op: Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    activation: Activation = "NONE"
    axis: int = 0
    """CONCATENATION: the axis that grows."""
    keep_dims: bool = False
    """MEAN: keep reduced axes with length 1. The axes are its second, constant input."""
    same_padding: bool = True
    """CONV_2D: SAME padding, else VALID."""
    stride: tuple[int, int] = (1, 1)
    """CONV_2D: (height, width)."""
    dilation: tuple[int, int] = (1, 1)
    """CONV_2D: (height, width)."""


class Graph(msgspec.Struct, frozen=True, gc=False):
    """A directed acyclic graph in execution order."""

    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
