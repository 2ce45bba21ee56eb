"""HOS-02: XNNPACK ends the process in Prepare where a node lacks an operand that its operator needs.

    python absent_operand.py ai_edge_litert    ends with 1 on ai-edge-litert 2.3.0
    python absent_operand.py tflite_runtime    ends with 0 on tflite-runtime 2.14.0

In the file the operand is -1 (kTfLiteOptionalTensor). Without XNNPACK allocate_tensors raises and says so.
With it the tensor at place -1 is read, before the array: what stands there decides how the process ends.
"""

from __future__ import annotations

import sys

from model import end, model, schema, tensor

OPERATOR = schema.BuiltinOperator


def lacking(builtin: int, options: str, members: dict[str, int], operands: list[int]) -> bytes:
    """One node on a tensor of 4 x 5."""
    node = (builtin, options, members, operands, [1])
    return model([tensor((4, 5)), tensor((4, 5))], [node], [0], [1])


CASES = {
    "ADD of one operand and none": lacking(OPERATOR.ADD, "AddOptions", {}, [0, -1]),
    "RELU of none": lacking(OPERATOR.RELU, "", {}, [-1]),
    "CONCATENATION": lacking(OPERATOR.CONCATENATION, "ConcatenationOptions", {"axis": 0}, [0, -1]),
    "FULLY_CONNECTED without weights": lacking(
        OPERATOR.FULLY_CONNECTED, "FullyConnectedOptions", {}, [0, -1, -1]
    ),
}

if __name__ == "__main__":
    end(sys.argv[1], CASES, way="guarded")
