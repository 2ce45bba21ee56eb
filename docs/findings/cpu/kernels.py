"""What the runtimes' own kernels get wrong, without any delegate: values, or the end of the process.

    python kernels.py ai_edge_litert                  each case; ends with 1 if one deviates
    python kernels.py tflite_runtime sign_of_int8     one case
    python kernels.py --write FOLDER [CASE]           writes the models for the program in C (runtimes/run.c)

A case is a function that gives a model, and what comes out of it: the first numbers for inputs 0, 1, 2, ...,
`ANSWER` where anything is right but the end of the process, or `REFUSAL`. A kernel may always refuse, and say
so. What malloc of glibc gives is filled (`FILLED`): memory that nobody wrote holds the same each time.
Nothing of the suite is used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "xnnpack"))

import numpy as np
from model import computed, model, schema, tensor

OPERATOR, TYPE = schema.BuiltinOperator, schema.TensorType
ANSWER, REFUSAL = "an answer", "a refusal"
FILLED = {"GLIBC_TUNABLES": "glibc.malloc.perturb=170:glibc.malloc.tcache_count=0"}
"""Each byte of a new block is 0x55: 85 in int8, 21845 in int16, 1.466e13 in float32."""
Case = tuple[bytes, Any]


def whole(*values: int) -> Any:
    """A constant of int32."""
    return tensor((len(values),), TYPE.INT32, np.array(values, np.int32))


def quantised(shape: tuple[int, ...], kind: int, data: Any = None, scale: float = 1.0, zero: int = 0) -> Any:
    """A tensor of a scale and a zero point."""
    made = tensor(shape, kind, data)
    made.quantization = schema.QuantizationParametersT()
    made.quantization.scale, made.quantization.zeroPoint = [scale], [zero]
    return made


def by_channel(shape: tuple[int, ...], kind: int, data: Any) -> Any:
    """A constant whose first dimension has the scales 1, 2, 3, ..."""
    made = quantised(shape, kind, data)
    made.quantization.scale = [float(number + 1) for number in range(shape[0])]
    made.quantization.zeroPoint = [0] * shape[0]
    return made


def one(tensors: list[Any], builtin: int, options: str, members: dict[str, Any], inputs: int = 1) -> bytes:
    """A node that reads all tensors but the last, of which the first ``inputs`` are the graph's inputs."""
    last = len(tensors) - 1
    node = (builtin, options, members, list(range(last)), [last])
    return model(tensors, [node], list(range(inputs)), [last])


# What ends the process


def softmax_without_elements() -> Case:
    """SOFTMAX of a vector without elements."""
    return one([tensor((0,)), tensor((0,))], OPERATOR.SOFTMAX, "SoftmaxOptions", {"beta": 1.0}), []


def log_softmax_without_elements() -> Case:
    """LOG_SOFTMAX of the same."""
    return one([tensor((0,)), tensor((0,))], OPERATOR.LOG_SOFTMAX, "LogSoftmaxOptions", {}), []


def depthwise_without_elements() -> Case:
    """DEPTHWISE_CONV_2D of int8, of a batch of 0."""
    weights = quantised((1, 1, 1, 2), TYPE.INT8, np.ones((1, 1, 1, 2), np.int8))
    bias = quantised((2,), TYPE.INT32, np.zeros(2, np.int32))
    image = quantised((0, 2, 2, 2), TYPE.INT8)
    options = {"padding": schema.Padding.VALID, "strideH": 1, "strideW": 1, "depthMultiplier": 1}
    options |= {"dilationHFactor": 1, "dilationWFactor": 1}
    tensors = [image, weights, bias, quantised((0, 2, 2, 2), TYPE.INT8)]
    return one(tensors, OPERATOR.DEPTHWISE_CONV_2D, "DepthwiseConv2DOptions", options), []


