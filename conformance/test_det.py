"""DET: outputs are a function of the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_det_01(judge: Judge) -> None:
    """Repeated invokes with the same inputs give bit-identical outputs in one interpreter."""
    judge("DET-01")


def test_det_02(judge: Judge) -> None:
    """Outputs depend on the inputs of their invoke, not on earlier invokes."""
    judge("DET-02")


def test_det_03(judge: Judge) -> None:
    """Two interpreters of one model give equal outputs, in one process and in two."""
    judge("DET-03")


def test_det_04(judge: Judge) -> None:
    """Every element of an output is written by invoke: what stood there before does not survive."""
    judge("DET-04")
