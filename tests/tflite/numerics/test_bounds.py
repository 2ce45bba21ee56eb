from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

from pytest_qnn.tflite.cases.delegate import DelegateCase, Fill
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.graph.constants import float_weights, integers
from pytest_qnn.tflite.graph.graph import Activation, DType, Graph, Node, Op, Tensor
from pytest_qnn.tflite.graph.kinds import OPS, decode_graph, size_of
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.graph.scales import CLASSES, NONE, Scale
from pytest_qnn.tflite.graph.strategies import graphs, single_op_graphs
from pytest_qnn.tflite.numerics import kernels, quantisation
from pytest_qnn.tflite.numerics.bounds import Mismatch, expected_outputs, mismatch
from pytest_qnn.tflite.numerics.kernels import run_graph, run_node

Array = npt.NDArray[Any]
RUNTIMES = [name for name in ("tflite_runtime", "ai_edge_litert") if importlib.util.find_spec(name)]
FILLS: tuple[Fill, ...] = ("mixed", "ramp", "extreme")
EPS = 2.0**-23


TWO_SHAPES = next(scale for scale in CLASSES if scale.partner == "other shape")


def random_graphs(
    count: int, seed: int, nodes: int, dtype: DType, ops: tuple[Op, ...] = (), scale: Scale = NONE
) -> list[Graph]:
    random = np.random.default_rng(seed)
    choices = ((dtype, ops or OPS[dtype]),)
    size = size_of(nodes, 0)
    return [decode_graph(random.bytes(size), choices, 0, 1, nodes, scale)[0] for _ in range(count)]


def inputs(graph: Graph, seed: int) -> list[Array]:
    return inputs_of(DelegateCase(graph, data_seed=seed, fill=FILLS[seed % 3]))


def run_on(runtime: str, xnnpack: bool, graph: Graph, contents: list[Array]) -> list[Array]:
    module = importlib.import_module(f"{runtime}.interpreter")
    resolver = module.OpResolverType
    kind = resolver.AUTO if xnnpack else resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = module.Interpreter(model_content=emit(graph), experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    for index, array in zip(graph.inputs, contents, strict=True):
        interpreter.set_tensor(index, array)
    interpreter.invoke()
    return [interpreter.get_tensor(index) for index in graph.outputs]


def found(graph: Graph, contents: list[Array], outputs: list[Array]) -> list[Mismatch]:
    expected = expected_outputs(graph, contents)
    return [off for one, seen in zip(expected, outputs, strict=True) if (off := mismatch(one, seen))]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("xnnpack", [False, True], ids=["cpu", "xnnpack"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_bounds_raise_no_false_alarm_on_the_runtime(runtime: str, xnnpack: bool, dtype: DType) -> None:
    for nodes in (1, 3, 20):
        for seed, graph in enumerate(random_graphs(50, nodes, nodes, dtype)):
            contents = inputs(graph, seed)
            assert found(graph, contents, run_on(runtime, xnnpack, graph, contents)) == []


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("xnnpack", [False, True], ids=["cpu", "xnnpack"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_runtimes_broadcast_both_operands_at_once(runtime: str, xnnpack: bool, dtype: DType) -> None:
    for nodes in (1, 3, 12):
        for seed, graph in enumerate(random_graphs(60, nodes, nodes, dtype, scale=TWO_SHAPES)):
            contents = inputs(graph, seed)
            assert found(graph, contents, run_on(runtime, xnnpack, graph, contents)) == []


@settings(deadline=None, max_examples=200)
@given(graphs(max_nodes=15))
def test_the_reference_kernels_are_within_the_bounds(graph: Graph) -> None:
    contents = inputs(graph, 2)
    values = run_graph(graph, contents)
    assert found(graph, contents, [values[index] for index in graph.outputs]) == []


@settings(deadline=None, max_examples=100)
@given(graphs(max_nodes=15))
def test_reference_kernels_give_the_declared_shapes_and_dtypes(graph: Graph) -> None:
    for tensor, value in zip(graph.tensors, run_graph(graph, inputs(graph, 1)), strict=True):
        assert value.shape == tensor.shape
        assert value.dtype == tensor.dtype


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_float_elementwise_kernels_are_bit_equal_to_the_cpu(runtime: str) -> None:
    ops = tuple(op for op in OPS["float32"] if op not in ("MEAN", "FULLY_CONNECTED", "CONV_2D"))
    for seed, graph in enumerate(random_graphs(80, 5, 8, "float32", ops)):
        contents = inputs(graph, seed)
        values = run_graph(graph, contents)
        for index, seen in zip(graph.outputs, run_on(runtime, False, graph, contents), strict=True):
            assert values[index].tobytes() == seen.tobytes()


@pytest.mark.parametrize("op", [op for op in OPS["int8"] if op not in kernels.COPIES])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_int8_kernels_are_within_one_unit_of_the_cpu(runtime: str, op: Op) -> None:
    for seed, graph in enumerate(random_graphs(30, 6, 1, "int8", (op,))):
        contents = inputs(graph, seed)
        values = run_graph(graph, contents)
        for index, seen in zip(graph.outputs, run_on(runtime, False, graph, contents), strict=True):
            assert np.abs(values[index].astype(int) - seen).max() <= 1


def test_run_node_takes_operands_one_by_one_and_skips_absent_ones() -> None:
    tensors = (Tensor((1, 2)), Tensor((1, 2)), Tensor((1, 1)))
    node = Node("FULLY_CONNECTED", (0, 1, -1), (2,))
    operands = [np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32), None]
    assert run_node(node, tensors, operands).tolist() == [[11.0]]


def dense(depth: int, activation: Activation = "NONE") -> Graph:
    weights, bias = float_weights((3, depth), 4, 1)
    tensors = (Tensor((2, depth)), weights, bias, Tensor((2, 3)))
    return Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, 2), (3,), activation),), (0,), (3,))


