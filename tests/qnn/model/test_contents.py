from __future__ import annotations

import numpy as np
import pytest

from pytest_qnn.qnn.cases.case import (
    Alloc,
    Binding,
    ContextCreate,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    MemoryCase,
    Prepare,
    Read,
    Register,
)
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.model.contents import FLOAT_BOUND, compare, differs
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

FLOATS = np.array([1.0, -2.0, 256.0, 0.0], np.float32)


@pytest.mark.parametrize(
    ("factor", "wrong"), [(1.0, False), (1 + FLOAT_BOUND, False), (1 + 3 * FLOAT_BOUND, True)]
)
def test_floats_may_be_off_by_one_unit_of_float16(factor: float, wrong: bool) -> None:
    seen = (FLOATS * np.float32(factor)).tobytes()
    assert bool(differs(FLOATS.tobytes(), seen, "FLOAT_32")) is wrong


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_float_that_is_no_number_is_wrong(value: float) -> None:
    seen = FLOATS.copy()
    seen[2] = value
    assert "element 2" in differs(FLOATS.tobytes(), seen.tobytes(), "FLOAT_32")


def test_quantised_bytes_must_be_equal() -> None:
    assert differs(b"\x01\x02\x03", b"\x01\x02\x03", "UFIXED_POINT_8") == ""
    assert differs(b"\x01\x02\x03", b"\x01\x03\x03", "UFIXED_POINT_8").startswith("at byte 1: 03 03")
    assert differs(b"\x01\x02", b"\x01", "UFIXED_POINT_8") == "1 bytes instead of 2"


CASE = MemoryCase(
    (
        ContextCreate("c0"),
        Prepare("g0", "c0", "Reshape", shape=(4,)),
        Alloc("b0", 8),
        Fill("b0"),
        Register("c0", (Descriptor("b0", (4,), mem_type=2, offset=2),), ("h0",)),
        Execute("g0", (Binding(seed=3), Binding("handle", "h0"))),
        Read("b0"),
    )
)
GOOD = contents("UFIXED_POINT_8", 3, 4)


def trace(output: bytes, buffer: bytes) -> MemoryTrace:
    made = StepSeen(code=0, values=(7,))
    last = (StepSeen(code=0, data=(output,)), StepSeen(data=(buffer,)))
    return MemoryTrace(steps=(made, made, StepSeen(values=(4096,)), StepSeen(), made, *last))


@pytest.mark.parametrize(
    ("output", "buffer", "wrong"),
    [
        (GOOD, b"\xee\xee" + GOOD + b"\xee\xee", []),
        (b"\x00" * 4, b"\xee\xee" + b"\x00" * 4 + b"\xee\xee", ["output"]),
        (GOOD, b"\xee\xee" + GOOD + b"\xee\x00", ["buffer"]),
        (GOOD, b"\x00\xee" + GOOD + b"\xee\xee", ["buffer"]),
        (GOOD, b"\xee" * 8, ["buffer"]),
    ],
    ids=["right", "wrong output, told once", "written behind", "written before", "output gone later"],
)
def test_each_wrong_byte_is_found_where_it_is_seen_first(
    output: bytes, buffer: bytes, wrong: list[str]
) -> None:
    seen = list(compare(CASE, trace(output, buffer)))
    assert len(seen) == 2
    assert [each.where for each in seen if each.difference] == wrong


def test_a_handle_whose_value_was_given_out_again_is_the_one_that_has_it_now() -> None:
    """An execute with the name of the first one writes to the second one's buffer, which nobody looks at."""
    shared = Descriptor("b0", (4,), mem_type=2)
    case = MemoryCase(
        (
            *(ContextCreate("c0"), Prepare("g0", "c0", "Reshape", shape=(4,))),
            *(Alloc("b0", 8), Alloc("b1", 8), Fill("b1")),
            *(Register("c0", (shared,), ("h0",)), Deregister(("h0",))),
            Register("c0", (Descriptor("b1", (4,), mem_type=2),), ("h1",)),
            *(Execute("g0", (Binding(seed=3), Binding("handle", "h0"))), Read("b1")),
        )
    )

    def compared(value: int) -> list[bool]:
        made = (StepSeen(code=0, values=(1,)), StepSeen(code=0, values=(2,)))
        allocated = (StepSeen(values=(1, 8)), StepSeen(values=(2, 8)), StepSeen())
        registered = (StepSeen(code=0, values=(7,)), StepSeen(code=0), StepSeen(code=0, values=(value,)))
        ended = (StepSeen(code=0, data=(GOOD,)), StepSeen(data=(GOOD + bytes(4),)))
        trace = MemoryTrace(steps=(*made, *allocated, *registered, *ended))
        return [bool(each.difference) for each in compare(case, trace) if each.where == "buffer"]

    assert compared(7) == []
    assert compared(8) == [True]
