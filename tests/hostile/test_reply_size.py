"""No answer takes much of pytest: a library answers as much as it can, another one forges answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from fast_run import later
from hypothesis import strategies as st

from pytest_qnn.core import engine
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.verdict import Outcome, Unsupported
from pytest_qnn.effort import profile
from pytest_qnn.isolation import wire
from pytest_qnn.isolation.supervisor import bounded
from pytest_qnn.qnn.cases.case import Alloc, Fill, MemoryCase, Read
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from tests.faults import faults
from tests.hostile.matrix import row
from tests.hostile.matrix.action import Action, build

MOST = 32 << 20
OPENING = 48 << 20
"""Opening a target takes 31 MiB of imports, whatever it answers."""
LARGE = 24 << 20
"""Bytes of what is answered. It is held more than once while it is read."""
_HALVES: dict[Subject, tuple[str, str]] = {
    "memory": ("qnn", "--qnn-backend"),
    "delegate": ("tflite", "--tflite-delegate"),
}


class Run(NamedTuple):
    status: int
    said: str
    grown: dict[str, int]
    """By test, and ``opening``: bytes."""


def judged(library: Path, side: Subject, rules: str) -> Run:
    half, option = _HALVES[side]
    folder = library.parent
    environment = {"PYTHONPATH": str(Path(row.__file__).parent), "GROWN": str(folder / "grown.json")}
    command = [*(sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", "-p", "grown")]
    command += ["--pyargs", f"pytest_qnn.conformance.{half}", "--qnn-profile=quick", "--qnn-seed=1"]
    command += ["--qnn-timeout=5", f"--qnn-rule={rules}", f"{option}={library}"]
    command += ["--qnn-report=out.json", "--qnn-report=out.html", "--junitxml=out.xml"]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert "Traceback (most recent call last)" not in said
    grown = json.loads((folder / "grown.json").read_text())
    assert all(path.stat().st_size < 2 << 20 for path in folder.glob("out.*"))
    return Run(done.returncode, said, grown)


def assert_small(run: Run) -> None:
    assert run.grown.pop("opening", 0) < OPENING  # there is none where the target cannot be loaded
    del run.grown["all"]
    assert max(run.grown.values(), default=0) < MOST, run.grown


def forging(python: str, moment: Any, side: Subject, folder: Path) -> Path:
    """A library that runs Python in the process of a case (``work``) or in the supervisor (``load``)."""
    action = Action("forges", "reply", moment, "any", "forges an answer", f"python({json.dumps(python)});")
    return build(action, side, folder)


_CHILD = f"""
import msgspec, pytest_qnn.isolation.child as c
pack = msgspec.msgpack.encode
c._encoded = lambda answer: pack(c.wire.Answer(%s))
x = 'x' * {LARGE}
"""
_SUPERVISOR = f"""
import msgspec, pytest_qnn.isolation.wire as w
plain, pack, sent, x = w.send, msgspec.msgpack.encode, [], 'x' * {LARGE}
def send(connection, message, deadline):
    sent.append(1)
    plain(connection, pack(%s) if len(sent) > 1 else message, deadline)
w.send = send
"""
FORGED = {
    "junk": ("work", _CHILD % "b'\\xc1' * len(x)"),
    "a text": ("work", _CHILD % "pack({'past': x, 'steps': [{'skipped': x}]})"),
    "contents": ("work", _CHILD % "pack({'steps': [{'data': [bytes(len(x))]}]})"),
    "contents that are taken": ("work", _CHILD % "pack({'steps': [{'data': [bytes((17 << 19) - 99)]}]})"),
    "a size": ("work", _CHILD % "large=1 << 50"),
    "words": ("work", _CHILD % "broken=x"),
    "ready": ("load", _SUPERVISOR.replace("> 1", "> 0") % "w.Ready(error=x)"),
    "a reply": ("load", _SUPERVISOR % "[w.Reply(x.encode())]"),
    "a death": ("load", _SUPERVISOR % "[w.Reply(death='garbage', detail=x)]"),
    "empty replies": ("load", _SUPERVISOR % "[w.Reply()] * (1 << 22)"),
}
WORK: dict[Subject, str] = {"memory": "EXE-21,REG-01", "delegate": "RUN-01,DET-01"}
"""Rules whose cases have multiplications, at which the library acts."""
_FAST = [("ready", "delegate")]
"""From the supervisor, which takes least; what a case's process forges is fuzzed in tests/isolation."""


@pytest.mark.parametrize(
    ("name", "side"),
    [
        pytest.param(name, side, marks=[] if (name, side) in _FAST else pytest.mark.full)
        for name in FORGED
        for side in _HALVES
    ],
)
def test_a_forged_answer_takes_less_than_32_mb_of_pytest(tmp_path: Path, name: str, side: Subject) -> None:
    moment, python = FORGED[name]
    run = judged(forging(python, moment, side, tmp_path), side, WORK[side])
    # Contents of the right form are a trace, whoever made them: a library that forges one may pass. So may
    # one that says of some cases that they give too much, as some of conforming targets do: that is counted.
    assert run.status in ({0, 1} if name in ("contents that are taken", "a size") else {1, 4})
    assert_small(run)


