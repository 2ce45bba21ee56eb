"""Targets that the tests of a module share: whoever opens one keeps it, and conftest closes it."""

from __future__ import annotations

from typing import TypeVar

from pytest_qnn.qnn.target import MemoryTarget
from pytest_qnn.tflite.target import DelegateTarget

T = TypeVar("T", DelegateTarget, MemoryTarget)

_OPEN: list[DelegateTarget | MemoryTarget] = []


def keep(target: T) -> T:
    """The same target, to be closed when the module's tests are over."""
    _OPEN.append(target)
    return target


def close_all() -> None:
    """Close what was kept. A target that is used again starts again, so it stays on the list."""
    for target in _OPEN:
        target.close()
