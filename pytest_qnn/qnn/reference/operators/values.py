"""What the bytes of a tensor mean: from stored numbers to real ones, and back.

Tensors of fixed point hold real = (stored + offset) * scale (QnnTypes.h, Qnn_ScaleOffset_t), with one scale
and offset, or with one for each index of an axis. A result is stored as floor(real / scale - offset + 0.5),
clamped to what the type holds: halves round up, as the add of libQnnHtp does. Some personalities round
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.qnn.abi.codes import DataType
from pytest_qnn.qnn.reference.objects import Encoding, Tensor

Values = npt.NDArray[Any]
Kind = Literal["float", "fixed", "integer", "boolean"]
STORED: dict[int, Any] = {
    int(DataType.INT_8): np.dtype("i1"),
    int(DataType.INT_16): np.dtype("<i2"),
    int(DataType.INT_32): np.dtype("<i4"),
    int(DataType.INT_64): np.dtype("<i8"),
    int(DataType.UINT_8): np.dtype("u1"),
    int(DataType.UINT_16): np.dtype("<u2"),
    int(DataType.UINT_32): np.dtype("<u4"),
    int(DataType.UINT_64): np.dtype("<u8"),
    int(DataType.FLOAT_16): np.dtype("<f2"),
    int(DataType.FLOAT_32): np.dtype("<f4"),
    int(DataType.SFIXED_POINT_8): np.dtype("i1"),
    int(DataType.SFIXED_POINT_16): np.dtype("<i2"),
    int(DataType.SFIXED_POINT_32): np.dtype("<i4"),
    int(DataType.UFIXED_POINT_8): np.dtype("u1"),
    int(DataType.UFIXED_POINT_16): np.dtype("<u2"),
    int(DataType.BOOL_8): np.dtype("u1"),
}
"""numpy dtype of a tensor's bytes, by data type, for the types that the operators take."""
_KINDS: dict[int, Kind] = {0: "integer", 1: "integer", 2: "float", 3: "fixed", 4: "fixed", 5: "boolean"}
"""By the second byte of a Qnn_DataType_t."""


def kind_of(data_type: int) -> Kind:
    """What a data type holds. Raises KeyError for one without numbers."""
    return _KINDS[data_type >> 8]


def load(tensor: Tensor, stored: npt.NDArray[np.uint8]) -> Values:
    """The real values of a tensor's bytes, in its shape.

    Returns:
        float32 or float16 for floats, float64 for fixed point, bool for BOOL_8, and integers as they are.
    """
    values: Values = stored.view(STORED[tensor.data_type]).reshape(tensor.shape)
    kind = kind_of(tensor.data_type)
    if kind == "boolean":
        return values.astype(np.bool_)
    if kind != "fixed":
        return values
    scale, offset = _scales(tensor)
    result: Values = _whole(tensor, values).astype(np.float64)
    result += offset  # in place: each further array of a large tensor costs the page faults of it
    result *= scale
    return result


def _whole(tensor: Tensor, values: Values) -> Values:
    """Stored numbers; of a type narrower than its bytes, the low bits (QnnTypes.h, Qnn_BwScaleOffset_t)."""
    bits = tensor.encoding.bits if isinstance(tensor.encoding, Encoding) else 0
    unused = values.dtype.itemsize * 8 - bits
    return (values << unused) >> unused if bits and unused > 0 else values


def _scales(tensor: Tensor) -> tuple[Any, Any]:
    """Scale and offset, as numbers, or as arrays that broadcast against the tensor."""
    encoding = tensor.encoding
    if isinstance(encoding, msgspec.UnsetType) or encoding.axis < 0:
        return tensor.scale, tensor.offset
    shape = [1] * len(tensor.shape)
    shape[encoding.axis] = -1
    return np.reshape(encoding.scales, shape), np.reshape(encoding.offsets, shape)


def of_sums(bias: Tensor, stored: npt.NDArray[np.uint8], operand: Tensor, weights: Tensor) -> Values:
    """A bias whose encoding has a scale of 0: it is in the scale of the products that it is added to.

    LiteRT's compiler describes a bias so beside weights that have a scale for each output channel.
    """
    numbers: Values = stored.view(STORED[bias.data_type]).reshape(bias.shape)
    product: Values = numbers * (np.float64(operand.scale) * np.ravel(_scales(weights)[0]))
    return product


ROUNDINGS: dict[str, Callable[[Values], Values]] = {
    "half-up": lambda steps: np.floor(np.add(steps, 0.5, out=steps), out=steps),
    "half-even": lambda steps: np.rint(steps, out=steps),
    "down": lambda steps: np.floor(steps, out=steps),
}
"""How a number of steps becomes a whole one, in place."""


def store(tensor: Tensor, values: Values, rounding: str = "half-up") -> npt.NDArray[np.uint8]:
    """The bytes of real values as the tensor stores them, flat.

    Floats become integers by dropping what follows the point, as ``Cast`` does in C.
    """
    dtype, kind = STORED[tensor.data_type], kind_of(tensor.data_type)
    if kind == "fixed":
        return _store_fixed(tensor, values, dtype, rounding)
    if kind == "boolean":
        values = values != 0
    elif kind == "integer" and values.dtype.kind == "f":
        limits = np.iinfo(dtype)
        values = np.clip(np.trunc(np.nan_to_num(values)), float(limits.min), float(limits.max))
    return np.frombuffer(np.ascontiguousarray(values).reshape(-1).astype(dtype).tobytes(), np.uint8)


def _store_fixed(tensor: Tensor, values: Values, dtype: Any, rounding: str) -> npt.NDArray[np.uint8]:
    scale, offset = _scales(tensor)
    whole_tensor = isinstance(scale, float)
    flat = np.ascontiguousarray(values).reshape(-1 if whole_tensor else tensor.shape)
    steps = np.divide(flat, scale, dtype=np.float64)
    steps -= offset
    whole = ROUNDINGS[rounding](steps)
    limits = np.iinfo(dtype)
    stored = np.clip(whole, limits.min, limits.max, out=whole).astype(dtype)
    return stored if dtype.itemsize == 1 and whole_tensor and dtype.kind == "u" else _bytes(stored)


def _bytes(stored: Values) -> npt.NDArray[np.uint8]:
    return np.frombuffer(stored.tobytes(), np.uint8)


def to_steps(tensor: Tensor, values: Values) -> Values:
    """The nearest values that a tensor of fixed point can store, halves to the even number."""
    if kind_of(tensor.data_type) != "fixed":
        return values
    scale, offset = _scales(tensor)
    rounded: Values = (np.rint(values / scale - offset) + offset) * scale
    return rounded
