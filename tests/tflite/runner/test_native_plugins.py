from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fast_run import later, part
from native_plugins import FAULTS, OPTIONS, plugin

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite import target as delegate_target
from pytest_qnn.tflite.cases import script
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.plugin import Apply, Copy, Create, Destroy, PluginCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.runner import learn as delegate_learn
from pytest_qnn.tflite.runner.delegates import delegate_factory
from pytest_qnn.tflite.runner.plugin.run import run_plugin_case
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import UnloadCounts

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
NEGATED = Graph((Tensor((2,)),) * 2, (Node("NEG", (0,), (1,)),), inputs=(0,), outputs=(1,))
FOUND = (Outcome.FAIL, Outcome.CRASH)


class _NoShrink(Profile):
    def shrink_budget(self, *, isolated: bool) -> int:  # noqa: ARG002 - the signature is Profile's
        return 0


FEW = _NoShrink("few", in_process_examples=10, isolated_examples=5, repeats=0)
MORE = _NoShrink("more", in_process_examples=100, isolated_examples=5, repeats=0)


@pytest.fixture(autouse=True, scope="module")
def learned_once() -> Iterator[None]:
    """What is learned of the plugin takes longer than its rules, and is the same whatever the fault."""
    learned: list[Any] = []

    def learn(ask: Any, _: Any, *, together: bool) -> Any:
        assert not together
        if not learned:
            learned.append(delegate_learn.learn_claims(ask))
        return learned[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delegate_target, "learn_claims", learn)
        yield


@contextmanager
def opened(library: Path, options: Mapping[str, str], runtime: str = RUNTIMES[0]) -> Iterator[DelegateTarget]:
    target = open_delegate_target([(str(library), options)], runtime, "fork", 10.0)
    try:
        yield target
    finally:
        target.close()


BESIDE = """
  struct { const char* file; void *base, *name, *at; } own;
  extern int dladdr(const void*, void*);
  char path[4096];
  dladdr((void*)prepare, &own);
  strcpy(path, own.file);
  strcpy(strrchr(path, 47) + 1, "kernels.bin");
  if (access(path, R_OK)) return NULL
"""


@pytest.mark.parametrize("mask", ["", "extern unsigned umask(unsigned); umask(0777);"])
def test_a_copy_has_the_files_beside_it_whatever_the_umask_is(mask: str, tmp_path: Path) -> None:
    (tmp_path / "kernels.bin").touch()
    library = plugin(tmp_path, IN_CREATE=mask + " ".join(BESIDE.split()))
    case = PluginCase(NEGATED, (Create(), Copy("d1"), Apply("d1"), Destroy("d1"), Copy("d2"), Apply("d2")))
    with opened(library, {}) as target:
        trace = target.run(case)
    assert [(seen.error, seen.made) for seen in trace.steps if seen.made is not None] == [("", True)] * 3
    assert not any(seen.error or seen.skipped for seen in trace.steps)


def test_a_machine_on_which_there_is_no_room_for_a_copy_is_no_fault_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    runtime = load_runtime(RUNTIMES[0])
    factory = delegate_factory(str(plugin(tmp_path)), {}, runtime)
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    trace = run_plugin_case(PluginCase(NEGATED, (Create(), Copy("d1"))), [factory], runtime)
    assert trace.steps[1].skipped == "the library cannot be copied: [Errno 28] No space left on device"


CREATED = """
  static int made;
  extern int setenv(const char*, const char*, int);
  const char* living = getenv("LIVING");
  if (!made++ && living && *living) return NULL;
  char more[80] = "x";
  strcat(more, living ? living : "");
  setenv("LIVING", more, 1)
"""
"""Returns NULL where the library was loaded anew while a delegate lived that an earlier load had made."""
DESTROYED = """
  extern int setenv(const char*, const char*, int);
  setenv("LIVING", getenv("LIVING") + 1, 1)
"""


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_no_delegate_of_the_history_lives_while_the_library_is_unloaded(runtime: str, tmp_path: Path) -> None:
    library = plugin(tmp_path, IN_CREATE=" ".join(CREATED.split()), IN_DESTROY=" ".join(DESTROYED.split()))
    used = script.Open("i0"), script.Apply("i0", "d0"), script.Allocate("i0"), script.SetInputs("i0")
    steps = script.MakeDelegate("d0"), *used, script.Invoke("i0")
    ended = script.Close("i0"), script.DestroyDelegate("d0")
    case = script.ScriptCase((NEGATED,), (*steps, *ended, script.Unload(), *steps), history=History(kept=3))
    with opened(library, {}, runtime) as target:
        trace = target.run(case)
    assert not trace.past
    assert all(seen.ok for seen in trace.steps), trace.steps
    assert trace.steps[len(steps) + len(ended)].counts == UnloadCounts(unloaded=True)


