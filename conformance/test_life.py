"""LIFE: the life of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_life_01(judge: Judge) -> None:
    """A kernel has one init, before any prepare, and its user_data is what init returned."""
    judge("LIFE-01")


def test_life_02(judge: Judge) -> None:
    """A kernel's prepare, and a delegate's, may be called many times."""
    judge("LIFE-02")


def test_life_04(judge: Judge) -> None:
    """Each successful init is met by exactly one free when the interpreter is gone."""
    judge("LIFE-04")


def test_life_03(judge: Judge) -> None:
    """A kernel is never invoked before a successful prepare."""
    judge("LIFE-03")


def test_life_05(judge: Judge) -> None:
    """A kernel's free releases all that it has acquired."""
    judge("LIFE-05")


def test_life_06(judge: Judge) -> None:
    """A kernel's prepare and invoke do not call functions that are for Prepare only."""
    judge("LIFE-06")


def test_life_07(judge: Judge) -> None:
    """A kernel's init copies what it needs of the nodes."""
    judge("LIFE-07")


def test_life_08(judge: Judge) -> None:
    """A failed init is reported before anything runs."""
    judge("LIFE-08")


def test_life_09(judge: Judge) -> None:
    """A kernel's prepare neither reads nor writes data."""
    judge("LIFE-09")


def test_life_10(judge: Judge) -> None:
    """Prepare leaves the graph as it is."""
    judge("LIFE-10")


def test_life_11(judge: Judge) -> None:
    """A kernel adds its tensors once."""
    judge("LIFE-11")


def test_life_12(judge: Judge) -> None:
    """A kernel's name stays valid as long as the kernel lives."""
    judge("LIFE-12")


def test_life_13(judge: Judge) -> None:
    """A kernel has a name, and the same one each time."""
    judge("LIFE-13")


def test_life_14(judge: Judge) -> None:
    """A process can end in good order while a delegate is in use, and after its use."""
    judge("LIFE-14")
