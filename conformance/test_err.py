"""ERR: failures, and what they leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_err_03(judge: Judge) -> None:
    """After a failed application the plan is restored, kernels are freed and the CPU's results stand."""
    judge("ERR-03")
