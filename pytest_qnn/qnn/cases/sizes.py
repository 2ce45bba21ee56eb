"""Sizes that every part of the QNN half counts with: pages, tensors, the tensors of a graph."""

from __future__ import annotations

from math import prod

from pytest_qnn.qnn.cases.case import Prepare, QnnDType, QnnOp

PAGE = 4096
ELEMENT_BYTES: dict[QnnDType, int] = {"UFIXED_POINT_8": 1, "FLOAT_32": 4}


def nbytes(shape: tuple[int, ...], dtype: QnnDType) -> int:
    """Bytes of a dense tensor; a scalar (rank 0) has one element."""
    return prod(shape) * ELEMENT_BYTES[dtype]


def pages(size: int) -> int:
    """``size`` rounded up to whole pages: what a mapping of it really spans."""
    return -(-size // PAGE) * PAGE


def arity(op: QnnOp) -> int:
    """Inputs of the operator; it has one output."""
    return 1 if op in ("Relu", "Reshape") else 2


def io_inputs(made: Prepare) -> int:
    """IO tensors that are inputs: weights are none."""
    return arity(made.op) - (made.weights is not None)