def constant(folder: Path) -> Path:
    """A library whose delegates are one struct, which nobody can write to."""
    made = "static const Delegate made = {.prepare = prepare}; return (void*)&made"
    return plugin(folder, IN_CREATE=f"free(plugin->state); free(plugin); {made}", IN_DESTROY="return")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_delegate_without_state_may_be_a_constant_of_its_library(runtime: str, tmp_path: Path) -> None:
    with opened(constant(tmp_path), {}, runtime) as target:
        trace = target.run(DelegateCase(NEGATED, (Application(), Application())))
    assert trace.death is None
    assert trace.invoke_errors == ("",)
    assert [kernel.nodes for kernel in trace.kernels] == [(0,)]
    assert all(applied.ok and applied.prepared for applied in trace.applied)


def test_a_delegate_is_observed_until_the_last_one_at_its_address_is_destroyed(tmp_path: Path) -> None:
    before = (script.MakeDelegate("d0"), script.MakeDelegate("d1"), script.Open("i0"))
    applied = (script.Apply("i0", "d1"), script.DestroyDelegate("d0"), script.Allocate("i0"))
    again = (script.Resize("i0", 0, (3,)), script.Allocate("i0"), script.SetInputs("i0"), script.Invoke("i0"))
    with opened(constant(tmp_path), {}) as target:
        trace = target.run(script.ScriptCase((NEGATED,), (*before, *applied, *again)))
    (seen,) = trace.interpreters
    assert [event.kind for event in seen.events].count("Prepare") == 2
    assert seen.event_steps[-2:] == (9, 10)
    assert [event.kind for event in seen.events][-2:] == ["invoke", "free"]


@pytest.mark.parametrize(
    ("runtime", "options"),
    [later(RUNTIMES[0], {}, name="bare"), pytest.param(RUNTIMES[1], OPTIONS, id="options")],
)
def test_a_faultless_library_passes(runtime: str, options: Mapping[str, str], tmp_path: Path) -> None:
    with opened(plugin(tmp_path), options, runtime) as target:
        verdicts = {
            rule.id: judge(rule, target, FEW, seed=1)
            for rule in catalogue().values()
            if rule.area in ("ABI", "XNN")
        }
    outcomes = {rule: verdict.outcome for rule, verdict in verdicts.items()}
    looked_at_nothing = {"ABI-11"}  # ABI-03 and ABI-05 are judged with options that were found out, too
    passed = {rule for rule, outcome in outcomes.items() if outcome is Outcome.PASS}
    assert passed == outcomes.keys() - looked_at_nothing, [
        (rule, verdict.outcome, verdict.reason, verdict.finding) for rule, verdict in verdicts.items()
    ]
    assert all(outcomes[rule] is Outcome.UNSUPPORTED for rule in looked_at_nothing), outcomes


@pytest.mark.parametrize("name", part(FAULTS, 0))
def test_a_faulty_library_is_found(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    with opened(plugin(tmp_path, **fault.macros), fault.options) as target:
        verdict = judge(catalogue()[fault.rule], target, FEW, seed=1)
    assert verdict.outcome in FOUND, verdict


@pytest.mark.parametrize(
    ("macro", "rule_id"),
    [("LEAKS_KERNEL", "RSZ-05"), later("LEAKS_KERNEL", "LEAK-01"), later("LEAKS_PREPARE", "RSZ-05")],
)
def test_the_smallest_block_for_each_kernel_of_a_library_is_a_leak(
    macro: str, rule_id: str, tmp_path: Path
) -> None:
    with opened(plugin(tmp_path, **{macro: "1"}), {}) as target:
        verdict = judge(catalogue()[rule_id], target, MORE, seed=1)
    assert verdict.outcome is Outcome.FAIL, verdict


def test_a_library_that_keeps_nothing_may_be_resized(tmp_path: Path) -> None:
    with opened(plugin(tmp_path), {}) as target:
        verdict = judge(catalogue()["RSZ-05"], target, MORE, seed=1)
    assert verdict.outcome is Outcome.PASS, verdict


@pytest.mark.parametrize("name", ["mangled", "needs-tflite"])
def test_a_library_that_makes_no_delegate_is_judged_by_its_interface_alone(name: str, tmp_path: Path) -> None:
    with opened(plugin(tmp_path, **FAULTS[name].macros), {}) as target:
        reason = target.facts.unusable
        verdict = judge(catalogue()["PART-01"], target, FEW, seed=1)
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert verdict.reason == reason
    assert reason
