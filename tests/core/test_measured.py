"""What is measured of a process: exactly, in processes for it, and only what comes again is a finding."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fast_run import first, later
from hypothesis import strategies as st
from minimal_doubles import FakeTarget, made_up
from native_plugins import plugin

from pytest_qnn.core.engine import judge, judge_case
from pytest_qnn.core.profile import PROFILES, Profile
from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Crashed, Examined, Measured, Outcome, Verdict, Violation
from pytest_qnn.qnn.cases.case import Alloc, MemoryCase
from pytest_qnn.qnn.trace import MemoryTrace
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import DestroyDelegate, ScriptCase
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
RUNTIMES = ("tflite_runtime", "ai_edge_litert")
PROFILE = PROFILES["default"]

FILLS_THE_CACHE = (
    "{static int turn; int size = 24 + turn % 60 * 16, count = turn++ / 60 % 7 + 1; void* blocks[7];"
    "for (int i = 0; i < count; ++i) blocks[i] = malloc(size);"
    "for (int i = 0; i < count; ++i) free(blocks[i]);}"
)
"""Another size for each interpreter, and everything given back: more and more blocks are in glibc's cache."""
LEAKS_24 = "*(volatile char*)malloc(24) = 1"
LEAKS_400 = "*(volatile char*)malloc(400) = 1"
LEAKS_AT_TIMES = "{static int turn; if (turn++ % 2) *(volatile char*)malloc(100) = 1;}"
FREES_TWICE = "{char *a = malloc(24), *b = malloc(24); free(a); free(b); free(a);}"
"""Not in a row: only the cache notices."""


class _NoShrink(Profile):
    def shrink_budget(self, *, isolated: bool) -> int:  # noqa: ARG002 - the signature is Profile's
        return 0


class Short(Profile):
    def shrink_budget(self, *, isolated: bool) -> int:  # noqa: ARG002 - the signature is Profile's
        return 10  # each costs the second that threads have to end


FEW = _NoShrink("few", in_process_examples=100, isolated_examples=5, repeats=2)
MORE = _NoShrink("more", in_process_examples=300, isolated_examples=5, repeats=0)


@contextmanager
def opened(
    folder: Path, runtime: str = RUNTIMES[0], mode: str = "fork", **macros: str
) -> Iterator[DelegateTarget]:
    target = open_delegate_target([(str(plugin(folder, **macros)), {})], runtime, mode, 10.0)
    try:
        yield target
    finally:
        target.close()


@needs_gcc
@pytest.mark.parametrize("seed", first(range(1, 7)))
@pytest.mark.parametrize("runtime", first(RUNTIMES))
def test_blocks_in_the_cache_of_glibc_are_no_leak(runtime: str, seed: int, tmp_path: Path) -> None:
    with opened(tmp_path, runtime, IN_PREPARE=FILLS_THE_CACHE) as target:
        verdict = judge(catalogue()["LEAK-01"], target, FEW, seed)
    assert verdict.outcome is Outcome.PASS, verdict


@needs_gcc
@pytest.mark.parametrize("seed", first(range(1, 5)))
@pytest.mark.parametrize("runtime", first(RUNTIMES[::-1]))
def test_the_smallest_block_for_each_interpreter_is_always_found(
    runtime: str, seed: int, tmp_path: Path
) -> None:
    with opened(tmp_path, runtime, IN_PREPARE=LEAKS_24) as target:
        verdict = judge(catalogue()["LEAK-01"], target, FEW, seed)
    assert (verdict.outcome, verdict.flaky) == (Outcome.FAIL, ""), verdict


@needs_gcc
@pytest.mark.parametrize(
    ("leak", "mode"), [later(LEAKS_AT_TIMES, "fork"), later(LEAKS_24, "spawn"), (LEAKS_400, "off")]
)
def test_a_leak_is_found_also(leak: str, mode: str, tmp_path: Path) -> None:
    with opened(tmp_path, mode=mode, IN_PREPARE=leak) as target:
        verdict = judge(catalogue()["LEAK-01"], target, FEW, 1)
    assert verdict.outcome is Outcome.FAIL, verdict


@pytest.mark.full
@needs_gcc
def test_only_processes_that_measure_memory_do_without_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=5")
    dies = 'if (!strcmp(getenv("GLIBC_TUNABLES"), "glibc.malloc.tcache_count=5%s")) abort()'
    for more, rule, others, profile in (
        ("", "PART-18", "LEAK-01", MORE),
        (":glibc.malloc.tcache_count=0", "LEAK-01", "PART-18", FEW),
    ):
        with opened(tmp_path, IN_PREPARE=dies % more) as target:
            # What it claims cannot be learned of a library that dies: few of the cases are about that.
            assert judge(catalogue()[rule], target, MORE, 1).outcome is Outcome.CRASH
            assert judge(catalogue()[others], target, profile, 1).outcome is Outcome.PASS