def batch_matmul_without_elements() -> Case:
    """BATCH_MATMUL of int16, of a batch of 0."""
    left, right = quantised((0, 2, 3), TYPE.INT16), quantised((0, 3, 2), TYPE.INT16)
    tensors = [left, right, quantised((0, 2, 2), TYPE.INT16)]
    return one(tensors, OPERATOR.BATCH_MATMUL, "BatchMatMulOptions", {}, inputs=2), []


def arg_max_without_elements() -> Case:
    """ARG_MAX along a dimension of 0: there is no element to choose from."""
    tensors = [tensor((0,)), whole(0), tensor((), TYPE.INT32)]
    return one(tensors, OPERATOR.ARG_MAX, "ArgMaxOptions", {"outputType": TYPE.INT32}), ANSWER


def dynamic_update_slice_of_scalars() -> Case:
    """DYNAMIC_UPDATE_SLICE of a scalar by a scalar, which takes its place."""
    tensors = [tensor(()), tensor((), data=np.array(7, np.float32)), whole(), tensor(())]
    return one(tensors, OPERATOR.DYNAMIC_UPDATE_SLICE, "", {}), [7]


def _of_reference(builtin: int, options: str, rank: int, beside: list[int]) -> bytes:
    """An operator of ``rank`` dimensions of 2, and of 2 constants, which are broadcast."""
    constants = tensor((2,), data=np.array(beside, np.float32))
    return one([tensor((2,) * rank), constants, tensor((2,) * rank)], builtin, options, {})


def mul_of_rank_5() -> Case:
    """MUL by 1 and 2, by the reference kernel (`REFERENCE`)."""
    return _of_reference(OPERATOR.MUL, "MulOptions", 5, [1, 2]), [0, 2, 2, 6, 4, 10, 6, 14]


def prelu_of_rank_5_by_reference() -> Case:
    """PRELU of float32, by the reference kernel: no input is negative, and all stay as they are."""
    return _of_reference(OPERATOR.PRELU, "", 5, [1, 2]), [0, 1, 2, 3, 4, 5, 6, 7]


def add_of_rank_7() -> Case:
    """ADD of 1 and 2, by the reference kernel."""
    return _of_reference(OPERATOR.ADD, "AddOptions", 7, [1, 2]), [1, 3, 3, 5, 5, 7, 7, 9]


def sub_of_rank_6() -> Case:
    """SUB of int8, and of 2 zeros, which are broadcast."""
    zeros = quantised((2,), TYPE.INT8, np.zeros(2, np.int8))
    tensors = [quantised((2,) * 6, TYPE.INT8), zeros, quantised((2,) * 6, TYPE.INT8)]
    return one(tensors, OPERATOR.SUB, "SubOptions", {}), [0, 1, 2, 3, 4, 5, 6, 7]


def prelu_of_rank_5() -> Case:
    """PRELU of int8: no input is negative, and all stay as they are."""
    slopes = quantised((1, 1, 1, 4), TYPE.INT8, np.ones((1, 1, 1, 4), np.int8))
    tensors = [quantised((1, 1, 1, 1, 4), TYPE.INT8), slopes, quantised((1, 1, 1, 1, 4), TYPE.INT8)]
    return one(tensors, OPERATOR.PRELU, "", {}), [0, 1, 2, 3]


def maximum_of_rank_6() -> Case:
    """MAXIMUM of 2 x 2 x 2 x 2 x 2 x 2 numbers, and of 2, which are broadcast."""
    shape = (2,) * 6
    tensors = [tensor(shape), tensor((2,)), tensor(shape)]
    numbers = [0, 1, 2, 3, 4, 5, 6, 7]
    return one(tensors, OPERATOR.MAXIMUM, "MaximumMinimumOptions", {}, inputs=2), numbers


def _without_operand(builtin: int, options: str, members: dict[str, Any], operands: list[int]) -> Case:
    tensors = [tensor((4,)), whole(0), tensor((4,))]
    return model(tensors, [(builtin, options, members, operands, [2])], [0], [2]), ANSWER


