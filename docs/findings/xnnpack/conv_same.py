"""XNNPACK's CONV_2D is wrong for SAME padding where a stride is longer than the kernel, on one axis only.

    python conv_same.py tflite_runtime    ends with 1 on tflite-runtime 2.14.0
    python conv_same.py ai_edge_litert    ends with 0 on ai-edge-litert 2.3.0

An image of 1 x 4 x 4 x 1 with the values 0 to 15, and a kernel of ones.
"""

from __future__ import annotations

import sys

import numpy as np
from model import end, model, schema, tensor


def convolution(kernel: tuple[int, int], strides: tuple[int, int]) -> bytes:
    """CONV_2D with SAME padding; ``kernel`` and ``strides`` are (height, width)."""
    out = tuple(-(-4 // stride) for stride in strides)
    options = {"padding": schema.Padding.SAME, "strideH": strides[0], "strideW": strides[1]}
    options |= {"dilationHFactor": 1, "dilationWFactor": 1}
    weights = tensor((1, *kernel, 1), data=np.ones((1, *kernel, 1), np.float32))
    bias = tensor((1,), data=np.zeros(1, np.float32))
    tensors = [tensor((1, 4, 4, 1)), weights, bias, tensor((1, *out, 1))]
    node = (schema.BuiltinOperator.CONV_2D, "Conv2DOptions", options, [0, 1, 2], [3])
    return model(tensors, [node], [0], [3])


if __name__ == "__main__":
    shapes = [((2, 2), (1, 1)), ((2, 1), (1, 3)), ((1, 2), (3, 1)), ((1, 3), (2, 1)), ((3, 1), (1, 2))]
    cases = {
        f"kernel {kernel}, strides {strides}": convolution(kernel, strides) for kernel, strides in shapes
    }
    end(sys.argv[1], cases)
