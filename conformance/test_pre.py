"""PRE: what IO tensors may come with when they are created."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_pre_01(judge: Judge) -> None:
    """A tensor of memory type MEMHANDLE has a NULL memHandle at creation."""
    judge("PRE-01")


def test_pre_02(judge: Judge) -> None:
    """A tensor of memory type RAW has NULL data at creation."""
    judge("PRE-02")


def test_pre_04(judge: Judge) -> None:
    """MEMHANDLE with a NULL handle at creation is the hint: it is taken and has its effect."""
    judge("PRE-04")
