"""A worker of the backend's that has many rounds to do still is waited for as long as it gets on."""

from __future__ import annotations

import math
import mmap
import time
from types import SimpleNamespace

import pytest

from pytest_qnn.isolation.observe import process
from pytest_qnn.qnn.model.growth import MALLOC, beyond
from pytest_qnn.qnn.runner import probes

NAMES = {"mappings": "mappings", "blocks": MALLOC}


@pytest.mark.parametrize(("rate", "kept"), [(500, False), (0, True)], ids=["gets-on", "leaks"])
@pytest.mark.parametrize("what", ["mappings", "blocks"])
def test_what_becomes_less_is_waited_for(
    what: str, rate: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 mappings, or blocks of malloc's, that a worker gives back in two seconds are no leak.

    As many that stay are one.
    """
    begin = math.inf

    def left() -> int:
        return max(0, 1000 - int(rate * (time.monotonic() - begin))) if begin < math.inf else 0

    def snapshot() -> SimpleNamespace:
        lines = [""] * (10 + (left() if what == "mappings" else 0))
        return SimpleNamespace(fds=3, lines=lines, virtual=0, resident=0)

    def once() -> None:
        nonlocal begin
        begin = min(begin, time.monotonic())

    monkeypatch.setattr(probes, "snapshot", snapshot)
    monkeypatch.setattr(probes, "malloc_in_use", lambda: 1024 * left() if what == "blocks" else 0)
    found, counts = probes.grown(once, 10)
    assert found is None
    growth = beyond(counts)
    assert (growth and growth.what) == (NAMES[what] if kept else None)
    assert time.monotonic() - begin < 3


@pytest.mark.parametrize("kept", [False, True], ids=["gives-back", "leaks"])
def test_rounds_wait_for_a_worker_whose_queue_would_grow(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue keeps the room that the longest one had, 200 bytes for each mapping: of 1,000 that is more
    than malloc's memory may grow by.

    Mappings that are not given back are waited for once.
    """
    due: list[float] = []
    longest = 0

    def left() -> int:
        return len(due) if kept else sum(time.monotonic() < each for each in due)

    def snapshot() -> SimpleNamespace:
        return SimpleNamespace(fds=3, lines=[""] * (10 + left()), virtual=0, resident=0)

    def once() -> None:
        nonlocal longest
        due.append(time.monotonic() + 0.1)
        longest = max(longest, left())

    monkeypatch.setattr(probes, "snapshot", snapshot)
    monkeypatch.setattr(probes, "malloc_in_use", lambda: 200 * longest)
    begin = time.monotonic()
    _, counts = probes.grown(once, 1000)
    growth = beyond(counts)
    assert counts.rounds == 1000
    assert (growth and growth.what) == ("mappings" if kept else None)
    assert time.monotonic() - begin < 3


def test_a_worker_that_gets_on_when_the_time_is_over_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives back 500 mappings a second, and 250 rounds have half a second less than that takes."""
    begin, made = time.monotonic(), 0

    def snapshot() -> SimpleNamespace:
        left = max(0, made - int(500 * (time.monotonic() - begin)))
        return SimpleNamespace(fds=3, lines=[""] * (10 + left), virtual=0, resident=0)

    def once() -> None:
        nonlocal made
        made += 2

    monkeypatch.setattr(probes, "snapshot", snapshot)
    monkeypatch.setattr(probes, "malloc_in_use", lambda: 0)
    _, counts = probes.grown(once, 1000, 0.5)
    assert 250 <= counts.rounds < 1000
    assert beyond(counts) is None


@pytest.mark.usefixtures("frozen")
def test_what_a_look_at_many_mappings_takes_is_no_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of 8,000 mappings is longer than what is kept for it: one MiB is kept from then on."""
    monkeypatch.setattr(process, "_LISTINGS", [])
    held: list[mmap.mmap] = []

    def once() -> None:
        # Read-only and writable by turns, so that no two are one mapping.
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if len(held) % 2 else 0)
        held.append(mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE, prot=protection))

    _, counts = probes.grown(once, 8000, given_back=0.0)
    assert counts.mappings > 7000
    assert counts.heap < 1 << 19
    for each in held:
        each.close()
