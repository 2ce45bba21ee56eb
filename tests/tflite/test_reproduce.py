from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_run import later

from pytest_qnn.tflite import reproduce
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Sample,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.numerics.bounds import expected_outputs
from pytest_qnn.tflite.numerics.kernels import run_graph
from pytest_qnn.tflite.numerics.precision import SINGLE
from pytest_qnn.tflite.reproduce import frame
from pytest_qnn.tflite.trace import DelegateTrace, ScriptSeen, ScriptTrace

ADDED = DelegateCase(Graph((Tensor((6,)), Tensor((6,))), (Node("ADD", (0, 0), (1,)),), (0,), (1,)))
RUNTIME = """
import os

class OpResolverType:
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 0

def load_delegate(library, options):
    os.write(1, os.environb[b"SAID"])
    if not os.path.exists(library):
        raise OSError(f"{library}: no such file")

class Interpreter:
    def __init__(self, **_):
        pass

    def allocate_tensors(self):
        pass

    def set_tensor(self, tensor, values):
        self.values = values

    def invoke(self):
        pass

    def get_tensor(self, tensor):
        return 2 * self.values
"""


def test_a_program_says_what_was_seen_when_it_was_written_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frame, "PLAN", {"expected": "this", "seen": "that"})
    monkeypatch.setattr(frame, "judged", lambda _status, _lines: 0)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, ""))
    assert frame.main(["delegate.so"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == ["expected:  this", "seen then: that", "0: this is not seen here"]


def off_by(*units: float) -> DelegateTrace:
    """What a delegate gives that is off by so many units in the last place, element by element."""
    inputs = inputs_of(ADDED)
    right = run_graph(ADDED.graph, inputs)[1]
    wrong = (right + np.spacing(right) * np.array(units, np.float32)).astype(np.float32)
    return DelegateTrace(inputs=tuple(map(Array.of, inputs)), outputs=((Array.of(wrong),),))


def written(trace: DelegateTrace, rule: str, case: DelegateCase = ADDED) -> dict[str, bytes]:
    said = reproduce.Finding(rule, "Sentence.", "source", "a target", "this", "that", "fake_runtime")
    return reproduce.files(case, trace, said)


def plan_of(files: dict[str, bytes]) -> dict[str, Any]:
    line = next(line for line in files["reproduce.py"].decode().splitlines() if line.startswith("PLAN"))
    return dict(json.loads(json.loads(line.partition("json.loads(")[2][:-1])))


def test_a_program_looks_at_an_element_that_the_rule_forbids() -> None:
    look = plan_of(written(off_by(1, 0, 0, 0, 0, 1000), "NUM-10"))["look"]
    assert look["index"] == [5]
    assert float(look["tolerance"]) > 0
    look = plan_of(written(off_by(1, 0, 0, 0, 0, 1000), "NUM-01"))["look"]
    assert (look["index"], float(look["tolerance"])) == ([0], 0)
    with pytest.raises(reproduce.NotWritten, match="the outputs are right"):
        written(off_by(1, 0, 0, 0, 0, 0), "PART-01")


def test_a_program_looks_at_an_element_that_is_not_rounded_to_the_nearest() -> None:
    """All are within the unit that a single one may be off by."""
    units = Tensor((256,), "int8", (1.0,), (0,)), Tensor((256,), "int8", (8 / 7.95,), (0,))
    case = DelegateCase(Graph(units, (Node("RELU", (0,), (1,)),), (0,), (1,)))
    inputs = inputs_of(case)
    (right,) = expected_outputs(case.graph, inputs, SINGLE)
    assert right.real is not None
    down = Array.of(np.floor(right.real).astype(np.int8))
    trace = DelegateTrace(inputs=tuple(map(Array.of, inputs)), outputs=((down,),))
    look = plan_of(written(trace, "NUM-03", case))["look"]
    assert (float(look["expected"]) - float(look["seen"]), float(look["tolerance"])) == (1, 0)


@pytest.mark.parametrize(("failing", "place"), [(4, 4), (6, 6)])
def test_the_step_that_failed_is_the_one_of_the_case(failing: int, place: int) -> None:
    script = (MakeDelegate("d"), Open("i"), Apply("i", "d"), Allocate("i"))
    case = ScriptCase((ADDED.graph,), (*script, Sample("i"), SetInputs("i"), Invoke("i")))
    trace = ScriptTrace(steps=tuple(ScriptSeen(ok=step != failing) for step in range(len(case.steps))))
    said = reproduce.Finding("X-01", "Sentence.", "source", "a target", "this", "that")
    plan = plan_of(reproduce.files(case, trace, said))
    assert plan["look"] == {"kind": "status", "step": place}
    assert plan["steps"][place][0] == "invoke"


def status_of(folder: Path, library: Path, said: bytes, more: Sequence[str] = ()) -> int:
    """The exit status of a program on a runtime whose delegate prints something."""
    for name, content in written(off_by(0, 0, 0, 0, 0, 1000), "NUM-10").items():
        (folder / name).write_bytes(content)
    (folder / "fake_runtime").mkdir(exist_ok=True)
    (folder / "fake_runtime" / "interpreter.py").write_text(RUNTIME)
    environment: dict[bytes, bytes] = {**os.environb, b"SAID": said, b"PYTHONPATH": os.fsencode(folder)}
    command = [sys.executable, str(folder / "reproduce.py"), str(library), *more]
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    "said",
    [
        *map(later, (b"", b"\xff\n", b"5\n", b"[1]\n")),
        b"no end of a line",
        b'{"read": 1, "element": "0.0", "shape": []}\n',
    ],
)
def test_what_a_library_prints_is_no_part_of_the_answer(tmp_path: Path, said: bytes) -> None:
    library = tmp_path / "delegate.so"
    library.touch()
    assert status_of(tmp_path, library, said) == 0


def test_a_library_that_cannot_be_loaded_is_neither_answer(tmp_path: Path) -> None:
    assert status_of(tmp_path, tmp_path / "missing.so", b"") == 2
    assert status_of(tmp_path, tmp_path, b"", ["no-value"]) == 2


@pytest.mark.parametrize(
    "look",
    [{"kind": "status", "step": -1}, {"kind": "signal", "signal": 11}, {"kind": "control", "words": [1, 2]}],
)
def test_a_delegate_that_is_not_made_is_neither_answer(
    monkeypatch: pytest.MonkeyPatch, look: dict[str, Any]
) -> None:
    monkeypatch.setattr(frame, "PLAN", {"look": look})
    assert frame.judged(0, [{"begun": 0}, {"failed": 0, "name": "delegate", "text": "no"}]) == 2
    assert frame.judged(1, [{"begun": 0}]) == 2
