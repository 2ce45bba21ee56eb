from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pytest_qnn.core.bounds import BadCase
from pytest_qnn.tflite.cases.edits import (
    AnyEdit,
    Copies,
    CustomOperator,
    NoNodes,
    StatedEdges,
    StatedOperands,
    StatedShape,
    edited,
    fewer,
    renumbered,
)
from pytest_qnn.tflite.cases.file import check_case
from pytest_qnn.tflite.cases.models import graphs_of, models_of
from pytest_qnn.tflite.cases.reduce import smaller_script
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    MakeDelegate,
    Open,
    ScriptCase,
    without_delegates,
    without_edges,
)
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.runtime.runtime import load_runtime

FLOATS = np.arange(1, 4, dtype="<f4").tobytes()
GRAPH = Graph(
    (Tensor((2, 3)), Tensor((3,), data=FLOATS), Tensor((2, 3)), Tensor((2, 3))),
    (Node("ADD", (0, 1), (2,)), Node("RELU", (2,), (3,))),
    (0,),
    (3,),
)
STEPS = (MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"), Allocate("i0"), Open("i1", 1))


def case(*edits: AnyEdit) -> ScriptCase:
    return ScriptCase((GRAPH, GRAPH), STEPS, edits=edits)


def test_a_stated_shape_is_that_of_the_file_and_the_graph_stays() -> None:
    hostile = case(StatedShape(2, (7,)))
    first, second = graphs_of(hostile)
    assert first.tensors[2].shape == (7,)
    assert second == GRAPH
    assert models_of(hostile) == [emit(first), emit(GRAPH)]


@pytest.mark.parametrize(("shape", "data"), [((1,), FLOATS[:4]), ((5,), FLOATS + bytes(8)), ((-1,), FLOATS)])
def test_contents_of_a_constant_follow_its_stated_shape(shape: tuple[int, ...], data: bytes) -> None:
    assert edited(GRAPH, [StatedShape(1, shape)]).tensors[1].data == data


def test_copies_read_what_the_one_before_gives() -> None:
    many = edited(GRAPH, [Copies(3)])
    assert [node.op for node in many.nodes] == ["ADD", "RELU"] * 3
    assert [node.inputs for node in many.nodes] == [(0, 1), (2,), (3, 1), (4,), (5, 1), (6,)]
    assert many.outputs == (7,)
    assert fewer(Copies(3)) == (Copies(1),)
    assert fewer(StatedShape(0, (1,))) == ()


@pytest.mark.parametrize("runtime", ["tflite_runtime", "ai_edge_litert"])
def test_a_custom_operator_has_its_name_in_both_runtimes(runtime: str) -> None:
    model = models_of(case(CustomOperator(1, "UnknownThing")))[0]
    interpreter = load_runtime(runtime).interpreter(model)
    with pytest.raises(RuntimeError, match="custom op: UnknownThing"):
        interpreter.allocate_tensors()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (StatedShape(4, (1,)), "edit 0 states a shape of tensor 4"),
        (StatedOperands(2, (0,)), "edit 0 is of node 2"),
        (StatedOperands(1, (4,)), "edit 0 states the operand 4"),
        (CustomOperator(0, "TFLite_Detection_PostProcess"), "may know"),
        (Copies(1 << 14), "Expected `int` <= 8192"),
        (StatedOperands(0, (-2,)), "Expected `int` >= -1"),
        (StatedShape(0, (1 << 31,)), "Expected `int` <= 2147483647"),
    ],
)
def test_an_edit_of_what_there_is_not_is_refused(edit: AnyEdit, said: str) -> None:
    with pytest.raises((BadCase, msgspec.ValidationError), match=said):
        check_case(msgspec.json.decode(msgspec.json.encode(case(edit)), type=ScriptCase))


def test_edits_survive_a_file() -> None:
    hostile = case(
        StatedShape(0, (-1,)), StatedOperands(0, (0, -1)), CustomOperator(1, "UnknownX"), Copies(2)
    )
    assert msgspec.json.decode(msgspec.json.encode(hostile), type=ScriptCase) == hostile
    check_case(hostile)


def test_smaller_cases_edit_what_is_left() -> None:
    hostile = case(StatedShape(3, (7,)), StatedOperands(0, (0, -1)))
    left = {found.edits for found in smaller_script(hostile)}
    assert () not in left
    assert (StatedShape(3, (7,)),) in left
    assert (StatedOperands(0, (0, -1)),) in left
    assert (StatedShape(1, (7,)),) in left  # RELU alone, with its operand as an input
    for found in smaller_script(hostile):
        check_case(found)


def test_an_edit_of_what_is_gone_is_gone() -> None:
    edits = [StatedShape(2, (7,)), CustomOperator(1, "UnknownX"), StatedOperands(1, (2,)), Copies(2)]
    assert renumbered(edits, {0: 0}, {0: 0}) == (Copies(2),)
    edges = (StatedEdges(((2, 0), (1, 0))),)
    assert renumbered(edges, {}, {0: 0, 2: 1}) == (StatedEdges(((1, 0),)),)
    assert renumbered(edges, {}, {0: 0}) == ()
    assert renumbered(edits, {2: 0, 3: 1}, {1: 0}) == (
        StatedShape(0, (7,)),
        CustomOperator(0, "UnknownX"),
        StatedOperands(0, (0,)),
        Copies(2),
    )


def test_stated_edges_are_those_of_the_file_and_can_be_left_out() -> None:
    hostile = case(StatedEdges(((1, 0), (0, 0))), Copies(2))
    assert graphs_of(hostile)[0].control_edges == ((1, 0), (0, 0))
    assert without_edges(hostile).edits == (Copies(2),)
    assert fewer(hostile.edits[0]) == (StatedEdges(((1, 0),)), StatedEdges(((0, 0),)))
    assert fewer(StatedEdges(((1, 0),))) == ()
    assert msgspec.json.decode(msgspec.json.encode(hostile), type=ScriptCase) == hostile
    check_case(hostile)


def test_a_graph_without_nodes_gives_its_input() -> None:
    (empty, _), (beside, _) = (graphs_of(case(edit)) for edit in (NoNodes(), NoNodes("beside")))
    assert (empty.nodes, empty.inputs, empty.outputs) == ((), (0,), (0,))
    assert beside.nodes == GRAPH.nodes
    assert not beside.subgraphs[0].nodes
    check_case(case(NoNodes(), NoNodes("beside")))


def test_without_delegates_the_model_is_the_same() -> None:
    alone = without_delegates(case(Copies(2)))
    assert alone.steps == (Open("i0"), Allocate("i0"), Open("i1", 1))
    assert alone.edits == (Copies(2),)
