from __future__ import annotations

import numpy as np
import pytest

from pytest_qnn.qnn.cases.case import Binding, ContextCreate, Execute, MemoryCase, Prepare
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.model.contents import compare
from pytest_qnn.qnn.model.operators import beyond, expected
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


@pytest.mark.parametrize("off", [-2, -1, 0, 1, 2])
def test_a_quantised_sum_may_be_off_by_one_step(off: int) -> None:
    operands = [bytes([200, 100, 4]), bytes([130, 120, 128])]
    exact = np.frombuffer(expected("ElementWiseAdd", "UFIXED_POINT_8", *operands), np.uint8)
    seen = (exact + off).astype(np.uint8).tobytes()
    assert bool(beyond("ElementWiseAdd", "UFIXED_POINT_8", seen, *operands)) is (abs(off) > 1)


def test_reshape_changes_no_byte() -> None:
    assert beyond("Reshape", "UFIXED_POINT_8", b"\x01\x02", b"\x01\x03").startswith(
        "at element 1: 2 instead of 3"
    )


@pytest.mark.parametrize(("factor", "wrong"), [(1.0, False), (1.0009, False), (1.002, True), (np.nan, True)])
def test_a_float_may_be_off_by_a_unit_of_float16(factor: float, *, wrong: bool) -> None:
    values = np.array([2.0, -8.0, 0.5], np.float32)
    seen = (values * np.float32(factor)).tobytes()
    assert bool(beyond("Reshape", "FLOAT_32", seen, values.tobytes())) is wrong
