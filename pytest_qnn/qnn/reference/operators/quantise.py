"""Operators that change how numbers are stored: the same real values in another data type or encoding.

Source of names and parameters: QnnOpDef.h. What is lost is lost in `values.store`.
"""

from __future__ import annotations

from pytest_qnn.qnn.reference.operators.call import Call, Definition, operator
from pytest_qnn.qnn.reference.operators.values import Values


def _same(call: Call) -> Values:
    return call.inputs[0]


DEFINITIONS: dict[str, Definition] = {
    "Cast": operator("A>A", _same),
    "Convert": operator("A>A", _same, "dynamic_input_data", "dynamic_output_data"),
    "Dequantize": operator("Q>F", _same),
    "Quantize": operator("F>Q", _same),
}