def reshape_without_shape() -> Case:
    """RESHAPE with -1 for the shape: to be refused, or by the shape of its options."""
    return _without_operand(OPERATOR.RESHAPE, "ReshapeOptions", {"newShape": [4]}, [0, -1])


def mean_without_operand() -> Case:
    """MEAN of no tensor."""
    return _without_operand(OPERATOR.MEAN, "ReducerOptions", {}, [-1, 1])


def maximum_without_operand() -> Case:
    """MAXIMUM of a tensor and none."""
    return _without_operand(OPERATOR.MAXIMUM, "MaximumMinimumOptions", {}, [0, -1])


def conv_of_many_groups() -> Case:
    """CONV_2D of 4 groups (the image has 4 channels, the weights 1) and 2 units: to be refused."""
    weights = tensor((2, 1, 1, 1), data=np.ones((2, 1, 1, 1), np.float32))
    bias = tensor((2,), data=np.zeros(2, np.float32))
    options = {"padding": schema.Padding.VALID, "strideH": 1, "strideW": 1}
    options |= {"dilationHFactor": 1, "dilationWFactor": 1}
    tensors = [tensor((1, 2, 2, 4)), weights, bias, tensor((1, 2, 2, 2))]
    return one(tensors, OPERATOR.CONV_2D, "Conv2DOptions", options), ANSWER


# What is computed wrongly


def add_with_tanh() -> Case:
    """ADD of a tensor and 0, with the fused activation TANH."""
    zeros = tensor((4,), data=np.zeros(4, np.float32))
    options = {"fusedActivationFunction": schema.ActivationFunctionType.TANH}
    made = one([tensor((4,)), zeros, tensor((4,))], OPERATOR.ADD, "AddOptions", options)
    return made, [float(number) for number in np.tanh(np.arange(4))]


def atan2_of_a_row() -> Case:
    """ATAN2 of 2 x 2 numbers and a row, which is broadcast: 0 / 1, 1 / 4, 2 / 1, 3 / 4."""
    row = tensor((1, 2), data=np.array([[1, 4]], np.float32))
    made = one([tensor((2, 2)), row, tensor((2, 2))], OPERATOR.ATAN2, "ATan2Options", {})
    return made, [float(number) for number in np.arctan2([0, 1, 2, 3], [1, 4, 1, 4])]


def sign_of_int8() -> Case:
    """SIGN of 0, 1, 2, 3."""
    tensors = [quantised((4,), TYPE.INT8), quantised((4,), TYPE.INT8)]
    return one(tensors, OPERATOR.SIGN, "SignOptions", {}), [0, 1, 1, 1]


def prelu_of_int16() -> Case:
    """PRELU of 0, -1, -2, -3 with the slopes 100, 200, 300 and 400, in int16."""
    negative = quantised((4,), TYPE.INT16, np.array([0, -1, -2, -3], np.int16))
    slopes = quantised((4,), TYPE.INT16, np.array([100, 200, 300, 400], np.int16))
    tensors = [negative, slopes, quantised((4,), TYPE.INT16)]
    return one(tensors, OPERATOR.PRELU, "", {}, inputs=0), [0, -200, -600, -1200]


def where_of_int16() -> Case:
    """WHERE of 0, 1, 2, 3: the places of the last three."""
    tensors = [tensor((4,), TYPE.INT16), tensor((3, 1), TYPE.INT64)]
    return one(tensors, OPERATOR.WHERE, "WhereOptions", {}), [1, 2, 3]


def fully_connected_without_depth() -> Case:
    """FULLY_CONNECTED of a row without elements, which is no input of the graph: the bias."""
    weights = tensor((3, 0), data=np.zeros((3, 0), np.float32))
    bias = tensor((3,), data=np.array([7, 8, 9], np.float32))
    tensors = [tensor((1, 0)), weights, bias, tensor((1, 3))]
    return one(tensors, OPERATOR.FULLY_CONNECTED, "FullyConnectedOptions", {}, inputs=0), [7, 8, 9]


