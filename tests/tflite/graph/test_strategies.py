from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from fast_run import part
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.valid import check_graph
from pytest_qnn.tflite.graph.combinations import GRID, Combination, combination_of
from pytest_qnn.tflite.graph.decode import MAX_ELEMENTS
from pytest_qnn.tflite.graph.floors import FLOORS, Floor
from pytest_qnn.tflite.graph.graph import DType, Graph, Op
from pytest_qnn.tflite.graph.kinds import OPS, Kind, asked_about, decode_graph, graph_of, size_of
from pytest_qnn.tflite.graph.scales import CLASSES, NONE, TWO_SHAPES, all_and, scale_of
from pytest_qnn.tflite.graph.strategies import graphs, graphs_with_claims, single_op_graphs
from pytest_qnn.tflite.numerics.kernels import run_graph

MANY = settings(deadline=None, max_examples=200, phases=(Phase.generate, Phase.shrink), database=None)
CHOICES: tuple[tuple[DType, tuple[Op, ...]], ...] = (("float32", OPS["float32"]), ("int8", OPS["int8"]))


def smallest(wanted: Callable[[Graph], bool]) -> Graph:
    return find(graphs(), wanted, settings=settings(deadline=None, max_examples=2000, database=None))


def has(graph: Graph, op: Op) -> bool:
    return any(node.op == op for node in graph.nodes)


@MANY
@given(graphs(max_nodes=30))
def test_nodes_read_only_what_exists_before_them(graph: Graph) -> None:
    known = set(graph.inputs) | {i for i, tensor in enumerate(graph.tensors) if tensor.data is not None}
    for node in graph.nodes:
        assert set(node.inputs) <= known
        assert not set(node.outputs) & known
        known |= set(node.outputs)
    assert known == set(range(len(graph.tensors)))
    assert set(graph.outputs) <= known


@MANY
@given(graphs(max_nodes=30))
def test_whatever_nobody_reads_is_an_output_and_outputs_are_named_once(graph: Graph) -> None:
    read = {index for node in graph.nodes for index in node.inputs}
    assert set(range(len(graph.tensors))) - read <= set(graph.outputs)
    assert len(set(graph.outputs)) == len(graph.outputs) > 0
    assert not any(graph.tensors[index].data for index in graph.outputs)


UNITS = 5
"""Columns that FULLY_CONNECTED makes of one at most; all other operators but CONV_2D keep to MAX_ELEMENTS."""


@MANY
@given(graphs(max_nodes=30))
def test_constants_fill_their_shapes_and_shapes_stay_small(graph: Graph) -> None:
    width = {"float32": 4, "int8": 1, "int32": 4}
    for tensor in graph.tensors:
        assert all(length >= 1 for length in tensor.shape)
        if tensor.data is None:
            assert 1 <= len(tensor.shape) <= 4
            assert prod(tensor.shape) <= MAX_ELEMENTS * UNITS
        else:
            assert len(tensor.data) == prod(tensor.shape) * width[tensor.dtype]


@MANY
@given(graphs(max_nodes=40, dtypes=("float32",)), st.sampled_from(["mixed", "extreme"]))
def test_float_graphs_stay_finite_for_extreme_inputs(graph: Graph, fill: str) -> None:
    case = DelegateCase(graph, data_seed=1, fill=fill)  # type: ignore[arg-type] # one of Fill's names
    for value in run_graph(graph, inputs_of(case)):
        assert np.isfinite(value).all()


@MANY
@given(graphs(max_nodes=30, dtypes=("int8",)))
def test_int8_graphs_keep_the_quantisation_specification(graph: Graph) -> None:
    tensors = graph.tensors
    for node in graph.nodes:
        first, output = tensors[node.inputs[0]], tensors[node.outputs[0]]
        if node.op in ("RESHAPE", "MAXIMUM", "CONCATENATION"):
            operands = node.inputs[:1] if node.op == "RESHAPE" else node.inputs
            assert {(tensors[i].scales, tensors[i].zero_points) for i in operands} == {
                (output.scales, output.zero_points)
            }
        if node.op in ("FULLY_CONNECTED", "CONV_2D"):
            weights, bias = tensors[node.inputs[1]], tensors[node.inputs[2]]
            assert not any(weights.zero_points)
            assert len(weights.scales) in (1, weights.shape[0])
            assert -128 not in np.frombuffer(weights.data or b"", np.int8)
            products = np.float32(first.scales[0]) * np.array(weights.scales, np.float32)
            assert np.allclose(bias.scales, products, rtol=1e-6)
            assert bias.dtype == "int32"


def test_zero_bytes_are_the_simplest_graph() -> None:
    graph, claims = decode_graph(bytes(1000), CHOICES, 1, 1, 20)
    assert [node.op for node in graph.nodes] == ["RELU"]
    assert [tensor.shape for tensor in graph.tensors] == [(2,), (2,)]
    assert claims == ((),)


