"""DRG: QnnMem_deRegister."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_drg_01(judge: Judge) -> None:
    """Deregistering a live handle succeeds."""
    judge("DRG-01")


def test_drg_02(judge: Judge) -> None:
    """A NULL handle array is refused."""
    judge("DRG-02")


def test_drg_03(judge: Judge) -> None:
    """A handle that is NULL, unknown or of another kind is reported."""
    judge("DRG-03")


def test_drg_04(judge: Judge) -> None:
    """Deregistering a handle a second time is reported."""
    judge("DRG-04")


def test_drg_05(judge: Judge) -> None:
    """When some handles of a call are invalid, the valid ones are deregistered all the same."""
    judge("DRG-05")


def test_drg_06(judge: Judge) -> None:
    """The same handle twice in one call is deregistered once, and the error is reported."""
    judge("DRG-06")


def test_drg_09(judge: Judge) -> None:
    """Deregistering does not close the client's descriptor, unmap its pointer or change its contents."""
    judge("DRG-09")


def test_drg_11(judge: Judge) -> None:
    """Deregistering one handle has no effect on any other."""
    judge("DRG-11")