def test_a_dot_product_is_judged_by_four_eps_of_its_terms() -> None:
    graph = dense(16)
    (value,) = inputs(graph, 3)
    weights, bias = (np.frombuffer(graph.tensors[i].data or b"", np.float32) for i in (1, 2))
    terms = np.abs(value.astype(float)) @ np.abs(weights.reshape(3, 16).astype(float)).T + np.abs(bias)
    assert np.allclose(expected_outputs(graph, [value])[0].tolerance, 4 * EPS * terms, rtol=1e-12)


@pytest.mark.parametrize(("shape", "axes"), [((1, 67, 63, 4), (1, 2)), ((1, 16411), (1,))])
@pytest.mark.parametrize("seed", range(1, 5))
def test_thousands_of_terms_of_one_sign_may_be_added_one_after_another(
    shape: tuple[int, ...], axes: tuple[int, ...], seed: int
) -> None:
    left = tuple(length for axis, length in enumerate(shape) if axis not in axes)
    tensors = (Tensor(shape), Tensor(shape), integers(axes), Tensor(left))
    graph = Graph(tensors, (Node("ABS", (0,), (1,)), Node("MEAN", (1, 2), (3,))), (0,), (3,))
    contents = inputs_of(DelegateCase(graph, data_seed=seed))
    (expected,) = expected_outputs(graph, contents)
    terms = np.moveaxis(np.abs(contents[0]), axes, range(len(axes))).reshape(-1, *left)
    for ordered in (terms, terms[::-1]):
        mean = np.add.accumulate(ordered, 0, dtype=np.float32)[-1] / np.float32(len(terms))
        assert mismatch(expected, mean) is None
    halves = np.add.accumulate(terms.astype(np.float16), 0)[-1] / np.float16(len(terms))
    assert mismatch(expected, halves.astype(np.float32)) is not None
    assert (expected.tolerance < 2.0**-9 * expected.value).all()