def conv_of_2_x_2() -> Case:
    """CONV_2D of 0, 1, 2, 3 in two rows and a kernel of ones, 2 x 2, with SAME padding."""
    weights = tensor((1, 2, 2, 1), data=np.ones((1, 2, 2, 1), np.float32))
    bias = tensor((1,), data=np.zeros(1, np.float32))
    options = {"padding": schema.Padding.SAME, "strideH": 1, "strideW": 1}
    options |= {"dilationHFactor": 1, "dilationWFactor": 1}
    tensors = [tensor((1, 2, 2, 1)), weights, bias, tensor((1, 2, 2, 1))]
    return one(tensors, OPERATOR.CONV_2D, "Conv2DOptions", options), [6, 4, 5, 3]


def reshape_of_a_reshape() -> Case:
    """Of 0, 1, ..., 5, negated and reshaped, what ABS gives; a second RESHAPE is added to 10 beside it."""
    tens = tensor((3, 2), data=np.full((3, 2), 10, np.float32))
    shapes = ((6,), (6,), None, (2, 3), None, (3, 2), None, (3, 2), (3, 2), (2, 3))
    constants = {2: whole(2, 3), 4: whole(3, 2), 6: tens}
    tensors = [constants[at] if shape is None else tensor(shape) for at, shape in enumerate(shapes)]
    nodes: list[Any] = [
        (OPERATOR.NEG, "NegOptions", {}, [0], [1]),
        (OPERATOR.RESHAPE, "ReshapeOptions", {"newShape": [2, 3]}, [1, 2], [3]),
        (OPERATOR.RESHAPE, "ReshapeOptions", {"newShape": [3, 2]}, [3, 4], [5]),
        (OPERATOR.ADD, "AddOptions", {}, [5, 6], [7]),
        (OPERATOR.ABS, "AbsOptions", {}, [7], [8]),
        (OPERATOR.ABS, "AbsOptions", {}, [3], [9]),
    ]
    return model(tensors, nodes, [0], [9, 8]), [0, 1, 2, 3, 4, 5]


def reshape_by_a_computed_shape() -> Case:
    """RESHAPE of a result by one of two shapes, which an input chooses; and the shape of its ABS, negated.

    It is carried out twice (`TWICE`): by the shape 2 x 2, then by 4 x 1.
    """
    shapes = tensor((2, 2), TYPE.INT32, np.array([[2, 2], [4, 1]], np.int32))
    tensors = [tensor((), TYPE.INT32), tensor((4,)), shapes, tensor((2,), TYPE.INT32), tensor((4,))]
    tensors += [tensor((2, 2)), tensor((2, 2)), tensor((2,), TYPE.INT32), tensor((2,), TYPE.INT32)]
    nodes: list[Any] = [
        (OPERATOR.GATHER, "GatherOptions", {"axis": 0}, [2, 0], [3]),
        (OPERATOR.ABS, "AbsOptions", {}, [1], [4]),
        (OPERATOR.RESHAPE, "ReshapeOptions", {}, [4, 3], [5]),
        (OPERATOR.ABS, "AbsOptions", {}, [5], [6]),
        (OPERATOR.SHAPE, "ShapeOptions", {"outType": TYPE.INT32}, [6], [7]),
        (OPERATOR.NEG, "NegOptions", {}, [7], [8]),
    ]
    return model(tensors, nodes, [0, 1], [8]), [-4, -1]


def fully_connected_of_rank_3() -> Case:
    """FULLY_CONNECTED of int16, 2 x 1 x 4 numbers, which keeps the rank; scales by channel, a bias of int64.

    The sums of the rows are 6 and 22; the two units have weights of 1 and 2.
    """
    weights = by_channel((2, 4), TYPE.INT8, np.ones((2, 4), np.int8))
    bias = by_channel((2,), TYPE.INT64, np.zeros(2, np.int64))
    tensors = [quantised((2, 1, 4), TYPE.INT16), weights, bias, quantised((2, 1, 2), TYPE.INT16)]
    options = {"keepNumDims": True}
    return one(tensors, OPERATOR.FULLY_CONNECTED, "FullyConnectedOptions", options), [6, 12, 22, 44]


