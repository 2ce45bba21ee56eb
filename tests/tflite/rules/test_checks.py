from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_qnn.core.verdict import Examined, Unsupported, Violation
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.checks.judging import draw, freed_once
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.trace import Applied, DelegateTrace, Event, Kernel, PlanNode
from pytest_qnn.tflite.trace import Replace as Claim

GRAPH = Graph(
    tensors=(Tensor((2,)), Tensor((2,)), Tensor((2,))),
    nodes=(Node("RELU", (0,), (1,)), Node("NEG", (1,), (2,))),
    inputs=(0,),
    outputs=(2,),
)
CASE = DelegateCase(GRAPH, (Application(),))
RELU = PlanNode(0, 19, (0,), (1,), -1)
NEG = PlanNode(1, 59, (1,), (2,), -1)
DELEGATED = PlanNode(2, 51, (1,), (2,), 0, "mine")
INIT = Event("init", 0, 0)
FREE = Event("free", 0, 0)


def _applied(**changes: object) -> Applied:
    mine = Applied(
        name="mine",
        is_target=True,
        step=0,
        ok=True,
        message="",
        plan_seen=(RELU, NEG),
        prepared=True,
        prepare_status=0,
        replaces=(Claim((1,), 0),),
        plan_after=(RELU, DELEGATED),
    )
    return replace(mine, **changes)


def _array(*values: float) -> Array:
    return Array.of(np.array(values, np.float32))


TRACE = DelegateTrace(
    plan_before=(RELU, NEG),
    applied=(_applied(),),
    kernels=(Kernel(0, 0, (1,), (1,), (2,)),),
    events=(INIT, Event("prepare", 0, 0), Event("invoke", 0, 0), FREE),
    plan=(RELU, DELEGATED),
    invoke_errors=("",),
    inputs=(_array(1, -2),),
    outputs=((_array(-1, 0),),),
    inputs_after=(_array(1, -2),),
    cpu=(_array(-1, 0),),
)


def _check(rule_id: str, trace: DelegateTrace, case: DelegateCase = CASE) -> Examined:
    examined: Examined = catalogue()[rule_id].check(case, trace)
    return examined


def test_the_picture_shows_order_operands_claims_and_kernels() -> None:
    assert draw(CASE, TRACE).splitlines() == [
        "node  operator  reads  writes  claimed by  expected  seen",
        "0     RELU      t0     t1      -           CPU       CPU",
        "1     NEG       t1     t2      mine        kernel 0  kernel 0",
        "graph inputs t0, outputs t2",
        "plan: 0 2=kernel0",
        "1 partition, 1 switch between CPU and delegates, 1 node on the CPU",
        "left to the CPU: 0",
    ]


def test_a_plan_that_cannot_be_read_makes_the_rules_unsupported() -> None:
    with pytest.raises(Unsupported, match="layout"):
        _check("PART-09", replace(TRACE, observed=False))


def test_a_failed_prepare_is_one_finding_and_not_every_rules() -> None:
    broken = replace(
        TRACE, applied=(_applied(ok=False, prepare_status=1, replaces=()),), kernels=(), events=()
    )
    with pytest.raises(Violation, match="returned 1"):
        _check("PART-04", broken)
    with pytest.raises(Unsupported, match="returned 1"):
        _check("NUM-01", broken)


def test_a_claim_may_name_a_node_once_only() -> None:
    twice = replace(TRACE, applied=(_applied(replaces=(Claim((1,), 0), Claim((1,), 0))),))
    with pytest.raises(Violation, match="node 1"):
        _check("PART-01", twice)


def test_a_second_claim_may_name_the_kernel_that_the_first_one_made() -> None:
    again = replace(TRACE, applied=(_applied(replaces=(Claim((1,), 0), Claim((0, 2), 0))),))
    assert _check("PART-01", again).count == 3


def test_a_kernel_freed_twice_is_a_violation() -> None:
    with pytest.raises(Violation, match="2 calls of free"):
        freed_once(CASE, replace(TRACE, events=(INIT, FREE, FREE)))


def test_a_kernel_never_freed_is_a_violation() -> None:
    with pytest.raises(Violation, match="0 calls of free"):
        freed_once(CASE, replace(TRACE, events=(INIT,)))


def test_a_swallowed_kernel_that_the_runtime_forgot_is_not_the_delegates_fault() -> None:
    later = Applied("greedy", False, 1, True, "", (RELU, DELEGATED), True, 0, (Claim((2,), 0),), ())
    swallowed = replace(
        TRACE,
        applied=(*TRACE.applied, later),
        kernels=(*TRACE.kernels, Kernel(1, 1, (2,), (1,), (2,))),
        events=(INIT, Event("init", 1, 1), Event("free", 1, 1)),
    )
    assert freed_once(CASE, swallowed) == 1


def test_kernels_forgotten_after_a_failed_replace_are_not_the_delegates_fault() -> None:
    later = Applied("broken", False, 1, False, "", (RELU, DELEGATED), True, 1, (Claim((0,), 1),), (RELU, NEG))
    assert freed_once(CASE, replace(TRACE, applied=(*TRACE.applied, later), events=(INIT,))) == 1


def test_a_value_that_equals_one_fill_by_chance_counts_as_written() -> None:
    case = replace(CASE, invokes=2, poison=(0xEE, 0x99))
    fill = Array("float32", (2,), b"\xee" * 8)
    trace = replace(TRACE, outputs=((fill,), (fill,)), invoke_errors=("", ""))
    assert _check("DET-04", trace, case).count == 2


def test_fills_that_survive_both_invokes_are_found() -> None:
    case = replace(CASE, invokes=2, poison=(0xEE, 0x99))
    outputs = tuple((Array("float32", (2,), b"\0" * 4 + bytes([byte]) * 4),) for byte in case.poison)
    with pytest.raises(Violation, match="element 1 of graph output t2"):
        _check("DET-04", replace(TRACE, outputs=outputs, invoke_errors=("", "")), case)


def test_a_small_error_is_left_to_the_rules_about_numbers() -> None:
    wrong = replace(TRACE, outputs=((_array(-1.001, 0),),))
    two_inputs = replace(wrong, kernels=(Kernel(0, 0, (1,), (0, 1), (2,)),))
    node = replace(DELEGATED, inputs=(0, 1))
    assert _check("PART-10", replace(two_inputs, plan=(RELU, node))).count == 1
    with pytest.raises(Violation, match="NUM-10"):
        _check("NUM-10", wrong)
    with pytest.raises(Unsupported, match="NUM-10"):
        _check("NUM-01", wrong)


def test_a_trace_without_a_kernel_is_nothing_to_judge_numbers_by() -> None:
    idle = replace(
        TRACE, applied=(_applied(replaces=(), plan_after=(RELU, NEG)),), kernels=(), plan=(RELU, NEG)
    )
    with pytest.raises(Unsupported, match="left every float32 node") as unsupported:
        _check("NUM-01", idle)
    assert not unsupported.value.final
    for rule_id in ("DET-01", "DET-04", "PART-10", "PART-11", "LIFE-02"):
        assert _check(rule_id, idle).count == 0
    with pytest.raises(Unsupported):
        _check("PREC-03", idle)
