"""OWN: how long delegates live, and what their end leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_own_01(judge: Judge) -> None:
    """The runtime keeps delegates as long as their interpreter."""
    judge("OWN-01")


def test_own_02(judge: Judge) -> None:
    """Destroying a delegate gives everything back."""
    judge("OWN-02")


def test_own_03(judge: Judge) -> None:
    """A delegate that is never applied leaves nothing behind."""
    judge("OWN-03")


def test_own_04(judge: Judge) -> None:
    """Interpreters of one delegate end in any order."""
    judge("OWN-04")


def test_own_05(judge: Judge) -> None:
    """A new delegate works after the old one was destroyed, and after its library was unloaded."""
    judge("OWN-05")
