"""NOM: what a conforming delegate may do where the system refuses it something."""

from __future__ import annotations

from contextlib import closing

import pytest
from fast_run import first

from pytest_qnn.core.engine import judge
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.effort import profile
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.target import open_delegate_target


@pytest.mark.parametrize("seed", first([1, 2]))
def test_a_kernel_that_failed_says_so_when_it_is_prepared_though_nobody_listens(seed: int) -> None:
    """tflite-runtime 2.14 prepares the kernels of a delegate that allows dynamic tensors in Allocate only."""
    with closing(open_delegate_target([("reference:dynamic", {})], "tflite_runtime", "off", 10.0)) as target:
        verdict = judge(catalogue()["NOM-03"], target, profile("thorough"), seed)
    assert verdict.outcome is Outcome.PASS, verdict.finding


def test_a_target_that_goes_on_where_replace_failed_is_left_to_one_rule() -> None:
    """Behind ERR-09's delegate that fails a Replace may be refused; what is done then is ERR-01's."""
    target = open_delegate_target([("mutant:ignores-replace", {})], "tflite_runtime", "fork", 10.0)
    with closing(target):
        found = {rule: judge(catalogue()[rule], target, profile("quick"), 1) for rule in ("ERR-01", "ERR-09")}
    assert found["ERR-01"].outcome is not Outcome.PASS
    assert found["ERR-09"].outcome is Outcome.PASS, found["ERR-09"].finding
