"""What a delegate may tell nodes apart by: operator, type, rank, activation, quantisation and options.

A delegate decides node by node, by the type *and* the parameters of a node (seed 004). `GRID` holds the
combinations that a target is asked about before any rule is judged; `combination_of` says which of them a
node of any generated graph belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from pytest_qnn.tflite.graph.graph import Activation, DType, Graph, Node, Op

Quantisation = Literal["", "tensor", "channel"]
Form = Literal["", "constant", "broadcast", "keep", "plane", "plane keep", "valid", "stride", "dilation"]

FUSING: tuple[Op, ...] = ("ADD", "SUB", "MUL", "FULLY_CONNECTED", "CONV_2D")
"""Operators with a fused activation."""
_BINARY: tuple[Op, ...] = ("ADD", "SUB", "MUL", "MAXIMUM")
_WEIGHTED: tuple[Op, ...] = ("FULLY_CONNECTED", "CONV_2D")
_ORDER: tuple[Op, ...] = (
    *("RELU", "ABS", "NEG", "ADD", "SUB", "MUL", "MAXIMUM", "RESHAPE", "PRELU", "MEAN", "CONCATENATION"),
    *_WEIGHTED,
)
_FORMS: dict[Op, tuple[Form, ...]] = {
    **dict.fromkeys(_BINARY, ("", "constant", "broadcast")),
    "CONCATENATION": ("", "constant"),
    "MEAN": ("", "keep", "plane", "plane keep"),
    "CONV_2D": ("", "valid", "stride", "dilation"),
}
_ACTIVATIONS: tuple[Activation, ...] = ("NONE", "RELU", "RELU6")


class Combination(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A kind of node."""

    op: Op
    dtype: DType
    rank: int
    """Of its first operand."""
    activation: Activation = "NONE"
    quantisation: Quantisation = ""
    """int8: scales per tensor, or weights with a scale per channel."""
    zero_points: bool = False
    """int8: an operand or the result has a zero point that is not 0."""
    form: Form = ""
    """Second operand a constant, or one that is broadcast; MEAN that keeps dimensions, or of both dimensions
    of an image; CONV_2D with VALID padding, strides or dilation (the last of them that applies)."""

    def __str__(self) -> str:
        """As a reader would say it: ``ADD float32 rank 2 RELU broadcast``."""
        words = [self.op, self.dtype, f"rank {self.rank}"]
        words += [self.activation] if self.activation != "NONE" else []
        words += ["per channel"] if self.quantisation == "channel" else []
        words += ["zero points"] if self.zero_points else []
        return " ".join([*words, *([self.form] if self.form else [])])


def _grid() -> Iterator[Combination]:
    for dtype, zero_points in (("float32", False), ("int8", False), ("int8", True)):
        for op in _ORDER:
            # NEG: the int8 kernel is missing from tflite-runtime 2.14 (it fails at invoke).
            if op != "NEG" or dtype == "float32":
                yield from _of_operator(op, "int8" if dtype == "int8" else "float32", zero_points=zero_points)


def _of_operator(op: Op, dtype: DType, *, zero_points: bool) -> Iterator[Combination]:
    """Every rank and activation in the plain form; every other form, and weights per channel, without one."""
    default: Quantisation = "" if dtype == "float32" else "tensor"
    for rank in (4,) if op == "CONV_2D" else (1, 2, 3, 4):
        for activation in _ACTIVATIONS if op in FUSING else ("NONE",):
            if (op, rank) != ("MEAN", 1):  # of a vector nothing is left unless the dimension is kept
                yield Combination(op, dtype, rank, activation, default, zero_points)
        for form in _FORMS.get(op, ("",))[1:]:
            if (form, rank) != ("broadcast", 1) and (rank == 4 or not form.startswith("plane")):
                yield Combination(op, dtype, rank, "NONE", default, zero_points, form)
        if op in _WEIGHTED and dtype == "int8":
            yield Combination(op, dtype, rank, "NONE", "channel", zero_points)


GRID: tuple[Combination, ...] = tuple(_grid())
"""The combinations that a target is asked about, from the simplest operators to the richest."""


def combination_of(graph: Graph, node: Node) -> Combination | None:
    """The kind of a node of ``graph``; None for a type, operator or groups that the grid does not know."""
    operands = [graph.tensors[index] for index in node.inputs if index >= 0]
    dtype = graph.tensors[node.outputs[0]].dtype
    if node.op not in _ORDER or dtype not in ("float32", "int8") or operands[0].dtype != dtype:
        return None
    if node.op == "CONV_2D" and operands[0].shape[3] != operands[1].shape[3]:
        return None
    tensors = (*operands, graph.tensors[node.outputs[0]])
    per_channel = node.op in _WEIGHTED and len(operands[1].scales) > 1
    quantisation: Quantisation = "" if dtype == "float32" else "channel" if per_channel else "tensor"
    shifted = any(any(tensor.zero_points) for tensor in tensors)
    activation = node.activation if node.op in FUSING else "NONE"
    return Combination(
        node.op, dtype, len(operands[0].shape), activation, quantisation, shifted, _form(graph, node)
    )


def _form(graph: Graph, node: Node) -> Form:
    if node.op == "CONV_2D":
        return _window(node)
    if node.op == "MEAN":
        plane = graph.tensors[node.inputs[1]].shape == (2,)
        return ("plane keep" if plane else "keep") if node.keep_dims else "plane" if plane else ""
    if node.op not in (*_BINARY, "CONCATENATION"):
        return ""
    first, second = (graph.tensors[index] for index in node.inputs[:2])
    if node.op != "CONCATENATION" and first.shape != second.shape:
        return "broadcast"
    return "constant" if second.data is not None else ""


def _window(node: Node) -> Form:
    if node.dilation != (1, 1):
        return "dilation"
    if node.stride != (1, 1):
        return "stride"
    return "" if node.same_padding else "valid"
