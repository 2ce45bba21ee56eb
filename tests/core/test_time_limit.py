"""A limit of time is over for what computes or waits long, and not for what has to wait for a processor."""

from __future__ import annotations

import time

import pytest

from pytest_qnn.core.time_limit import TimeLimit


class Clock:
    """Both clocks, set by a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.computed = self.passed = 100.0
        monkeypatch.setattr(time, "process_time", lambda: self.computed)
        monkeypatch.setattr(time, "monotonic", lambda: self.passed)


@pytest.mark.parametrize(
    ("computed", "passed", "over"),
    [(0.4, 1.4, False), (0.6, 0.6, True), (0.0, 1.4, False), (0.0, 1.6, True)],
)
def test_it_is_over_by_processor_time_or_after_three_times_as_long(
    computed: float, passed: float, over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    limit = TimeLimit(0.5)
    clock.computed += computed
    clock.passed += passed
    assert limit.is_over is over
