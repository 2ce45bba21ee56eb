"""Answers of children that are not those of our own code: taken apart, and changed as data.

Also a plugin of pytest, ``-p forging``: what each child answers to a case is changed before it is read, so
that its parts do not fit together; but for what is asked when the target is opened, where the first answer
that does not fit ends the run. ``FORGED`` names a file, in which is then how many such answers were read, and
by how many bytes more than these answers have, and than the numbers of the largest case take, judging a rule
made this process grow at most.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_qnn.core.target import Death
from pytest_qnn.isolation.executor import Executor

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


_FITTING: tuple[Callable[[random.Random, Any, Any], None], ...] = (
    *(_removed, _repeated, _exchanged, _a_little_off, _a_little_off),
)
"""Changes after which a part is more often than not of the type that it was."""


def misfit(chance: random.Random, answer: bytes) -> bytes:
    """The answer with one or two parts that do not fit the others; most of these can be read."""
    value = msgspec.msgpack.decode(answer)
    for _ in range(chance.choice((1, 1, 2))):
        found = list(itertools.islice(places(value), 5000))
        if found:
            chance.choice(_FITTING)(chance, *chance.choice(found))
    return msgspec.msgpack.encode(value)


_EACH = 48
"""Bytes for each element of a case's tensors: its input, float64 of it, results and bounds. Judging honest
answers of large cases took 21 to 37 (NUM-01, -04, -06)."""


def elements(part: Any) -> int:
    """Of all tensors of a case."""
    if isinstance(part, list | tuple):
        return sum(map(elements, part))
    if not isinstance(part, msgspec.Struct):
        return 0
    shape = getattr(part, "shape", ())
    own = math.prod(shape) if isinstance(shape, tuple) and all(isinstance(n, int) for n in shape) else 0
    return own + sum(elements(getattr(part, field)) for field in part.__struct_fields__)


class _Forging:
    """What was done so far."""

    def __init__(self) -> None:
        self.chance = random.Random(14)
        self.read = 0
        self.refused = 0
        self.grown = 0
        self.most = ""
        """The test in which it was most."""
        self.contents = 0
        """Bytes of answers since the test began, and of what was made of them: they may all be held."""
        self.elements = 0
        """Of the largest case since the test began."""
        self.peak = 0
        """The largest resident size since the test began, in KiB, but for what this plugin takes."""
        self.begun = os.environ.get("FORGED_FROM") == "opening"

    def trace(self, plain: Callable[[Any, Any, Any], Any], executor: Any, case: Any, answer: Any) -> Any:
        """In place of `Executor._trace`."""
        if isinstance(answer, Death) or not self.begun:
            return plain(executor, case, answer)
        self.peak = max(self.peak, _kilobytes("VmHWM"))
        made = misfit(self.chance, answer)
        # What was taken to make it is ours. It and the answer are held at once, and what is read of it.
        Path("/proc/self/clear_refs").write_text("5")
        self.contents += 2 * len(answer)
        self.elements = max(self.elements, elements(case))
        trace = plain(executor, case, made)
        self.refused += isinstance(trace, Death)
        self.read += not isinstance(trace, Death)
        return trace

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Look how large this process becomes."""
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): VmHWM begins anew
        before = _kilobytes("VmRSS")
        self.begun, self.contents, self.elements, self.peak = True, 0, 0, 0
        try:
            yield
        finally:
            grown = (max(self.peak, _kilobytes("VmHWM")) - before) << 10
            grown -= self.contents + _EACH * self.elements
            if grown > self.grown:
                self.grown, self.most = grown, item.name

    def pytest_sessionfinish(self) -> None:
        """Leave the numbers."""
        seen = {"read": self.read, "refused": self.refused, "grown": self.grown, "most": self.most}
        Path(os.environ["FORGED"]).write_text(json.dumps(seen))


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def pytest_configure(config: pytest.Config) -> None:
    """Change what is read from now on."""
    forging = _Forging()
    plain = Executor._trace
    Executor._trace = lambda *arguments: forging.trace(plain, *arguments)  # type: ignore[method-assign]
    config.pluginmanager.register(forging)
