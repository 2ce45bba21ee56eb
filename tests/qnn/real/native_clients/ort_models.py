"""Small models for ONNX Runtime, each with the bound within which two runtimes must agree on its outputs.

The numbers of a model are chosen so that the bound can be derived:

* ``exact``: inputs, weights and biases of float models are multiples of 1/8 of at most 2 in magnitude, so
  that products are multiples of 1/64. Sums of up to 2**15 of them need less than 24 bits: exact in float32,
  in any order. One division or square root is rounded once, and rounding it to float64 first changes nothing
  (53 bits are more than 2 * 24 + 2). Operators that only move or compare elements compute nothing.
* ``rounded``: some operations of float32 (u = 2**-24), or a kernel that approximates a function. The CPU
  provider states no bound for these; 32 u of the largest value allows for ten operations and an approximation
  of a few units in the last place, and a wrong formula is off by more.
* ``step``: outputs of fixed point. The real values, which both compute in float32 or better, are less than a
  step apart, so that the whole numbers of steps are at most one apart. A half goes to the even one there, up
  here.
* ``no tie``: fixed point whose real values never come near a half: an output's scale is K times that of the
  sums that it stores, K odd, so that values are K-th parts of a step, and at least 1 / (2 K) away from a
  half. Float32 is off by less: no difference at all, after any number of layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Bound = Literal["exact", "rounded", "step", "no tie"]
Shape = tuple[int, ...]
FLOAT, BOOL, INT32, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64
U8, I8, U16, I16 = TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16
PLAIN: Shape = (1, 2, 4, 4)
EVERY = ("every", "with_every")
"""Inputs that hold every pair of numbers of eight bits."""
FIXED = {"u8": U8, "i8": I8, "u16": U16, "i16": I16}


@dataclasses.dataclass(frozen=True)
class Model:
    """How a model is made, and how far outputs may differ."""

    make: Callable[[], onnx.ModelProto]
    bound: Bound


def eighths(*shape: int, seed: int = 1, least: float = -2) -> Any:
    """Multiples of 1/8 from ``least`` up to 2, as float32."""
    steps = np.random.default_rng(seed).integers(round(least * 8), 17, shape)
    return (steps / 8).astype(np.float32)


def inputs_of(model: onnx.ModelProto) -> dict[str, Any]:
    """Inputs for a model, the same at every call: multiples of 1/8, 0 or 1, or any stored number."""
    made = {}
    for seed, each in enumerate(model.graph.input):
        shape = tuple(axis.dim_value for axis in each.type.tensor_type.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)
        least = 0.125 if each.name == "positive" else -2
        if each.name in EVERY:
            pairs = np.indices((256, 256)).astype(np.uint8)
            made[each.name] = pairs[EVERY.index(each.name)].reshape(shape)
        elif dtype.kind == "f":
            made[each.name] = eighths(*shape, seed=seed, least=least).astype(dtype)
        else:
            limits = (0, 2) if dtype.kind == "b" or dtype.itemsize > 2 else _limits(dtype)
            made[each.name] = np.random.default_rng(seed).integers(*limits, shape).astype(dtype)
    return made


def _limits(dtype: Any) -> tuple[int, int]:
    found = np.iinfo(dtype)
    return int(found.min), int(found.max) + 1


def build(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: dict[str, Any],
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of nodes; constants by name."""
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(list(nodes), "model", list(inputs), list(outputs), stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


info = helper.make_tensor_value_info


def one(
    op: str,
    shape: Shape = PLAIN,
    out: Shape | None = None,
    constants: dict[str, Any] | None = None,
    *,
    inputs: int = 1,
    types: tuple[int, int] = (FLOAT, FLOAT),
    opset: int = 18,
    name: str = "x",
    **attributes: Any,
) -> onnx.ModelProto:
    """One node: its inputs are all of one shape and type, and constants follow them."""
    names = [name if at == 0 else f"{name}{at}" for at in range(inputs)]
    constants = constants or {}
    node = helper.make_node(op, [*names, *constants], ["y"], **attributes)
    given = [info(each, types[0], shape) for each in names]
    return build([node], given, [info("y", types[1], out or shape)], constants, opset)


def _float(op: str, bound: Bound = "exact", **arguments: Any) -> Model:
    return Model(lambda: one(op, **arguments), bound)


def _logical(op: str, inputs: int = 2) -> Model:
    return _float(op, inputs=inputs, types=(BOOL, BOOL))


def _i64(*values: int) -> Any:
    return np.array(values, np.int64)


_WEIGHTS = eighths(4, 2, 3, 3, seed=11)
_BIAS = eighths(4, seed=12)
_SQUARE = eighths(4, 5, seed=13)


def _conv(shape: Shape, out: Shape, weights: Any = _WEIGHTS, **attributes: Any) -> Model:
    constants = {"w": weights, "b": _BIAS}
    return _float("Conv", shape=shape, out=out, constants=constants, **attributes)


def _up(op: str, out: Shape, weights: Any = _WEIGHTS, **attributes: Any) -> Model:
    shape = (1, 4, *[3] * (weights.ndim - 2))
    return _float(op, shape=shape, out=out, constants={"w": weights}, **attributes)


def _pool(op: str, out: int, bound: Bound = "exact", **attributes: Any) -> Model:
    return _float(op, bound, shape=(1, 2, 5, 5), out=(1, 2, out, out), strides=[2, 2], **attributes)


def _resize(bound: Bound, out: Shape, **attributes: Any) -> Model:
    def make() -> onnx.ModelProto:
        node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **attributes)
        given = info("x", FLOAT, (1, 2, 4, 6))
        return build([node], [given], [info("y", FLOAT, out)], {"s": _i64(*out)})

    return Model(make, bound)


