"""The operators of the reference backend, in numpy.

UFIXED_POINT_8 tensors hold real = (q + offset) * scale. A result is stored as
clamp(floor(real / scale - offset + 0.5), 0, 255): halves round up, as the add of libQnnHtp does. Some
personalities round otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.qnn.abi.codes import DataType
from pytest_qnn.qnn.reference.objects import Tensor

Values = npt.NDArray[Any]
PACKAGE = "qti.aisw"
STORED: dict[int, Any] = {
    int(DataType.FLOAT_32): np.dtype("<f4"),
    int(DataType.UFIXED_POINT_8): np.dtype("u1"),
}
"""numpy dtype of a tensor's bytes, by data type, for the types that the operators take."""


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator: how many inputs, what it computes, and whether shapes may change."""

    arity: int
    compute: Callable[..., Values]
    reshapes: bool = False


def _relu(values: Values) -> Values:
    return np.maximum(values, 0)


def _same(values: Values) -> Values:
    return values


OPERATORS: dict[str, Operator] = {
    "ElementWiseAdd": Operator(2, np.add),
    "ElementWiseMultiply": Operator(2, np.multiply),
    "ElementWiseSubtract": Operator(2, np.subtract),
    "Relu": Operator(1, _relu),
    "Reshape": Operator(1, _same, reshapes=True),
}


def accepts(
    operator: Operator, inputs: Sequence[Tensor], outputs: Sequence[Tensor], types: frozenset[int]
) -> bool:
    """The operator can compute these tensors: arity, one data type throughout, and matching shapes."""
    tensors = (*inputs, *outputs)
    if len(inputs) != operator.arity or len(outputs) != 1:
        return False
    if len({tensor.data_type for tensor in tensors}) != 1 or tensors[0].data_type not in types:
        return False
    if operator.reshapes:
        return inputs[0].size == outputs[0].size
    try:
        return np.broadcast_shapes(*(tensor.shape for tensor in inputs)) == outputs[0].shape
    except ValueError:
        return False


def load(tensor: Tensor, stored: npt.NDArray[np.uint8]) -> Values:
    """The real values of a tensor's bytes, in its shape: float32, or float64 when quantised."""
    values: Values = stored.view(STORED[tensor.data_type]).reshape(tensor.shape)
    if tensor.data_type == DataType.FLOAT_32:
        return values
    result: Values = values.astype(np.float64)
    result += tensor.offset  # in place: each further array of a large tensor costs the page faults of it
    result *= tensor.scale
    return result


ROUNDINGS: dict[str, Callable[[Values], Values]] = {
    "half-up": lambda steps: np.floor(np.add(steps, 0.5, out=steps), out=steps),
    "half-even": lambda steps: np.rint(steps, out=steps),
    "down": lambda steps: np.floor(steps, out=steps),
}
"""How a number of steps becomes a whole one, in place."""


def store(tensor: Tensor, values: Values, rounding: str = "half-up") -> npt.NDArray[np.uint8]:
    """The bytes of real values as the tensor stores them, flat."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if tensor.data_type == DataType.FLOAT_32:
        return np.frombuffer(flat.astype("<f4").tobytes(), np.uint8)
    steps = np.divide(flat, tensor.scale, dtype=np.float64)
    steps -= tensor.offset
    whole = ROUNDINGS[rounding](steps)
    stored: npt.NDArray[np.uint8] = np.clip(whole, 0, 255, out=whole).astype(np.uint8)
    return stored
