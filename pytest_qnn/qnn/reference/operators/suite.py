"""The operators that the memory suite composes graphs of, for FLOAT_32 and UFIXED_POINT_8.

What they take and compute is what the suite's arithmetic (`qnn.model.operators`) expects; for other data
types they are in `elementwise`, `neuron` and `movement`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from pytest_qnn.qnn.abi.codes import DataType
from pytest_qnn.qnn.reference.objects import Tensor
from pytest_qnn.qnn.reference.operators.values import Values

PACKAGE = "qti.aisw"
_TYPES = frozenset({int(DataType.FLOAT_32), int(DataType.UFIXED_POINT_8)})


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


def concerns(name: str, tensors: Sequence[Tensor]) -> bool:
    """Whether these are the suite's: one data type throughout, one of the two, with one scale and offset."""
    types = {tensor.data_type for tensor in tensors}
    plain = all(tensor.encoding is msgspec.UNSET for tensor in tensors)
    return name in OPERATORS and plain and (len(types) != 1 or types <= _TYPES)