def test_accumulation_in_half_precision_breaks_the_bound() -> None:
    graph = dense(16)
    (value,) = inputs(graph, 3)
    weights, bias = (np.frombuffer(graph.tensors[i].data or b"", np.float32) for i in (1, 2))
    half = np.zeros((2, 3), np.float16)
    for k in range(16):
        half += (value[:, k : k + 1] * weights.reshape(3, 16)[:, k]).astype(np.float16)
    assert found(graph, [value], [(half + bias).astype(np.float32)])


def test_one_unit_in_the_last_place_breaks_an_elementwise_float_operator() -> None:
    graph = Graph((Tensor((4,)), Tensor((4,))), (Node("MUL", (0, 0), (1,)),), (0,), (1,))
    (value,) = inputs(graph, 3)
    right = value * value
    assert found(graph, [value], [right]) == []
    assert found(graph, [value], [np.nextafter(right, np.float32(np.inf))])


def one_int8(op: Op, activation: Activation = "NONE", scale: float = 0.0625, zero: int = 3) -> Graph:
    operand = Tensor((8, 8), "int8", (0.05,), (-3,))
    result = Tensor((8, 8), "int8", (scale,), (zero,))
    return Graph((operand, operand, result), (Node(op, (0, 1), (2,), activation),), (0, 1), (2,))


Nearest = Callable[[Tensor, Array, Activation], Array]


def truncating(tensor: Tensor, real: Array, activation: Activation = "NONE") -> Array:
    units = np.trunc(real / tensor.scales[0]) + tensor.zero_points[0]
    return np.clip(units, *quantisation.limits(tensor, activation))


def flooring(tensor: Tensor, real: Array, activation: Activation = "NONE") -> Array:
    units = np.floor(real / tensor.scales[0]) + tensor.zero_points[0]
    return np.clip(units, *quantisation.limits(tensor, activation))


def wrapping(tensor: Tensor, real: Array, activation: Activation = "NONE") -> Array:
    units = np.rint(real / tensor.scales[0]) + tensor.zero_points[0]
    return (units + 128) % 256 - 128


def inactive(tensor: Tensor, real: Array, activation: Activation = "NONE") -> Array:
    return quantisation.nearest(tensor, real)