def matrix_diag_of_float16() -> Case:
    """MATRIX_DIAG of 0 and 1."""
    tensors = [tensor((2,), TYPE.FLOAT16), tensor((2, 2), TYPE.FLOAT16)]
    return one(tensors, OPERATOR.MATRIX_DIAG, "MatrixDiagOptions", {}), [0, 0, 0, 1]


def quantize_without_scale() -> Case:
    """QUANTIZE of int32 that has no scale, to int8: nobody knows what its numbers are."""
    tensors = [tensor((4,), TYPE.INT32), quantised((4,), TYPE.INT8)]
    return one(tensors, OPERATOR.QUANTIZE, "QuantizeOptions", {}), REFUSAL


# What is computed wrongly of a scalar


def transpose_of_a_scalar() -> Case:
    """TRANSPOSE of 5, in int64, by no axes."""
    tensors = [tensor((), TYPE.INT64, np.array(5, np.int64)), whole(), tensor((), TYPE.INT64)]
    return one(tensors, OPERATOR.TRANSPOSE, "TransposeOptions", {}, inputs=0), [5]


def log_softmax_of_a_scalar() -> Case:
    """LOG_SOFTMAX of 5: the logarithm of 1."""
    tensors = [tensor((), data=np.array(5, np.float32)), tensor(())]
    return one(tensors, OPERATOR.LOG_SOFTMAX, "LogSoftmaxOptions", {}, inputs=0), [0]


def l2_normalization_of_a_scalar() -> Case:
    """L2_NORMALIZATION of 5."""
    tensors = [tensor((), data=np.array(5, np.float32)), tensor(())]
    return one(tensors, OPERATOR.L2_NORMALIZATION, "L2NormOptions", {}, inputs=0), [1]


def reduce_prod_of_a_scalar() -> Case:
    """REDUCE_PROD of 5 x 0.02 along no axes, to a scale of 0.001."""
    scalar = quantised((), TYPE.INT8, np.array(5, np.int8), scale=0.02)
    tensors = [scalar, whole(), quantised((), TYPE.INT8, scale=0.001)]
    return one(tensors, OPERATOR.REDUCE_PROD, "ReducerOptions", {}, inputs=0), [100]


# What is computed wrongly of no element


def _of_no_element(builtin: int, kind: int, zero: int = 0) -> bytes:
    """A reduction of a vector of length 0. It is no input: libLiteRt.so makes no buffer for such a one."""
    operand, result = quantised((0,), kind, zero=zero), quantised((), kind, zero=zero)
    if kind == TYPE.FLOAT32:
        operand, result = tensor((0,)), tensor(())
    return one([operand, whole(0), result], builtin, "ReducerOptions", {}, inputs=0)


def mean_without_elements() -> Case:
    """MEAN of uint8 with a zero point of 7, as in int8: 0."""
    return _of_no_element(OPERATOR.MEAN, TYPE.UINT8, zero=7), [7]


def sum_without_elements() -> Case:
    """SUM of int8 with a zero point of 7: 0."""
    return _of_no_element(OPERATOR.SUM, TYPE.INT8, zero=7), [7]


def reduce_prod_without_elements() -> Case:
    """REDUCE_PROD of int8: 1."""
    return _of_no_element(OPERATOR.REDUCE_PROD, TYPE.INT8), [1]


def reduce_max_without_elements() -> Case:
    """REDUCE_MAX of float32."""
    return _of_no_element(OPERATOR.REDUCE_MAX, TYPE.FLOAT32), [-np.inf]


def reduce_min_without_elements() -> Case:
    """REDUCE_MIN of float32."""
    return _of_no_element(OPERATOR.REDUCE_MIN, TYPE.FLOAT32), [np.inf]


