"""What is said of a delegate that lets a C++ exception through: which call failed, or why it was fatal."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from fast_run import first

from pytest_qnn.core.engine.checking import checked
from pytest_qnn.core.verdict import Crashed, FailedCall
from pytest_qnn.report import crash
from pytest_qnn.rules import named
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.controls.graphs import ADDITION, simplest
from pytest_qnn.tflite.target import open_delegate_target
from tests.faults import faults, throwing

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler (g++)")
_PREPARED = "  return node->user_data ? kOk : kError;\n"
_INVOKED = "static int kernel_invoke(Context* context, Node* node) {\n"
_PLAIN = simplest(ADDITION)


def built(folder: Path, *pieces: tuple[str, str]) -> Path:
    """The example delegate with these replacements, each of what stands in it once."""
    source = faults.conforming("delegate")
    for piece, by in pieces:
        assert source.count(piece) == 1
        source = source.replace(piece, by)
    beside = throwing.compiled("thrown", folder)
    source = f"void out_of_range(void);\n{source}"
    return faults.build(folder, "delegate", "thrown", source, beside=beside, libraries=("-lstdc++",))


@pytest.mark.parametrize("runtime", first(["tflite_runtime", "ai_edge_litert"]))
def test_an_exception_that_python_hears_of_is_a_call_that_failed(tmp_path: Path, runtime: str) -> None:
    """Nothing is looked at before the case: there the runtime's Python binding makes an error of it."""
    again = f"  static int prepared;\n  if (prepared++ == 1) out_of_range();\n{_PREPARED}"
    library = built(tmp_path, (_PREPARED, again))
    case = DelegateCase(_PLAIN, history=History(used=2))
    with closing(open_delegate_target([(str(library), {})], runtime, "fork", 10.0)) as target:
        found = checked(named("PART-04"), case, target.run(case))
    assert isinstance(found, FailedCall)
    assert "IndexError: the third of two steps" in found.seen


@pytest.mark.parametrize("runtime", first(["ai_edge_litert", "tflite_runtime"]))
def test_an_exception_that_ends_the_process_is_told_as_one(tmp_path: Path, runtime: str) -> None:
    library = built(tmp_path, (_INVOKED, f"{_INVOKED}  if (node->user_data) out_of_range();\n"))
    case = DelegateCase(_PLAIN)
    with closing(open_delegate_target([(str(library), {})], runtime, "fork", 10.0)) as target:
        found = checked(named("RUN-01"), case, target.run(case))
        assert isinstance(found, Crashed)
        evidence = target.symbolised(found.evidence)
    assert evidence.during.startswith("invoke of kernel 0")
    assert evidence.is_of_exception
    assert "a C++ exception came out of the target's function" in crash.lines(evidence)[0]
