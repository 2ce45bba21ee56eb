"""Activations: ElementWiseNeuron with its ``operation``, and the operators of the same functions.

Source: QnnOpDef.h for names, parameters and numbers; the formulas are those of the ONNX operators of these
names, whose defaults stand where a parameter is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pytest_qnn.qnn.reference.operators.call import Call, Definition, operator
from pytest_qnn.qnn.reference.operators.values import Values

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _elu(call: Call) -> Values:
    """X for x > 0, else alpha * (exp(x) - 1)."""
    values = call.inputs[0]
    below: Values = call.number("alpha", 1.0) * np.expm1(np.minimum(values, 0))
    return np.where(values > 0, values, below)


def _gelu(call: Call) -> Values:
    """X * (1 + erf(x / sqrt(2))) / 2."""
    values = call.inputs[0]
    result: Values = values * (1 + _erf(values / math.sqrt(2))) / 2
    return result


def _hard_sigmoid(call: Call) -> Values:
    """max(0, min(1, alpha * x + beta))."""
    line: Values = call.number("alpha", 0.2) * call.inputs[0] + call.number("beta", 0.5)
    return np.clip(line, 0, 1)


def _hard_swish(call: Call) -> Values:
    """X * max(0, min(1, x / 6 + 1 / 2))."""
    values = call.inputs[0]
    result: Values = values * np.clip(values / 6 + 0.5, 0, 1)
    return result


def _relu(call: Call) -> Values:
    return np.maximum(call.inputs[0], 0)


def _relu_min_max(call: Call) -> Values:
    """min(max_value, max(min_value, x))."""
    return np.clip(call.inputs[0], call.number("min_value"), call.number("max_value"))


def _sigmoid(call: Call) -> Values:
    """1 / (1 + exp(-x)), computed so that exp never overflows."""
    values = call.inputs[0]
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1 / (1 + small), small / (1 + small))


def _softplus(call: Call) -> Values:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x exceeds the threshold."""
    values, beta = call.inputs[0], call.number("beta", 1.0)
    scaled = beta * values
    return np.where(scaled > call.number("threshold", 20.0), values, np.logaddexp(0, scaled) / beta)


def _tanh(call: Call) -> Values:
    return np.tanh(call.inputs[0])


def _between(least: float, greatest: float) -> Callable[[Call], Values]:
    return lambda call: np.clip(call.inputs[0], least, greatest)


def _prelu(call: Call) -> Values:
    """X for x >= 0, else slope * x; the slope broadcasts."""
    values, slope = call.inputs
    return np.where(values >= 0, values, slope * values)


_OPERATIONS: dict[int, Callable[[Call], Values]] = {
    0: _elu,
    1: _gelu,
    2: _hard_sigmoid,
    3: _hard_swish,
    4: _relu,
    5: _relu_min_max,
    6: _sigmoid,
    7: _softplus,
    8: _tanh,
}


def _chosen(call: Call) -> Values:
    return _OPERATIONS[int(call.number("operation"))](call)


DEFINITIONS: dict[str, Definition] = {
    "ElementWiseNeuron": operator(
        "T>T", _chosen, "operation", "alpha", "beta", "min_value", "max_value", "threshold"
    ),
    "ElementWiseSoftplus": operator("T>T", _softplus, "beta", "threshold"),
    "Elu": operator("T>T", _elu, "alpha"),
    "Gelu": operator("T>T", _gelu),
    "HardSwish": operator("T>T", _hard_swish),
    "Prelu": operator("TK>T", _prelu),
    "Relu": operator("T>T", _relu),
    "Relu1": operator("T>T", _between(-1, 1)),
    "Relu6": operator("T>T", _between(0, 6)),
    "ReluMinMax": operator("T>T", _relu_min_max, "min_value", "max_value"),
    "Sigmoid": operator("T>T", _sigmoid),
    "Tanh": operator("T>T", _tanh),
}
