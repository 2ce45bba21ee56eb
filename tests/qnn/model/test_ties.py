from __future__ import annotations

import numpy as np
import pytest

from pytest_qnn.qnn.cases.case import Binding, ContextCreate, Execute, MemoryCase, Prepare
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.model.contents import compare
from pytest_qnn.qnn.model.operators import expected
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

COUNT = 64
WEIGHTS = 5


def differences(output: bytes, weights: int | None) -> list[str]:
    """What is said of an addition with this output."""
    inputs = 1 if weights is not None else 2
    bindings = (*(Binding(seed=seed) for seed in (1, WEIGHTS)[:inputs]), Binding())
    steps = (ContextCreate("c"), Prepare("g", "c", shape=(COUNT,), weights=weights), Execute("g", bindings))
    seen = (StepSeen(code=0, values=(1,)), StepSeen(code=0), StepSeen(code=0, data=(output,)))
    return [found.difference for found in compare(MemoryCase(steps), MemoryTrace(steps=seen))]


def sums(*, ties_up: bool) -> bytes:
    operands = (contents("UFIXED_POINT_8", seed, COUNT) for seed in (1, WEIGHTS))
    return expected("ElementWiseAdd", "UFIXED_POINT_8", *operands, ties_up=ties_up)


def test_ties_are_rounded_up_or_down() -> None:
    gap = np.frombuffer(sums(ties_up=True), np.uint8) - np.frombuffer(sums(ties_up=False), np.uint8)
    assert set(gap.tolist()) == {0, 1}


@pytest.mark.parametrize("ties_up", [True, False])
def test_with_weights_a_tie_may_go_either_way(*, ties_up: bool) -> None:
    assert differences(sums(ties_up=ties_up), WEIGHTS) == [""]


def test_without_weights_ties_go_up() -> None:
    assert differences(sums(ties_up=True), None) == [""]
    assert differences(sums(ties_up=False), None)[0]


def test_with_weights_anything_else_is_wrong() -> None:
    down = np.frombuffer(sums(ties_up=False), np.uint8)
    assert differences((down - 1).tobytes(), WEIGHTS)[0]
