"""CTRL: graphs with loops and branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_ctrl_01(judge: Judge) -> None:
    """The delegate is prepared for each subgraph, and keeps what it knows of each apart."""
    judge("CTRL-01")


def test_ctrl_02(judge: Judge) -> None:
    """Kernels in the body of a loop are right for no, one and several turns, at each invoke."""
    judge("CTRL-02")


def test_ctrl_03(judge: Judge) -> None:
    """A delegate releases every subgraph context that it has acquired."""
    judge("CTRL-03")


def test_ctrl_04(judge: Judge) -> None:
    """Subgraphs whose names begin with VALIDATION: are not delegated."""
    judge("CTRL-04")