@pytest.mark.parametrize(
    ("fault", "graph"),
    [
        (truncating, one_int8("ADD", scale=0.113)),
        (flooring, one_int8("SUB", scale=0.113)),
        (wrapping, one_int8("ADD")),
        (inactive, one_int8("ADD", "RELU")),
        (inactive, one_int8("MUL", "RELU6", scale=0.4)),
    ],
    ids=["truncating", "flooring", "wrapping", "no-relu", "no-relu6"],
)
def test_a_faulty_int8_result_is_found(fault: Nearest, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = inputs(graph, 3)
    assert found(graph, contents, [run_graph(graph, contents)[2]]) == []
    monkeypatch.setattr(kernels, "nearest", fault)
    assert found(graph, contents, [run_graph(graph, contents)[2]])


@pytest.mark.parametrize("activation", ["RELU", "RELU6"])
def test_an_ignored_float_activation_is_found(activation: Activation) -> None:
    graph, without = dense(4, activation), dense(4)
    contents = inputs(graph, 3)
    assert found(graph, contents, [run_graph(without, contents)[3]])


def test_a_result_outside_the_fused_range_is_found_even_within_the_tolerance() -> None:
    graph = one_int8("ADD", "RELU")
    contents = inputs(graph, 3)
    seen = run_graph(graph, contents)[2].copy()
    seen[seen == 3] = 2
    (off,) = found(graph, contents, [seen])
    assert (off.expected, off.seen, off.tolerance) == (3.0, 2.0, 1.0)


@settings(deadline=None, max_examples=50)
@given(single_op_graphs(ops=("RESHAPE", "CONCATENATION", "MAXIMUM")))
def test_copies_are_exact_in_both_types(graph: Graph) -> None:
    for expected in expected_outputs(graph, inputs(graph, 1)):
        assert not expected.tolerance.any()


def chained(second: Op) -> Graph:
    """A dot product, whose result may differ by t, read by a second operator."""
    weights, bias = float_weights((3, 4), 4, 1)
    tensors = (Tensor((2, 4)), weights, bias, Tensor((2, 3)), Tensor((2, 3)))
    operands = (3, 3) if second in ("ADD", "MUL", "MAXIMUM") else (3,)
    nodes = (Node("FULLY_CONNECTED", (0, 1, 2), (3,)), Node(second, operands, (4,)))
    return Graph(tensors, nodes, (0,), (3, 4))


@pytest.mark.parametrize(("op", "gain"), [("ADD", 2.0), ("ABS", 1.0), ("MAXIMUM", 1.0)])
def test_what_an_operand_may_be_off_by_is_carried_to_the_result(op: Op, gain: float) -> None:
    graph = chained(op)
    first, second = expected_outputs(graph, inputs(graph, 3))
    slack = 4 * 2.0**-24 * (np.abs(second.value) + 1)
    assert (second.tolerance >= gain * first.tolerance).all()
    assert (second.tolerance <= gain * first.tolerance + slack).all()
    assert "operands" in second.derivation


def test_exact_elements_stay_exact_beside_inexact_ones() -> None:
    nodes = (Node("MEAN", (0, 1), (2,), keep_dims=True), Node("CONCATENATION", (0, 2), (3,), axis=1))
    axes = Tensor((1,), "int32", data=np.int32([1]).tobytes())
    tensors = (Tensor((1, 3)), axes, Tensor((1, 1)), Tensor((1, 4)), Tensor((1, 4)))
    graph = Graph(tensors, (*nodes, Node("MUL", (3, 3), (4,))), (0,), (4,))
    (expected,) = expected_outputs(graph, inputs(graph, 3))
    assert (expected.tolerance > 0).tolist() == [[False, False, False, True]]


def test_not_a_number_and_a_wrong_shape_are_mismatches() -> None:
    graph = dense(4)
    contents = inputs(graph, 1)
    (expected,) = expected_outputs(graph, contents)
    assert mismatch(expected, np.full((2, 3), np.nan, np.float32)) is not None
    # Memory that nobody wrote may hold a signalling NaN, of which numpy warns when it is converted.
    left = np.full((2, 3), 0x7F800001, np.uint32).view(np.float32)
    assert mismatch(expected, left) is not None
    assert mismatch(expected, np.zeros((3, 2), np.float32)) is not None


def test_signed_zeros_are_equal() -> None:
    graph = Graph((Tensor((2,)), Tensor((2,))), (Node("NEG", (0,), (1,)),), (0,), (1,))
    contents: list[Array] = [np.array([0, -1], np.float32)]
    assert found(graph, contents, [np.array([0, 1], np.float32)]) == []


def test_a_mismatch_says_where_what_and_how_far() -> None:
    graph = Graph((Tensor((2, 2)), Tensor((2, 2))), (Node("ABS", (0,), (1,)),), (0,), (1,))
    contents: list[Array] = [np.array([[1, -2], [3, -4]], np.float32)]
    (off,) = found(graph, contents, [np.array([[1, 2], [5, 6]], np.float32)])
    assert (off.index, off.expected, off.seen, off.tolerance, off.count) == ((1, 0), 3.0, 5.0, 0.0, 2)
    assert "NUM-01" in str(off)


def test_a_graph_input_that_is_an_output_is_a_copy() -> None:
    graph = Graph((Tensor((2,)), Tensor((2,))), (Node("RELU", (0,), (1,)),), (0,), (0, 1))
    contents = inputs(graph, 1)
    first, _ = expected_outputs(graph, contents)
    assert not first.tolerance.any()
    assert np.array_equal(first.value, contents[0])
