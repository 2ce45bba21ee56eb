"""The step `Refuse`: whose requests are refused, when, and what the steps around it show."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from pytest_qnn.core.target import Resource
from pytest_qnn.script_steps import (
    Allocate,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    Open,
    Parallel,
    Read,
    Refuse,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.cases.script import AnyScriptStep, needs_child
from pytest_qnn.tflite.runner.plain import PLAIN
from pytest_qnn.tflite.target import open_delegate_target
from pytest_qnn.tflite.trace import RefusedCounts, ScriptSeen, ScriptTrace
from tests.faults import faults

MAKE, OPEN, APPLY = MakeDelegate("d0"), Open("i0"), Apply("i0", "d0")
READY: tuple[AnyScriptStep, ...] = (MAKE, OPEN, APPLY, Allocate("i0"), SetInputs("i0"))
needs_a_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")


def trace_of(
    *steps: AnyScriptStep, spec: tuple[str, ...] = ("reference",), sandbox: str = "off"
) -> ScriptTrace:
    with closing(open_delegate_target([(one, {}) for one in spec], "auto", sandbox, 10.0)) as target:
        trace: ScriptTrace = target.run(ScriptCase((PLAIN.graph,), steps))
    assert trace.death is None
    return trace


def refused(
    *steps: AnyScriptStep, spec: tuple[str, ...] = ("reference",), sandbox: str = "off"
) -> ScriptSeen:
    """What the last Refuse gave."""
    trace = trace_of(*steps, spec=spec, sandbox=sandbox)
    pairs = zip(flat(steps), trace.steps, strict=True)
    return [seen for step, seen in pairs if isinstance(step, Refuse)][-1]


@pytest.mark.parametrize(
    ("before", "step"),
    [((), MAKE), ((MAKE, OPEN), APPLY), (READY, Invoke("i0"))],
    ids=["make", "apply", "invoke"],
)
def test_the_reference_fails_and_succeeds_when_it_is_asked_again(
    before: tuple[AnyScriptStep, ...], step: AnyScriptStep
) -> None:
    steps = trace_of(*before, Refuse(), step, step).steps[len(before) :]
    assert steps[0].counts == RefusedCounts(1, 1, 1)
    assert [seen.ok for seen in steps[1:]] == [False, True]
    assert "there is no memory" in steps[1].message


def test_a_graph_whose_delegation_failed_is_the_runtimes() -> None:
    steps = trace_of(
        *(MAKE, OPEN, Refuse(), APPLY, Allocate("i0"), SetInputs("i0"), Invoke("i0"), Read("i0"))
    ).steps
    assert [seen.ok for seen in steps] == [True, True, True, False, True, True, True, True]
    assert steps[-1].outputs == steps[-1].cpu


def test_an_allocate_prepares_all_again_where_inputs_were_resized() -> None:
    shape = PLAIN.graph.tensors[PLAIN.graph.inputs[0]].shape
    away = Resize("i0", 0, (shape[0] + 1, *shape[1:]))
    assert refused(
        *READY, away, Resize("i0", 0, shape), Refuse(nth=0), Allocate("i0")
    ).counts == RefusedCounts(asked=refused(*READY[:2], Refuse(nth=0), APPLY).counted(RefusedCounts).asked)


@pytest.mark.parametrize("lasting", [False, True])
def test_requests_are_counted_around_where_they_were_counted(lasting: bool) -> None:
    counted = (MAKE, OPEN, Refuse(nth=0), APPLY)
    again = (MakeDelegate("d1"), Open("i1"))
    asked = refused(*counted).counted(RefusedCounts).asked
    for nth, number in ((1, 1), (asked, asked), (asked + 1, 1), (1000, 1 + 999 % asked)):
        found = refused(*counted, *again, Refuse(nth=nth, lasting=lasting), Apply("i1", "d1"))
        assert (found.counted(RefusedCounts).nth, found.counted(RefusedCounts).refused > 0) == (number, True)


@pytest.mark.parametrize("what", ["mapping", "descriptor", "thread"])
def test_what_is_not_asked_for_is_not_refused(what: Resource) -> None:
    assert refused(Refuse(what), MAKE).counts == RefusedCounts(nth=1)


def test_only_the_step_behind_is_refused_anything() -> None:
    assert refused(Refuse(), OPEN, MAKE).counts == RefusedCounts()
    assert all(seen.ok for seen in trace_of(Refuse(), OPEN, MAKE, APPLY).steps)


def test_a_probe_is_refused_nothing() -> None:
    probe = MakeDelegate("p0", "probe", claim=(0,))
    steps = trace_of(Refuse(), probe, OPEN, Refuse(nth=1, lasting=True), Apply("i0", "p0")).steps
    assert all(seen.ok for seen in steps)
    assert steps[3].counts == RefusedCounts(nth=1)


def test_each_round_is_refused_something() -> None:
    life = (MAKE, OPEN, Refuse(), APPLY, Close("i0"), DestroyDelegate("d0"))
    seen = refused(Repeat(3, life))
    assert seen.counts == RefusedCounts(1, 1, 1)
    assert seen.first is not None
    assert seen.first.counts == RefusedCounts(1, 1, 1)


def test_threads_side_by_side_are_refused_nothing() -> None:
    found = refused(*READY, Parallel(((Refuse(), Invoke("i0")), (Open("i1"),))))
    assert found.skipped == "what other threads ask for would be refused too"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (("xnnpack",), "what xnnpack asks the system for cannot be refused: it is no library of its own"),
        (("reference", "reference"), "which of several delegates asks for something cannot be told"),
    ],
)
def test_where_nothing_can_be_refused_the_step_says_why(spec: tuple[str, ...], why: str) -> None:
    assert refused(Refuse(), MAKE, spec=spec).skipped == why


def test_such_a_script_needs_a_child() -> None:
    assert needs_child(ScriptCase((PLAIN.graph,), (Refuse(), MAKE)))
    assert not needs_child(ScriptCase((PLAIN.graph,), (MAKE,)))


@needs_a_compiler
def test_a_plugin_in_c_has_its_own_requests_refused(tmp_path: Path) -> None:
    library = (str(faults.build(tmp_path, "delegate", "example")),)
    steps = trace_of(Refuse(), MAKE, spec=library, sandbox="fork").steps
    assert steps[0].counts == RefusedCounts(1, 1, 1)
    assert steps[1].message.endswith("returned NULL: ArithmeticDelegate: there is no memory")
    why = "requests are refused in a process of its own only (not so: --qnn-sandbox=off, --qnn-debug)"
    assert refused(Refuse(), MAKE, spec=library).skipped == why
