"""NOM: what a conforming delegate may do where the system refuses it something."""

from __future__ import annotations

from contextlib import closing

import pytest

from pytest_qnn.core.engine import judge
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.effort import profile
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.target import open_delegate_target


@pytest.mark.parametrize("seed", [1, 2])
def test_a_kernel_that_failed_says_so_when_it_is_prepared_though_nobody_listens(seed: int) -> None:
    """tflite-runtime 2.14 prepares the kernels of a delegate that allows dynamic tensors in Allocate only."""
    with closing(open_delegate_target([("reference:dynamic", {})], "tflite_runtime", "off", 10.0)) as target:
        verdict = judge(catalogue()["NOM-03"], target, profile("thorough"), seed)
    assert verdict.outcome is Outcome.PASS, verdict.finding
