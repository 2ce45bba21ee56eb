"""All operators by name: whether they take some tensors, and what they make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.qnn.abi.codes import DataType
from pytest_qnn.qnn.reference.objects import Parameters, Tensor
from pytest_qnn.qnn.reference.operators import (
    elementwise,
    matrix,
    movement,
    neuron,
    normalisation,
    pooling,
    quantise,
    reduction,
    resizing,
)
from pytest_qnn.qnn.reference.operators.call import Call, Definition, matches
from pytest_qnn.qnn.reference.operators.suite import OPERATORS
from pytest_qnn.qnn.reference.operators.values import STORED, Values, kind_of, load, of_sums

Stored = npt.NDArray[np.uint8]
DEFINITIONS: dict[str, Definition] = {
    **elementwise.DEFINITIONS,
    **neuron.DEFINITIONS,
    **matrix.DEFINITIONS,
    **pooling.DEFINITIONS,
    **resizing.DEFINITIONS,
    **movement.DEFINITIONS,
    **reduction.DEFINITIONS,
    **normalisation.DEFINITIONS,
    **quantise.DEFINITIONS,
}
NAMES = (*OPERATORS, *(name for name in DEFINITIONS if name not in OPERATORS))
"""Those of the memory suite first."""
_NEEDED = {"float": int(DataType.FLOAT_32), "fixed": int(DataType.UFIXED_POINT_8)}
"""What a personality must take, for it to take any type of the kind."""
_BIAS = 2
"""Its place among the operands of a product."""
UNFIT = (ValueError, KeyError, IndexError, TypeError, MemoryError, OverflowError)
"""What an operator raises for operands that do not fit."""


def takes(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    parameters: Parameters,
    types: frozenset[int],
) -> bool:
    """Whether an operator of the table can compute these tensors.

    It can if data types and names of parameters are known to it, and if the tensors have the shapes that it
    makes of zeros (and of STATIC data as they are). ``types``: the personality's.
    """
    definition = DEFINITIONS.get(name)
    tensors = (*inputs, *outputs)
    if definition is None or not parameters.keys() <= definition.parameters:
        return False
    if any(tensor.data_type not in STORED for tensor in tensors):
        return False
    kinds = {kind_of(tensor.data_type) for tensor in tensors}
    if not types.issuperset(_NEEDED[kind] for kind in kinds if kind in _NEEDED):
        return False
    if not matches(definition.signature, _types(inputs), _types(outputs)):
        return False
    try:
        found = results(name, inputs, outputs, parameters, {})
    except UNFIT:
        return False
    return len(found) == len(outputs) and all(
        result.shape == tensor.shape for result, tensor in zip(found, outputs, strict=True)
    )


def results(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    parameters: Parameters,
    stored: Mapping[int, Stored],
) -> list[Values]:
    """Real values of the outputs, for the bytes of the inputs by id; of those that are missing, zeros.

    Raises:
        ValueError, KeyError, IndexError, TypeError: the operands do not fit.
    """
    operands = [_operand(each, stored) for each in inputs]
    if len(inputs) > _BIAS and inputs[_BIAS].scale == 0:
        operands[_BIAS] = of_sums(inputs[_BIAS], _bytes(inputs[_BIAS], stored), *inputs[:_BIAS])
    call = Call(operands, _values(parameters), outputs)
    with np.errstate(all="ignore"):  # an infinity is a result like any other
        found = DEFINITIONS[name].compute(call)
    return [found] if isinstance(found, np.ndarray | np.generic) else list(found)


def _types(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor.data_type for tensor in tensors]


def _bytes(tensor: Tensor, stored: Mapping[int, Stored]) -> Stored:
    data = stored.get(tensor.id) if tensor.id else None
    return np.frombuffer(tensor.data or bytes(tensor.size), np.uint8) if data is None else data


def _operand(tensor: Tensor, stored: Mapping[int, Stored]) -> Values:
    values = load(tensor, _bytes(tensor, stored))
    wide = {"f": np.float64, "i": np.int64, "u": np.int64}.get(values.dtype.kind)
    return values if wide is None else values.astype(wide)


def _values(parameters: Parameters) -> dict[str, Any]:
    """Parameters that are tensors, as arrays of what these hold."""
    return {
        name: _operand(value, {}) if isinstance(value, Tensor) else value
        for name, value in parameters.items()
    }
