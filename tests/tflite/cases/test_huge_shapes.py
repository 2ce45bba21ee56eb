from __future__ import annotations

import math

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase

from pytest_qnn.core.bounds import BadCase
from pytest_qnn.core.engine import judge_case
from pytest_qnn.core.verdict import Examined
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import (
    IMPOSSIBLE,
    Allocate,
    Invoke,
    Open,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.cases.valid import check_script
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import DType, Graph, Node, Op, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.rules.err import rules as err
from pytest_qnn.tflite.rules.err.rules import hostile
from pytest_qnn.tflite.rules.rsz.rules import alternating
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.strategies.large import plain_kinds, two_nodes
from pytest_qnn.tflite.target import open_delegate_target

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
T = Tensor((2, 2))
ABS: Op = "ABS"
FLOAT: DType = "float32"


def grown(runtime: str) -> list[ScriptCase]:
    facts = DelegateFacts(runtime=runtime)
    return [err.grown(facts, plain_kinds(facts), seed) for seed in range(200)]


def largest(case: ScriptCase) -> int:
    return max(math.prod(step.shape) for step in case.steps if isinstance(step, Resize))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_millions_of_elements_are_among_the_hostile_inputs(runtime: str) -> None:
    found: list[object] = []

    @hypothesis.seed(1)
    @hypothesis.settings(
        max_examples=60, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @hypothesis.given(hostile(DelegateFacts(runtime=runtime)))
    def collect(case: object) -> None:
        found.append(case)

    collect()
    scripts = [case for case in found if isinstance(case, ScriptCase)]
    assert scripts
    assert all(largest(case) > 1 << 20 for case in scripts)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_huge_case_can_be_replayed_from_a_file(runtime: str) -> None:
    for case in grown(runtime):
        check_script(case)


def test_the_impossible_is_asked_for_only_where_the_runtime_answers() -> None:
    asked = {
        runtime: {largest(c) for c in grown(runtime) if largest(c) >= IMPOSSIBLE} for runtime in RUNTIMES
    }
    assert asked == {
        "tflite_runtime": set(),
        "ai_edge_litert": {math.prod(shape) for shape in err.IMPOSSIBLE},
    }


def test_nothing_is_invoked_on_impossible_shapes() -> None:
    for case in grown("ai_edge_litert"):
        if largest(case) >= IMPOSSIBLE:
            resizes = [n for n, step in enumerate(case.steps) if isinstance(step, Resize)]
            assert not any(isinstance(step, Invoke) for step in case.steps[resizes[0] : resizes[1]])


def test_a_script_from_a_file_cannot_take_more_memory_than_that() -> None:
    graph = two_nodes(ABS, T)
    check_script(ScriptCase((graph,), (Resize("i0", 0, (1 << 22, 1)), Invoke("i0"))))
    with pytest.raises(BadCase, match="elements"):
        check_script(ScriptCase((graph,), (Resize("i0", 0, (1 << 27, 1)), Invoke("i0"))))
    with pytest.raises(BadCase, match="large tensors"):
        check_script(ScriptCase((graph,), (Resize("i0", 0, (1 << 22, 1)), Repeat(17, (Invoke("i0"),)))))


def test_only_element_wise_graphs_grow_that_far() -> None:
    mean = Graph(
        (T, Tensor((1,), "int32", data=b"\1\0\0\0"), Tensor((2,))), (Node("MEAN", (0, 1), (2,)),), (0,), (2,)
    )
    with pytest.raises(BadCase, match="a dimension"):
        check_script(ScriptCase((mean,), (Resize("i0", 0, (1 << 21, 2)),)))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_calls_of_kernels_are_counted_while_the_input_is_large(runtime: str) -> None:
    facts = DelegateFacts(runtime=runtime)
    target = open_delegate_target([("reference", {})], runtime, "off", 10.0)
    case = err.grown(facts, [(FLOAT, ABS)], 1)
    outcome = judge_case(catalogue()["ERR-04"], target, case)
    assert outcome == Examined(2, "calls of kernels with hostile inputs")


def test_2_14_throws_where_2_3_answers_with_an_error() -> None:
    """Without any delegate: so no delegate is shown such shapes on 2.14 (docs/reference/runtimes.md)."""
    expected = {"tflite_runtime": MemoryError, "ai_edge_litert": RuntimeError}
    for runtime, error in expected.items():
        interpreter = load_runtime(runtime).interpreter(
            emit(two_nodes(ABS, T)),
            default_delegates=False,
            reference_kernels=False,
            threads=1,
            own=True,
        )
        interpreter.resize_tensor_input(0, err.IMPOSSIBLE[0])
        with pytest.raises(error):
            interpreter.allocate_tensors()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_impossible_is_not_filled_nor_asked_of_a_runtime_that_throws(runtime: str) -> None:
    target = open_delegate_target([("reference", {})], runtime, "off", 10.0)
    steps = (Open("i0"), Resize("i0", 0, err.IMPOSSIBLE[0]), Allocate("i0"), SetInputs("i0"))
    seen = target.run(ScriptCase((two_nodes(ABS, T),), steps)).steps
    assert [bool(step.skipped) for step in seen] == [
        False,
        runtime == "tflite_runtime",
        False,
        not seen[1].skipped,
    ]


def test_rounds_of_resizes_can_be_replayed_from_a_file() -> None:
    @hypothesis.seed(1)
    @hypothesis.settings(
        max_examples=60, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @hypothesis.given(alternating(DelegateFacts()))
    def check(case: ScriptCase) -> None:
        check_script(case)

    check()
