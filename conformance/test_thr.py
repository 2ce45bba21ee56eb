"""THR: delegates and interpreters on several threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_thr_01(judge: Judge) -> None:
    """Interpreters with a delegate each work at the same time."""
    judge("THR-01")


def test_thr_02(judge: Judge) -> None:
    """One delegate is shared by threads, or refuses to be."""
    judge("THR-02")


def test_thr_03(judge: Judge) -> None:
    """Delegates come and go while others work."""
    judge("THR-03")


def test_thr_04(judge: Judge) -> None:
    """An interpreter may be handed to another thread, or there is an error."""
    judge("THR-04")


def test_thr_05(judge: Judge) -> None:
    """A delegate has no more threads than it was allowed."""
    judge("THR-05")


def test_thr_06(judge: Judge) -> None:
    """Prepare waits for no thread that needs Python's lock."""
    judge("THR-06")
