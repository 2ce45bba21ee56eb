from __future__ import annotations

import case_mutations
import pytest

from pytest_qnn.core.bounds import BadCase
from pytest_qnn.tflite.cases.file import check_case
from pytest_qnn.tflite.cases.script import (
    AnyScriptStep,
    Invoke,
    MakeDelegate,
    Open,
    Parallel,
    Place,
    Poison,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor

GRAPH = Graph(
    (Tensor((1, 2)), Tensor((1, 2)), Tensor((2,), "int32", data=b"\x02\0\0\0\x01\0\0\0"), Tensor((2, 1))),
    (Node("ABS", (0,), (1,)), Node("RESHAPE", (1, 2), (3,))),
    (0,),
    (3,),
)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Repeat(0, (Invoke("i0"),)), "Expected `int` >= 1 - at `$.steps[0].times`"),
        (Repeat(1 << 40, (Invoke("i0"),)), "Expected `int` <= 20000 - at `$.steps[0].times`"),
        (Repeat(4001, (Invoke("i0"),)), "4001 invokes are more than 4000"),
        (Parallel(((Repeat(200, (Open("i0"),) * 60),),) * 2), "more than 20000 steps"),
        (Parallel(((Invoke("i0"),),) * 17), "Expected `array` of length <= 16 - at `$.steps[0].branches`"),
        (Parallel(()), "Expected `array` of length >= 1 - at `$.steps[0].branches`"),
        (Open("i0", threads=1 << 20), "Expected `int` <= 8 - at `$.steps[0].threads`"),
        (Open("../../x"), "'../../x' is no name"),
        (Open("i0", graph=-1), "Expected `int` >= 0 - at `$.steps[0].graph`"),
        (Place("i0", -1), "Expected `int` >= 0 - at `$.steps[0].tensor`"),
        (Place("i0", 0, extra=1 << 40), "Expected `int` <= 1048576 - at `$.steps[0].extra`"),
        (Place("i0", 0, misalign=64), "Expected `int` <= 63 - at `$.steps[0].misalign`"),
        (Resize("i0", 0, (1 << 20, 1)), "step 0: a dimension is 1048576"),
        (Resize("i0", 0, (1,) * 9), "Expected `array` of length <= 4 - at `$.steps[0].shape`"),
        (Resize("i0", 0, (1, 3)), "step 0: more than the first dimension changes"),
        (Resize("i0", 0, (0, 2)), "step 0: an empty shape"),
        (SetInputs("i0", 1 << 40), "Expected `int` <= 4294967295 - at `$.steps[0].seed`"),
        (Poison("i0", 256), "Expected `int` <= 255 - at `$.steps[0].byte`"),
        (MakeDelegate("d0", flags=8), "Expected `int` <= 7 - at `$.steps[0].flags`"),
        (MakeDelegate("d0", claim=(-1,)), "Expected `int` >= 0 - at `$.steps[0].claim[0]`"),
        (
            MakeDelegate("d0", options=(("k", "v"),) * 17),
            "Expected `array` of length <= 16 - at ",
        ),
    ],
)
def test_a_script_case_beyond_the_limits(step: AnyScriptStep, said: str) -> None:
    assert case_mutations.refusal(ScriptCase((GRAPH,), (step,))).startswith(said)


def test_a_script_has_graphs_but_not_too_many_nor_too_many_steps() -> None:
    for graphs, steps, said in (
        ((), 0, "Expected `array` of length >= 1 - at `$.graphs`"),
        ((GRAPH,) * 9, 0, "Expected `array` of length <= 8 - at `$.graphs`"),
        ((GRAPH,), 801, "801 steps are more than 800"),
    ):
        assert case_mutations.refusal(ScriptCase(graphs, (Open("i0"),) * steps)) == said


def test_a_script_does_not_broadcast_to_more_than_a_machine_has() -> None:
    pair = Graph((Tensor((1, 2)),) * 3, (Node("ADD", (0, 1), (2,)),), (0, 1), (2,))
    check_case(ScriptCase((pair,), (Resize("i0", 0, (1024, 1)), Resize("i0", 1, (1, 1024)))))
    with pytest.raises(BadCase, match="a tensor may have 8388608 elements"):
        check_case(ScriptCase((pair,), (Resize("i0", 0, (1024, 1, 8)), Resize("i0", 1, (1, 1024, 1)))))
