"""QMG: the table of preparing and executing with raw memory and memory handles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_qmg_01(judge: Judge) -> None:
    """Raw, raw: IO buffers are allocated at preparation; data is copied at each inference."""
    judge("QMG-01")


def test_qmg_02(judge: Judge) -> None:
    """Raw, memhandle: IO buffers are allocated at preparation; the copy is avoided."""
    judge("QMG-02")


def test_qmg_03(judge: Judge) -> None:
    """Memhandle, raw: IO buffers are allocated at the first raw inference only."""
    judge("QMG-03")


def test_qmg_04(judge: Judge) -> None:
    """Memhandle, memhandle: no IO buffer is ever allocated."""
    judge("QMG-04")


def test_qmg_05(judge: Judge) -> None:
    """All four combinations give identical outputs."""
    judge("QMG-05")


def test_qmg_06(judge: Judge) -> None:
    """The IO buffers of the first raw inference serve all later ones."""
    judge("QMG-06")


def test_qmg_07(judge: Judge) -> None:
    """Raw and memhandle executes may alternate on one graph."""
    judge("QMG-07")


def test_qmg_08(judge: Judge) -> None:
    """The hint is given per IO tensor: only tensors left RAW get IO buffers at preparation."""
    judge("QMG-08")


def test_qmg_09(judge: Judge) -> None:
    """The internal IO buffers of a graph are given back when its context is freed."""
    judge("QMG-09")


def test_qmg_11(judge: Judge) -> None:
    """The hint changes no error: the same mistake is answered alike whether a graph carries it or not."""
    judge("QMG-11")
