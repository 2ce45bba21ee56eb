"""What a graph of the memory suite computes, to the byte.

UFIXED_POINT_8 stores ``q`` for ``real = (q + offset) * scale`` (Qnn_ScaleOffset_t) and rounds half up:
``q = floor(real / scale - offset + 0.5)``, clamped to 0..255. All scales are small dyadic numbers, so every
step is exact in float64: a difference is a fault, not an error of rounding.

The encodings make sums, differences and products tie (fall on .5), and all but Reshape saturate.
libQnnHtp.so 2.51 gives exactly these bytes. Relu has no ties: that library rounds them half to even there,
and no document says which way is right.

FLOAT_32 computes with one float32 operation per element.

No document says how a backend rounds, nor how precisely it computes. `beyond` has the bounds that hold for
any. A stored value may be off by one step of the output's encoding, whichever way it was rounded or cut
(QnnTypes.h, Qnn_ScaleOffset_t: it stands for a multiple of the scale); Reshape moves bytes. FLOAT_32 may be
off by one unit in the last place of a float16: |seen - expected| <= 2**-10 * |expected|. Backends compute
FLOAT_32 graphs in float16 (libQnnHtp does; facts, section 5), whose significand has 11 bits; all inputs of
the suite are multiples of 1/8 in [-16, 16) and so exact in it, as are their sums, and a product is rounded
(or cut) once, to within one unit, 2**-10 of it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_qnn.core.contents import joined
from pytest_qnn.qnn.cases.case import Prepare, QnnDType, QnnOp
from pytest_qnn.qnn.cases.sizes import ELEMENT_BYTES, arity, weights_shape

FLOAT_BOUND = 2.0**-10
"""Largest relative error of a FLOAT_32 output."""
STEP_BOUND = 1.0
"""Largest error of a UFIXED_POINT_8 output, in steps of its encoding."""


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
"""Elements of a quantised tensor that are looked up together: numpy makes eight bytes of an index, and of a
mebibyte in one piece most time would go to the page faults of that array."""

OPERATORS: tuple[QnnOp, ...] = tuple(QUANTIZATION)
DTYPES: tuple[QnnDType, ...] = ("UFIXED_POINT_8", "FLOAT_32")


_FUNCTIONS: dict[QnnOp, Any] = {
    "ElementWiseAdd": np.add,
    "ElementWiseSubtract": np.subtract,
    "ElementWiseMultiply": np.multiply,
    "Relu": np.maximum,
}


def operands(made: Prepare, inputs: Sequence[bytes]) -> tuple[bytes, ...]:
    """What the last operator of a graph is applied to, for the bytes of its inputs, weights behind them.

    Narrow weights are broadcast; of many terms (`Prepare.terms`) the second operand is what is made of all
    but the first.
    """
    if made.terms:
        *others, value = inputs
        for other in others[:0:-1]:
            value = expected(made.op, made.dtype, other, value)
        return others[0], value
    if made.weights is None or weights_shape(made) == made.shape:
        return tuple(inputs)
    whole = np.frombuffer(inputs[-1], f"V{ELEMENT_BYTES[made.dtype]}").reshape(weights_shape(made))
    return (*inputs[:-1], np.broadcast_to(whole, made.shape).tobytes())


def expected(op: QnnOp, dtype: QnnDType, *inputs: bytes, ties_up: bool = True) -> bytes:
    """The output's bytes for the inputs' bytes (equally long, whole elements).

    ``ties_up``: how a quantised result exactly between two integers is rounded.

    Raises:
        ValueError: the number of inputs is not the operator's, or their lengths differ.
    """
    _check(op, inputs)
    if op == "Reshape":
        return inputs[0]
    if dtype == "FLOAT_32":
        return bytes(_apply(op, *(np.frombuffer(data, np.float32) for data in inputs)).data)
    table = _stored(op, ties_up=ties_up)
    return joined((table[index] for index in _indices(inputs)), len(inputs[0]))


def _check(op: QnnOp, inputs: Sequence[bytes]) -> None:
    if len(inputs) != arity(op) or len({len(data) for data in inputs}) != 1:
        raise ValueError(f"{op} takes {arity(op)} inputs of one length")


def _indices(inputs: Sequence[bytes]) -> Iterator[npt.NDArray[np.integer[Any]]]:
    """Where a table over all operands of an operator holds what it makes of these, piece by piece."""
    first, *others = (np.frombuffer(data, np.uint8) for data in inputs)
    for begin in range(0, len(first), _PIECE):
        index: npt.NDArray[np.integer[Any]] = first[begin : begin + _PIECE]
        for other in others:
            index = (index.astype(np.uint16) << 8) | other[begin : begin + _PIECE]
        yield index


@functools.cache
def _exact(op: QnnOp) -> npt.NDArray[np.float64]:
    """What a quantised output would store if it could store any number, of all operands (`_indices`)."""
    stored = np.arange(256, dtype=np.uint8)
    grid = (stored,) if arity(op) == 1 else (np.repeat(stored, 256), np.tile(stored, 256))
    *encodings, out = QUANTIZATION[op]
    real = _apply(op, *(_decode(values, code) for values, code in zip(grid, encodings, strict=True)))
    return real / out.scale - out.offset


@functools.cache
def _stored(op: QnnOp, *, ties_up: bool) -> npt.NDArray[np.uint8]:
    """What a quantised output stores, of all operands."""
    exact = _exact(op)
    whole = np.floor(exact + 0.5) if ties_up else np.ceil(exact - 0.5)
    stored: npt.NDArray[np.uint8] = np.clip(whole, 0, 255).astype(np.uint8)
    return stored


@functools.cache
def _bounds(op: QnnOp) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The least and the greatest number that a quantised output may store, of all operands."""
    inside = np.clip(_exact(op), 0, 255)
    least, greatest = np.ceil(inside - STEP_BOUND), np.floor(inside + STEP_BOUND)
    return np.clip(least, 0, 255).astype(np.uint8), np.clip(greatest, 0, 255).astype(np.uint8)


