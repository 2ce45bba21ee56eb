from __future__ import annotations

import json

import msgspec
import pytest
from kept import keep
from reducing import smaller

from pytest_qnn.core.engine import judge, judge_case
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.verdict import Examined, Outcome
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Parallel,
    Place,
    Read,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.target import open_delegate_target

T = Tensor((2,))
CHAIN = Graph(
    (T, T, T, T), (Node("ABS", (0,), (1,)), Node("NEG", (1,), (2,)), Node("ABS", (2,), (3,))), (0,), (3,)
)
START = (MakeDelegate("d0", claim=(0, 2)), Open("i0"), Apply("i0", "d0"), Allocate("i0"))


def reduced(*steps: AnyScriptStep) -> list[ScriptCase]:
    return list(smaller(ScriptCase((CHAIN,), steps)))


def stories(*steps: AnyScriptStep) -> set[tuple[AnyScriptStep, ...]]:
    return {case.steps for case in reduced(*steps)}


def test_each_step_may_go() -> None:
    assert START[:3] in stories(*START)


def test_what_stands_on_an_interpreter_goes_with_it() -> None:
    assert (START[0],) in stories(*START)


def test_steps_take_the_place_of_the_repeat_that_holds_them() -> None:
    inside = (Invoke("i0"), Read("i0"))
    found = stories(*START, Repeat(8, inside))
    assert (*START, *inside) in found
    assert (*START, Repeat(2, inside)) in found
    assert (*START, Repeat(8, inside[:1])) in found


def test_a_branch_takes_the_place_of_all() -> None:
    branches = ((Invoke("i0"),), (Repeat(4, (Invoke("i1"),)),))
    found = stories(*START, Parallel(branches))
    assert (*START, Invoke("i0")) in found
    assert (*START, Parallel((branches[0], (Repeat(2, (Invoke("i1"),)),)))) in found


def test_graphs_of_which_no_step_makes_an_interpreter_go() -> None:
    steps = (*START, Open("i1", 1), Open("i0", 0))
    found = [len(case.graphs) for case in smaller(ScriptCase((CHAIN,) * 4, steps)) if case.steps == steps]
    assert set(found) == {2, 4}
    unused = [len(case.graphs) for case in smaller(ScriptCase((CHAIN,) * 4, START)) if case.steps == START]
    assert 1 in unused


def test_tensors_and_nodes_keep_their_meaning_in_a_smaller_graph() -> None:
    steps = (*START, Place("i0", 3), Place("i0", 1), Read("i0", (2, 3)), Resize("i0", 0, (4,)))
    found = [case for case in reduced(*steps) if [node.op for node in case.graphs[0].nodes] == ["NEG", "ABS"]]
    joined = next(case for case in found if case.graphs[0].inputs == (0,))
    left = (Place("i0", 2), Read("i0", (1, 2)), Resize("i0", 0, (4,)))  # tensor 1 is gone
    assert joined.steps == (MakeDelegate("d0", claim=(1,)), *START[1:], *left)


def test_numbers_become_plain() -> None:
    found = stories(*START, Place("i0", 0, extra=64), SetInputs("i0", 9, "ramp"))
    assert (*START, Place("i0", 0), SetInputs("i0", 9, "ramp")) in found
    assert (*START, Place("i0", 0, extra=64), SetInputs("i0", 0, "ramp")) in found
    assert (*START, Place("i0", 0, extra=64), SetInputs("i0", 9)) in found


@pytest.mark.parametrize(
    ("mutant", "rule_id", "most"), [("writes-tail", "MEM-03", 9), ("fills-inside", "MEM-10", 9)]
)
def test_a_finding_is_reduced_to_what_it_needs(mutant: str, rule_id: str, most: int) -> None:
    target = keep(open_delegate_target([(f"mutant:{mutant}", {})], "auto", "off", 10.0))
    verdict = judge(catalogue()[rule_id], target, PROFILES["default"], seed=1)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.finding is not None
    assert verdict.finding.case.count('"do"') <= most
    assert verdict.finding.case.count('"op"') <= 2


@pytest.mark.parametrize(
    ("mutant", "rule_id", "held"),
    [
        ("once-init", "OWN-05", ["make-delegate", "close", "destroy-delegate", "make-delegate", "apply"]),
        ("runtime-applies-xnnpack", "XNN-03", ["open", "apply", "allocate"]),
        ("recycles-an-output", "MEM-16", ["set-inputs", "invoke", "read", "set-inputs", "invoke", "read"]),
    ],
)
def test_what_the_sentence_is_about_stays_in_the_smallest_case(
    mutant: str, rule_id: str, held: list[str]
) -> None:
    """Reduction had taken it away: the end of the first delegate, allocate_tensors, and the inputs."""
    target = keep(open_delegate_target([(f"mutant:{mutant}", {})], "auto", "off", 10.0))
    verdict = judge(catalogue()[rule_id], target, PROFILES["default"], seed=1)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.finding is not None
    steps = iter(step["do"] for step in json.loads(verdict.finding.case)["steps"])
    assert all(name in steps for name in held), verdict.finding.case
    conforming = keep(open_delegate_target([("reference", {})], "auto", "off", 10.0))
    case = msgspec.json.decode(verdict.finding.case, type=ScriptCase)
    assert isinstance(judge_case(catalogue()[rule_id], conforming, case), Examined)
