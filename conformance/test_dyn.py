"""DYN: tensors whose shapes are known only while the graph runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_dyn_01(judge: Judge) -> None:
    """A static delegate is not prepared on a graph with dynamic tensors, and the graph still runs."""
    judge("DYN-01")


def test_dyn_02(judge: Judge) -> None:
    """A delegate that allows dynamic tensors gives its outputs the right shapes in kernel prepare."""
    judge("DYN-02")


def test_dyn_03(judge: Judge) -> None:
    """Outputs whose shapes hang on data get their shapes at each invoke."""
    judge("DYN-03")


def test_dyn_04(judge: Judge) -> None:
    """After a static delegate no later one may make a tensor dynamic."""
    judge("DYN-04")


def test_dyn_05(judge: Judge) -> None:
    """A delegate that requires propagated shapes finds the new shapes in kernel prepare."""
    judge("DYN-05")


def test_dyn_06(judge: Judge) -> None:
    """The flags of a delegate do not change once it is made."""
    judge("DYN-06")
