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


def test_drg_07(judge: Judge) -> None:
    """A count of 0 succeeds or is refused; nothing happens."""
    judge("DRG-07")


def test_drg_08(judge: Judge) -> None:
    """One call may deregister handles of several contexts."""
    judge("DRG-08")


def test_drg_09(judge: Judge) -> None:
    """Deregistering does not close the client's descriptor, unmap its pointer or change its contents."""
    judge("DRG-09")


def test_drg_10(judge: Judge) -> None:
    """After deregistering and the client's free the memory is gone: the backend keeps no reference to it."""
    judge("DRG-10")


def test_drg_11(judge: Judge) -> None:
    """Deregistering one handle has no effect on any other."""
    judge("DRG-11")


def test_drg_12(judge: Judge) -> None:
    """The array of handles is not modified."""
    judge("DRG-12")


def test_drg_13(judge: Judge) -> None:
    """A backend survives a client that frees its memory first: deregistering still succeeds."""
    judge("DRG-13")


def test_drg_14(judge: Judge) -> None:
    """Deregistering memory that a graph is executing with neither crashes nor blocks the backend."""
    judge("DRG-14")
