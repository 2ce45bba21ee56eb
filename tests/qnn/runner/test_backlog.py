"""A worker of the backend's that has many rounds to do still is waited for as long as it gets on."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from pytest_qnn.qnn.runner import probes


@pytest.mark.parametrize(("rate", "kept"), [(500, False), (0, True)], ids=["gets-on", "leaks"])
def test_what_becomes_less_is_waited_for(rate: int, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 mappings that a worker gives back in two seconds are no leak; as many that stay are one."""
    begin: list[float] = []

    def snapshot() -> SimpleNamespace:
        left = max(0, 1000 - int(rate * (time.monotonic() - begin[0]))) if begin else 0
        return SimpleNamespace(fds=3, lines=[""] * (10 + left), virtual=0, resident=0)

    def once() -> None:
        if not begin:
            begin.append(time.monotonic())

    monkeypatch.setattr(probes, "snapshot", snapshot)
    found, counts = probes.grown(once, 10)
    assert found is None
    assert (counts.mappings > 16) is kept
    assert time.monotonic() - begin[0] < 3
