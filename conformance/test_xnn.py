"""XNN: a delegate beside the runtimes' own XNNPACK."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_xnn_01(judge: Judge) -> None:
    """The delegate keeps its kernels when XNNPACK takes the rest."""
    judge("XNN-01")


def test_xnn_02(judge: Judge) -> None:
    """Behind XNNPACK the delegate claims none of its kernels and does not fail."""
    judge("XNN-02")


def test_xnn_03(judge: Judge) -> None:
    """XNNPACK is not applied to a graph that the delegate has claimed as a whole."""
    judge("XNN-03")


def test_xnn_04(judge: Judge) -> None:
    """The delegate works with every set of the runtime's kernels."""
    judge("XNN-04")