@needs_gcc
def test_a_block_that_is_freed_twice_is_noticed_by_other_rules(tmp_path: Path) -> None:
    with opened(tmp_path, IN_PREPARE=FREES_TWICE) as target:
        verdict = judge(catalogue()["LIFE-02"], target, FEW, 1)
    assert verdict.outcome is Outcome.CRASH


@needs_gcc
@pytest.mark.parametrize("seed", first(range(1, 7)))
@pytest.mark.parametrize(
    ("ends", "runtime"),
    [
        ("pthread_detach(worker)", RUNTIMES[0]),
        later("pthread_detach(worker)", RUNTIMES[1]),
        *(later("pthread_join(worker, NULL)", runtime) for runtime in RUNTIMES),
    ],
)
def test_a_thread_that_ends_with_its_delegate_is_none_left(
    runtime: str, ends: str, seed: int, tmp_path: Path
) -> None:
    macros = {"HAS_WORKER(worker)": ends}
    with opened(tmp_path, runtime, **macros) as target:
        verdict = judge(catalogue()["THR-05"], target, FEW, seed)
    assert verdict.outcome is Outcome.PASS, verdict


@pytest.mark.full  # it is looked at for a second again and again
@needs_gcc
def test_the_delegate_of_a_thread_that_is_left_is_destroyed_in_the_minimal_case(tmp_path: Path) -> None:
    with opened(tmp_path, KEEPS_WORKER="1") as target:
        verdict = judge(catalogue()["THR-05"], target, Short("short", 100, 5, repeats=0), 1)
    assert verdict.outcome is Outcome.FAIL
    assert DestroyDelegate("d0") in case_of(verdict, ScriptCase).steps


def case_of(verdict: Verdict, kind: Any) -> Any:
    assert verdict.finding is not None
    return msgspec.json.decode(verdict.finding.case, type=kind)


OWN_MEASURED = ("LEAK-01", "LEAK-03", "OWN-02", "OWN-03", "LIFE-05", "ABI-08")
"""Rules about delegates that count what malloc has in use."""


@needs_gcc
@pytest.mark.parametrize("rule", [*map(later, OWN_MEASURED[1:4]), *OWN_MEASURED[:1], *OWN_MEASURED[4:]])
@pytest.mark.parametrize("runtime", first(RUNTIMES))
def test_an_allocator_of_its_own_that_gives_back_is_no_leak(runtime: str, rule: str, tmp_path: Path) -> None:
    with opened(tmp_path, runtime, OWN_ALLOCATOR="MAP_NORESERVE") as target:
        verdict = judge(catalogue()[rule], target, FEW, 1)
    assert verdict.outcome is Outcome.PASS, verdict


@needs_gcc
@pytest.mark.parametrize(
    ("kept", "runtime"),
    [
        (("LEAK-01", {"LEAKS_KERNEL": "1"}), RUNTIMES[1]),
        later(("LEAK-01", {"LEAKS_KERNEL": "1"}), RUNTIMES[0]),
        (("LIFE-05", {"LEAKS_KERNEL": "1"}), RUNTIMES[0]),
        later(("LIFE-05", {"LEAKS_KERNEL": "1"}), RUNTIMES[1]),
        (("ABI-08", {"LEAKS": "1"}), RUNTIMES[0]),
        later(("ABI-08", {"LEAKS": "1"}), RUNTIMES[1]),
        *(later(("LEAK-01", {"LEAKS": "1"}), runtime) for runtime in RUNTIMES),
        *(later(("OWN-03", {"LEAKS": "1"}), runtime) for runtime in RUNTIMES),
    ],
)
def test_what_an_allocator_of_its_own_keeps_is_a_leak(
    kept: tuple[str, dict[str, str]], runtime: str, tmp_path: Path
) -> None:
    rule, leak = kept
    with opened(tmp_path, runtime, OWN_ALLOCATOR="MAP_NORESERVE", **leak) as target:
        verdict = judge(catalogue()[rule], target, FEW, 1)
    assert verdict.outcome is Outcome.FAIL, verdict
    assert verdict.finding is not None
    assert "resident bytes of the target's own allocator" in verdict.finding.expected


@needs_gcc
@pytest.mark.parametrize(
    ("rule", "leak"),
    [
        ("LEAK-01", {}),
        later("LEAK-01", {"LEAKS": "1"}),
        ("LIFE-05", {}),
        later("LIFE-05", {"LEAKS_KERNEL": "1"}),
        ("ABI-08", {}),
        later("ABI-08", {"LEAKS": "1"}),
    ],
)
def test_of_memory_that_is_all_resident_nothing_is_known(
    rule: str, leak: dict[str, str], tmp_path: Path
) -> None:
    with opened(tmp_path, OWN_ALLOCATOR="MAP_POPULATE", **leak) as target:
        verdict = judge(catalogue()[rule], target, FEW, 1)
    assert verdict.outcome is Outcome.INCONCLUSIVE, verdict


