"""Clauses of delegate rules, one by one: the case that shows each, on the reference and on what breaks it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from math import prod
from typing import Any

import hypothesis
import msgspec
import pytest
from delegate_doubles import Factory
from hypothesis import HealthCheck, Phase
from kept import keep

from pytest_qnn.core.engine import judge_case
from pytest_qnn.core.verdict import Examined, Unsupported, Violation
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.abi import layouts, view
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    CopyFrom,
    Invoke,
    MakeDelegate,
    Open,
    Poison,
    Profile,
    Read,
    ScriptCase,
    SetInputs,
    Unload,
    flat,
)
from pytest_qnn.tflite.cases.valid import check_delegate, check_script
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.rules.err.rules import WIDE, beside_another, failing_invoke, hostile
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.runtime.state import context_of
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import InvokeCounts

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
T = Tensor((2, 3))
CHAIN = Graph(
    (T,) * 5,
    tuple(Node("NEG" if k % 2 else "ABS", (k,), (k + 1,)) for k in range(4)),
    (0,),
    (4,),
)
NATIVE = DelegateFacts(delegates=("/a/library.so",))


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@functools.cache
def target_of(spec: str, runtime: str) -> DelegateTarget:
    return keep(open_delegate_target([(spec, {})], runtime, "off", 10.0))


def judged(rule_id: str, spec: str, runtime: str, case: Any) -> Violation | Unsupported | Examined:
    return judge_case(catalogue()[rule_id], target_of(spec, runtime), case)


def drawn(strategy: Any, count: int = 60) -> list[Any]:
    found: list[Any] = []

    @hypothesis.seed(1)
    @hypothesis.settings(
        max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @hypothesis.given(strategy)
    def collect(case: Any) -> None:
        found.append(case)

    collect()
    return found


def test_indices_passed_to_preview_are_judged(runtime: str) -> None:
    case = DelegateCase(CHAIN, (Application("probe", (0, 1)), Application()), look=("previews",))
    seen = judged("PART-01", "mutant:previews-positions", runtime, case)
    assert isinstance(seen, Violation)
    assert "node 1 among the previewed [1, 2]" in seen.seen
    assert judged("PART-01", "reference:preview", runtime, case) == Examined(4, "claimed node indices")


def test_a_claim_after_a_resize_is_compared_with_the_first(runtime: str) -> None:
    case = DelegateCase(CHAIN, invokes=0, baseline="alone", redo=1)
    assert isinstance(judged("PART-17", "mutant:forgets-when-redone", runtime, case), Violation)
    assert judged("PART-17", "reference", runtime, case) == Examined(8, "nodes claimed twice")
    once = msgspec.structs.replace(case, redo=0)
    assert judged("PART-17", "mutant:forgets-when-redone", runtime, once) == Examined(
        4, "nodes claimed twice"
    )


def test_kernels_made_again_by_a_resize_are_judged(runtime: str) -> None:
    case = DelegateCase(CHAIN, redo=1)
    assert isinstance(judged("LIFE-02", "mutant:appends-when-redone", runtime, case), Violation)
    assert judged("LIFE-02", "reference", runtime, case) == Examined(1, "kernels prepared more than once")
    plain = DelegateCase(CHAIN)
    assert judged("LIFE-02", "reference", runtime, plain) == Examined(0, "kernels prepared more than once")


def test_a_delegate_applied_twice_to_one_interpreter_keeps_its_kernels(runtime: str) -> None:
    use = (Allocate("i0"), SetInputs("i0"), Poison("i0"), Invoke("i0"), Read("i0"))
    twice = (MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"), Apply("i0", "d0"), *use)
    beside = (Open("i1"), Apply("i1", "d0"), Allocate("i1"), SetInputs("i1"), Invoke("i1"), Read("i1"))
    case = ScriptCase((CHAIN,), (*twice, *beside))
    assert isinstance(judged("PREC-08", "mutant:starts-over", runtime, case), Violation)
    for spec in ("reference", "xnnpack"):
        assert judged("PREC-08", spec, runtime, case) == Examined(
            2, "outputs read by turns from two interpreters"
        )


FAILING = DelegateCase(
    CHAIN,
    (Application(claim=(0, 2, 3)), Application("probe", (1,), "second-invoke")),
    invokes=3,
    reseed=(1, 2, 3),
    poison=(0xEE, 0xEE, 0xEE),
)


def test_an_invoke_that_fails_in_another_delegate_is_a_failed_one(runtime: str) -> None:
    seen = judged("ERR-05", "mutant:resumes-failed", runtime, FAILING)
    assert isinstance(seen, Violation)
    assert "after invoke 1 failed" in seen.expected
    assert judged("ERR-05", "reference", runtime, FAILING) == Examined(1, "invokes after a failed one")


@pytest.mark.parametrize("make", [failing_invoke, beside_another])
def test_a_delegate_that_cannot_be_told_to_fail_is_judged_by_a_probe_that_does(
    make: Callable[[DelegateFacts], Any],
) -> None:
    for case in drawn(make(NATIVE), 20):
        steps = case.applications if isinstance(case, DelegateCase) else case.steps
        faults = [(step.who, step.fault) for step in steps if isinstance(step, Application | MakeDelegate)]
        assert ("probe", "second-invoke") in faults
        assert ("target", "second-invoke") not in faults


def beside(own: bool) -> ScriptCase:
    """``i0`` fails at its second invoke, in the target's kernel or in a probe's; ``i1`` works beside it."""
    made = (
        MakeDelegate("d0", claim=(0, 1), fault="second-invoke" if own else ""),
        MakeDelegate("d1"),
        MakeDelegate("p0", "probe", claim=(2, 3), fault="" if own else "second-invoke"),
    )
    applied = (Open("i0"), Apply("i0", "d0"), Apply("i0", "p0"), Allocate("i0"))
    other = (Open("i1"), Apply("i1", "d1"), Allocate("i1"), SetInputs("i1", 5), Invoke("i1"))
    failing = (SetInputs("i0"), Invoke("i0"), SetInputs("i0", 7), Invoke("i0"), Read("i0", CHAIN.inputs))
    steps = (*made, *applied, *other, *failing, Poison("i1"), Invoke("i1"), Read("i1"))
    return ScriptCase((CHAIN,), steps, watch=True)


@pytest.mark.parametrize("own", [True, False])
def test_another_interpreter_and_the_inputs_outlive_a_failed_invoke(own: bool, runtime: str) -> None:
    assert judged("ERR-06", "reference", runtime, beside(own)) == Examined(1, "failed invokes")


@pytest.mark.parametrize(
    ("name", "what"), [("loses-all", "graph output t4"), ("wipes-inputs", "an invoke of kernel")]
)
def test_a_failure_that_spreads_is_found(name: str, what: str, runtime: str) -> None:
    seen = judged("ERR-06", f"mutant:{name}", runtime, beside(own=True))
    assert isinstance(seen, Violation)
    assert what in seen.where


def test_inputs_can_be_read_after_a_failed_invoke_and_nothing_else(runtime: str) -> None:
    case = beside(own=True)
    more = msgspec.structs.replace(case, steps=(*case.steps, Read("i0"), Read("i0", (0, 2))))
    trace = target_of("reference", runtime).run(more)
    steps = flat(more.steps)
    at = next(n for n, step in enumerate(steps) if isinstance(step, Read))
    assert trace.steps[at].outputs == trace.steps[at - 2].outputs
    assert all("no successful invoke" in seen.skipped for seen in trace.steps[-2:])


def test_a_wide_graph_is_among_the_hostile_ones() -> None:
    cases = drawn(hostile(NATIVE))
    plain = [case for case in cases if isinstance(case, DelegateCase)]
    first = [case.graph.tensors[0] for case in plain]
    large = [case for case, one in zip(plain, first, strict=True) if prod(one.shape) == WIDE.get(one.dtype)]
    assert {case.graph.tensors[0].dtype for case in large} == {"int8"}
    for case in large:
        check_delegate(case)


def test_a_delegate_that_profiles_itself_tells_of_each_operator(runtime: str) -> None:
    opened = (MakeDelegate("d0"), Open("i0"), Profile("i0"), Apply("i0", "d0"))
    case = ScriptCase((CHAIN,), (*opened, Allocate("i0"), SetInputs("i0"), Invoke("i0")))
    trace = target_of("reference:profiled", runtime).run(case)
    assert trace.steps[-1].counts == InvokeCounts(operator=0, delegate=len(CHAIN.nodes))
    assert judged("PROF-01", "reference:profiled", runtime, case) == Examined(1, "invokes profiled")
    assert isinstance(judged("PROF-01", "mutant:tells-unasked", runtime, case), Violation)


def test_only_a_library_is_unloaded(runtime: str) -> None:
    case = ScriptCase((CHAIN,), (Unload(),))
    check_script(case)
    (seen,) = target_of("reference", runtime).run(case).steps
    assert "is no library" in seen.skipped


def test_tensors_inside_a_partition_are_given_no_memory(runtime: str) -> None:
    interpreter = load_runtime(runtime).interpreter(emit(CHAIN))
    delegate = ReferenceDelegate(claim=(1, 2, 3))
    interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
    interpreter.allocate_tensors()
    context = context_of(interpreter)
    assert [bool(view.tensor(context, index).data) for index in range(5)] == [True, True, False, False, True]
    del interpreter
    delegate.close()


def test_kernels_of_an_operator_are_not_seen_and_say_so() -> None:
    runtime = load_runtime("ai_edge_litert")
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p)(
        runtime.symbol("TfLiteOperatorCreate")
    )
    operator = create(layouts.BUILTIN_DELEGATE, b"opaque", 1, None)  # the interpreter deletes it

    class Operates(ReferenceDelegate):
        def registration(self, _: tuple[int, ...]) -> layouts.Registration:
            return layouts.Registration(
                builtin_code=layouts.BUILTIN_DELEGATE, version=1, registration_external=operator
            )

    case = DelegateCase(CHAIN, look=("forbidden",), invokes=0)
    trace = run_delegate_case(case, [Factory("opaque", Operates)], runtime)
    assert trace.kernels == ()
    with pytest.raises(Unsupported, match="callbacks of the opaque delegate"):
        catalogue()["LIFE-06"].check(case, trace)


def test_inputs_set_after_the_last_invoke_mislead_nobody(runtime: str) -> None:
    used = (Allocate("i0"), SetInputs("i0"), Invoke("i0"), SetInputs("i0", 9), Read("i0"))
    case = ScriptCase((CHAIN,), (MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"), *used))
    assert judged("THR-04", "reference", runtime, case) == Examined(1, "outputs read on threads")
    beside = (Open("i1"), Apply("i1", "d0"), Allocate("i1"))
    both = msgspec.structs.replace(case, steps=(*case.steps[:-1], *beside, case.steps[-1]))
    seen = judged("PREC-08", "reference", runtime, both)
    assert seen == Examined(1, "outputs read by turns from two interpreters")


def test_an_input_that_is_an_output_is_no_copy_from_a_buffer(runtime: str) -> None:
    graph = msgspec.structs.replace(CHAIN, outputs=(4, 0))
    used = (Allocate("i0"), SetInputs("i0"), Invoke("i0"), Read("i0"), SetInputs("i0", 9))
    steps = (MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"), *used, CopyFrom("i0", 0), Read("i0"))
    case = ScriptCase((graph,), steps, buffers=True)
    assert judged("BUF-04", "reference:device-buffers", runtime, case) == Examined(1, "outputs copied again")
    assert isinstance(judged("BUF-04", "mutant:moves-out", runtime, case), Violation)


def test_an_interpreter_that_was_never_delegated_is_no_delegate_made_again(runtime: str) -> None:
    first = (MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"), Allocate("i0"))
    case = ScriptCase((CHAIN,), (*first, Open("i1"), Allocate("i1")))
    assert judged("OWN-05", "reference", runtime, case) == Examined(0, "delegates made again")
