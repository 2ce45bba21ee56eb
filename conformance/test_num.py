"""NUM: the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_num_01(judge: Judge) -> None:
    """float32 element-wise operators give the CPU's values exactly."""
    judge("NUM-01")


def test_num_02(judge: Judge) -> None:
    """float32 sums of products are within 4 eps (sum |a b| + |bias|) of the exact result."""
    judge("NUM-02")


def test_num_03(judge: Judge) -> None:
    """int8 results are within one unit per operator of the real-valued result; copies are exact."""
    judge("NUM-03")


def test_num_04(judge: Judge) -> None:
    """int8 results that leave the range of int8, or of the fused activation, are clamped to it."""
    judge("NUM-04")


def test_num_05(judge: Judge) -> None:
    """The scale of each channel of weights, and zero points that are not 0, are honoured."""
    judge("NUM-05")


def test_num_06(judge: Judge) -> None:
    """A fused activation is applied, alone and inside a partition."""
    judge("NUM-06")


def test_num_07(judge: Judge) -> None:
    """NaN and infinities propagate as IEEE 754 allows; copies change nothing."""
    judge("NUM-07")


def test_num_08(judge: Judge) -> None:
    """float32 graphs are not computed in half precision unless an option asks for it."""
    judge("NUM-08")


def test_num_09(judge: Judge) -> None:
    """Results do not depend on how the graph is cut."""
    judge("NUM-09")
