"""QMG: seed 001's table of preparing and executing with raw memory and memory handles.

What is allocated, and copied, is judged from outside, by the mappings of the process and their resident
bytes; `require_htp` and `require_visible` in `pytest_qnn.rules.qmg_rows` say where that is possible.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.cases import memory_matrix_strategies as strategies
from pytest_qnn.cases.memory import Execute, MemoryCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory_contents import compare, differs
from pytest_qnn.rules.memory_graph_support import (
    judge_contents,
    judge_executes,
    judge_run,
    kinds,
    require_execute,
    require_executed_memory,
)
from pytest_qnn.rules.memory_support import place
from pytest_qnn.rules.qmg_rows import (
    Inference,
    Row,
    demand_at_prepare,
    demand_copied,
    demand_new,
    demand_not_copied,
    require_htp,
    require_visible,
    rows,
)
from pytest_qnn.trace import MemoryTrace

_TABLE = "seed 001, Mis-matching mem_type during preparation and execution"
_WEIGHT = 0.15
"""A case maps and fills megabytes, and there is little to vary."""
_ONE_BY_ONE = {frozenset({"raw"}), frozenset({"handle"})}


def _seen(
    case: MemoryCase, trace: MemoryTrace, *, raw: bool, handles: bool
) -> Iterator[tuple[Row, tuple[Inference, ...]]]:
    """The rows prepared all RAW or all MEMHANDLE, with their executes of one kind."""
    found = rows(case, trace)
    require_visible(found)
    kind = {"handle"} if handles else {"raw"}
    for row in found:
        if row.raw == (row.tensors if raw else 0) and row.inferences:
            first = row.inferences[0]
            if first.kinds == kind:
                yield row, row.inferences


def _require_raw(case: MemoryCase, trace: MemoryTrace, because: str) -> None:
    """The gates of a row that is executed raw; the executes themselves must succeed and be right."""
    require_htp(trace)
    require_execute(case, trace)
    judge_executes(case, trace, lambda step: kinds(step) == {"raw"}, because)
    judge_contents(case, trace, because=because)


@rule(
    "QMG-01",
    Level.MUST,
    "Prepared raw, executed raw: IO buffers are allocated at preparation; data is copied at each inference.",
    source=f"{_TABLE}, row 1",
    subject="memory",
    cases=strategies.raw_raw,
    gate=("HTP", "separate IO buffers"),
    weight=_WEIGHT,
)
def qmg_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """One new mapping per tensor at preparation, none at execute, and all of them filled by it."""
    _require_raw(case, trace, "prepared raw, executed raw")
    count = 0
    for row, inferences in _seen(case, trace, raw=True, handles=False):
        demand_at_prepare(row)
        for inference in inferences:
            demand_new(inference, 0, "they were allocated at preparation")
            demand_copied(row, inference, inference.after)
        count += 1
    return Examined(count, "graphs prepared and executed raw")


@rule(
    "QMG-02",
    Level.MUST,
    "Prepared raw, executed memhandle: IO buffers are allocated at preparation; the copy is avoided.",
    source=f"{_TABLE}, row 2",
    subject="memory",
    cases=strategies.raw_memhandle,
    gate=("502", "1101", "HTP", "separate IO buffers"),
    weight=_WEIGHT,
)
def qmg_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """One new mapping per tensor at preparation, none at execute, and none of them filled by it."""
    require_htp(trace)
    require_executed_memory(case, trace)
    judge_executes(case, trace, lambda step: kinds(step) == {"handle"}, "prepared raw, executed memhandle")
    count = 0
    for row, inferences in _seen(case, trace, raw=True, handles=True):
        demand_at_prepare(row)
        for inference in inferences:
            demand_new(inference, 0, "memory handles need none")
            demand_not_copied(row, inference)
        count += 1
    return Examined(count, "graphs prepared raw and executed memhandle")


@rule(
    "QMG-03",
    Level.MUST,
    "Prepared memhandle, executed raw: IO buffers are allocated at the first raw inference only; "
    "data is copied at each inference.",
    source=f"{_TABLE}, row 3",
    subject="memory",
    cases=strategies.memhandle_raw,
    gate=("HTP", "separate IO buffers"),
    weight=_WEIGHT,
)
def qmg_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """No new mapping at preparation, one per tensor at the first execute, filled by it.

    That raw executes succeed with correct numbers is judged also where no IO buffer can be seen.
    """
    _require_raw(case, trace, "prepared memhandle, executed raw")
    count = 0
    for row, inferences in _seen(case, trace, raw=False, handles=False):
        demand_at_prepare(row)
        demand_new(inferences[0], row.tensors, "this is the first raw inference")
        demand_copied(row, inferences[0], inferences[0].new)
        count += 1
    return Examined(count, "graphs prepared memhandle and executed raw")


@rule(
    "QMG-04",
    Level.MUST,
    "Prepared memhandle, executed memhandle: no IO buffer is ever allocated and nothing is copied.",
    source=f"{_TABLE}, row 4",
    subject="memory",
    cases=strategies.memhandle_memhandle,
    gate=("502", "1101", "HTP", "separate IO buffers"),
    weight=_WEIGHT,
)
def qmg_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """No new mapping at preparation or execute, while the same operator prepared raw has some."""
    require_htp(trace)
    require_executed_memory(case, trace)
    judge_executes(case, trace, lambda step: kinds(step) == {"handle"}, "prepared and executed memhandle")
    count = 0
    for row, inferences in _seen(case, trace, raw=False, handles=True):
        demand_at_prepare(row)
        for inference in inferences:
            demand_new(inference, 0, "memory handles need none")
        count += 1
    return Examined(count, "graphs prepared and executed memhandle")


@rule(
    "QMG-05",
    Level.MUST,
    "All four combinations of preparation and execution give identical outputs.",
    source="seed 001 (memory type at preparation is a hint)",
    subject="memory",
    cases=strategies.four_rows,
)
def qmg_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Outputs for equal inputs are compared bit by bit between all rows that the target can carry out.

    Where QnnMem is not supported, these are the raw columns: prepared raw and memhandle, executed raw.
    """
    require_execute(case, trace)
    judge_executes(case, trace, lambda _: True, "each row of the table can be executed")
    first: dict[tuple[object, ...], tuple[tuple[bool, str], bytes]] = {}
    count = 0
    columns: set[str] = set()
    for seen in compare(case, trace):
        if seen.made is None or seen.execute is None or frozenset(kinds(seen.execute)) not in _ONE_BY_ONE:
            continue
        (column,) = kinds(seen.execute)
        row = (any(seen.made.mem_types), column)
        key = (seen.made.op, seen.made.dtype, seen.made.shape, *seen.inputs)
        before, data = first.setdefault(key, (row, seen.data))
        if data != seen.data:
            wanted = f"the output of the row {_named(before)}"
            difference = differs(data, seen.data, "UFIXED_POINT_8")
            raise Violation(wanted, f"{_named(row)}: {difference}", place(seen.walked))
        if row != before:
            columns.add(column)
            count += 1
    only = "" if "handle" in columns else " (raw columns only)"
    return Examined(count, f"outputs compared between rows{only}")


