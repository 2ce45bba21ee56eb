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
    """int8 results are within one unit of the rounded result; copies are exact."""
    judge("NUM-03")


def test_num_04(judge: Judge) -> None:
    """int8 results that leave the range of int8, or of the fused activation, are clamped to it."""
    judge("NUM-04")
