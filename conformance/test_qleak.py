"""QLEAK: what many rounds leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_qleak_01(judge: Judge) -> None:
    """Registering and deregistering again and again leaves nothing behind."""
    judge("QLEAK-01")


def test_qleak_02(judge: Judge) -> None:
    """Freeing contexts with live registrations again and again leaves nothing behind."""
    judge("QLEAK-02")


def test_qleak_03(judge: Judge) -> None:
    """Registrations, and contexts from half a binary, that fail again and again leave nothing behind."""
    judge("QLEAK-03")


def test_qleak_04(judge: Judge) -> None:
    """A process can end in good order with contexts and registrations alive."""
    judge("QLEAK-04")