def _select() -> onnx.ModelProto:
    inputs = [info("c", BOOL, (2, 3)), info("a", FLOAT, (2, 3)), info("b", FLOAT, (2, 3))]
    node = helper.make_node("Where", ["c", "a", "b"], ["y"])
    return build([node], inputs, [info("y", FLOAT, (2, 3))], {})


def _split() -> onnx.ModelProto:
    node = helper.make_node("Split", ["x", "s"], ["a", "b"], axis=1)
    outputs = [info("a", FLOAT, (2, 2)), info("b", FLOAT, (2, 3))]
    return build([node], [info("x", FLOAT, (2, 5))], outputs, {"s": _i64(2, 3)})


def _top_k() -> onnx.ModelProto:
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"])
    outputs = [info("v", FLOAT, (2, 3)), info("i", INT64, (2, 3))]
    return build([node], [info("x", FLOAT, (2, 5))], outputs, {"k": _i64(3)})


def _roots_that_are_none() -> onnx.ModelProto:
    nodes = [helper.make_node("Sqrt", ["x"], ["root"]), helper.make_node("IsNaN", ["root"], ["y"])]
    return build(nodes, [info("x", FLOAT, PLAIN)], [info("y", BOOL, PLAIN)], {})


def quantised(
    model: onnx.ModelProto,
    data_type: int,
    scales: tuple[float, float] = (2**-5, 2**-4),
    weights: int = I8,
    axis: int | None = None,
) -> onnx.ModelProto:
    """The model between DequantizeLinear and QuantizeLinear, its weights of fixed point too.

    ``scales``: of inputs and outputs, for eight bits; offsets lie in the middle. ``axis``: of the weights,
    which then have a scale for each index of it. A bias (of one axis, behind weights) has the scale of the
    sums.
    """
    maker = _Quantiser(data_type, scales, weights, axis)
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    for name, value in constants.items():
        maker.constant(name, value, bias=value.ndim == 1 and len(constants) > 1)
    for each in model.graph.input:
        maker.given(each)
    for node in model.graph.node:
        maker.node(node, {each.name for each in model.graph.output if _is_float(each)})
    for each in model.graph.output:
        maker.result(each)
    opset = 21 if data_type in (U16, I16) else model.opset_import[0].version
    return build(maker.nodes, maker.inputs, maker.outputs, maker.constants, max(opset, 13))


def _is_float(given: Any) -> bool:
    return bool(given.type.tensor_type.elem_type == FLOAT)