_LONG = """
#include <stdlib.h>
#include <string.h>
static const char* much(void) {
  static char* text;
  if (!text) { text = malloc(%d); memset(text, 'x', %d - 1); text[%d - 1] = 0; }
  return text;
}
""".replace("%d", str(LARGE))
TALKATIVE: dict[str, tuple[Subject, str, str, str]] = {
    "build-id": ("memory", '*out = "faults";', "*out = much();", "IF-*"),
    "message": ("memory", "*text = messages[i].text;", "*text = much();", "ERR-*,IF-*"),
    "provider": (
        "memory",
        "  *list = providers;\n",
        "  provided.name = much();\n  *list = providers;\n",
        "IF-*",
    ),
    "report": (
        "delegate",
        "  IntArray* plan;\n  if (context->get",
        '  context->report_error(context, "%s", much());\n  IntArray* plan;\n  if (context->get',
        "ERR-07,RUN-01,LIFE-13",
    ),
    "refusal": (
        "delegate",
        'report_error("ArithmeticDelegate has no options");',
        "report_error(much());",
        "ABI-03,ABI-04,OPT-*",
    ),
    "name": (
        "delegate",
        '.custom_name = "ArithmeticDelegate",',
        ".custom_name = much(),",
        "LIFE-13,PART-03,PREC-01",
    ),
}


@pytest.mark.parametrize("name", [name if name == "refusal" else later(name) for name in TALKATIVE])
def test_a_library_that_says_as_much_as_it_can_takes_less_than_32_mb_of_pytest(
    tmp_path: Path, name: str
) -> None:
    side, piece, by, rules = TALKATIVE[name]
    source = faults.conforming(side)
    assert source.count(piece) == 1
    library = faults.build(tmp_path, side, name, _LONG + source.replace(piece, by))
    run = judged(library, side, rules)
    assert_small(run)
    assert "internal error" not in run.said


_READ = """
import resource, sys, msgspec
from pathlib import Path
from pytest_qnn.isolation import sandbox, wire
from pytest_qnn.qnn.cases.case import MemoryCase, Providers
from pytest_qnn.qnn.target import CODEC
case = MemoryCase((Providers(),))
CODEC.trace_of(case, b"\\x80")
sandbox.replies_in(msgspec.msgpack.encode([wire.Reply(b"")]), 1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
message = Path(sys.argv[1]).read_bytes()
try:
    (reply,) = sandbox.replies_in(message, 1)
    del message
    CODEC.trace_of(case, reply.payload)
except msgspec.DecodeError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
_COUNT = wire.ROOM - 100
LARGEST = {
    "letters": msgspec.msgpack.encode({"past": "x" * _COUNT, "steps": [{"skipped": "x" * 9}]}),
    "one wide letter": msgspec.msgpack.encode({"steps": [{"skipped": "x" * (_COUNT - 9) + "\U0001f600"}]}),
    "contents": msgspec.msgpack.encode({"steps": [{"data": [bytes(wire.MOST_TAKEN - 99)]}]}),
    "steps": b"\x81\xa5steps\xdd" + (99_000).to_bytes(4, "big") + b"\x80" * 99_000,
}


@pytest.mark.parametrize("form", LARGEST)
def test_the_largest_answer_that_is_read_takes_less_than_32_mb(tmp_path: Path, form: str) -> None:
    assert len(sizes([wire.Reply(LARGEST[form])])) == 1
    path = tmp_path / "message"
    path.write_bytes(msgspec.msgpack.encode([wire.Reply(LARGEST[form])]))
    command = [sys.executable, "-c", _READ, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(ended.stdout) << 10 < MOST


def sizes(replies: list[wire.Reply]) -> list[Any]:
    return [reply.detail or len(reply.payload) for reply in bounded(replies, 3)]


def of(size: int) -> wire.Reply:
    """An answer of so many bytes, all but five of them contents."""
    return wire.Reply(msgspec.msgpack.encode(bytes(size - 5)))


def test_an_answer_has_no_more_bytes_than_are_taken() -> None:
    assert sizes([of(wire.MOST_TAKEN)]) == [wire.MOST_TAKEN]
    (said,) = sizes([of(wire.MOST_TAKEN + 1)])
    assert said.startswith("the process left an answer of 8912897 bytes, and an answer has 8912896 at most")
    assert sizes([wire.Reply(b"x"), of(wire.MOST_TAKEN + 1), wire.Reply(b"y")]) == [1, said]


@pytest.mark.parametrize(
    "answer", [msgspec.msgpack.encode("x" * (wire.ROOM + 1)), b"\xc6\x7f\xff\xff\xff" + bytes(wire.ROOM)]
)
def test_room_for_contents_is_no_room_for_texts(answer: bytes) -> None:
    assert str(sizes([wire.Reply(answer)])[0]).startswith("the process left an answer of ")


def test_answers_for_which_there_is_no_room_together_are_left_out() -> None:
    half = of(wire.MOST_TAKEN // 2)
    assert sizes([half] * 3) == [wire.MOST_TAKEN // 2] * 2
    death = wire.Reply(death="hang", detail="it hangs")
    assert sizes([half, half, death]) == [wire.MOST_TAKEN // 2] * 2 + ["it hangs"]


def reads(size: int) -> MemoryCase:
    return MemoryCase((Alloc("b0", size), Fill("b0", 7), Read("b0")))


def test_of_a_case_with_more_contents_than_are_taken_nothing_is_judged(tmp_path: Path) -> None:
    """It is no fault of the library, and the next case of its process is answered."""
    library = faults.build(tmp_path, "memory", "conforming", faults.conforming("memory"))
    with closing(open_memory_target(str(library), "emulated", "fork", 9.0)) as target:
        traces = [trace for trace, _ in target.run_all([reads(9), reads(1 << 24), reads(9)])]
        assert [trace.steps[-1].data for trace in traces[::2]] == [(b"\x07" * 9,)] * 2
        death = traces[1].death
        rule = replace(catalogue()["REG-20"], cases=lambda _: st.just(reads(1 << 24)))
        verdict = engine.judge(rule, target, profile("quick"), 1)
        alone = engine.judge_case(rule, target, reads(1 << 24))
    assert death.kind == "large"
    assert death.detail.endswith(" bytes, and an answer has 8912896 at most")
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, death.detail)
    assert isinstance(alone, Unsupported)