def _named(row: tuple[bool, str]) -> str:
    names = {"raw": "raw", "handle": "memhandle"}
    return f"{'memhandle' if row[0] else 'raw'}/{names[row[1]]}"


@rule(
    "QMG-06",
    Level.MUST,
    "Prepared memhandle: the IO buffers of the first raw inference serve all later ones.",
    source=f"{_TABLE}, row 3 (first inference)",
    subject="memory",
    cases=strategies.raw_again,
    gate=("HTP", "separate IO buffers"),
    weight=_WEIGHT,
)
def qmg_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Raw executes after the first bring no new mapping."""
    _require_raw(case, trace, "prepared memhandle, executed raw")
    count = 0
    for _, inferences in _seen(case, trace, raw=False, handles=False):
        for inference in inferences[1:]:
            demand_new(inference, 0, "the first raw inference has allocated them")
            count += 1
    return Examined(count, "raw inferences after the first")


@rule(
    "QMG-07",
    Level.MUST,
    "Raw and memhandle executes may alternate on one graph.",
    source=_TABLE,
    subject="memory",
    cases=strategies.alternating,
    gate=("502", "1101"),
)
def qmg_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Each execute of an alternating sequence succeeds with correct numbers."""
    require_executed_memory(case, trace)
    found = judge_run(case, trace, "outputs and buffers of alternating executes", "executes may alternate")
    used = {frozenset(kinds(step)) for step in case.steps if isinstance(step, Execute)}
    return found if len(used) > 1 else Examined(0, found.what)


@rule(
    "QMG-08",
    Level.MUST,
    "The hint is given per IO tensor: only tensors left RAW get IO buffers at preparation.",
    source="seed 001, Online Prepare (memory type of each IO tensor)",
    subject="memory",
    cases=strategies.mixed_hints,
    gate=("HTP",),
    weight=_WEIGHT,
)
def qmg_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """As many new mappings at preparation as RAW tensors, the others at the first raw execute."""
    _require_raw(case, trace, "some tensors carry the hint")
    found = rows(case, trace)
    require_visible(found)
    count = 0
    for row in found:
        if not 0 < row.raw < row.tensors:
            continue
        demand_at_prepare(row)
        for inference in row.inferences[:1]:
            demand_new(inference, row.tensors - row.raw, "these tensors carry the hint")
        count += 1
    return Examined(count, "graphs with mixed hints")