@needs_gcc
@pytest.mark.parametrize(
    ("rule", "leak"),
    [
        ("LIFE-05", {"IN_KERNEL_PREPARE": "mmap(0, 1, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)"}),
        ("ABI-08", {"IN_CREATE": "mmap(0, 1, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)"}),
    ],
)
@pytest.mark.parametrize("flags", [later("MAP_NORESERVE"), "MAP_POPULATE"])
def test_a_mapping_for_each_is_a_leak_whatever_else_an_allocator_has(
    flags: str, rule: str, leak: dict[str, str], tmp_path: Path
) -> None:
    with opened(tmp_path, OWN_ALLOCATOR=flags, **leak) as target:
        verdict = judge(catalogue()[rule], target, FEW, 1)
    assert verdict.outcome is Outcome.FAIL, verdict
    assert verdict.finding is not None
    assert "address space" in verdict.finding.expected


class Measuring(FakeTarget):
    """Leaves 24 bytes of the cases for which ``here`` says so; in a fresh process ``fresh`` does."""

    def __init__(self, here: Callable[[int], bool], fresh: Callable[[int], bool]) -> None:
        super().__init__("memory", lambda case: _left(here, case))
        self._fresh = fresh

    def run_fresh(self, case: Any) -> Any:
        return _left(self._fresh, case)


def _left(leaks: Callable[[int], bool], case: Any) -> MemoryTrace:
    return MemoryTrace(session=(("left", 24 * leaks(case.steps[0].size)),))


SIZES = st.integers(1, 100).map(lambda size: MemoryCase((Alloc("b0", size),)))


def checked(kind: type[Violation]) -> Callable[[Any, Any], Examined]:
    """Nothing may be left."""

    def check(_case: Any, trace: Any) -> Examined:
        if trace.session[0][1]:
            raise kind("0 bytes", "24 bytes")
        return Examined(1, "buffers")

    return check


def judged(here: Callable[[int], bool], fresh: Callable[[int], bool], kind: type[Violation]) -> Verdict:
    """The verdict on buffers of 1 to 100 bytes, by such a target."""
    return judge(made_up(SIZES, "memory", checked(kind)), Measuring(here, fresh), PROFILE, 1)


def test_what_does_not_come_again_in_fresh_processes_is_no_finding() -> None:
    assert judged(lambda _: True, lambda _: False, Measured).outcome is Outcome.PASS
    assert judged(lambda size: size < 50, lambda _: False, Measured).outcome is Outcome.PASS


def test_it_has_to_come_again_in_each_of_them() -> None:
    turns = itertools.cycle([True, False])
    assert judged(lambda size: size < 50, lambda _: next(turns), Measured).outcome is Outcome.PASS


def test_what_dies_in_a_fresh_process_is_a_crash() -> None:
    target = Measuring(lambda _: True, lambda _: True)
    target.run_fresh = lambda _: MemoryTrace(death=Death("signal", "SIGSEGV"))  # type: ignore[method-assign]
    verdict = judge(made_up(SIZES, "memory", checked(Measured)), target, PROFILE, 1)
    assert verdict.outcome is Outcome.CRASH
    assert verdict.finding is not None
    assert verdict.finding.seen == "SIGSEGV"


def test_a_case_that_is_judged_again_is_measured_as_in_a_run() -> None:
    rule, case = made_up(SIZES, "memory", checked(Measured)), MemoryCase((Alloc("b0", 5),))
    chance = Measuring(lambda _: True, lambda _: False)
    assert judge_case(rule, chance, case) == Examined(1, "buffers")
    turns = itertools.cycle([True, False])
    assert judge_case(rule, Measuring(lambda _: True, lambda _: next(turns)), case) == Examined(1, "buffers")
    assert isinstance(judge_case(rule, Measuring(lambda _: True, lambda _: True), case), Measured)
    chance.run_fresh = lambda _: MemoryTrace(death=Death("signal", "SIGSEGV"))  # type: ignore[method-assign]
    assert isinstance(judge_case(rule, chance, case), Crashed)


def test_other_findings_need_no_fresh_process() -> None:
    assert judged(lambda _: True, lambda _: False, Violation).outcome is Outcome.FAIL


def test_after_chance_the_search_goes_on() -> None:
    verdict = judged(lambda _: True, lambda size: size > 20, Measured)
    assert verdict.outcome is Outcome.FAIL
    assert case_of(verdict, MemoryCase).steps[0].size > 20


def test_a_smaller_case_that_does_not_come_again_is_not_the_finding() -> None:
    verdict = judged(lambda size: size > 5, lambda size: size > 20, Measured)
    assert verdict.outcome is Outcome.FAIL
    assert case_of(verdict, MemoryCase).steps[0].size > 20
