"""Replies that are not those of our own code are read, whatever is in them.

`test_codec.py` changes bytes of two answers. Here answers of many rules' cases are taken apart and changed as
data: other types, other numbers of parts, texts of control characters, contents of contents.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import case_mutations
import msgspec
import pytest
from fast_run import later

from pytest_qnn.isolation import sandbox, wire
from pytest_qnn.isolation.codec import Codec
from pytest_qnn.qnn.target import CODEC as QNN
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.tflite.runner.spec import CODEC as TFLITE
from pytest_qnn.tflite.target import open_delegate_target

MOST_SECONDS = 0.5
MOST_BYTES = 32 << 20

_MARK = b"in place of this"
RAW = (
    b"\xa3\xed\xa0\x80",  # half of a surrogate pair
    b"\xc1",  # no MessagePack
    b"\xdd\xff\xff\xff\xff",  # an array of 4 thousand million
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\x7f\xff\xff\xff",
    b"\x91" * 5000 + b"\xc0",
    b"\x81\xa1a" * 5000 + b"\xc0",
    b"\xdc\xff\xff" + b"\x80" * 0xFFFF,
    b"\xc7\x01\x05x",  # an extension
)
"""MessagePack, or none, that stands in the place of a part."""
PLAIN = (
    *(None, True, False, 0, 1, -1, 255, 1 << 31, -(1 << 31), 1 << 63, (1 << 64) - 1, -(1 << 63)),
    *(0.5, -0.0, float("nan"), float("inf"), 1e308, "", "x" * 100_000, "\x1b[2J\r\n::error::x", "\x00"),
    *(b"", b"\xff" * 3, bytes(1 << 20), [], {}, [[]], [None] * 300, {"type": "none"}, {"steps": 5}),
)
"""Values that stand in the place of a part."""


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every list or map within a value, with an index or a key of it."""
    found = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in found:
        yield value, key
        yield from places(part)


def _replaced(chance: random.Random, owner: Any, key: Any) -> None:
    owner[key] = copy.deepcopy(chance.choice((*PLAIN, *itertools.repeat(_MARK, 8))))


def _removed(chance: random.Random, owner: Any, key: Any) -> None:
    del owner[key]


def _repeated(chance: random.Random, owner: Any, key: Any) -> None:
    if isinstance(owner, list):
        owner[key:key] = [owner[key]] * chance.choice((1, 2, 50))
    else:
        owner[f"{key}_"] = owner[key]


def _exchanged(chance: random.Random, owner: Any, key: Any) -> None:
    other = chance.choice(list(owner) if isinstance(owner, dict) else range(len(owner)))
    owner[key], owner[other] = owner[other], owner[key]


def _a_little_off(chance: random.Random, owner: Any, key: Any) -> None:
    part = owner[key]
    if isinstance(part, bool) or not isinstance(part, int | bytes | str):
        owner[key] = None
    elif isinstance(part, int):
        owner[key] = part + chance.choice((1, -1, 1 << 20))
    else:
        owner[key] = part[: chance.randrange(len(part) + 1)]


_CHANGES: tuple[Callable[[random.Random, Any, Any], None], ...] = (
    *(_replaced, _replaced, _removed, _repeated, _exchanged, _a_little_off, _a_little_off),
)


def forged(chance: random.Random, answer: bytes) -> bytes:
    """The answer with one to three parts changed."""
    value = msgspec.msgpack.decode(answer)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        found = list(itertools.islice(places(value), 5000))
        if found:
            chance.choice(_CHANGES)(chance, *chance.choice(found))
    # Maps with keys of one type only: nothing of ours writes others.
    encoded = msgspec.msgpack.encode(value)
    marked = msgspec.msgpack.encode(_MARK)
    return encoded.replace(marked, chance.choice(RAW))


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    """What Python allocates is counted: `taken_at_most` is about the reading alone, not about the forging."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@contextlib.contextmanager
def taken_at_most() -> Iterator[None]:
    """What is done within allocates less than a reply may take of pytest."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    yield
    assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES


