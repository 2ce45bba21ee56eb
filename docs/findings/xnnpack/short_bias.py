"""HOS-01: XNNPACK reads as many elements of a bias as CONV_2D has units, whatever the bias has.

    python short_bias.py ai_edge_litert    ends with 1 on ai-edge-litert 2.3.0
    python short_bias.py tflite_runtime    ends with 0 on tflite-runtime 2.14.0

Without XNNPACK allocate_tensors raises: the bias has another number of elements than there are units. With
it, what lies behind the bias in memory comes out as results; of very many units it ends the process.
"""

from __future__ import annotations

import sys

import numpy as np
from model import computed, end, model, schema, tensor

UNITS = 64


def convolution() -> bytes:
    """A pixel of one channel, which is 0, a weight for each unit, and one bias of 7."""
    weights = tensor((UNITS, 1, 1, 1), data=np.ones(UNITS, np.float32))
    bias = tensor((1,), data=np.full(1, 7.0, np.float32))
    options = {"padding": schema.Padding.SAME, "strideH": 1, "strideW": 1}
    node = (schema.BuiltinOperator.CONV_2D, "Conv2DOptions", options, [0, 1, 2], [3])
    return model([tensor((1, 1, 1, 1)), weights, bias, tensor((1, 1, 1, UNITS))], [node], [0], [3])


def said(*, xnnpack: bool) -> str:
    """What comes out; empty where the model is refused."""
    try:
        return str(computed(convolution(), sys.argv[1], xnnpack=xnnpack).ravel().tolist())
    except RuntimeError as error:
        print(f"{'with' if xnnpack else 'without'} XNNPACK: {error}")
        return ""


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        end(sys.argv[1], {"CONV_2D with a short bias": convolution()}, way="refused")
        sys.exit()
    said(xnnpack=False)
    seen = said(xnnpack=True)
    print(f"with XNNPACK: {seen}")
    sys.exit(1 if seen else 0)
