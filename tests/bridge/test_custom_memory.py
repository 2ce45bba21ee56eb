from __future__ import annotations

import functools
import os
from contextlib import closing
from pathlib import Path

import case_mutations
import msgspec
import native
import native_plugins
import pytest
from kept import keep
from reducing import smaller

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AllocCustom,
    AnyScriptStep,
    Apply,
    AssignCustom,
    Close,
    DestroyDelegate,
    FreeCustom,
    InspectCustom,
    Invoke,
    MakeDelegate,
    Open,
    Poison,
    Read,
    ReadCustom,
    ReadLog,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.observe.stderr import capture_stderr
from pytest_qnn.tflite.qnn_delegate.rules import ordered
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import AllocCounts, InspectCounts, LogCounts, PlaceCounts, ReadCounts, ScriptSeen
from tests.bridge import native_qnn

pytestmark = pytest.mark.usefixtures("lessons")

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
T = Tensor((2, 3))
GRAPH = Graph((T, T, T), (Node("ADD", (0, 0), (1,)), Node("RELU", (1,), (2,))), (0,), (2,))
PLACED = (
    MakeDelegate("d"),
    Open("i"),
    AllocCustom("a", 24, seed=1),
    AllocCustom("b", 28, seed=2),
    AssignCustom("i", 0, "a"),
    AssignCustom("i", 2, "b"),
    Allocate("i"),
    Apply("i", "d"),
    Allocate("i"),
)
USE = (SetInputs("i", 3), Invoke("i"), Read("i"), ReadCustom("i", 2))
FEW = Profile("few", in_process_examples=8, isolated_examples=4)
QUIET = ("TFL-04", "TFL-09", "TFL-14", "TFL-15")
"""Unsupported where a library says nothing of itself and its backend cannot be seen."""
OF_THE_OWN_INTERFACE = ("TFL-08", "TFL-20", "TFL-21")
RULES = [rule for rule in catalogue().values() if rule.area == "TFL"]


@functools.cache
def target(spec: str = "qnn-reference", runtime: str = RUNTIMES[0], backend: str = "") -> DelegateTarget:
    options = {"backend": backend} if backend else {}
    return keep(open_delegate_target([(spec, options)], runtime, "auto", 30.0))


def run(*steps: AnyScriptStep, runtime: str = RUNTIMES[0], spec: str = "qnn-reference") -> list[ScriptSeen]:
    trace = target(spec, runtime).run(ScriptCase((GRAPH,), steps))
    assert trace.death is None
    return list(trace.steps)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_workflow_of_the_tutorial_runs_in_shared_memory(runtime: str) -> None:
    ending = (Close("i"), FreeCustom("a"), FreeCustom("b"))
    seen = run(*PLACED, *USE, ReadLog("d"), *ending, DestroyDelegate("d"), runtime=runtime)
    assert all(step.ok for step in seen)
    for allocated in seen[2:4]:
        counts = allocated.counted(AllocCounts)
        assert counts == AllocCounts(counts.pointer, offset=0, usable=True, shared=True, overlaps=False)
    assert seen[5].counts == PlaceCounts(status=0, size=24, bytes=28)
    read, custom, log = seen[11:14]
    assert read.outputs == read.cpu == custom.outputs == custom.cpu
    assert custom.counts == ReadCounts(same=True)
    assert log.lines == (
        "TfLiteQnnDelegate delegate: 2 nodes delegated out of 2 nodes with 1 partitions.",
        "Tensor 0 is successfully registered to shared memory.",
        "Tensor 2 is successfully registered to shared memory.",
    )
    assert log.counts == LogCounts(executed=(0, 2))


def test_memory_that_was_freed_is_not_used_by_the_client() -> None:
    after = (SetInputs("i"), Poison("i"), Allocate("i"), Invoke("i"), Read("i"), ReadCustom("i", 2))
    seen = run(*PLACED, *USE, FreeCustom("b"), *after, Close("i"))
    assert seen[13].ok  # the tutorial frees memory while the interpreter is there
    assert [bool(step.skipped) for step in seen[14:20]] == [False, True, True, True, True, True]
    assert seen[20].ok


def test_results_are_not_read_where_a_tensor_was_just_assigned() -> None:
    other = (AllocCustom("c", 24), AssignCustom("i", 2, "c"), Read("i"), ReadCustom("i", 2))
    assert [bool(step.skipped) for step in run(*PLACED, *USE, *other)[-2:]] == [True, True]


