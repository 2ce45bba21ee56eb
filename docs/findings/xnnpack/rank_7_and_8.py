"""PART-04: XNNPACK claims nodes of rank 7 and 8 in Prepare, and then fails to prepare its kernel.

    python rank_7_and_8.py ai_edge_litert    ends with 1 on ai-edge-litert 2.3.0
    python rank_7_and_8.py tflite_runtime    ends with 0 on tflite-runtime 2.14.0, where the CPU runs them

Without XNNPACK every node runs; with it allocate_tensors raises, so that the model cannot be used at all.
"""

from __future__ import annotations

import sys

import numpy as np
from model import end, model, schema, tensor

OPERATOR = schema.BuiltinOperator


def concatenation(rank: int) -> bytes:
    """Two tensors of 4 elements, along the last dimension."""
    ones = (1,) * (rank - 1)
    options = {"axis": rank - 1}
    node = (OPERATOR.CONCATENATION, "ConcatenationOptions", options, [0, 1], [2])
    return model([tensor((*ones, 4)), tensor((*ones, 4)), tensor((*ones, 8))], [node], [0, 1], [2])


def mean(rank: int) -> bytes:
    """The mean of 4 elements, along the last dimension."""
    ones = (1,) * (rank - 1)
    axis = tensor((1,), schema.TensorType.INT32, np.array([rank - 1], np.int32))
    node = (OPERATOR.MEAN, "ReducerOptions", {"keepDims": True}, [0, 1], [2])
    return model([tensor((*ones, 4)), axis, tensor((*ones, 1))], [node], [0], [2])


def fully_connected(rank: int) -> bytes:
    """4 elements times a matrix of ones with 2 rows, without a bias."""
    ones = (1,) * (rank - 1)
    weights = tensor((2, 4), data=np.ones((2, 4), np.float32))
    node = (OPERATOR.FULLY_CONNECTED, "FullyConnectedOptions", {"keepNumDims": True}, [0, 1, -1], [2])
    return model([tensor((*ones, 4)), weights, tensor((*ones, 2))], [node], [0], [2])


if __name__ == "__main__":
    makers = (concatenation, mean, fully_connected)
    end(
        sys.argv[1],
        {f"{maker.__name__} of rank {rank}": maker(rank) for maker in makers for rank in (6, 7, 8)},
    )