@pytest.mark.parametrize("op", part(OPS["float32"], 2, 3))
def test_a_failure_of_one_operator_shrinks_to_that_node_alone(op: Op) -> None:
    graph = smallest(lambda graph: has(graph, op))
    assert [node.op for node in graph.nodes] == [op]
    assert graph.tensors[graph.inputs[0]].dtype == "float32"
    assert prod(graph.tensors[graph.nodes[0].outputs[0]].shape) <= 4


def test_a_failure_of_two_operators_shrinks_to_two_nodes() -> None:
    graph = smallest(lambda graph: has(graph, "CONV_2D") and has(graph, "CONCATENATION"))
    assert len(graph.nodes) == 2


def test_a_failure_that_needs_int8_shrinks_to_one_node() -> None:
    graph = smallest(lambda graph: graph.tensors[graph.inputs[0]].dtype == "int8")
    assert [node.op for node in graph.nodes] == ["RELU"]


@MANY
@given(graphs(min_nodes=5, max_nodes=7))
def test_the_number_of_nodes_is_within_its_limits(graph: Graph) -> None:
    assert 5 <= len(graph.nodes) <= 7


@MANY
@given(single_op_graphs(ops=("MEAN", "CONV_2D"), dtypes=("int8",)))
def test_a_single_op_graph_has_one_of_the_wanted_operators(graph: Graph) -> None:
    assert len(graph.nodes) == 1
    assert graph.nodes[0].op in ("MEAN", "CONV_2D")
    assert graph.tensors[graph.nodes[0].outputs[0]].dtype == "int8"


@MANY
@given(graphs_with_claims(3, max_nodes=12))
def test_claims_are_ascending_node_indices(drawn: tuple[Graph, tuple[tuple[int, ...], ...]]) -> None:
    graph, claims = drawn
    assert len(claims) == 3
    for claim in claims:
        assert list(claim) == sorted(set(claim) & set(range(len(graph.nodes))))


def features(graph: Graph) -> set[str]:
    """What of the wanted variety this graph shows."""
    readers = Counter(index for node in graph.nodes for index in set(node.inputs))
    made = {node.outputs[0] for node in graph.nodes}
    dtype = graph.tensors[graph.inputs[0]].dtype
    found = {f"{node.op} {dtype}" for node in graph.nodes} | {node.activation for node in graph.nodes}
    found |= {"fan-out"} if any(readers[index] > 1 for index in made) else set()
    found |= {"inputs"} if len(graph.inputs) > 1 else set()
    found |= {"outputs"} if len(graph.outputs) > 1 else set()
    found |= {"read output"} if any(readers[index] for index in graph.outputs if index in made) else set()
    found |= {"input is output"} if set(graph.inputs) & set(graph.outputs) else set()
    found |= {"odd size"} if any(prod(graph.tensors[index].shape) % 2 for index in made) else set()
    found |= {f"rank {len(graph.tensors[index].shape)}" for index in made}
    found |= {"valid"} if any(not node.same_padding for node in graph.nodes) else set()
    found |= {"stride"} if any(node.stride != (1, 1) for node in graph.nodes) else set()
    found |= {"dilation"} if any(node.dilation != (1, 1) for node in graph.nodes) else set()
    found |= {"per channel"} if any(len(tensor.scales) > 1 for tensor in graph.tensors) else set()
    return found


def test_three_hundred_random_graphs_show_all_of_the_wanted_variety() -> None:
    random = np.random.default_rng(1)
    seen: set[str] = set()
    for _ in range(300):
        seen |= features(decode_graph(random.bytes(size_of(20, 0)), CHOICES, 0, 1, 20)[0])
    wanted = {f"{op} {dtype}" for dtype, ops in OPS.items() for op in ops}
    wanted |= {"NONE", "RELU", "RELU6", "fan-out", "inputs", "outputs", "read output", "input is output"}
    wanted |= {
        "odd size",
        "rank 1",
        "rank 2",
        "rank 3",
        "rank 4",
        "valid",
        "stride",
        "dilation",
        "per channel",
    }
    assert wanted - seen == set()


def broadcast(graph: Graph) -> set[str]:
    """Which operands are broadcast in nodes of two inputs that are no constants, and of what rank."""
    found = set()
    for node in graph.nodes:
        operands, result = [graph.tensors[index] for index in node.inputs], graph.tensors[node.outputs[0]]
        if len(operands) == 2 and all(operand.data is None for operand in operands):
            smaller = [operand.shape != result.shape for operand in operands]
            found |= {f"{result.dtype} rank {len(result.shape)} {smaller}"} if any(smaller) else set()
    return found


