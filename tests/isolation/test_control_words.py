"""Control words of the floating-point unit: what is seen of them, and that nobody else is spoiled."""

from __future__ import annotations

import platform
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from native import delegate_library, qnn_library

from pytest_qnn.core.engine import judge
from pytest_qnn.core.evidence import ControlWords
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome, Verdict
from pytest_qnn.isolation.observe import control_words
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import MakeDelegate, ScriptCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.target import open_delegate_target

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="control words of another machine")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")

FLUSHES = "__builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);"
"""Flush-to-zero and denormals-are-zero, as the start-up code of ``-ffast-math`` sets them."""
FEW = Profile("few", in_process_examples=10, isolated_examples=5, repeats=0)


@pytest.fixture(autouse=True)
def _left_as_found() -> Iterator[None]:
    yield
    control_words.put_back()


def test_what_a_call_leaves_is_noted_once_and_put_back() -> None:
    watch = control_words.Watch()
    watch.look("nothing")
    watch.step = 3
    control_words.leave(mxcsr=0x9F80)
    assert np.float32(1e-38) / np.float32(16) == 0
    watch.look("call")
    watch.look("the next one")
    assert np.float32(1e-38) / np.float32(16) != 0
    assert watch.changes is not None
    (change,) = watch.changes
    assert (change.where, change.step) == ("call", 3)
    assert change.before == ControlWords(mxcsr=0x1F80, x87=0x037F)
    assert change.after == ControlWords(mxcsr=0x9F80, x87=0x037F)


def test_of_many_changes_some_are_kept() -> None:
    watch = control_words.Watch()
    for _ in range(1000):
        control_words.leave(x87=0x007F)
        watch.look("call")
    assert len(watch.changes or ()) < 100


def test_status_is_no_control() -> None:
    watch = control_words.Watch()
    with np.errstate(all="ignore"):
        assert np.isinf(np.float32(3e38) * np.float32(3e38))  # sets the bits for overflow and inexact
    watch.look("arithmetic")
    assert watch.changes == ()


def test_threads_have_words_of_their_own() -> None:
    watch = control_words.Watch()
    thread = threading.Thread(target=lambda: control_words.leave(mxcsr=0x9F80))
    thread.start()
    thread.join()
    watch.look("a thread's")
    assert watch.changes == ()


def test_where_they_are_not_watched_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_words, "_unit", lambda: None)
    watch = control_words.Watch()
    watch.look("call")
    assert watch.changes is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (ControlWords(0x1F80, 0x037F), "MXCSR 0x1f80, x87 control word 0x037f"),
        (
            ControlWords(0x9FC0, 0x037F),
            "MXCSR 0x9fc0 (flush-to-zero, denormals-are-zero), x87 control word 0x037f",
        ),
        (ControlWords(0x7F80, 0x007F), "MXCSR 0x7f80 (rounding towards zero), x87 control word 0x007f"),
        (ControlWords(0x1D80, 0x037F), "MXCSR 0x1d80 (exceptions not masked), x87 control word 0x037f"),
    ],
)
def test_words_in_words(words: ControlWords, text: str) -> None:
    assert words.text == text


def test_a_case_that_is_not_watched_spoils_no_other() -> None:
    """What a delegate has left is gone before a script begins."""
    graph = Graph((Tensor((1,)), Tensor((1,))), (Node("RELU", (0,), (1,)),), (0,), (1,))
    with closing(open_delegate_target([("reference", {})], "tflite_runtime", "auto", 10.0)) as target:
        control_words.leave(mxcsr=0x9FC0)
        target.run(ScriptCase((graph,), (MakeDelegate("d0"),)))
        assert np.float32(1e-38) / np.float32(16) != 0


def _memory(library: Path) -> Verdict:
    with closing(open_memory_target(str(library), "emulated", "fork", 10.0)) as target:
        return judge(catalogue()["IF-16"], target, FEW, seed=1)


def _delegate(library: Path) -> Verdict:
    with closing(open_delegate_target([(str(library), {})], "tflite_runtime", "fork", 10.0)) as target:
        return judge(catalogue()["RUN-02"], target, FEW, seed=1)


@needs_gcc
def test_a_backend_that_is_loaded_with_flush_to_zero_is_found(tmp_path: Path) -> None:
    verdict = _memory(qnn_library(tmp_path, on_load=FLUSHES))
    assert verdict.outcome is Outcome.FAIL, verdict
    assert verdict.finding is not None
    assert verdict.finding.where.startswith("loading libqnn")
    assert "(flush-to-zero, denormals-are-zero)" in verdict.finding.seen


@needs_gcc
def test_a_backend_is_found_by_the_call(tmp_path: Path) -> None:
    verdict = _memory(qnn_library(tmp_path, FLUSHES))
    assert verdict.finding is not None, verdict
    assert verdict.finding.where == "step 0, context-create: QnnContext_create"
    assert _memory(qnn_library(tmp_path)).outcome is not Outcome.FAIL


@needs_gcc
def test_a_delegate_is_found_by_the_phase(tmp_path: Path) -> None:
    verdict = _delegate(delegate_library(tmp_path, on_invoke=FLUSHES))
    assert verdict.finding is not None, verdict
    assert verdict.finding.where == "invoke 0"
    assert _delegate(delegate_library(tmp_path)).outcome is Outcome.PASS


@needs_gcc
def test_a_delegate_that_is_loaded_with_flush_to_zero_is_found(tmp_path: Path) -> None:
    constructor = f"__attribute__((constructor)) static void start(void) {{ {FLUSHES} }}"
    verdict = _delegate(delegate_library(tmp_path, before=constructor))
    assert verdict.finding is not None, verdict
    assert verdict.finding.where.startswith("loading lib")
