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


def is_sum(made: Prepare) -> bool:
    """A graph of many terms that there can be (`Prepare.terms`)."""
    of = made.op in ("ElementWiseAdd", "ElementWiseSubtract") and made.dtype == "FLOAT_32"
    return of and made.terms > 1 and made.weights is None and not made.relay


def io_inputs(made: Prepare) -> int:
    """IO tensors that are inputs: weights are none."""
    return made.terms or arity(made.op) - (made.weights is not None)


def weights_shape(made: Prepare) -> tuple[int, ...]:
    """The shape of a graph's weights: that of its other tensors, or narrower (`Prepare.narrow`)."""
    at = len(made.shape) - made.narrow
    return (*made.shape[:at], 1, *made.shape[at + 1 :]) if made.narrow and at >= 0 else made.shape
