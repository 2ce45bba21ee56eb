"""XNNPACK crashes where one node reads what was read from a resource variable twice, as SUB(a, a).

python variable_read_twice.py ai_edge_litert    ends with 1 on ai-edge-litert 2.3.0
python variable_read_twice.py tflite_runtime    ends with 0 on tflite-runtime 2.14.0
"""

from __future__ import annotations

import sys

from model import end, model, schema, tensor

OPERATOR = schema.BuiltinOperator


def assigned(first: int, second: int) -> bytes:
    """The input is assigned to a variable and read from it; then tensor ``first`` minus tensor ``second``."""
    handle = tensor((), schema.TensorType.RESOURCE)
    tensors = [tensor((1, 4)), handle, tensor((1, 4)), tensor((1, 4))]
    nodes = [
        (OPERATOR.VAR_HANDLE, "VarHandleOptions", {"container": "", "sharedName": "v"}, [], [1]),
        (OPERATOR.ASSIGN_VARIABLE, "AssignVariableOptions", {}, [1, 0], []),
        (OPERATOR.READ_VARIABLE, "ReadVariableOptions", {}, [1], [2]),
        (OPERATOR.SUB, "SubOptions", {}, [first, second], [3]),
    ]
    return model(tensors, nodes, [0], [3])


if __name__ == "__main__":
    end(sys.argv[1], {"SUB(read, input)": assigned(2, 0), "SUB(read, read)": assigned(2, 2)})
