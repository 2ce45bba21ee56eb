from __future__ import annotations

import pytest

from pytest_qnn.case_file import check
from pytest_qnn.core.bounds import BadCase
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
        (Repeat(0, (Invoke("i0"),)), "times is 0"),
        (Repeat(1 << 40, (Invoke("i0"),)), "times is 1099511627776"),
        (Repeat(4001, (Invoke("i0"),)), "4001 invokes are more than 4000"),
        (Parallel(((Repeat(200, (Open("i0"),) * 60),),) * 2), "more than 20000 steps"),
        (Parallel(((Invoke("i0"),),) * 17), "the number of branches is 17"),
        (Parallel(()), "the number of branches is 0"),
        (Open("i0", threads=1 << 20), "step 0: threads is 1048576"),
        (Open("../../x"), "'../../x' is no name"),
        (Open("i0", graph=-1), "step 0: graph is -1"),
        (Place("i0", -1), "step 0: tensor is -1"),
        (Place("i0", 0, extra=1 << 40), "step 0: extra is 1099511627776"),
        (Place("i0", 0, misalign=64), "step 0: misalign is 64"),
        (Resize("i0", 0, (1 << 20, 1)), "step 0: a dimension is 1048576"),
        (Resize("i0", 0, (1,) * 9), "step 0: the number of dimensions is 9"),
        (Resize("i0", 0, (1, 3)), "step 0: more than the first dimension changes"),
        (Resize("i0", 0, (0, 2)), "step 0: an empty shape"),
        (SetInputs("i0", 1 << 40), "step 0: seed is 1099511627776"),
        (Poison("i0", 256), "step 0: byte is 256"),
        (MakeDelegate("d0", flags=8), "step 0: flags is 8"),
        (MakeDelegate("d0", claim=(-1,)), "step 0: a claimed node is -1"),
        (MakeDelegate("d0", options=(("k", "v"),) * 17), "step 0: more than 16 options"),
    ],
)
def test_a_script_case_beyond_the_limits(step: AnyScriptStep, said: str) -> None:
    with pytest.raises(BadCase) as raised:
        check(ScriptCase((GRAPH,), (step,)))
    assert str(raised.value).startswith(said)


def test_a_script_has_graphs_but_not_too_many_nor_too_many_steps() -> None:
    for graphs, steps, said in (
        ((), 0, "the number of graphs is 0"),
        ((GRAPH,) * 9, 0, "the number of graphs is 9"),
        ((GRAPH,), 401, "401 steps are more than 400"),
    ):
        with pytest.raises(BadCase, match=said):
            check(ScriptCase(graphs, (Open("i0"),) * steps))


def test_a_script_does_not_broadcast_to_more_than_a_machine_has() -> None:
    pair = Graph((Tensor((1, 2)),) * 3, (Node("ADD", (0, 1), (2,)),), (0, 1), (2,))
    check(ScriptCase((pair,), (Resize("i0", 0, (1024, 1)), Resize("i0", 1, (1, 1024)))))
    with pytest.raises(BadCase, match="a tensor may have 2097152 elements"):
        check(ScriptCase((pair,), (Resize("i0", 0, (1024, 1, 2)), Resize("i0", 1, (1, 1024, 1)))))