CASES: dict[str, Callable[[], Case]] = {
    made.__name__: made
    for made in (
        softmax_without_elements,
        log_softmax_without_elements,
        depthwise_without_elements,
        batch_matmul_without_elements,
        arg_max_without_elements,
        dynamic_update_slice_of_scalars,
        prelu_of_rank_5,
        maximum_of_rank_6,
        sub_of_rank_6,
        mul_of_rank_5,
        prelu_of_rank_5_by_reference,
        add_of_rank_7,
        reshape_without_shape,
        mean_without_operand,
        maximum_without_operand,
        conv_of_many_groups,
        add_with_tanh,
        atan2_of_a_row,
        sign_of_int8,
        prelu_of_int16,
        where_of_int16,
        fully_connected_without_depth,
        conv_of_2_x_2,
        reshape_of_a_reshape,
        reshape_by_a_computed_shape,
        fully_connected_of_rank_3,
        matrix_diag_of_float16,
        quantize_without_scale,
        transpose_of_a_scalar,
        log_softmax_of_a_scalar,
        l2_normalization_of_a_scalar,
        reduce_prod_of_a_scalar,
        mean_without_elements,
        sum_without_elements,
        reduce_prod_without_elements,
        reduce_max_without_elements,
        reduce_min_without_elements,
    )
}

TWICE = ("reshape_by_a_computed_shape",)
"""Whose numbers are those of a second invoke, with inputs 1, 2, 3, ..."""
REFERENCE = ("mul_of_rank_5", "prelu_of_rank_5_by_reference", "add_of_rank_7")
"""Which the reference kernels compute, in place of those that an application gets by default."""


def numbers_of(runtime: str, case: str) -> None:
    """Print the first numbers, in the process that may end."""
    is_reference, again = case in REFERENCE, case in TWICE
    values = computed(CASES[case]()[0], runtime, xnnpack=False, again=again, reference=is_reference)
    print(values.ravel()[:8].tolist())


def deviates(runtime: str, case: str) -> bool:
    """Print what was expected and what was seen."""
    expected = CASES[case]()[1]
    status, seen = seen_of(runtime, case)
    print(f"{case}\nexpected: {expected}\nseen:     {seen}")
    if status or expected == ANSWER:
        return status < 0
    if expected == REFUSAL:
        return True
    numbers = [float(number) for number in seen.strip("[]").split(", ") if number]
    return len(numbers) != len(expected) or not np.allclose(numbers, expected, rtol=1e-4, atol=1e-4)


def seen_of(runtime: str, case: str) -> tuple[int, str]:
    """Status of a process that carries the case out, below 0 where it had to be ended, and what it says."""
    code = f"import kernels; kernels.numbers_of({runtime!r}, {case!r})"
    command = [sys.executable, "-W", "ignore", "-c", code]
    where, variables = Path(__file__).parent, os.environ | FILLED
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, cwd=where, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, "no answer within a minute"
    if done.returncode < 0:
        return done.returncode, f"the process died of signal {-done.returncode}"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    raised = [line for line in lines if line.startswith(("RuntimeError: ", "ValueError: "))]
    seen = (raised or lines or [""])[-1]
    if done.returncode and not raised:
        print(f"cannot run: {seen}")
        sys.exit(2)
    return done.returncode, seen


def write(folder: Path, cases: list[str]) -> None:
    """Write the models, and print what ``run.c`` takes behind LIBRARY."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases:
        content, expected = CASES[case]()
        path = folder / f"{case}.tflite"
        path.write_bytes(content)
        numbers = [] if isinstance(expected, str) else [f"{number:g}" for number in expected]
        way = "again" if case in TWICE else "reference" if case in REFERENCE else "cpu"
        print(path, "lives" if expected == ANSWER else " ".join([way, *numbers]))


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    if first == "--write":
        write(Path(rest[0]), rest[1:] or list(CASES))
    else:
        wrong = [case for case in rest or CASES if deviates(first, case)]
        sys.exit(1 if wrong else 0)
