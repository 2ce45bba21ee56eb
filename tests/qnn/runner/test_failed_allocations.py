"""The step `FailedAllocation`: what is refused, when, and what the ordinary calls around it show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings

from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Examined, Unsupported, Violation
from pytest_qnn.qnn.cases.case import (
    AllocatingCall,
    ContextCreate,
    FailedAllocation,
    FreeParent,
    MemoryCase,
)
from pytest_qnn.qnn.cases.valid import check_memory
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import Context, QnnError
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.rules.oom import rules
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import GrowthCounts, MemoryTrace, RefusalCounts, StepSeen
from tests.faults import faults

NO_MEMORY = 1002
CODES = {"memRegister": 8003}
"""Its first request is for a mapping."""
CALLS: tuple[AllocatingCall, ...] = get_args(AllocatingCall)


def seen(step: FailedAllocation, spec: str = "reference", *before: Any) -> StepSeen:
    target = open_memory_target(spec, "emulated", "off" if spec.startswith("reference") else "fork", 10.0)
    trace = target.run(MemoryCase((*before, step)))
    assert not isinstance(trace.death, Death)
    target.close()
    return trace.steps[-1]


def of(call: AllocatingCall, **fields: Any) -> FailedAllocation:
    return FailedAllocation((call,), mem_type=1 if call == "memRegister" else 0, **fields)


@pytest.mark.parametrize("call", CALLS)
def test_the_reference_answers_that_there_is_no_memory_and_goes_on(call: AllocatingCall) -> None:
    found = seen(of(call))
    assert found.calls == ((call, CODES.get(call, NO_MEMORY)),)
    assert (found.data, found.counts) == ((), RefusalCounts())


def test_all_calls_are_refused_something_in_one_life() -> None:
    found = seen(FailedAllocation(CALLS, mem_type=1))
    assert dict(found.calls) == dict.fromkeys(CALLS, NO_MEMORY) | CODES
    assert found.counts == RefusalCounts()


@pytest.mark.parametrize(("nth", "refused"), [(1, True), (3, True), (7, True), (0, False)])
@pytest.mark.parametrize("lasting", [False, True])
def test_requests_are_counted_from_one_and_around(nth: int, lasting: bool, refused: bool) -> None:
    found = seen(of("memRegister", nth=nth, lasting=lasting, what="mapping"))
    assert found.calls == ((("memRegister", 8003),) if refused else ())
    assert found.values == ((3,) if refused else ())


@pytest.mark.parametrize("what", ["descriptor", "thread"])
def test_what_is_not_asked_for_is_not_refused(what: Any) -> None:
    assert seen(of("contextCreate", what=what)) == StepSeen()


class _GivesUp(ReferenceBackend):
    """An execute that is refused memory computes nothing and says success."""

    def graph_execute(self, *arguments: Any) -> None:
        before = self.refusing.refused
        try:
            super().graph_execute(*arguments)
        except QnnError:
            if self.refusing.refused == before:
                raise


def test_the_call_is_told_with_which_alone_something_is_amiss() -> None:
    backend = _GivesUp()
    case = MemoryCase((FailedAllocation(CALLS, mem_type=1),))
    entry = QnnEntry(backend.get_providers, backend)
    found = run_memory_case(case, entry, EmulatedRpcmem()).steps[0]
    backend.close()
    assert found.counts == RefusalCounts(("graphExecute",), 0)
    assert found.data[0] != found.data[1] == b"\xee" * 8


def test_rounds_are_measured() -> None:
    counts = seen(of("memRegister", rounds=20)).counted(GrowthCounts)
    assert counts.rounds == 20
    assert (counts.fds, counts.mappings) == (0, 0)


@pytest.mark.parametrize(("most", "grows"), [(24, False), (1000, True)])
def test_what_is_kept_for_once_is_no_growth(most: int, grows: bool, tmp_path: Path) -> None:
    source = faults.conforming("memory")
    failing = "kContext, owner);\n  if (!made) return no_memory;\n"
    assert source.count(failing) == 1
    keeping = f"if (!made) {{ static int kept; if (kept++ < {most}) dup(0); return no_memory; }}\n"
    source = source.replace(failing, f"kContext, owner);\n  {keeping}")
    library = faults.build(tmp_path, "memory", "keeps", f"#include <unistd.h>\n{source}")
    counts = seen(of("contextCreate", what="memory", rounds=20), str(library)).counted(GrowthCounts)
    assert (counts.rounds, counts.fds >= 20) == (20, grows)


def test_without_a_session_nothing_is_called() -> None:
    found = seen(
        of("contextCreate"), "reference", ContextCreate("c"), FreeParent("device"), FreeParent("backend")
    )
    assert "though nothing is refused" in found.skipped


def test_a_call_that_the_target_has_not_is_not_judged() -> None:
    found = seen(of("memRegister"), "reference:no-memory")
    assert found.skipped == "memRegister answers 1000 though nothing is refused"


def test_nothing_can_be_refused_behind_a_proxy(tmp_path: Path) -> None:
    library = faults.build(tmp_path, "memory", "example")
    found = seen(of("contextCreate"), f"proxy:{library}")
    assert found.skipped == "nothing here can refuse what this target asks the system for"


def test_a_library_in_c_has_its_own_requests_refused(tmp_path: Path) -> None:
    library = faults.build(tmp_path, "memory", "example")
    found = seen(of("memRegister", nth=2), str(library))
    assert (found.calls, found.values, found.counts) == ((("memRegister", NO_MEMORY),), (6,), RefusalCounts())
    assert seen(of("memRegister", what="mapping"), str(library)).calls == (("memRegister", 8003),)


class _NeedsBoth(ReferenceBackend):
    """Executes give nothing once both a context and a graph were refused memory."""

    met: frozenset[str] = frozenset()

    def _noting(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except QnnError:
            self.met |= {name} if self.refusing.refused else set()
            raise

    def free_context(self, context: Context) -> None:
        self.met = frozenset()
        super().free_context(context)

    def context_create(self, *arguments: Any) -> None:
        create = super().context_create
        self._noting("context", lambda: create(*arguments))

    def graph_create(self, *arguments: Any) -> None:
        create = super().graph_create
        self._noting("graph", lambda: create(*arguments))

    def graph_execute(self, *arguments: Any) -> None:
        if self.met != {"context", "graph"}:
            super().graph_execute(*arguments)


def test_what_is_amiss_with_several_only_is_told_of_all(tmp_path: Path) -> None:
    backend = _NeedsBoth()
    calls: tuple[AllocatingCall, ...] = ("contextCreate", "graphCreate")
    entry = QnnEntry(backend.get_providers, backend)
    found = run_memory_case(MemoryCase((FailedAllocation(calls),)), entry, EmulatedRpcmem()).steps[0]
    backend.close()
    assert found.counts == RefusalCounts(calls, NO_MEMORY)
    with pytest.raises(Violation, match="contextCreate and graphCreate and what follows"):
        judged(rules.oom_05, (FailedAllocation(calls), found))


STEP = FailedAllocation(("contextCreate",))


def judged(check: Any, *steps: tuple[Any, StepSeen]) -> Examined:
    case = MemoryCase(tuple(step for step, _ in steps))
    opened = (("getProviders", 0), ("backendCreate", 0))
    found: Examined = check(case, MemoryTrace(session=opened, steps=tuple(each for _, each in steps)))
    return found


FAILED: dict[str, Any] = {"calls": (("contextCreate", NO_MEMORY),), "values": (2,)}
SUCCEEDED: dict[str, Any] = {"calls": (("contextCreate", 0),), "values": (2,)}


@pytest.mark.parametrize("check", [rules.oom_01, rules.oom_02, rules.oom_03, rules.oom_05, rules.oom_06])
def test_a_clean_error_is_none(check: Any) -> None:
    counts = GrowthCounts(rounds=9) if check is rules.oom_06 else RefusalCounts()
    assert judged(check, (STEP, StepSeen(**FAILED, counts=counts))).count == 1
    with pytest.raises(Unsupported, match="ask the system for nothing"):
        judged(check, (STEP, StepSeen()))
    with pytest.raises(Unsupported, match="cannot"):
        judged(check, (STEP, StepSeen(skipped="it cannot")))


def test_growth_is_of_calls_that_fail() -> None:
    with pytest.raises(Violation, match="20 more"):
        judged(rules.oom_06, (STEP, StepSeen(**FAILED, counts=GrowthCounts(rounds=20, fds=20))))
    with pytest.raises(Unsupported, match="contextCreate succeed"):
        judged(rules.oom_06, (STEP, StepSeen(**SUCCEEDED, counts=RefusalCounts())))


AMISS: tuple[tuple[tuple[bytes, ...], dict[str, Any]], ...] = (
    ((b"1", b"2"), {}),
    ((), {"failed": "graphExecute", "failed_code": 6004}),
)


@pytest.mark.parametrize(("data", "amiss"), AMISS)
def test_success_that_is_none_and_a_call_that_fails_again_are_of_two_rules(
    data: tuple[bytes, ...], amiss: dict[str, Any]
) -> None:
    success = StepSeen(**SUCCEEDED, data=data, counts=RefusalCounts(("contextCreate",), 0, **amiss))
    failure = StepSeen(**FAILED, data=data, counts=RefusalCounts(("contextCreate",), NO_MEMORY, **amiss))
    with pytest.raises(Violation, match="an error of contextCreate"):
        judged(rules.oom_03, (STEP, success))
    assert judged(rules.oom_05, (STEP, success)).count == 1
    with pytest.raises(Violation, match="made again"):
        judged(rules.oom_05, (STEP, failure))
    assert judged(rules.oom_03, (STEP, failure)).count == 1


@pytest.mark.parametrize(
    "cases", [rules.not_throwing, rules.everything, rules.beside_others, rules.in_rounds]
)
def test_every_case_is_one_that_a_file_may_have(cases: Any) -> None:
    facts = open_memory_target("reference", "emulated", "off", 10.0).facts

    @settings(max_examples=30, database=None, deadline=None)
    @given(cases(facts))
    def check(case: MemoryCase) -> None:
        check_memory(case)
        assert any(isinstance(step, FailedAllocation) for step in case.steps)

    check()


def test_a_target_without_graphs_and_memory_is_asked_for_contexts_only() -> None:
    assert rules._calls(MemoryFacts()) == ("contextCreate", "logCreate", "backendCreate", "deviceCreate")
    fatal = MemoryFacts(fatal_calls=("contextCreate", "deviceCreate"))
    assert rules._calls(fatal) == ("logCreate", "backendCreate")
