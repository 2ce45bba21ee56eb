"""Operators that compute each element of its own: of one operand, of two with broadcasting, and Select.

Source: QnnOpDef.h, for the names and for the numbers of ``operation``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pytest_qnn.qnn.reference.operators.call import Call, Definition, operator
from pytest_qnn.qnn.reference.operators.values import Values

_Binary = Callable[[Values, Values], Values]
_Unary = Callable[[Values], Values]


def _divide(dividend: Values, divisor: Values) -> Values:
    """A quotient; of integers, cut towards zero, and 0 where the divisor is 0."""
    if dividend.dtype.kind == "f":
        return np.true_divide(dividend, divisor)
    safe = np.where(divisor == 0, 1, divisor)
    quotient: Values = np.sign(dividend) * np.sign(safe) * (np.abs(dividend) // np.abs(safe))
    return np.where(divisor == 0, 0, quotient)


def _squared_difference(first: Values, second: Values) -> Values:
    difference: Values = np.subtract(first, second)
    return difference * difference


ARITHMETIC: dict[str, tuple[int, _Binary]] = {
    "Add": (0, np.add),
    "Divide": (2, _divide),
    "FloorDiv": (4, np.floor_divide),
    "Fmod": (5, np.fmod),
    "Maximum": (10, np.maximum),
    "Minimum": (11, np.minimum),
    "Mod": (12, np.mod),
    "Multiply": (13, np.multiply),
    "Power": (16, np.power),
    "SquaredDifference": (17, _squared_difference),
    "Subtract": (18, np.subtract),
}
"""By name: the number in ElementWiseBinary's ``operation``, and what is computed."""
COMPARISONS: dict[str, tuple[int, _Binary]] = {
    "Equal": (3, np.equal),
    "Greater": (6, np.greater),
    "GreaterEqual": (7, np.greater_equal),
    "Less": (8, np.less),
    "LessEqual": (9, np.less_equal),
    "NotEqual": (14, np.not_equal),
}
LOGIC: dict[str, tuple[int, _Binary]] = {
    "And": (1, np.logical_and),
    "Or": (15, np.logical_or),
    "Xor": (19, np.logical_xor),
}


def _rsqrt(values: Values) -> Values:
    return 1 / np.sqrt(values)


def _reciprocal(values: Values) -> Values:
    return np.true_divide(1, values)


UNARY: dict[str, tuple[int, _Unary]] = {
    "Abs": (0, np.abs),
    "Asin": (1, np.arcsin),
    "Atan": (2, np.arctan),
    "Ceil": (3, np.ceil),
    "Cos": (4, np.cos),
    "Exp": (5, np.exp),
    "Floor": (6, np.floor),
    "Log": (7, np.log),
    "Neg": (8, np.negative),
    "Not": (9, np.logical_not),
    "Reciprocal": (10, _reciprocal),
    "Round": (11, np.rint),
    "Rsqrt": (12, _rsqrt),
    "Sign": (13, np.sign),
    "Sin": (14, np.sin),
    "SquareRoot": (15, np.sqrt),
}
"""By name: the number in ElementWiseUnary's ``operation``, and what is computed. Round: halves to even."""


def _binary(function: _Binary) -> Callable[[Call], Values]:
    return lambda call: function(call.inputs[0], call.inputs[1])


def _unary(function: _Unary) -> Callable[[Call], Values]:
    return lambda call: function(call.inputs[0])


_OPERATIONS = dict((ARITHMETIC | COMPARISONS | LOGIC).values())
_UNARY_OPERATIONS = dict(UNARY.values())
_TRUTHS = {number for number, _ in (COMPARISONS | LOGIC).values()}


def _chosen_binary(call: Call) -> Values:
    """ElementWiseBinary; ValueError where truth values meet numbers."""
    operation, (first, second) = int(call.number("operation")), call.inputs
    if operation in _TRUTHS:
        return np.asarray(_OPERATIONS[operation](first, second), np.bool_)
    if first.dtype.kind == "b" or second.dtype.kind == "b":
        raise ValueError("truth values are no numbers")
    return _OPERATIONS[operation](first, second)


def _chosen_unary(call: Call) -> Values:
    return _UNARY_OPERATIONS[int(call.number("operation"))](call.inputs[0])


def _select(call: Call) -> Values:
    """ElementWiseSelect: where the condition holds the second operand, else the third."""
    condition, first, second = call.inputs
    return np.where(condition, first, second)


def _of_two(signature: str, functions: dict[str, tuple[int, _Binary]]) -> dict[str, Definition]:
    return {
        f"ElementWise{name}": operator(signature, _binary(function))
        for name, (_, function) in functions.items()
    }


DEFINITIONS: dict[str, Definition] = {
    **_of_two("TT>T", ARITHMETIC),
    **_of_two("AA>B", COMPARISONS),
    **_of_two("BB>B", LOGIC),
    **{f"ElementWise{name}": operator("T>T", _unary(function)) for name, (_, function) in UNARY.items()},
    "ElementWiseNot": operator("B>B", _unary(np.logical_not)),
    "ElementWiseBinary": operator("AA>A", _chosen_binary, "operation"),
    "ElementWiseUnary": operator("A>A", _chosen_unary, "operation"),
    "ElementWiseSelect": operator("BTT>T", _select),
    "IsInf": operator("N>B", _unary(np.isinf)),
    "IsNan": operator("N>B", _unary(np.isnan)),
}
