"""RSZ: the inputs of a delegated graph are resized."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_rsz_01(judge: Judge) -> None:
    """After a resize the results are those of a fresh interpreter of that shape."""
    judge("RSZ-01")


def test_rsz_02(judge: Judge) -> None:
    """To resize an input to the shape that it has causes no callback."""
    judge("RSZ-02")


def test_rsz_03(judge: Judge) -> None:
    """A static delegate is undone by a resize and redone by allocate_tensors, and its kernels are freed."""
    judge("RSZ-03")


def test_rsz_04(judge: Judge) -> None:
    """A shape that is too much makes the delegate claim less, or allocate_tensors fail cleanly."""
    judge("RSZ-04")


def test_rsz_05(judge: Judge) -> None:
    """Growing and shrinking shapes do not take more and more memory."""
    judge("RSZ-05")
