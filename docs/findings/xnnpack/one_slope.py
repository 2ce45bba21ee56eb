"""HOS-01: XNNPACK reads a slope of PRELU for each channel, where there is one for all of them.

    python one_slope.py tflite_runtime    ends with 1 on tflite-runtime 2.14.0
    python one_slope.py ai_edge_litert    ends with 0 on ai-edge-litert 2.3.0

The model is one that the CPU computes: the slope is broadcast. XNNPACK takes what lies behind it.
"""

from __future__ import annotations

import sys

import numpy as np
from model import end, model, schema, tensor

OPERATOR = schema.BuiltinOperator


def one_slope() -> bytes:
    """PRELU of -1, -2, ..., -64, all with the slope 0.5."""
    one, half = np.full(64, -1.0, np.float32), np.array([0.5], np.float32)
    tensors = [tensor((64,)), tensor((64,), data=one), tensor((64,)), tensor((1,), data=half), tensor((64,))]
    nodes = [(OPERATOR.SUB, "SubOptions", {}, [1, 0], [2]), (OPERATOR.PRELU, "", {}, [2, 3], [4])]
    return model(tensors, nodes, [0], [4])


if __name__ == "__main__":
    end(sys.argv[1], {"PRELU of 64 channels and one slope": one_slope()})
