"""OFF: context binaries, and the graphs that come out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_off_01(judge: Judge) -> None:
    """A binary records the memory type of each IO tensor."""
    judge("OFF-01")


def test_off_02(judge: Judge) -> None:
    """Loading a binary allocates IO buffers for RAW tensors only."""
    judge("OFF-02")


def test_off_03(judge: Judge) -> None:
    """Graphs out of a binary compute what they computed as composed, here and in another process."""
    judge("OFF-03")


def test_off_05(judge: Judge) -> None:
    """Leaving out the memory type at offline preparation changes no result."""
    judge("OFF-05")


def test_off_06(judge: Judge) -> None:
    """The tensors in a binary's information carry no data."""
    judge("OFF-06")


def test_off_07(judge: Judge) -> None:
    """A binary is asked for when all graphs are finalised, with a buffer that is large enough."""
    judge("OFF-07")


def test_off_08(judge: Judge) -> None:
    """A malformed binary is refused, and makes no context."""
    judge("OFF-08")


def test_off_09(judge: Judge) -> None:
    """A context from a binary cannot be altered."""
    judge("OFF-09")


def test_off_10(judge: Judge) -> None:
    """A binary may be released once an ordinary createFromBinary has returned."""
    judge("OFF-10")
