"""ERR: failures, and what they leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_err_03(judge: Judge) -> None:
    """After a failed application the plan is restored, kernels are freed and the CPU's results stand."""
    judge("ERR-03")


def test_err_01(judge: Judge) -> None:
    """Prepare returns an error when a function it needs has failed."""
    judge("ERR-01")


def test_err_02(judge: Judge) -> None:
    """What Prepare reports as a success runs, also after something failed within it."""
    judge("ERR-02")


def test_err_04(judge: Judge) -> None:
    """A kernel answers what it cannot do with a status; the process lives."""
    judge("ERR-04")


def test_err_05(judge: Judge) -> None:
    """After a failed invoke there is no success with old data."""
    judge("ERR-05")


def test_err_06(judge: Judge) -> None:
    """A failed invoke spares inputs, constants and other interpreters."""
    judge("ERR-06")


def test_err_07(judge: Judge) -> None:
    """A Prepare that fails says why."""
    judge("ERR-07")


def test_err_08(judge: Judge) -> None:
    """A kernel's status is one of TfLiteStatus, and means what it says."""
    judge("ERR-08")


def test_err_09(judge: Judge) -> None:
    """A failed delegate leaves its nodes to others, as far as the runtimes let it (RT-01)."""
    judge("ERR-09")


def test_err_10(judge: Judge) -> None:
    """RemoveAllDelegates restores execution on the CPU at any time."""
    judge("ERR-10")
