"""DOM-01: XNNPACK claims nodes of rank 0 or without elements, and then fails or answers another shape.

    python few_elements.py ai_edge_litert    ends with 1 on ai-edge-litert 2.3.0
    python few_elements.py tflite_runtime    ends with 0 on tflite-runtime 2.14.0

Without XNNPACK every node runs; with it allocate_tensors raises, or the result has a shape that is made of
other bytes.
"""

from __future__ import annotations

import sys

import numpy as np
from model import end, model, schema, tensor

OPERATOR, TYPE = schema.BuiltinOperator, schema.TensorType


def whole(*values: int) -> object:
    """A constant of int32."""
    return tensor((len(values),), TYPE.INT32, np.array(values, np.int32))


def slice_of_rank_0() -> bytes:
    """All of a tensor that has no dimension."""
    node = (OPERATOR.SLICE, "SliceOptions", {}, [0, 1, 2], [3])
    return model([tensor(()), whole(), whole(), tensor(())], [node], [0], [3])


def strided_slice_of_rank_0() -> bytes:
    """The same, with strides."""
    node = (OPERATOR.STRIDED_SLICE, "StridedSliceOptions", {}, [0, 1, 2, 3], [4])
    return model([tensor(()), whole(), whole(), whole(), tensor(())], [node], [0], [4])


def space_to_depth_of_no_batch() -> bytes:
    """Blocks of 2 x 2, of a batch of 0."""
    node = (OPERATOR.SPACE_TO_DEPTH, "SpaceToDepthOptions", {"blockSize": 2}, [0], [1])
    return model([tensor((0, 2, 4, 3)), tensor((0, 1, 2, 12))], [node], [0], [1])


def depth_to_space_of_no_batch() -> bytes:
    """The way back."""
    node = (OPERATOR.DEPTH_TO_SPACE, "DepthToSpaceOptions", {"blockSize": 2}, [0], [1])
    return model([tensor((0, 1, 2, 12)), tensor((0, 2, 4, 3))], [node], [0], [1])


def max_pool_of_no_batch() -> bytes:
    """Windows of 2 x 2, of a batch of 0."""
    options = {
        "padding": schema.Padding.VALID,
        "strideH": 2,
        "strideW": 2,
        "filterHeight": 2,
        "filterWidth": 2,
    }
    node = (OPERATOR.MAX_POOL_2D, "Pool2DOptions", options, [0], [1])
    return model([tensor((0, 4, 4, 3)), tensor((0, 2, 2, 3))], [node], [0], [1])


def float16_softmax_without_elements() -> bytes:
    """Rows of no numbers."""
    node = (OPERATOR.SOFTMAX, "SoftmaxOptions", {"beta": 1.0}, [0], [1])
    return model([tensor((2, 0), TYPE.FLOAT16), tensor((2, 0), TYPE.FLOAT16)], [node], [0], [1])


MAKERS = (
    slice_of_rank_0,
    strided_slice_of_rank_0,
    space_to_depth_of_no_batch,
    depth_to_space_of_no_batch,
    max_pool_of_no_batch,
    float16_softmax_without_elements,
)

if __name__ == "__main__":
    end(sys.argv[1], {maker.__name__.replace("_", " "): maker() for maker in MAKERS})