@pytest.mark.parametrize("wanted", [False, True], ids=["any", "claimed"])
def test_graphs_of_two_shapes_broadcast_either_operand_and_both_at_once(*, wanted: bool) -> None:
    random = np.random.default_rng(1)
    scale = next(scale for scale in CLASSES if scale.partner == "other shape")
    seen: set[str] = set()
    for dtype, ops in CHOICES:
        known = [kind for kind in GRID if kind.dtype == dtype and not kind.zero_points]
        wants = {rank: tuple(kind for kind in known if kind.rank == rank) for rank in (1, 2, 3, 4)}
        kind = Kind(dtype, [wants] if wanted else ops)
        for _ in range(150):
            graph, _ = decode_graph(random.bytes(size_of(3, 0)), [kind], 0, 1, 3, scale)
            check_graph(graph)
            seen |= broadcast(graph)
    pairs = ([True, False], [False, True], [True, True])
    assert seen >= {
        f"{dtype} rank {rank} {each}" for dtype, _ in CHOICES for rank in (2, 3, 4) for each in pairs
    }


def test_who_claims_no_broadcast_gets_none() -> None:
    random = np.random.default_rng(1)
    scale = next(scale for scale in CLASSES if scale.partner == "other shape")
    wants = {2: (Combination("ADD", "float32", 2),)}
    for _ in range(50):
        data = random.bytes(size_of(3, 0))
        assert not broadcast(decode_graph(data, [Kind("float32", [wants])], 0, 1, 3, scale)[0])


def test_a_reshape_whose_operand_is_needed_elsewhere_is_an_output() -> None:
    random = np.random.default_rng(2)
    checked = 0
    for _ in range(100):
        graph, _ = decode_graph(random.bytes(size_of(20, 0)), CHOICES, 0, 1, 20)
        readers = Counter(index for node in graph.nodes for index in node.inputs)
        for node in graph.nodes:
            if node.op == "RESHAPE" and (readers[node.inputs[0]] > 1 or node.inputs[0] in graph.outputs):
                assert node.outputs[0] in graph.outputs
                checked += 1
    assert checked > 20


@pytest.mark.parametrize(("least", "most"), [(0, 3), (4, 3), (1, 1001)])
def test_impossible_numbers_of_nodes_are_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match="nodes"):
        graphs(min_nodes=least, max_nodes=most)


def test_a_dtype_without_any_of_the_operators_is_refused() -> None:
    with pytest.raises(ValueError, match="int8"):
        graphs(ops=("NEG",), dtypes=("int8",))


def test_more_claims_than_a_record_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="claims"):
        graphs_with_claims(9)


@pytest.mark.parametrize(
    ("mode", "least", "most"), [(0, 0.4, 0.6), (1, 0.65, 0.85), (2, 0.15, 0.35), (3, 0.95, 1)]
)
def test_claims_take_the_share_of_nodes_that_their_mode_names(mode: int, least: float, most: float) -> None:
    random = np.random.default_rng(4)
    for claim in (0, 7):
        data = bytes([255, 0, 0, 0, 0]) + bytes([mode] * 8) + random.bytes(size_of(500, 8))
        graph, claims = decode_graph(data, CHOICES, 8, 500, 500)
        assert least <= len(claims[claim]) / len(graph.nodes) <= most


@settings(deadline=None, max_examples=30)
@given(graphs(ops=("NEG",), max_nodes=3))
def test_a_dtype_without_any_of_the_operators_is_passed_over(graph: Graph) -> None:
    assert {node.op for node in graph.nodes} == {"NEG"}
    assert graph.tensors[graph.inputs[0]].dtype == "float32"


@pytest.mark.parametrize("floor", FLOORS)
@pytest.mark.parametrize("kind", [kind for kind in GRID if kind.op == "CONV_2D"], ids=str)
def test_a_target_is_asked_about_windows_that_lie_inside_the_image(kind: Combination, floor: Floor) -> None:
    graph = asked_about(kind, floor)
    assert len(graph.nodes) == len(graph_of(kind, floor).nodes)
    for node in graph.nodes:
        assert combination_of(graph, node) == kind
        image, weights = (graph.tensors[index].shape for index in node.inputs[:2])
        for axis in (1, 2):
            assert 1 < (weights[axis] - 1) * node.dilation[axis - 1] + 1 <= image[axis]


def test_of_other_operators_it_is_asked_about_the_simplest_node() -> None:
    assert all(asked_about(kind) == graph_of(kind) for kind in GRID if kind.op != "CONV_2D")


def test_a_class_that_is_named_more_than_once_takes_as_much_of_what_is_plain() -> None:
    usual = Counter(scale_of(byte).name for byte in range(256))
    more = Counter(scale_of(byte, only=all_and(TWO_SHAPES, TWO_SHAPES)).name for byte in range(256))
    assert more[TWO_SHAPES] == 3 * usual[TWO_SHAPES] == 48
    assert more[NONE.name] == usual[NONE.name] - 32
    assert {name: count for name, count in more.items() if name not in (TWO_SHAPES, NONE.name)} == {
        name: count for name, count in usual.items() if name not in (TWO_SHAPES, NONE.name)
    }