def test_freed_memory_may_be_replaced() -> None:
    other = (FreeCustom("b"), AllocCustom("b", 24), AssignCustom("i", 2, "b"), Allocate("i"))
    seen = run(*PLACED, *USE, *other, *USE)
    assert all(step.ok for step in seen)
    assert seen[-1].outputs == seen[-1].cpu


def test_memory_is_kept_when_a_delegate_goes_and_a_wrong_pointer_is_freed() -> None:
    wrong = (FreeCustom(what="null"), FreeCustom(what="unknown"))
    seen = run(
        MakeDelegate("d"), AllocCustom("a", 5000, 4096), DestroyDelegate("d"), *wrong, InspectCustom("a")
    )
    assert seen[-1].counts == InspectCounts(usable=True, shared=True, kept=True)


@pytest.mark.parametrize("size", [0, 1 << 31, 1 << 46, (1 << 64) - 1])
def test_what_cannot_be_had_is_null(size: int) -> None:
    alloc, assign = run(Open("i"), AllocCustom("a", size), AssignCustom("i", 0, "a"))[1:]
    assert (alloc.ok, alloc.counted(AllocCounts).pointer) == (False, 0)
    assert assign.skipped == "there is no custom memory a"


def test_private_memory_is_told_from_shared() -> None:
    (seen,) = run(AllocCustom("a", 4096), spec="mutant:custom-plain-malloc")
    assert (seen.counted(AllocCounts).usable, seen.counted(AllocCounts).shared) == (True, False)


@pytest.mark.parametrize("spec", ["reference", "xnnpack"])
def test_other_delegates_offer_no_custom_memory(spec: str) -> None:
    assert target(spec).facts.custom_memory == -1
    assert run(AllocCustom("a", 64), spec=spec)[0].skipped == f"the delegate {spec} offers no custom memory"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_on_other_delegates_no_case_is_run(rule: object) -> None:
    assert len(RULES) >= 13
    verdict = judge(rule, target("reference"), FEW, seed=1)  # type: ignore[arg-type] - a Rule of any types
    assert (verdict.outcome, verdict.examples) == (Outcome.UNSUPPORTED, 0)
    lacking = ("the delegate offers no custom memory", "the delegate has no TfLiteQnnDelegateCreate")
    assert verdict.reason.startswith(lacking)


def test_the_delegate_that_offers_memory_is_found_in_a_chain() -> None:
    chain: list[tuple[str, dict[str, str]]] = [("xnnpack", {}), ("qnn-reference", {})]
    with closing(open_delegate_target(chain, RUNTIMES[0], "off", 30.0)) as opened:
        assert (opened.facts.custom_memory, opened.facts.registers) == (1, True)
        assert judge(catalogue()["TFL-09"], opened, FEW, seed=1).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (AllocCustom("a", -1), "step 0: bytes is -1"),
        (AllocCustom("a", 8, 48), "step 0: an alignment that is no power of two"),
        (AllocCustom("a", 8, 1 << 40), "Expected `int` <= 1048576 - at `$.steps[0].alignment`"),
        (FreeCustom("a", position=-1), "Expected `int` >= 0 - at `$.steps[0].position`"),
        (AssignCustom("i", -1, "a"), "Expected `int` >= 0 - at `$.steps[0].tensor`"),
        (ReadCustom("i", 1 << 20), "Expected `int` <= 65536 - at `$.steps[0].tensor`"),
    ],
)
def test_numbers_that_no_call_can_take_are_refused(step: AnyScriptStep, reason: str) -> None:
    assert case_mutations.refusal(ScriptCase((GRAPH,), (step,))).startswith(reason)


def test_a_case_without_its_memory_has_no_step_that_uses_it() -> None:
    stories = [case.steps for case in smaller(ScriptCase((GRAPH,), PLACED))]
    without = tuple(step for step in PLACED if getattr(step, "buffer", "") != "b")
    assert without in stories


def test_tensors_are_renumbered_with_a_smaller_graph() -> None:
    stories = [case.steps for case in smaller(ScriptCase((GRAPH,), (*PLACED, *USE)))]
    left = [steps for steps in stories if AssignCustom("i", 1, "b") in steps]
    assert left
    assert all(ReadCustom("i", 1) in steps for steps in left if len(steps) == len(PLACED) + len(USE))