def _shape_of(given: Any) -> Shape:
    return tuple(axis.dim_value for axis in given.type.tensor_type.shape.dim)


class _Quantiser:
    """Collects the parts of a quantised model."""

    def __init__(self, data_type: int, scales: tuple[float, float], weights: int, axis: int | None) -> None:
        self.data_type, self.weights, self.axis = data_type, weights, axis
        self.dtype = helper.tensor_dtype_to_np_dtype(data_type)
        least, most = _limits(self.dtype)
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.real: dict[str, str] = {}
        """Real values by the name of what is stored."""
        parts = 1 if self.dtype.itemsize == 1 else 256
        middle = self.dtype.type((least + most) // 2)
        self.scale = np.float32(scales[0] / parts)
        self.constants = {"sx": self.scale, "sy": np.float32(scales[1] / parts), "z": middle}
        self.sums: Any = self.scale
        """The scale of products with the weights."""

    def _restore(self, name: str, scale: str, zero: str, **attributes: Any) -> None:
        self.real[name] = f"{name}_real"
        restored = helper.make_node("DequantizeLinear", [name, scale, zero], [f"{name}_real"], **attributes)
        self.nodes.append(restored)

    def constant(self, name: str, value: Any, *, bias: bool) -> None:
        """A weight, a bias, or what is no float and stays as it is."""
        if value.dtype != np.float32:
            self.constants[name] = value
            return
        if bias:
            stored, scale = np.rint(value / self.sums).astype(np.int32), self.sums
            attributes = {"axis": 0} if np.ndim(scale) else {}
        else:
            stored, scale, attributes = self._weights(value)
            self.sums = np.asarray(self.scale * scale, np.float32)
        zero = np.zeros(np.shape(scale), np.int32) if bias else self._zero(np.shape(scale))
        self.constants |= {name: stored, f"{name}_s": np.asarray(scale, np.float32), f"{name}_z": zero}
        self._restore(name, f"{name}_s", f"{name}_z", **attributes)

    def _zero(self, shape: Shape) -> Any:
        dtype = helper.tensor_dtype_to_np_dtype(self.weights)
        return np.full(shape, 0 if dtype.kind == "i" else 128, dtype)

    def _weights(self, value: Any) -> tuple[Any, Any, dict[str, int]]:
        """Stored numbers, scales, attributes. The values are multiples of 1/8 up to 2: scales are dyadic."""
        dtype = helper.tensor_dtype_to_np_dtype(self.weights)
        offset = 0 if dtype.kind == "i" else 128
        if self.axis is None:
            return (np.rint(value * 32) + offset).astype(dtype), np.float32(1 / 32), {}
        scale = np.float32(1) / np.float32([32 << (at % 2) for at in range(value.shape[self.axis])])
        shape = [-1 if at == self.axis else 1 for at in range(value.ndim)]
        stored = np.clip(np.rint(value / scale.reshape(shape)) + offset, -127, 127)
        return stored.astype(dtype), scale, {"axis": self.axis}

    def given(self, each: Any) -> None:
        """An input of the model."""
        if not _is_float(each):
            self.inputs.append(each)
            return
        self.inputs.append(info(each.name, self.data_type, _shape_of(each)))
        self._restore(each.name, "sx", "z")

    def node(self, node: Any, results: set[str]) -> None:
        """A node, on real values."""
        made = onnx.NodeProto()
        made.CopyFrom(node)
        for at, name in enumerate(node.input):
            made.input[at] = self.real.get(name, name)
        for at, name in enumerate(node.output):
            made.output[at] = f"{name}_real" if name in results else name
        self.nodes.append(made)

    def result(self, each: Any) -> None:
        """An output of the model."""
        if not _is_float(each):
            self.outputs.append(each)
            return
        self.outputs.append(info(each.name, self.data_type, _shape_of(each)))
        stored = helper.make_node("QuantizeLinear", [f"{each.name}_real", "sy", "z"], [each.name])
        self.nodes.append(stored)


def _there_and_back() -> onnx.ModelProto:
    """Floats, stored in steps of 1/16, which keeps multiples of 1/8; a Relu; and floats again."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["real"]),
        helper.make_node("Relu", ["real"], ["positive"]),
        helper.make_node("QuantizeLinear", ["positive", "s", "z"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "s", "z"], ["y"]),
    ]
    constants = {"s": np.float32(1 / 16), "z": np.uint8(100)}
    return build(nodes, [info("x", FLOAT, PLAIN)], [info("y", FLOAT, PLAIN)], constants)


def _requantised(given: int, wanted: int) -> onnx.ModelProto:
    """The same real values in another encoding."""
    types = [helper.tensor_dtype_to_np_dtype(each) for each in (given, wanted)]
    scales = [np.float32(each) for each in (3 * 2.0**-5 / (256 if given == U16 else 1), 2.0**-4)]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s0", "z0"], ["real"]),
        helper.make_node("QuantizeLinear", ["real", "s1", "z1"], ["y"]),
    ]
    constants = {"s0": scales[0], "z0": types[0].type(90), "s1": scales[1], "z1": types[1].type(30)}
    return build(nodes, [info("x", given, PLAIN)], [info("y", wanted, PLAIN)], constants, 21)


_EQUAL = (2**-5, 2**-5)
_APART = (2**-5, 129 * 2**-10)
"""An output's scale of 129 times that of the sums (2**-5 * 2**-5): no value lies at a half."""

FLOATS: dict[str, Model] = {
    # of one operand, of two
    **{op: _float(op) for op in ("Abs", "Ceil", "Floor", "Identity", "Neg", "Relu", "Round", "Sign")},
    **{op: _float(op, name="positive") for op in ("Sqrt", "Reciprocal")},
    **{op: _float(op, "rounded") for op in ("Atan", "Cos", "Exp", "Sin")},
    "Log": _float("Log", "rounded", name="positive"),
    **{op: _float(op, inputs=2) for op in ("Add", "Sub", "Mul", "Max", "Min")},
    "Div": _float("Div", constants={"d": eighths(1, 2, 4, 4, least=0.125)}),
    "Pow": _float("Pow", "rounded", inputs=2, name="positive"),
    "Sum": _float("Sum", inputs=3),
    "Add of integers": _float("Add", inputs=2, types=(INT32, INT32)),
    **{
        op: _float(op, inputs=2, types=(FLOAT, BOOL))
        for op in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    "Equal": _float("Equal", inputs=2, types=(INT32, BOOL)),
    **{op: _logical(op) for op in ("And", "Or")},
    "Not": _logical("Not", 1),
    "Where": Model(_select, "exact"),
    # activations
    **{
        op: _float(op, "rounded") for op in ("Elu", "HardSwish", "Sigmoid", "Softplus", "Tanh", "HardSigmoid")
    },
    "Gelu": _float("Gelu", "rounded", opset=20),
    "LeakyRelu": _float("LeakyRelu", "rounded"),
    "PRelu": _float("PRelu", constants={"s": eighths(2, 1, 1)}),
    "Clip": _float("Clip", constants={"lo": np.float32(-1), "hi": np.float32(0.5)}),
    "Softmax": _float("Softmax", "rounded", axis=-1),
    "Softmax of an inner axis": _float("Softmax", "rounded", axis=1),
    "LogSoftmax": _float("LogSoftmax", "rounded", axis=-1),
    # products
    "Conv": _conv(PLAIN, (1, 4, 4, 4), pads=[1, 1, 1, 1]),
    "Conv with strides": _conv((2, 2, 7, 9), (2, 4, 4, 3), pads=[1, 0, 1, 0], strides=[2, 3]),
    "Conv with dilation": _conv((1, 2, 7, 7), (1, 4, 3, 3), dilations=[2, 2]),
    "Conv in groups": _conv((1, 4, 5, 5), (1, 4, 3, 3), group=2),
    "Conv of one axis": _conv((1, 2, 7), (1, 4, 5), _WEIGHTS[..., 0]),
    "Conv of three axes": _conv((1, 2, 4, 4, 4), (1, 4, 2, 2, 2), eighths(4, 2, 3, 3, 3)),
    "Conv, depthwise": _conv((1, 4, 5, 5), (1, 4, 3, 3), _WEIGHTS[:, :1], group=4),
    "Conv, depthwise, two filters": _conv((1, 2, 5, 5), (1, 4, 3, 3), _WEIGHTS[:, :1], group=2),
    "ConvTranspose": _up("ConvTranspose", (1, 2, 7, 7), strides=[2, 2]),
    "ConvTranspose with padding": _up(
        "ConvTranspose", (1, 2, 6, 6), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]
    ),
    "ConvTranspose in groups": _up("ConvTranspose", (1, 4, 7, 7), strides=[2, 2], group=2),
    "ConvTranspose of one axis": _up("ConvTranspose", (1, 2, 7), _WEIGHTS[..., 0], strides=[2]),
    "MatMul": _float("MatMul", inputs=2),
    "MatMul by weights": _float("MatMul", shape=(1, 2, 4), out=(1, 2, 5), constants={"w": _SQUARE}),
    "Gemm": _float("Gemm", shape=(3, 4), out=(3, 5), constants={"w": _SQUARE, "b": eighths(5)}),
    "Gemm, transposed": _float(
        "Gemm", shape=(3, 5), out=(3, 4), constants={"w": _SQUARE, "b": eighths(4)}, transB=1
    ),
    # pools and sizes
    "MaxPool": _pool("MaxPool", 2, kernel_shape=[2, 2]),
    "MaxPool with padding": _pool("MaxPool", 3, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "MaxPool, rounded up": _pool("MaxPool", 3, kernel_shape=[2, 2], ceil_mode=1),
    "AveragePool": _pool("AveragePool", 2, kernel_shape=[2, 2]),
    "AveragePool with padding": _pool("AveragePool", 3, "rounded", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "AveragePool that counts padding": _pool(
        "AveragePool", 3, "rounded", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    "AveragePool, rounded up": _pool("AveragePool", 3, kernel_shape=[2, 2], ceil_mode=1),
    "GlobalAveragePool": _float("GlobalAveragePool", out=(1, 2, 1, 1)),
    "GlobalMaxPool": _float("GlobalMaxPool", out=(1, 2, 1, 1)),
    "Resize, nearest": _resize(
        "exact", (1, 2, 8, 12), coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    "Resize, nearest of half pixels": _resize(
        "exact", (1, 2, 8, 9), coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"
    ),
    "Resize, linear": _resize("exact", (1, 2, 8, 12), mode="linear"),
    "Resize, linear, aligned": _resize(
        "rounded", (1, 2, 8, 9), mode="linear", coordinate_transformation_mode="align_corners"
    ),
    "Resize, cubic": _resize("rounded", (1, 2, 8, 9), mode="cubic"),
    # moves
    "Transpose": _float("Transpose", out=(4, 4, 2, 1), perm=[3, 2, 1, 0]),
    "Concat": _float("Concat", inputs=2, out=(1, 4, 4, 4), axis=1),
    "Slice": _float(
        "Slice",
        out=(1, 2, 2, 2),
        constants={"b": _i64(0, 3), "e": _i64(4, -5), "a": _i64(2, 3), "s": _i64(2, -2)},
    ),
    "Gather": _float("Gather", out=(1, 2, 3, 4), constants={"i": _i64(0, 3, -1)}, axis=2),
    "GatherElements": _float(
        "GatherElements", shape=(2, 3), out=(2, 2), constants={"i": np.array([[0, 1], [2, -1]])}, axis=1
    ),
    "GatherND": _float("GatherND", shape=(2, 3), out=(2,), constants={"i": np.array([[0, 1], [1, 2]])}),
    "ScatterND": _float("ScatterND", shape=(3, 2), constants={"i": np.array([[0], [2]]), "u": eighths(2, 2)}),
    "ScatterElements": _float(
        "ScatterElements", shape=(3, 2), constants={"i": np.array([[0, 2]]), "u": eighths(1, 2)}
    ),
    "Reshape": _float("Reshape", out=(2, 16), constants={"s": _i64(2, -1)}),
    "Squeeze": _float("Squeeze", out=(2, 4, 4), constants={"a": _i64(0)}),
    "Unsqueeze": _float("Unsqueeze", out=(1, 1, 2, 4, 4), constants={"a": _i64(0)}),
    "Tile": _float("Tile", out=(1, 4, 4, 8), constants={"r": _i64(1, 2, 1, 2)}),
    "Expand": _float("Expand", shape=(1, 3), out=(4, 3), constants={"s": _i64(4, 3)}),
    "Pad": _float(
        "Pad", out=(1, 2, 6, 7), constants={"p": _i64(0, 0, 1, 1, 0, 0, 1, 2), "v": np.float32(1.5)}
    ),
    "Pad, reflected": _float(
        "Pad", out=(1, 2, 6, 6), constants={"p": _i64(0, 0, 1, 1, 0, 0, 1, 1)}, mode="reflect"
    ),
    "Split": Model(_split, "exact"),
    "DepthToSpace": _float("DepthToSpace", shape=(1, 8, 2, 3), out=(1, 2, 4, 6), blocksize=2),
    "DepthToSpace, columns first": _float(
        "DepthToSpace", shape=(1, 8, 2, 3), out=(1, 2, 4, 6), blocksize=2, mode="CRD"
    ),
    "SpaceToDepth": _float("SpaceToDepth", shape=(1, 2, 4, 6), out=(1, 8, 2, 3), blocksize=2),
    "Cast to integers": _float("Cast", types=(FLOAT, INT32), to=INT32),
    "Cast to truth values": _float("Cast", types=(FLOAT, BOOL), to=BOOL),
    # reductions and norms
    **{
        op: _float(op, bound, out=(1, 2, 1, 4), constants={"a": _i64(2)})
        for op, bound in (
            ("ReduceSum", "exact"),
            ("ReduceMean", "exact"),
            ("ReduceMax", "exact"),
            ("ReduceMin", "exact"),
            ("ReduceL2", "rounded"),
        )
    },
    "ArgMax": _float("ArgMax", out=(1, 2, 1, 4), types=(FLOAT, INT64), axis=2),
    "ArgMin": _float("ArgMin", out=(1, 2, 4), types=(FLOAT, INT64), axis=2, keepdims=0),
    "TopK": Model(_top_k, "exact"),
    "CumSum": _float("CumSum", constants={"a": np.array(2)}),
    "LayerNormalization": _float(
        "LayerNormalization", "rounded", shape=(1, 4, 8), constants={"g": eighths(8), "b": eighths(8, seed=2)}
    ),
    "InstanceNormalization": _float(
        "InstanceNormalization", "rounded", constants={"g": eighths(2), "b": eighths(2, seed=2)}
    ),
    "GroupNormalization": _float(
        "GroupNormalization",
        "rounded",
        shape=(1, 4, 3, 3),
        constants={"g": eighths(4), "b": eighths(4, seed=2)},
        num_groups=2,
        opset=21,
    ),
    "BatchNormalization": _float(
        "BatchNormalization",
        "rounded",
        constants={
            "g": eighths(2),
            "b": eighths(2, seed=2),
            "m": eighths(2, seed=3),
            "v": eighths(2, seed=4, least=0.5),
        },
    ),
    "LpNormalization": _float("LpNormalization", "rounded", axis=1),
    "LRN": _float("LRN", "rounded", shape=(1, 6, 3, 3), size=3),
    "IsNaN": Model(_roots_that_are_none, "exact"),
}
"""Models of float32, integers and truth values."""


def _fixed(of: str, data_type: str, bound: Bound, **arguments: Any) -> Model:
    return Model(lambda: quantised(FLOATS[of].make(), FIXED[data_type], **arguments), bound)


_MOVED = ("Transpose", "Concat", "Slice", "Gather", "Reshape", "Tile", "Split", "DepthToSpace", "MaxPool")
_COMPUTED = (
    "Add",
    "Mul",
    "Sub",
    "Div",
    "Max",
    "Relu",
    "Clip",
    "Softmax",
    "AveragePool",
    "ReduceMean",
    "HardSwish",
)
_PRODUCTS = ("Conv", "Conv with strides", "Conv, depthwise", "MatMul by weights", "Gemm")
FIXED_POINT: dict[str, Model] = {
    **{
        f"{of}, {name}": _fixed(of, name, "exact", scales=_EQUAL)
        for at, of in enumerate(_MOVED)
        for name in (list(FIXED)[at % 4], list(FIXED)[(at + 1) % 4])
    },
    **{f"{of}, {name}": _fixed(of, name, "step") for of in _COMPUTED for name in FIXED},
    **{
        f"{of}, u8": _fixed(of, "u8", "step")
        for of in ("Sigmoid", "Tanh", "Gelu", "Elu", "LayerNormalization")
    },
    **{f"{of}, u8": _fixed(of, "u8", "no tie", scales=_APART) for of in _PRODUCTS},
    **{f"{of}, i8": _fixed(of, "i8", "no tie", scales=_APART) for of in _PRODUCTS},
    **{f"{of}, u16 by i8": _fixed(of, "u16", "step") for of in _PRODUCTS},
    "Conv, u8, unsigned weights": _fixed("Conv", "u8", "no tie", scales=_APART, weights=U8),
    "Conv, u8, per axis": _fixed("Conv", "u8", "step", axis=0),
    "Conv, depthwise, u8, per axis": _fixed("Conv, depthwise", "u8", "step", axis=0),
    "ConvTranspose, u8, per axis": _fixed("ConvTranspose", "u8", "step", axis=1),
    "Resize, linear, u8": _fixed("Resize, linear", "u8", "step"),
    "Convert between encodings": Model(lambda: _requantised(U8, U8), "step"),
    "Convert between data types": Model(lambda: _requantised(U16, U8), "step"),
    "QuantizeLinear and DequantizeLinear": Model(_there_and_back, "exact"),
}
"""Models of fixed point."""


class _Network:
    """A network of layers that are stored as UFIXED_POINT_8."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {"half": np.uint8(128), "none": np.int8(0), "zero": np.int32(0)}
        self.random = np.random.default_rng(seed)
        self.layers = 0

    def restore(self, name: str, scale: float, zero: str = "half") -> str:
        """Real values of what is stored."""
        self.constants[f"{name}_s"] = np.float32(scale)
        self.nodes.append(helper.make_node("DequantizeLinear", [name, f"{name}_s", zero], [f"{name}_real"]))
        return f"{name}_real"

    def layer(self, op: str, inputs: Sequence[str], scale: float, **attributes: Any) -> tuple[str, float]:
        """A node, and its result stored with this scale."""
        self.layers += 1
        name = f"t{self.layers}"
        made = helper.make_node(op, list(inputs), [f"{name}_exact"], **attributes)
        stored = helper.make_node("QuantizeLinear", [f"{name}_exact", f"{name}_s", "half"], [name])
        self.nodes += [made, stored]
        return self.restore(name, scale), float(np.float32(scale))

    def convolve(self, source: tuple[str, float], shape: Shape, **attributes: Any) -> tuple[str, float]:
        """A convolution: its output's scale is `ODD` times that of its sums."""
        name, scale = source
        weights, bias = f"w{self.layers}", f"b{self.layers}"
        self.constants[weights] = self.random.integers(-MOST, MOST + 1, shape).astype(np.int8)
        self.constants[bias] = self.random.integers(-999, 1000, shape[0]).astype(np.int32)
        operands = [name, self.restore(weights, 2**-7, "none"), self.restore(bias, scale * 2**-7, "zero")]
        return self.layer("Conv", operands, scale * ODD / 128, **attributes)


ODD, MOST = 65, 40
"""Of `_Network`: an output's scale in those of its sums, and the largest weight.

Values are 65th parts of a step: none is nearer to a half than 1 / 130 = 0.0077. Float32 is off by (n + 3) u
times the sum of the products' magnitudes, which for n = 27 and offsets up to 128 is 27 * 128 * 40 / 65 steps:
0.0038.
"""
TEN: Shape = (1, 10, 1, 1)


def mobile_net(blocks: int = 8, seed: int = 20) -> onnx.ModelProto:
    """Inverted residuals as in MobileNetV2: expand, Relu, depthwise, Relu, project, add; pool, classify.

    Eight blocks make 51 operators. A sum of two scales may come close to a half: `margins` says how close,
    which depends on ``seed``.
    """
    net = _Network(seed)
    channels, wide = 8, 16
    first = (net.restore("x", 2**-5), 2.0**-5)
    now = net.convolve(first, (channels, 3, 3, 3), pads=[1, 1, 1, 1], strides=[4, 4])
    for _ in range(blocks):
        inner = net.convolve(now, (wide, channels, 1, 1))
        inner = net.layer("Relu", [inner[0]], inner[1])
        inner = net.convolve(inner, (wide, 1, 3, 3), pads=[1, 1, 1, 1], group=wide)
        inner = net.layer("Relu", [inner[0]], inner[1])
        inner = net.convolve(inner, (channels, wide, 1, 1))
        now = net.layer("Add", [now[0], inner[0]], 1.5 * max(now[1], inner[1]))
    pooled = net.layer("GlobalAveragePool", [now[0]], now[1] * 15 / 16)
    name, _ = net.convolve(pooled, (10, channels, 1, 1))
    last = name.removesuffix("_real")
    net.nodes.pop()  # nobody reads the real values of the output
    for node in net.nodes:
        node.output[:] = ["y" if each == last else each for each in node.output]
    return build(net.nodes, [info("x", U8, (1, 3, 8, 8))], [info("y", U8, TEN)], net.constants, 13)


def margins(model: onnx.ModelProto, run: Callable[[onnx.ModelProto], dict[str, Any]]) -> dict[str, float]:
    """How near to a half, in steps, the values come that are stored: the least by operator.

    ``run``: what computes the outputs of a model on the CPU, by name.
    """
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    makers = {node.output[0]: node.op_type for node in model.graph.node}
    stored = {node.input[0]: node.input[1] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    wider.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in stored)
    scales = {
        each.name: float(numpy_helper.to_array(each))
        for each in model.graph.initializer
        if each.name.endswith("_s")
    }
    least: dict[str, float] = {}
    for name, values in run(wider).items():
        if name in stored:
            steps = values.astype(np.float64) / scales[stored[name]]
            inside = steps[np.abs(steps) < 129]
            distance = np.abs(inside - np.floor(inside) - 0.5)
            found = float(distance.min()) if inside.size else 0.5
            least[makers[name]] = min(found, least.get(makers[name], 0.5))
    return least


def _every(op: str, scale: float, stored: float, offset: int) -> Callable[[], onnx.ModelProto]:
    """An operator of UFIXED_POINT_8 on every number, or every pair of numbers; dyadic scales make ties."""
    names = EVERY if op == "Mul" else EVERY[:1]
    shape = (1, 16, 64, 64)

    def make() -> onnx.ModelProto:
        real = [f"{name}_real" for name in names]
        restored = [
            helper.make_node("DequantizeLinear", [name, "s", "z"], [f"{name}_real"]) for name in names
        ]
        made = helper.make_node(op, real, ["y_real"])
        kept = helper.make_node("QuantizeLinear", ["y_real", "sy", "zy"], ["y"])
        constants = {"s": np.float32(scale), "z": np.uint8(128)}
        constants |= {"sy": np.float32(stored), "zy": np.uint8(offset)}
        given = [info(name, U8, shape) for name in names]
        return build([*restored, made, kept], given, [info("y", U8, shape)], constants, 13)

    return make


AS_THE_LIBRARY: dict[str, Model] = {
    "every Relu, ties": Model(_every("Relu", 1, 2, 5), "exact"),
    "every Relu, saturated": Model(_every("Relu", 0.5, 0.25, 3), "exact"),
    "every Mul, ties": Model(_every("Mul", 0.5, 32, 128), "exact"),
    "every Mul, more ties": Model(_every("Mul", 1, 64, 128), "exact"),
}
"""Models that are compared with libQnnHtp, bit for bit."""
MODELS: dict[str, Model] = FLOATS | FIXED_POINT | {"a network like MobileNet": Model(mobile_net, "no tie")}
