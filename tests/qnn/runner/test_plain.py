"""Rules about memory judge memory: a target's arithmetic is compared with its own plain run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.qnn.cases.case import (
    Alloc,
    Binding,
    ContextCreate,
    Descriptor,
    Execute,
    Fill,
    MemoryCase,
    Prepare,
    Read,
    Register,
    UpdateWeights,
    Write,
)
from pytest_qnn.qnn.model.contents import compare
from pytest_qnn.qnn.model.operators import expected
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace, PlainRun
from pytest_qnn.rules import catalogue

SIZE = 64
RAW = MemoryCase(
    (
        ContextCreate("c"),
        Prepare("g", "c", shape=(SIZE,)),
        Execute("g", (Binding(seed=1), Binding(seed=5), Binding())),
    )
)
THROUGH_HANDLES = MemoryCase(
    (
        ContextCreate("c"),
        Prepare("g", "c", shape=(SIZE,)),
        Alloc("a", SIZE),
        Alloc("o", SIZE),
        Fill("a"),
        Fill("o"),
        Write("a", SIZE, 0, 1, "UFIXED_POINT_8"),
        Register("c", (Descriptor("a", (SIZE,)), Descriptor("o", (SIZE,))), ("ha", "ho")),
        Execute("g", (Binding("handle", "ha"), Binding(seed=5), Binding("handle", "ho"))),
        Read("o"),
    )
)


@contextmanager
def opened(spec: str) -> Iterator[MemoryTarget]:
    with closing(open_memory_target(spec, "emulated", "off", 10.0)) as target:
        yield target


def run(spec: str, case: MemoryCase) -> MemoryTrace:
    with opened(spec) as target:
        return target.run(case)


def differences(case: MemoryCase, trace: MemoryTrace) -> list[str]:
    return [seen.difference for seen in compare(case, trace) if seen.difference]


def test_a_target_that_computes_as_the_suite_does_is_run_once() -> None:
    assert run("reference", RAW).plain == ()


@pytest.mark.parametrize("name", ["rounds-half-even", "rounds-down"])
@pytest.mark.parametrize("case", [RAW, THROUGH_HANDLES], ids=["raw", "handles"])
def test_what_is_rounded_otherwise_is_compared_with_a_plain_run(name: str, case: MemoryCase) -> None:
    trace = run(f"reference:{name}", case)
    (plain,) = trace.plain
    execute = next(
        seen for step, seen in zip(case.steps, trace.steps, strict=True) if isinstance(step, Execute)
    )
    assert plain.output == execute.data[0]
    assert plain.output != expected("ElementWiseAdd", "UFIXED_POINT_8", *plain.inputs)
    assert differences(case, trace) == []


def test_a_fault_of_memory_is_none_of_arithmetic() -> None:
    trace = run("mutant:handle-output-off", THROUGH_HANDLES)
    assert [plain.output for plain in trace.plain] == [
        expected("ElementWiseAdd", "UFIXED_POINT_8", *trace.plain[0].inputs)
    ]
    assert len(differences(THROUGH_HANDLES, trace)) == 1


def test_a_plain_run_of_other_inputs_explains_nothing() -> None:
    trace = run("reference:rounds-down", RAW)
    (plain,) = trace.plain
    other = PlainRun(
        op=plain.op, dtype=plain.dtype, shape=plain.shape, inputs=plain.inputs[::-1], output=plain.output
    )
    wrong = MemoryTrace(steps=trace.steps, plain=(other,))
    assert len(differences(RAW, wrong)) == 1


def test_a_plain_run_has_the_weights_that_the_graph_had_then() -> None:
    case = MemoryCase(
        (
            ContextCreate("c"),
            Prepare("g", "c", shape=(SIZE,), weights=3, weights_as="updatable"),
            UpdateWeights("g", 7),
            Execute("g", (Binding(seed=1), Binding())),
        )
    )
    trace = run("reference:binary-sections", case)
    assert trace.steps[-1].code == 0
    assert trace.plain == ()


@pytest.mark.parametrize(
    ("rule_id", "outcome"),
    [
        ("EXE-21", Outcome.FAIL),
        *((rule_id, Outcome.PASS) for rule_id in ("EXE-01", "ION-03", "REG-01", "QMG-07", "QTHR-03")),
    ],
)
def test_one_wrong_operator_is_one_finding(rule_id: str, outcome: Outcome) -> None:
    with opened("mutant:operands-swapped") as target:
        verdict = judge(catalogue()[rule_id], target, PROFILES["quick"], seed=7)
    assert verdict.outcome is outcome
