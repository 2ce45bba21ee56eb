"""Where the runtimes' own kernels do not give what their operators compute, as tests/tflite/domain found it.

By runtime: the operator, and what is wrong. docs/reference/domain.md has the same in sentences.
"""

from __future__ import annotations

_BOTH = {
    "ATAN2": "does not broadcast, and says nothing",
    "EXP": "int16: 2 of 30,000 steps off",
    "FULLY_CONNECTED": "a depth of 0: no bias, or unwritten memory; int16 per channel: written over",
    "LOG_SOFTMAX": "rank 0 and size 0: unwritten memory, or the process ends",
    "MATRIX_DIAG": "float16, bool, int8: unwritten memory; high ranks write over memory",
    "MEAN": "uint8 of size 0: 0, not the zero point",
    "QUANTIZE": "int32 without scales: 0",
    "REDUCE_MAX": "size 0: the lowest number, not minus infinity",
    "REDUCE_MIN": "size 0: the highest number, not infinity",
    "REDUCE_PROD": "int8, int16: rounded after each product",
    "RESIZE_BILINEAR": "int16: 3 of 30,000 steps off",
    "SOFTMAX": "rank 1, size 0: the process ends",
    "SUM": "int8, uint8, int16 of size 0: unwritten memory",
    "TRANSPOSE": "rank 0: unwritten memory",
}
RUNTIME_DEFECTS = {
    "tflite_runtime": _BOTH
    | {
        "ARG_MAX": "size 0: the process ends",
        "ARG_MIN": "size 0: the process ends",
        "BATCH_MATMUL": "int16 of size 0: the process ends",
        "DEPTHWISE_CONV_2D": "int8 of size 0: the process ends",
        "DYNAMIC_UPDATE_SLICE": "rank 0: the process ends",
        "L2_NORMALIZATION": "rank 0: unwritten memory",
        "MIRROR_PAD": "size 0: the dimensions are not those of the padding",
        "PRELU": "int8, uint8 of rank 5 and more: the process ends",
        "SIGN": "computes float32 and int32 whatever the type is",
        "WHERE": "float16, int16: reads bytes",
    },
    "ai_edge_litert": _BOTH
    | {
        "GELU": "int16: beyond the range at its end",
        "LOG": "int16: 2 to 11 of 30,000 steps off",
        "PRELU": "int16: reads the slopes as int8",
        "RSQRT": "int16: 11 of 30,000 steps off",
    },
}
