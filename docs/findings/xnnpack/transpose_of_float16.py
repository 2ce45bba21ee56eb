"""RT-14: tflite-runtime 2.14.0 dies while XNNPACK is applied to a TRANSPOSE of float16.

    python transpose_of_float16.py tflite_runtime    ends with 1 on tflite-runtime 2.14.0
    python transpose_of_float16.py ai_edge_litert    ends with 0 on ai-edge-litert 2.3.0

This runtime's CPU has no such kernel, and says so when it is invoked. XNNPACK claims the node, and its kernel
cannot be prepared. The end of the process is the runtime's: where it undoes that it takes the operand of
float16 away from its own kernel (RT-14 in docs/reference/runtimes.md), whose Prepare reads what is not there.
"""

from __future__ import annotations

import sys

import numpy as np
from model import end, model, schema, tensor

FLOAT16 = schema.TensorType.FLOAT16


def transpose(*shape: int) -> bytes:
    """All dimensions in the opposite order."""
    order = np.arange(len(shape), dtype=np.int32)[::-1]
    node = (schema.BuiltinOperator.TRANSPOSE, "TransposeOptions", {}, [0, 1], [2])
    permutation = tensor((len(shape),), schema.TensorType.INT32, order.copy())
    return model([tensor(shape, FLOAT16), permutation, tensor(shape[::-1], FLOAT16)], [node], [0], [2])


if __name__ == "__main__":
    shapes = ((3,), (2, 3), (2, 1, 3))
    end(
        sys.argv[1],
        {f"TRANSPOSE of float16 {list(shape)}": transpose(*shape) for shape in shapes},
        at_once=True,
    )
