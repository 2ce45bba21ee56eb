"""What a graph of the memory suite computes, to the byte.

UFIXED_POINT_8 stores ``q`` for ``real = (q + offset) * scale`` (Qnn_ScaleOffset_t) and rounds half up:
``q = floor(real / scale - offset + 0.5)``, clamped to 0..255. All scales are small dyadic numbers, so every
step is exact in float64: a difference is a fault, not an error of rounding.

The encodings make sums, differences and products tie (fall on .5), and all but Reshape saturate.
libQnnHtp.so 2.51 gives exactly these bytes. Relu has no ties: that library rounds them half to even there,
and no document says which way is right.

FLOAT_32 computes with one float32 operation per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_qnn.qnn.cases.case import QnnDType, QnnOp
from pytest_qnn.qnn.cases.sizes import arity


class Encoding(NamedTuple):
    """Scale and offset of a UFIXED_POINT_8 tensor: real = (q + offset) * scale."""

    scale: float
    offset: int


_HALVES, _WHOLES = Encoding(0.5, -128), Encoding(1.0, -128)

QUANTIZATION: dict[QnnOp, tuple[Encoding, ...]] = {
    "ElementWiseAdd": (_HALVES, _WHOLES, _WHOLES),
    "ElementWiseSubtract": (_HALVES, _WHOLES, _WHOLES),
    "ElementWiseMultiply": (_HALVES, _WHOLES, Encoding(32.0, -128)),
    "Relu": (Encoding(3.0, -128), Encoding(1.0, 0)),
    "Reshape": (_HALVES, _HALVES),
}
"""The encodings of an operator's IO tensors, inputs first."""

_PIECE = 1 << 14
"""Bytes of an input that are computed together: of a mebibyte in one piece, most time would go to the page
faults of arrays of eight mebibytes each."""

OPERATORS: tuple[QnnOp, ...] = tuple(QUANTIZATION)
DTYPES: tuple[QnnDType, ...] = ("UFIXED_POINT_8", "FLOAT_32")


_FUNCTIONS: dict[QnnOp, Any] = {
    "ElementWiseAdd": np.add,
    "ElementWiseSubtract": np.subtract,
    "ElementWiseMultiply": np.multiply,
    "Relu": np.maximum,
}


def expected(op: QnnOp, dtype: QnnDType, *inputs: bytes, ties_up: bool = True) -> bytes:
    """The output's bytes for the inputs' bytes (equally long, whole elements).

    ``ties_up``: how a quantised result exactly between two integers is rounded.

    Raises:
        ValueError: the number of inputs is not the operator's, or their lengths differ.
    """
    if len(inputs) != arity(op) or len({len(data) for data in inputs}) != 1:
        raise ValueError(f"{op} takes {arity(op)} inputs of one length")
    if op == "Reshape":
        return inputs[0]
    begins = range(0, len(inputs[0]), _PIECE)
    if len(begins) < 2 or dtype == "FLOAT_32":
        return _piece(op, dtype, inputs, ties_up=ties_up)
    cut = ([data[begin : begin + _PIECE] for data in inputs] for begin in begins)
    return b"".join(_piece(op, dtype, pieces, ties_up=ties_up) for pieces in cut)


def _piece(op: QnnOp, dtype: QnnDType, inputs: Sequence[bytes], *, ties_up: bool) -> bytes:
    if dtype == "FLOAT_32":
        return bytes(_apply(op, *(np.frombuffer(data, np.float32) for data in inputs)).data)
    *encodings, out = QUANTIZATION[op]
    real = _apply(op, *(_decode(data, code) for data, code in zip(inputs, encodings, strict=True)))
    exact = real / out.scale - out.offset
    stored = np.floor(exact + 0.5) if ties_up else np.ceil(exact - 0.5)
    return bytes(np.clip(stored, 0, 255).astype(np.uint8))


def _decode(data: bytes, encoding: Encoding) -> npt.NDArray[np.float64]:
    stored = np.frombuffer(data, np.uint8).astype(np.float64)
    return (stored + encoding.offset) * encoding.scale


def _apply(op: QnnOp, *operands: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if op == "Relu":
        operands = (operands[0], np.zeros_like(operands[0]))
    with np.errstate(all="ignore"):  # an infinity is a result like any other
        result: npt.NDArray[Any] = _FUNCTIONS[op](*operands)
    return result