def beyond(op: QnnOp, dtype: QnnDType, seen: bytes, *inputs: bytes) -> str:
    """The first element of an output that no rounding explains, in words; empty if there is none.

    Raises:
        ValueError: as `expected`.
    """
    if dtype != "FLOAT_32" and op != "Reshape":
        return _beyond_a_step(op, seen, inputs)
    wanted = expected(op, dtype, *inputs)
    if len(wanted) != len(seen):
        return _other_length(seen, len(wanted))
    stored = np.float32 if dtype == "FLOAT_32" else np.uint8
    want, see = (np.frombuffer(data, stored).astype(np.float64) for data in (wanted, seen))
    bound = FLOAT_BOUND * np.abs(want) if dtype == "FLOAT_32" else np.zeros_like(want)
    # Not "error > bound": a NaN is never within the bound.
    wrong = np.flatnonzero(~(np.abs(see - want) <= bound))
    if not wrong.size:
        return ""
    at = int(wrong[0])
    return _at(at, see[at], want[at], bound[at])


def _beyond_a_step(op: QnnOp, seen: bytes, inputs: Sequence[bytes]) -> str:
    _check(op, inputs)
    if len(inputs[0]) != len(seen):
        return _other_length(seen, len(inputs[0]))
    see, (least, greatest) = np.frombuffer(seen, np.uint8), _bounds(op)
    for number, index in enumerate(_indices(inputs)):
        piece = see[number * _PIECE :][: len(index)]
        wrong = np.flatnonzero((piece < least[index]) | (piece > greatest[index]))
        if wrong.size:
            at = int(wrong[0])
            want = np.clip(_exact(op)[index[at]], 0, 255)
            return _at(number * _PIECE + at, piece[at], want, STEP_BOUND)
    return ""


def _other_length(seen: bytes, wanted: int) -> str:
    return f"{len(seen)} bytes instead of {wanted}"


def _at(element: int, seen: float, wanted: float, bound: float) -> str:
    return f"at element {element}: {seen:g} instead of {wanted:g} (bound {bound:g})"


def _decode(stored: npt.NDArray[np.uint8], encoding: Encoding) -> npt.NDArray[np.float64]:
    return (stored.astype(np.float64) + encoding.offset) * encoding.scale


def _apply(op: QnnOp, *operands: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if op == "Relu":
        operands = (operands[0], np.zeros_like(operands[0]))
    with np.errstate(all="ignore"):  # an infinity is a result like any other
        result: npt.NDArray[Any] = _FUNCTIONS[op](*operands)
    return result
