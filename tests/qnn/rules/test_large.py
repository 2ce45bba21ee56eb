"""A target that cannot map 2 GiB is excused, unless it has mapped as much."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_qnn.core.verdict import FailedCall, Unsupported, Violation
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    ContextCreate,
    Deregister,
    Descriptor,
    MemoryCase,
    Register,
)
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.expected import walk
from pytest_qnn.qnn.rules.judging import demand_code
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

GIB = 1 << 30
MAPPING = 8003


def registered(buffer: str, handle: str) -> Register:
    return Register("c", (Descriptor(buffer, (4,)),), (handle,))


def judged(sizes: Sequence[int], *steps: AnyStep, codes: Sequence[int], demanded: int) -> None:
    """Demand a code of the last of the steps, after buffers b0, b1, ... of these sizes."""
    buffers = (Alloc(f"b{place}", size, wide=True) for place, size in enumerate(sizes))
    case = MemoryCase((ContextCreate("c"), *buffers, *steps))
    answers = [0, *(None for _ in sizes), *codes]
    seen = tuple(StepSeen(code=code, values=(9 + at,)) for at, code in enumerate(answers))
    *_, last = walk(case, MemoryTrace(steps=seen, facts=MemoryFacts(capabilities={1101: 0})))
    demand_code(last, {demanded})


def test_memory_of_2_gib_may_not_fit() -> None:
    with pytest.raises(Unsupported, match="2 GiB"):
        judged([2 * GIB], registered("b0", "h"), codes=[MAPPING], demanded=0)
    with pytest.raises(FailedCall):
        judged([2 * GIB - 1], registered("b0", "h"), codes=[MAPPING], demanded=0)


def test_a_second_buffer_of_2_gib_may_not_fit_beside_the_first() -> None:
    with pytest.raises(Unsupported, match="2 GiB"):
        judged(
            [2 * GIB, 2 * GIB], registered("b0", "h"), registered("b1", "i"), codes=[0, MAPPING], demanded=0
        )


@pytest.mark.parametrize("size", [2 * GIB, 4 * GIB])
def test_what_was_mapped_before_fits(size: int) -> None:
    with pytest.raises(Violation, match="8003"):
        judged([size], registered("b0", "h"), registered("b0", "i"), codes=[0, MAPPING], demanded=8002)
    again = (registered("b0", "h"), Deregister(("h",)), registered("b0", "i"))
    with pytest.raises(FailedCall):
        judged([size], *again, codes=[0, 0, MAPPING], demanded=0)


def test_anything_fits_where_4_gib_did() -> None:
    with pytest.raises(FailedCall):
        judged(
            [4 * GIB, 2 * GIB], registered("b0", "h"), registered("b1", "i"), codes=[0, MAPPING], demanded=0
        )