def test_a_case_survives_its_file() -> None:
    case = ScriptCase((GRAPH,), (*PLACED, *USE, ReadLog("d"), FreeCustom(what="null"), InspectCustom("a")))
    assert msgspec.json.decode(msgspec.json.encode(case), type=ScriptCase) == case


def test_there_is_no_case_for_a_delegate_without_custom_memory() -> None:
    with pytest.raises(NothingToJudge, match="offers no custom memory"):
        ordered(DelegateFacts())


LIBRARY = native_plugins.SOURCE + native_qnn.MEMORY


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native.build(tmp_path_factory.mktemp("good"), LIBRARY, SHARING="MAP_SHARED")


def test_a_library_is_judged_by_its_two_functions(library: Path) -> None:
    facts = target(str(library)).facts
    assert (facts.custom_memory, facts.registers) == (0, None)
    verdicts = {rule.id: judge(rule, target(str(library)), FEW, seed=1) for rule in RULES}
    outcomes = {name: verdict.outcome for name, verdict in verdicts.items()}
    unsupported = dict.fromkeys((*QUIET, *OF_THE_OWN_INTERFACE), Outcome.UNSUPPORTED)
    assert outcomes == dict.fromkeys(outcomes, Outcome.PASS) | unsupported
    assert "reports no tensor at all" in verdicts["TFL-09"].reason


REPORTS = """
for (int side = 0; side < 2; ++side) {
  const IntArray* tensors = side ? node->outputs : node->inputs;
  for (int i = 0; i < tensors->size; ++i)
    for (int b = 0; b < 64; ++b)
      if (blocks[b].memory && blocks[b].memory == context->tensors[tensors->data[i]].data WHEN)
        fprintf(stderr, "INFO: Tensor %d is successfully registered to shared memory.\\n", tensors->data[i]);
}
"""
BLOCKS = "#include <stdio.h>\nstatic struct { void* memory; size_t bytes; } blocks[64];\n"


def reporting(folder: Path, when: str = "") -> Path:
    """The library, which tells of the tensors that its kernels find in custom memory at an invoke."""
    loud = BLOCKS + LIBRARY.replace("static struct { void* memory; size_t bytes; } blocks[64];", "")
    text = " ".join(REPORTS.replace("WHEN", when).split())
    return native.build(folder, loud, SHARING="MAP_SHARED", IN_INVOKE=text)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_a_library_writes_to_stderr_is_heard(tmp_path: Path, runtime: str) -> None:
    verdict = judge(catalogue()["TFL-09"], target(str(reporting(tmp_path)), runtime), FEW, seed=1)
    assert verdict.outcome is Outcome.PASS, verdict
    assert verdict.examined


def test_a_library_that_keeps_quiet_about_results_is_found(tmp_path: Path) -> None:
    made = reporting(tmp_path, when="&& !side")
    verdict = judge(catalogue()["TFL-09"], target(str(made)), FEW, seed=1)
    assert verdict.outcome is Outcome.FAIL, verdict


def test_stderr_is_given_back_after_a_case_that_reads_a_log(capfd: pytest.CaptureFixture[str]) -> None:
    before = os.fstat(2)
    with capture_stderr(ScriptCase((GRAPH,), (ReadLog("d"),))) as heard:
        assert heard is not None
        os.write(2, b"one\ntwo\n")
        assert heard.lines() == ("one", "two")
        assert heard.lines() == ()
        assert 0 < os.write(2, bytes(1 << 24)) < 1 << 24
        with pytest.raises(BlockingIOError):  # nobody is held up who says more than there is room for
            os.write(2, bytes(1 << 16))
    after = os.fstat(2)
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
    os.write(2, b"three\n")
    assert capfd.readouterr().err == "three\n"


def test_other_cases_hear_nothing() -> None:
    with capture_stderr(ScriptCase((GRAPH,), (Open("i"),))) as heard:
        assert heard is None


def test_a_library_that_gives_private_memory_is_found(tmp_path: Path) -> None:
    made = native.build(tmp_path, LIBRARY, SHARING="MAP_PRIVATE")
    verdict = judge(catalogue()["TFL-01"], target(str(made)), FEW, seed=1)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.finding is not None
    assert verdict.finding.seen == "memory in a mapping that is private to the process"
