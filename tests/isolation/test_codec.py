"""What a child may answer: no more than its case asks for, and nothing that takes much of who reads it."""

from __future__ import annotations

import contextlib
import random
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from native import qnn_library

from pytest_qnn.isolation import child, sandbox, supervisor, wire
from pytest_qnn.isolation.codec import MOST_ITEMS, Codec, decoded, has_at_most
from pytest_qnn.isolation.worker import Unusable
from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase, Providers
from pytest_qnn.qnn.target import CODEC as QNN
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.cases.script import MakeDelegate, Repeat, ScriptCase
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.runner.spec import CODEC as TFLITE
from pytest_qnn.tflite.runner.spec import PLAIN
from pytest_qnn.tflite.target import open_delegate_target
from pytest_qnn.tflite.trace import CellSeen, DomainTrace, ScriptSeen, ScriptTrace

CASE = MemoryCase(steps=(Providers(), ContextCreate("c0"), ContextCreate("c1")))


def something(chance: random.Random, depth: int = 4) -> Any:
    """A value with all that MessagePack has."""
    size = chance.choice((0, 1, 2, 4, 5, 8, 16, 31, 32, 255, 256, 300, 70_000))
    plain = (
        chance.choice((None, True, False, chance.random())),
        chance.choice((-1, 1)) * chance.getrandbits(chance.randrange(1, 63)),
        chance.randrange(-40, 200),
        "x" * size,
        bytes(size),
        msgspec.msgpack.Ext(chance.randrange(100), bytes(size)),
    )
    if not depth or chance.randrange(4):
        return chance.choice(plain)
    inner = [something(chance, depth - 1) for _ in range(chance.choice((0, 1, 3, 20)))]
    return chance.choice((inner, {str(number): value for number, value in enumerate(inner)}))


def items(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(items, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(items, value))
    return 1


def test_items_are_counted_as_they_are() -> None:
    chance = random.Random(1)
    for _ in range(300):
        value = something(chance)
        message, count = msgspec.msgpack.encode(value), items(value)
        assert has_at_most(count, message)
        assert not has_at_most(count - 1, message)


@pytest.mark.parametrize("length", [1 << 8, 1 << 16, 70_000])
def test_long_arrays_and_maps_are_counted_too(length: int) -> None:
    for value in ([0] * length, dict.fromkeys(range(length), 0)):
        message, count = msgspec.msgpack.encode(value), 1 + length * (2 if isinstance(value, dict) else 1)
        assert has_at_most(count, message)
        assert not has_at_most(count - 1, message)


def test_a_short_message_takes_no_time_whatever_it_promises() -> None:
    for first in (0xDD, 0xDF, 0xDB, 0xC6, 0xC9):
        assert has_at_most(MOST_ITEMS, bytes([first]) + b"\xff" * 4) is (first not in (0xDD, 0xDF))
    assert has_at_most(1, b"")


_READ = """
import resource, sys, msgspec
from pytest_qnn.qnn.target import CODEC
from pytest_qnn.qnn.cases.case import MemoryCase, Providers
case = MemoryCase((Providers(),))
CODEC.trace_of(case, b"\\x80")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
message = open(sys.argv[1], "rb").read()
refused = 0
try:
    CODEC.trace_of(case, message)
except msgspec.DecodeError:
    refused = 1
print(refused, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def read_apart(folder: Path, entry: bytes, count: int) -> tuple[int, int]:
    """Whether a process refuses a trace of so many steps, and the KiB that it grows by."""
    path = folder / "answer"
    path.write_bytes(b"\x81\xa5steps\xdd" + count.to_bytes(4, "big") + entry * count)
    ended = subprocess.run(
        [sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True
    )
    refused, kilobytes = map(int, ended.stdout.split())
    return refused, kilobytes


@pytest.mark.parametrize("entry", [b"\x80", b"\x90", b"\x81\xa4code\x01"])
def test_a_large_answer_takes_less_than_32_megabytes(tmp_path: Path, entry: bytes) -> None:
    """Four megabytes took 600: each entry is a byte there, and a structure here."""
    refused, kilobytes = read_apart(tmp_path, entry, (4 << 20) // len(entry))
    assert refused == 1
    assert kilobytes < 32 << 10


@pytest.mark.parametrize("entry", [b"\x80", b"\x90"])
def test_nor_does_the_largest_that_is_read_at_all(tmp_path: Path, entry: bytes) -> None:
    assert read_apart(tmp_path, entry, MOST_ITEMS - 10)[1] < 32 << 10


def test_a_trace_has_no_more_steps_than_its_case() -> None:
    whole = MemoryTrace(steps=tuple(StepSeen() for _ in CASE.steps))
    assert len(QNN.trace_of(CASE, msgspec.msgpack.encode(whole)).steps) == 3
    more = msgspec.structs.replace(whole, steps=(*whole.steps, StepSeen(), StepSeen()))
    with pytest.raises(msgspec.DecodeError, match="5 steps, of 4"):  # the case itself is one more
        QNN.trace_of(CASE, msgspec.msgpack.encode(more))


def test_steps_within_steps_count_as_often_as_they_are_repeated() -> None:
    case = ScriptCase((), (Repeat(5, (MakeDelegate("d1"), MakeDelegate("d2"))),))
    answer = msgspec.msgpack.encode(ScriptTrace(steps=tuple(ScriptSeen() for _ in range(11))))
    assert len(TFLITE.trace_of(case, answer).steps) == 11
    with pytest.raises(msgspec.DecodeError, match="13 steps"):
        TFLITE.trace_of(
            case, msgspec.msgpack.encode(ScriptTrace(steps=tuple(ScriptSeen() for _ in range(13))))
        )


@pytest.mark.parametrize("count", [0, 1, 3])
def test_as_many_cells_come_back_as_were_asked_for(count: int) -> None:
    """With another number the target's own code failed, and said so with a traceback."""
    cell = Cell("ADD", "float32", 1)
    case, seen = DomainCase((cell, cell)), CellSeen("computed")
    assert len(TFLITE.trace_of(case, msgspec.msgpack.encode(DomainTrace(cells=(seen, seen)))).cells) == 2
    with pytest.raises(msgspec.DecodeError, match=f"{count} cells, of 2"):
        TFLITE.trace_of(case, msgspec.msgpack.encode(DomainTrace(cells=(seen,) * count)))


def spoilt(chance: random.Random, message: bytes) -> bytes:
    made = bytearray(message)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(made) or 1)
        match chance.randrange(5):
            case 0:
                made[at : at + 1] = chance.randbytes(1)
            case 1:
                made[at : at + 1] = bytes([made[at] ^ 1 << chance.randrange(8)]) if made else b""
            case 2:
                del made[at : at + chance.randrange(1, 9)]
            case 3:
                made[at:at] = made[at : at + chance.randrange(1, 20)]
            case _:
                made[at:] = chance.randbytes(chance.randrange(9))
    return bytes(made)


