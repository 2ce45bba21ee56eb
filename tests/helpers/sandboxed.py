"""Cases for hostile libraries, and waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase, Providers

CASE = MemoryCase(steps=(Providers(), ContextCreate("c0")))
"""`native.qnn_library` misbehaves when the context is made."""
HARMLESS = MemoryCase(steps=(Providers(),))


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether it holds before so many seconds are over."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()
