"""MSC: sections of context binaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_msc_01(judge: Judge) -> None:
    """A section may lie in memory behind a handle, and the handle must be registered."""
    judge("MSC-01")