def answers() -> Iterator[tuple[Codec, Any, bytes]]:
    memory = open_memory_target("reference", "emulated", "off", 10.0)
    yield QNN, CASE, msgspec.msgpack.encode(memory.run(CASE))
    delegate = open_delegate_target([("reference", {})], "tflite_runtime", "off", 10.0)
    assert isinstance(PLAIN, DelegateCase)
    yield TFLITE, PLAIN, msgspec.msgpack.encode(delegate.run(PLAIN))


def test_five_thousand_spoilt_answers_are_traces_or_none() -> None:
    chance = random.Random(1)
    limits = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for codec, case, answer in answers():
        assert codec.trace_of(case, answer)
        read = 0
        for _ in range(2500):
            with contextlib.suppress(msgspec.DecodeError):
                codec.trace_of(case, spoilt(chance, answer))
                read += 1
        assert 20 < read < 2400
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - limits < 32 << 10


def test_spoilt_answers_around_a_trace_are_one_reply_each_and_never_an_error() -> None:
    chance = random.Random(2)
    for answer in (wire.Answer(b"abc"), wire.Answer(broken="é" * 9)):
        made = [spoilt(chance, msgspec.msgpack.encode(answer)) for _ in range(2500)]
        replies = supervisor.judge(0, 0, made, whole=True)
        assert len(replies) == len(made)
        assert not any(reply.error or reply.no_process for reply in replies)


def test_words_of_a_child_are_cut() -> None:
    said = msgspec.msgpack.encode(wire.Answer(broken="a\nb" * 100_000))
    (reply,) = supervisor.judge(0, 0, [said], whole=True)
    assert reply.detail.startswith("a ba b")
    assert len(reply.detail) < 1100


def test_a_child_has_no_word_for_a_failure_of_the_suite() -> None:
    """Whatever is raised in its process, by whomever: it is a death of the target, with the traceback."""
    said = child._failure(IndexError("forged"))
    assert said.broken.startswith("an exception ended the case, of the suite's own code or ")
    assert set(wire.Answer.__struct_fields__) == {"payload", "broken", "unusable", "large"}


@pytest.mark.parametrize("words", ["the runner itself failed: x", "no process could be started (x)"])
def test_what_a_child_says_of_its_target_is_never_read_as_ours(words: str) -> None:
    (reply,) = supervisor.judge(0, 0, [msgspec.msgpack.encode(wire.Answer(unusable=words))], whole=True)
    with pytest.raises(Unusable, match=re.escape(words)) as raised:
        sandbox._answer(reply)
    assert type(raised.value) is Unusable


_FORGER = r"""
#include <dlfcn.h>
static void forge(void) { /* the reply of a failure of the suite, as far as a child can say it */
  int (*run)(const char*) = dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
  int (*ensure)(void) = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  void (*release)(int) = dlsym(RTLD_DEFAULT, "PyGILState_Release");
  int state = ensure();
  run("import pytest_qnn.isolation.child as c\n"
      "def fail(*_): raise RuntimeError('\\x1b[31mthe runner itself failed: all is well with the target')\n"
      "c.wire.Slot.step = fail\n");
  release(state);
}
"""


def test_a_target_that_makes_our_code_fail_has_a_finding(tmp_path: Path) -> None:
    library = qnn_library(tmp_path, "forge();", before=_FORGER)
    target = open_memory_target(str(library), "emulated", "fork", 5.0)
    try:
        death = target.run(CASE).death
    finally:
        target.close()
    assert death is not None
    assert death.kind == "garbage"
    assert "all is well with the target" in death.detail
    assert "Traceback" in death.evidence.stderr


def test_what_is_no_text_is_no_answer() -> None:
    with pytest.raises(msgspec.DecodeError):
        decoded(msgspec.msgpack.Decoder(wire.Answer), b"\x81\xa6broken\xa2\xff\xfe")


def test_a_trace_of_too_many_items_is_no_crash() -> None:
    """It may be right, and is not judged: a conforming delegate's trace of thousands of nodes had as many."""
    count = MOST_ITEMS + 1
    answer = b"\xdd" + count.to_bytes(4, "big") + b"\xc0" * count
    with contextlib.closing(open_memory_target("reference", "emulated", "off", 10.0)) as target:
        executor: Any = target._executor
        assert executor._trace(MemoryCase(()), answer).kind == "large"
        assert executor._trace(MemoryCase(()), answer[:-1]).kind == "large"
        assert executor._trace(MemoryCase(()), b"\xc1").kind == "garbage"
