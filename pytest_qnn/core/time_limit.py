"""When to begin nothing more: by processor time, so that a busy machine does not change what is done."""

from __future__ import annotations

import time

_WALL = 3
"""Seconds of the clock for each second of processor time: for what waits instead of computing."""


class TimeLimit:
    """So many seconds of this process's processor time from now on, or three times as many of the clock."""

    def __init__(self, seconds: float) -> None:
        self._computed = time.process_time() + seconds
        self._passed = time.monotonic() + _WALL * seconds

    @property
    def is_over(self) -> bool:
        """Nothing more is to be begun."""
        return time.process_time() > self._computed or time.monotonic() > self._passed
