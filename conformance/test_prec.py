"""PREC: several delegates on one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_prec_01(judge: Judge) -> None:
    """First come, first served: a node that one delegate has claimed is never carried out by a later one."""
    judge("PREC-01")


def test_prec_02(judge: Judge) -> None:
    """A later delegate sees earlier kernels as nodes with code 51 and their boundary tensors."""
    judge("PREC-02")


def test_prec_03(judge: Judge) -> None:
    """A delegate works as the first, the middle or the last of several, with the same numbers."""
    judge("PREC-03")


def test_prec_04(judge: Judge) -> None:
    """Behind other delegates' kernels, of what is left the same is claimed as without them."""
    judge("PREC-04")


def test_prec_06(judge: Judge) -> None:
    """The failure of a later delegate undoes all earlier ones and leaves a graph that runs on the CPU."""
    judge("PREC-06")


def test_prec_05(judge: Judge) -> None:
    """Delegates stand in the order of application, after a redo too."""
    judge("PREC-05")


def test_prec_07(judge: Judge) -> None:
    """A delegate that was undone can be applied to a fresh interpreter."""
    judge("PREC-07")


def test_prec_08(judge: Judge) -> None:
    """One delegate applied several times keeps its kernels apart."""
    judge("PREC-08")