@pytest.fixture(scope="module")
def answers() -> list[tuple[Codec, Any, bytes]]:
    """Codec, case, and the reference's answer, of one case of each rule."""
    memory = open_memory_target("reference", "emulated", "off", 10.0)
    delegate = open_delegate_target([("reference", {})], "auto", "off", 10.0)
    found: list[tuple[Codec, Any, bytes]] = []
    for codec, target in ((QNN, memory), (TFLITE, delegate)):
        cases = case_mutations.examples(target.subject, target.facts, each=1)
        plain = [case for case in cases if not codec.measures(case) and not getattr(case, "ends", False)]
        chosen = plain[:: max(1, len(plain) // 40)]
        found += [(codec, case, msgspec.msgpack.encode(target._executor.run(case))) for case in chosen]
    return found


@pytest.mark.parametrize("count", [500, later(5_000)])
def test_a_forged_answer_is_a_trace_of_its_case_or_none(
    answers: list[tuple[Codec, Any, bytes]], count: int
) -> None:
    chance = random.Random(14)
    for codec, case, answer in answers:
        assert codec.trace_of(case, answer)
    read, longest = 0, 0.0
    for number in range(count):
        codec, case, answer = answers[number % len(answers)]
        message = forged(chance, answer)
        began = time.process_time()
        trace = None
        with taken_at_most(), contextlib.suppress(msgspec.DecodeError):
            trace = codec.trace_of(case, message)
        longest = max(longest, time.process_time() - began)
        if trace is not None:
            read += 1
            asked = len(getattr(case, "steps", ()))
            assert len(getattr(trace, "steps", ())) <= max(asked, 1 + _steps(case))
    assert count / 10 < read < count * 9 / 10
    assert longest < MOST_SECONDS


def _steps(part: Any) -> int:
    """Steps of a case, those in others as often as they are repeated."""
    if isinstance(part, list | tuple):
        return sum(map(_steps, part))
    if isinstance(part, dict):
        return 1 + part.get("times", 1) * sum(map(_steps, part.values()))
    return 0 if not isinstance(part, msgspec.Struct) else _steps(msgspec.to_builtins(part))


REPLIES = [
    wire.Reply(b"payload"),
    wire.Reply(death="signal", detail="the process died of SIGSEGV", step=3, killed=True, call="x"),
    wire.Reply(unusable="it cannot be loaded"),
]


@pytest.mark.parametrize("count", [500, later(5_000)])
def test_a_forged_message_of_the_supervisor_is_as_many_replies_as_were_asked_for_or_none(count: int) -> None:
    """The library is loaded in the supervisor's process, and may write what this one sends."""
    chance = random.Random(15)
    message = msgspec.msgpack.encode(REPLIES)
    assert sandbox.replies_in(message, 3) == REPLIES
    read = 0
    for _ in range(count):
        made = forged(chance, message)
        try:
            with taken_at_most():
                replies = sandbox.replies_in(made, 3)
        except msgspec.DecodeError:
            continue
        read += 1
        assert 1 <= len(replies) <= 3
        assert all(isinstance(reply, wire.Reply) for reply in replies)
    assert count / 10 < read < count * 9 / 10


@pytest.mark.parametrize("count", [0, 4])
def test_no_reply_or_one_too_many_is_none(count: int) -> None:
    with pytest.raises(msgspec.DecodeError, match=f"{count} replies to 3 requests"):
        sandbox.replies_in(msgspec.msgpack.encode([wire.Reply()] * count), 3)


def test_millions_of_empty_replies_take_no_memory() -> None:
    message = b"\xdd" + (4 << 20).to_bytes(4, "big") + b"\x80" * (4 << 20)
    with taken_at_most(), pytest.raises(msgspec.DecodeError, match="items"):
        sandbox.replies_in(message, 3)


@pytest.mark.parametrize("count", [100, later(1_000)])
def test_whatever_stands_in_a_slot_is_read(count: int) -> None:
    """Header, replies, evidence and calls: the target may write to all of it."""
    chance = random.Random(16)
    slot = wire.Slot.make()
    slot.write_request(b"request")
    try:
        for _ in range(count):
            _spoil(chance, slot)
            step, _, replies = slot.result()
            assert -1 <= step < 1 << 20
            assert len(replies) <= wire.MAX_REPLIES
            slot.left()
            slot.progress()
            assert isinstance(slot.begun, bool)
            assert slot.answered >= 0
    finally:
        slot.close()


def _spoil(chance: random.Random, slot: wire.Slot) -> None:
    numbers = (0, 1, 2, 7, 1000, 1 << 20, wire.MAX_ANSWER, 1 << 31, 1 << 40, (1 << 64) - 1)
    memory = slot._memory
    struct.pack_into("<4Q", memory, 0, *(chance.choice(numbers) for _ in range(4)))
    struct.pack_into("<Q", memory, 32, chance.choice((0, 1, 40, 1 << 33, (1 << 64) - 1)))
    for _ in range(4):
        junk = chance.choice(
            (chance.randbytes(64), b"\xff" * 256, struct.pack("<8Q", *[chance.choice(numbers)] * 8))
        )
        at = chance.randrange(wire._EVIDENCE_AT, len(memory) - len(junk))
        memory[at : at + len(junk)] = junk
