"""Judging a registration beside another one over the same buffer; the first one must be none the worse."""

from __future__ import annotations

from collections.abc import Collection

from pytest_qnn.cases.memory import Deregister, Execute, MemoryCase, Register
from pytest_qnn.core.verdict import Examined
from pytest_qnn.rules.memory_support import demand_code, demand_outputs, own_steps
from pytest_qnn.trace import MemoryTrace


def judge_relation(
    case: MemoryCase, trace: MemoryTrace, relation: str, codes: Collection[int], what: str
) -> Examined:
    """Registrations with the note ``relation`` answer one of ``codes``; what was registered works on.

    Relations are those of `pytest_qnn.oracle.memory_relations`.
    """
    # Whether a dup names the same memory is what no document says, so 8002 is no demand here.
    expected = {"duplicate"} if relation == "duplicate-fd" else set[str]()
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register | Deregister | Execute)):
        if isinstance(walked.step, Register) and walked.allowed.faults <= expected:
            notes = {note for note in walked.allowed.notes if note.startswith("relation:")}
            if notes == {f"relation:{relation}"}:
                demand_code(walked, codes, f"its memory is registered already ({relation})")
                count += 1
        elif count and walked.allowed.valid and not isinstance(walked.step, Register):
            demand_code(walked, {0}, "the registration that was there is still good")
    if count:
        demand_outputs(
            case, trace, lambda w: w.allowed.valid, "the registration that was there is still good"
        )
    return Examined(count, what)
