"""A worker of the backend's that has many rounds to do still is waited for as long as it gets on."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace

import pytest

from pytest_qnn.qnn.model.growth import beyond
from pytest_qnn.qnn.runner import probes

NAMES = {"mappings": "mappings", "blocks": "bytes of malloc in use"}


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
    monkeypatch.setattr(probes.libc, "malloc_in_use", lambda: 1024 * left() if what == "blocks" else 0)
    found, counts = probes.grown(once, 10)
    assert found is None
    growth = beyond(counts)
    assert (growth and growth.what) == (NAMES[what] if kept else None)
    assert time.monotonic() - begin < 3
