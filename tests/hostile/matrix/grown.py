"""Plugin of pytest: by how many bytes this process grows while it opens its targets, and in each rule's test.

``-p grown``, with ``GROWN`` naming the file to write. It is the largest resident size, less that of before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_grown: dict[str, int] = {}
_before = 0


def _bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def _begin() -> int:
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): VmHWM begins anew
    return _bytes("VmRSS")


def pytest_configure() -> None:
    """Begin before any target is opened."""
    global _before  # noqa: PLW0603 - a plugin has no other place
    _before = _begin()


def pytest_collection_finish() -> None:
    """Targets are open."""
    _grown["opening"] = _bytes("VmHWM") - _before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """One rule's test, its report included."""
    before = _begin()
    try:
        return (yield)
    finally:
        _grown[item.name] = _bytes("VmHWM") - before


def pytest_unconfigure() -> None:
    """Leave the numbers, those of the reports' pages included."""
    _grown["all"] = max(_grown.values(), default=0)
    Path(os.environ["GROWN"]).write_text(json.dumps(_grown))
