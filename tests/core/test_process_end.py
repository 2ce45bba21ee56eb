from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fast_run import first, later
from native import qnn_library
from reducing import smaller

from pytest_qnn.core.engine import judge
from pytest_qnn.core.engine.checking import died
from pytest_qnn.core.profile import PROFILES, Profile
from pytest_qnn.core.verdict import Crashed, Hung, Outcome
from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import MakeDelegate, ScriptCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.target import open_delegate_target

CASE = MemoryCase((ContextCreate("c0"),), ends=True)
GRAPH = Graph((Tensor((1, 2)), Tensor((1, 2))), (Node("ABS", (0,), (1,)),), (0,), (1,))
SCRIPT = ScriptCase((GRAPH,), (MakeDelegate("d0"),), ends=True)
FEW = Profile("few", in_process_examples=10, isolated_examples=5)
LIMIT = 1.0


def destroyed_by(folder: Path, deed: str, mode: str) -> Iterator[MemoryTarget]:
    """A backend whose destructor does the deed."""
    before = f"__attribute__((destructor)) static void quit(void) {{ {deed} }}"
    library = qnn_library(folder, "", before=before)
    limit = LIMIT if mode == "fork" else 2 * LIMIT
    with closing(open_memory_target(str(library), "emulated", mode, limit)) as target:
        yield target


@pytest.mark.parametrize("mode", first(["fork", "spawn"]))
@pytest.mark.parametrize(
    ("deed", "kind", "detail"),
    [
        ("*(volatile int*)8 = 0;", "signal", "the process died of SIGSEGV as it ended, after the case"),
        ("_exit(7);", "exit", "the process ended with exit status 7 as it ended, after the case"),
        ("for (volatile int on = 1; on;) {}", "hang", "it answered but did not end: still computing after"),
    ],
)
def test_a_destructor_is_seen(tmp_path: Path, mode: str, deed: str, kind: str, detail: str) -> None:
    for target in destroyed_by(tmp_path, deed, mode):
        for _ in range(1 if kind == "hang" else 2):
            death = target.run(CASE).death
            assert death is not None
            assert (death.kind, death.late) == (kind, True)
            assert death.detail.startswith(detail)
            assert target.run(MemoryCase(CASE.steps)).death is None


def test_what_is_said_of_a_late_end_is_not_that_a_call_did_not_return(tmp_path: Path) -> None:
    for target in destroyed_by(tmp_path, "for (;;) {}", "fork"):
        death = target.run(CASE).death
        assert death is not None
        violation = died(death)
        assert isinstance(violation, Hung)
        assert violation.expected == "the process ends in good order, whatever is alive"
        assert violation.where == "after the last step"
    for target in destroyed_by(tmp_path, "_exit(1);", "fork"):
        death = target.run(CASE).death
        assert death is not None
        assert isinstance(died(death), Crashed)


@pytest.mark.parametrize("sandbox", ["auto", "fork", later("spawn")])
def test_a_good_end_is_noted(sandbox: str) -> None:
    with closing(open_memory_target("reference", "emulated", sandbox, 10.0)) as memory:
        trace = memory.run(CASE)
        assert (trace.death, trace.ended, trace.closing) == (None, True, ())
        assert memory.run(MemoryCase(CASE.steps)).ended is False
    with closing(open_delegate_target([("reference", {})], "auto", sandbox, 10.0)) as delegate:
        script = delegate.run(SCRIPT)
        assert (script.death, script.ended, script.steps[0].ok) == (None, True, True)


def test_pytests_own_process_is_never_ended_and_the_rules_say_so() -> None:
    with closing(open_memory_target("reference", "emulated", "off", 10.0)) as memory:
        trace = memory.run(CASE)
        assert not trace.ended
        assert trace.closing
        verdict = judge(catalogue()["QLEAK-04"], memory, FEW, seed=1)
    assert verdict.outcome is Outcome.UNSUPPORTED
    with closing(open_delegate_target([("reference", {})], "auto", "off", 10.0)) as delegate:
        verdict = judge(catalogue()["LIFE-14"], delegate, FEW, seed=1)
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert verdict.reason.startswith("cases run in pytest's own process")


def test_a_smaller_case_ends_its_process_too() -> None:
    two = MemoryCase((ContextCreate("c0"), ContextCreate("c1")), ends=True)
    assert all(case.ends for case in smaller(two, deadly=True))
    assert all(case.ends for case in smaller(SCRIPT, deadly=True))


def test_a_delegate_in_use_is_the_reason_only_where_it_is_in_use() -> None:
    with closing(open_delegate_target([("mutant:exit-with-kernels", {})], "auto", "fork", 10.0)) as target:
        verdict = judge(catalogue()["LIFE-14"], target, PROFILES["default"], seed=1)
    assert verdict.outcome is Outcome.CRASH
    assert verdict.finding is not None
    assert '"close"' not in verdict.finding.case
