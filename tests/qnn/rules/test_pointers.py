"""IF-14 and IF-15: every argument of the table is met, and an answer that is not in order is accused."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from pytest_qnn.core.bounds import BadCase
from pytest_qnn.core.search import Search
from pytest_qnn.core.verdict import Examined, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import low
from pytest_qnn.qnn.abi.table import FUNCTIONS
from pytest_qnn.qnn.cases.arguments import ARGUMENTS, OF_SECTIONS, Argument, PointedCall
from pytest_qnn.qnn.cases.case import BadArgument, ContextCreate, GetBinary, MemoryCase, Prepare
from pytest_qnn.qnn.cases.misuses import TAKES
from pytest_qnn.qnn.cases.valid import check_memory
from pytest_qnn.qnn.rules.iface import pointers
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen
from pytest_qnn.rules import catalogue

PRELUDE = (
    ContextCreate("c0"),
    Prepare("g0", "c0"),
    GetBinary("c0", "f0"),
    ContextCreate("c1"),
    Prepare("g1", "c1", weights=1, weights_as="updatable"),
)
ALL = [(call, argument) for call, arguments in ARGUMENTS.items() for argument in arguments]


OFFERED: dict[str, tuple[str, ...]] = {
    "asynchronous": ("graphExecuteAsync",),
    "environments": ("graphPrepareExecutionEnvironment", "graphReleaseExecutionEnvironment"),
    "lists-of-binaries": ("contextCreateFromBinaryListAsync",),
    "provided-pieces": ("contextCreateFromBinaryWithCallback",),
}
"""Personalities of the reference, and the calls that only they offer."""
NOWHERE: frozenset[PointedCall] = frozenset(
    {
        "backendRegisterOpPackage",
        "deviceGetInfo",
        "deviceGetPlatformInfo",
        "deviceFreePlatformInfo",
        "contextGetIncrementalBinary",
        "contextReleaseIncrementalBinary",
        "contextGetBinarySectionUpdate",
        "contextFreeBinarySectionUpdate",
        "graphCreateSubgraph",
        "tensorCreateContextTensor",
        "tensorUpdateContextTensors",
        "profileGetExtendedEventData",
        "globalConfigSet",
    }
)
"""Calls that no reference offers."""
Targets = dict[str, MemoryTarget]
PLAIN = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64)
"""Types of handles and numbers in the table; pointers with a type are no handles."""


def personality_of(call: PointedCall) -> str:
    return next((name for name, calls in OFFERED.items() if call in calls), "binary-sections")


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                closing(open_memory_target(f"reference:{name}", "emulated", "off", 10.0))
            )
            for name in (*OFFERED, "binary-sections")
        }


@pytest.fixture(scope="module")
def target(targets: Targets) -> MemoryTarget:
    return targets["binary-sections"]


def case_of(call: PointedCall, argument: Argument) -> MemoryCase:
    made = ("c1", "g1") if call in OF_SECTIONS or call == "tensorUpdateGraphTensors" else ("c0", "g0")
    if personality_of(call) != "binary-sections":
        return MemoryCase((*PRELUDE[:3], BadArgument(call, argument, *made)))
    return MemoryCase((*PRELUDE, BadArgument(call, argument, *made)))


def test_every_call_and_every_argument_is_in_the_table() -> None:
    assert ARGUMENTS.keys() == {*get_args(PointedCall)}
    assert {argument for _, argument in ALL} == {*get_args(Argument)}
    assert pointers.DOCUMENTED.keys() | {*pointers.SILENT} == {*ALL}


PAGE = Path(__file__).parents[3] / "docs/explanation/decisions/qnn/pointers.md"


def left_out() -> dict[str, str]:
    """The calls of the page's table, and why they have no argument here."""
    rows = re.findall(r"^\| (\w+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    return {call: why for call, why in rows if call != "call"}


def test_each_call_of_the_interface_is_made_with_a_bad_argument_or_the_page_says_why_not() -> None:
    assert left_out().keys() & ARGUMENTS.keys() == set()
    assert left_out().keys() | ARGUMENTS.keys() == {name for name, _ in FUNCTIONS}
    assert f"the {len(ARGUMENTS)}\ncalls" in PAGE.read_text()


def test_the_page_names_rules_that_there_are_and_handles_that_if_10_misuses() -> None:
    named = set(re.findall(r"\b[A-Z]{2,5}-\d\d\b", PAGE.read_text()))
    assert named <= catalogue().keys()
    misused = {call for call, why in left_out().items() if "IF-10" in why}
    assert misused <= TAKES.keys()
    with_pointers = {name for name, types in FUNCTIONS if any(each not in PLAIN for each in types)}
    assert misused & with_pointers == set()


@pytest.mark.parametrize(("call", "argument"), ALL)
def test_the_reference_answers_as_the_headers_say_and_what_differs_is_accused(
    targets: Targets, call: PointedCall, argument: Argument
) -> None:
    case = case_of(call, argument)
    trace = targets[personality_of(call)].run(case)
    last = trace.steps[-1]
    assert not last.skipped
    wanted = pointers.DOCUMENTED.get((call, argument))
    if low(last.code or 0) == pointers._NOT_OFFERED and wanted is not None:
        assert call in NOWHERE or argument == "envs.option"
        return
    check = pointers.if_14 if wanted is not None else pointers.if_15
    other = pointers.if_15 if wanted is not None else pointers.if_14
    assert check(case, trace).count == 1
    assert other(case, trace).count == 0
    wrong = StepSeen(code=1100 if wanted == 0 else 0)
    differs = msgspec.structs.replace(trace, steps=(*trace.steps[:-1], wrong))
    if (call, argument) in pointers._WITHOUT:
        assert isinstance(check(case, differs), Examined)
    else:
        with pytest.raises(Violation, match=re.escape(argument)):
            check(case, differs)


@pytest.mark.parametrize("call", sorted(pointers.ON_GRAPHS | pointers.IN_CONTEXTS | pointers.COMPOSING))
def test_a_call_without_its_graph_or_context_is_skipped(target: MemoryTarget, call: PointedCall) -> None:
    if call in ("backendValidateOpConfig", "contextCreate"):
        return
    step = BadArgument(call, ARGUMENTS[call][0], "c9", "g9")
    last = target.run(MemoryCase((step,))).steps[-1]
    assert (
        "g9 was never made" in last.skipped or "c9 was never made" in last.skipped or "binary" in last.skipped
    )


def test_what_is_not_offered_is_unsupported() -> None:
    case = case_of("profileCreate", "profile")
    trace = MemoryTrace(steps=(*[StepSeen(code=0)] * len(PRELUDE), StepSeen(code=1000)))
    with pytest.raises(Unsupported, match="profileCreate answers 1000"):
        pointers.if_14(case, trace)


def test_a_backends_code_for_what_it_does_not_offer_excuses_no_other_call() -> None:
    steps = [StepSeen(code=0)] * len(PRELUDE)
    trace = MemoryTrace(steps=(*steps, StepSeen(code=4003)))
    with pytest.raises(Unsupported):
        pointers.if_14(case_of("backendRegisterOpPackage", "packagePath"), trace)
    with pytest.raises(Violation):
        pointers.if_14(case_of("contextCreate", "context"), trace)


@pytest.mark.parametrize("code", [5000, 5014])
def test_a_piece_that_is_null_is_an_invalid_argument_or_one_that_no_backend_has_allocated(code: int) -> None:
    case = case_of("contextReleaseIncrementalBinary", "binaryBuffer")
    steps = (*[StepSeen(code=0)] * len(PRELUDE), StepSeen(code=code))
    assert pointers.if_14(case, MemoryTrace(steps=steps)).count == 1


def test_a_call_has_only_its_own_arguments() -> None:
    check_memory(case_of("graphCreate", "graphName"))
    with pytest.raises(BadCase, match="graphCreate has no argument logger that leads somewhere"):
        check_memory(case_of("graphCreate", "logger"))


@pytest.mark.parametrize("rule_id", ["IF-14", "IF-15"])
def test_four_cases_meet_every_argument_and_each_has_one_of_its_own(
    target: MemoryTarget, rule_id: str
) -> None:
    wanted = {*(pointers.DOCUMENTED if rule_id == "IF-14" else pointers.SILENT)}
    met = [
        {(s.call, s.argument) for s in case.steps if isinstance(s, BadArgument)}
        for case in Search(catalogue()[rule_id].cases(target.facts), 0, 1, whole=True)
    ]
    assert set[tuple[str, str]]().union(*met[:4]) == wanted
    assert [*map(len, met[4:])] == [1] * len(wanted)
    assert set[tuple[str, str]]().union(*met[4:]) == wanted
