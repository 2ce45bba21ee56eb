"""DET: outputs are a function of the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_det_01(judge: Judge) -> None:
    """Repeated invokes with the same inputs give bit-identical outputs in one interpreter."""
    judge("DET-01")


def test_det_04(judge: Judge) -> None:
    """Every element of an output is written by invoke: what stood there before does not survive."""
    judge("DET-04")
