"""PROF and CANC: what a profiler is told, and invokes that are cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_prof_01(judge: Judge) -> None:
    """Events are made as the delegate's flags declare."""
    judge("PROF-01")


def test_canc_01(judge: Judge) -> None:
    """A cancelled invoke runs no later kernel, and the next one works."""
    judge("CANC-01")
