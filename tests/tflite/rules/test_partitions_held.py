"""LEAK-05: which growth is faster than in proportion, and which only looks so."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.rules.leak import rules
from pytest_qnn.tflite.target import open_delegate_target

COUNTS = rules._PARTITIONS
LEAST = rules._LEAST_ADDED["malloc"]
KIB = 1 << 10


def block(size: int, least: int = 1) -> int:
    """The next power of two."""
    return max(least, 1 << math.ceil(math.log2(size)))


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(lambda n: 5 * KIB * n, id="linear"),
        pytest.param(lambda n: 300 * KIB + 5 * KIB * n, id="linear and a constant"),
        pytest.param(lambda n: KIB * n * math.log2(n), id="n log n"),
        pytest.param(lambda _: 40 * KIB, id="constant"),
        pytest.param(lambda n: block(n + 1) * 4 * KIB, id="a table that doubles"),
        pytest.param(lambda n: block(n, 64) * 4 * KIB, id="a table that is large from the beginning"),
        pytest.param(lambda n: math.ceil(n * 3 / 100) * 256 * KIB, id="a pool of large blocks"),
        pytest.param(lambda n: math.ceil(0.15 + 0.119 * n) * 64 * KIB, id="a pool of blocks"),
        pytest.param(lambda n: 5 * n * n, id="for each pair, but little"),
        pytest.param(lambda n: 5 * KIB * n - 80 * KIB, id="less than the probe"),
    ],
)
def test_this_is_no_finding(held: Callable[[int], float]) -> None:
    assert not rules._grows_faster([int(held(n)) for n in COUNTS], LEAST)


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(lambda n: 100 * n * n, id="for each pair"),
        pytest.param(lambda n: 100 * n * n + 2 * KIB * n, id="for each pair, and for each"),
        pytest.param(lambda n: 64 * n**3, id="for each three"),
        pytest.param(lambda n: 200 * n * n + 300 * KIB, id="for each pair, and a constant"),
    ],
)
def test_this_is_one(held: Callable[[int], float]) -> None:
    assert rules._grows_faster([int(held(n)) for n in COUNTS], LEAST)


@pytest.mark.parametrize("runtime", ["tflite_runtime", "ai_edge_litert"])
def test_a_delegate_that_has_few_partitions_whatever_it_is_offered_is_not_judged(runtime: str) -> None:
    """It takes the largest partition only."""
    target = open_delegate_target([("reference:largest-partition", {})], runtime, "off", 10.0)
    try:
        verdict = judge(catalogue()["LEAK-05"], target, PROFILES["default"], 1)
    finally:
        target.close()
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert "partitions where twice as many are offered" in verdict.reason
