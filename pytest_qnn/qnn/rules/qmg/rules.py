"""QMG: seed 001's table of preparing and executing with raw memory and memory handles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation, WrongOutput
from pytest_qnn.qnn.cases.case import AnyStep, ContextFree, Descriptor, Execute, MemoryCase, Observe, Prepare
from pytest_qnn.qnn.cases.sizes import nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.contents import compare, differs
from pytest_qnn.qnn.model.expected import Walked, walk
from pytest_qnn.qnn.rules.graphs import (
    judge_contents,
    judge_executes,
    judge_run,
    kinds,
    require_execute,
    require_executed_memory,
    require_prepared,
)
from pytest_qnn.qnn.rules.io_buffers import (
    HINTED,
    PLAIN,
    Inference,
    Row,
    demand_at_prepare,
    demand_copied,
    demand_new,
    demand_not_copied,
    require_htp,
    require_visible,
    rows,
    size_of,
    watched,
)
from pytest_qnn.qnn.rules.judging import place
from pytest_qnn.qnn.strategies.graphs import (
    any_memory,
    change,
    execute,
    graph,
    hint,
    load,
    mistake,
    output_of,
    raw,
    read,
    tensors_of,
)
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace

_TABLE = "seed 001, Mis-matching mem_type during preparation and execution"
_WEIGHT = 0.15
"""A case maps and fills megabytes, and there is little to vary."""
_LIVES = 3
"""Contexts, one after the other, whose graphs have IO buffers of one size."""
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


Cases = st.SearchStrategy[MemoryCase]


def _executed(scene: Scene, tape: Tape, name: str, *, handles: bool, turns: int = 1) -> None:
    """Executes, raw or with handles for every tensor, each with a look before and after it."""
    memory = any_memory(scene, tape, name) if handles else None
    look = Observe(size_of(scene, name))
    for turn in range(turns):
        seed = 16 * turn + tape.below(16)
        if memory is not None:
            load(scene, name, memory, seed)
        if scene.steps[-1] != look:
            scene.add(look)
        execute(scene, name, memory, seed=seed)
        scene.add(look)


def _row(facts: MemoryFacts, mem_types: tuple[int, ...], *, handles: bool, control: tuple[int, ...]) -> Cases:
    """One row of the table, then as control a raw execute of a graph prepared with ``control``."""

    def core(scene: Scene, tape: Tape) -> None:
        name = watched(scene, tape, mem_types)
        if not name:
            return
        turns = 1 + tape.below(2)
        _executed(scene, tape, name, handles=handles, turns=turns)
        _executed(scene, tape, watched(scene, tape, control), handles=False)

    return scenes(facts, core, before=2, after=0)


def raw_raw(facts: MemoryFacts) -> Cases:
    """QMG-01."""
    return _row(facts, PLAIN, handles=False, control=HINTED)


@rule(
    "QMG-01",
    Level.MUST,
    "A graph prepared RAW and executed RAW allocates its IO buffers at preparation and copies data at each "
    "inference.",
    source=f"{_TABLE}, row 1",
    subject="memory",
    cases=raw_raw,
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
            demand_new(row, inference, 0, "they were allocated at preparation")
            demand_copied(row, inference, inference.after)
        count += 1
    return Examined(count, "graphs prepared and executed raw")


def raw_memhandle(facts: MemoryFacts) -> Cases:
    """QMG-02."""
    return _row(facts, PLAIN, handles=True, control=PLAIN)


@rule(
    "QMG-02",
    Level.MUST,
    "A graph prepared RAW and executed with memory handles allocates its IO buffers at preparation, and "
    "fills none of them.",
    source=f"{_TABLE}, row 2",
    subject="memory",
    cases=raw_memhandle,
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
            demand_new(row, inference, 0, "memory handles need none")
            demand_not_copied(row, inference)
        count += 1
    return Examined(count, "graphs prepared raw and executed memhandle")


def memhandle_raw(facts: MemoryFacts) -> Cases:
    """QMG-03."""
    return _row(facts, HINTED, handles=False, control=PLAIN)


@rule(
    "QMG-03",
    Level.MUST,
    "A graph prepared MEMHANDLE and executed RAW allocates its IO buffers at the first raw inference only "
    "and copies data at each inference.",
    source=f"{_TABLE}, row 3",
    subject="memory",
    cases=memhandle_raw,
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
        demand_new(row, inferences[0], row.tensors, "this is the first raw inference")
        demand_copied(row, inferences[0], inferences[0].new)
        count += 1
    return Examined(count, "graphs prepared memhandle and executed raw")


def memhandle_memhandle(facts: MemoryFacts) -> Cases:
    """QMG-04."""
    return _row(facts, HINTED, handles=True, control=PLAIN)


@rule(
    "QMG-04",
    Level.MUST,
    "A graph prepared MEMHANDLE and executed with memory handles never allocates an IO buffer.",
    source=f"{_TABLE}, row 4",
    subject="memory",
    cases=memhandle_memhandle,
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
            demand_new(row, inference, 0, "memory handles need none")
        count += 1
    return Examined(count, "graphs prepared and executed memhandle")


def four_rows(facts: MemoryFacts) -> Cases:
    """QMG-05: one operator, prepared both ways, each graph executed both ways with the same inputs."""

    def core(scene: Scene, tape: Tape) -> None:
        plain = graph(scene, tape, PLAIN)
        if not plain:
            return
        made = scene.graphs[plain]
        hinted = scene.name("g")
        scene.follow(msgspec.structs.replace(made, graph=hinted))
        hint(scene, hinted, HINTED)
        seed = tape.below(16)
        for name in (plain, hinted):
            execute(scene, name, None, seed=seed)
        memory = any_memory(scene, tape, plain)
        load(scene, plain, memory, seed)
        for name in (plain, hinted):
            execute(scene, name, memory)
            read(scene, [output_of(scene, name, memory)])

    return scenes(facts, core)


@rule(
    "QMG-05",
    Level.MUST,
    "All four combinations of memory types at preparation (RAW, MEMHANDLE) and execution give identical "
    "outputs.",
    source="seed 001 (memory type at preparation is a hint)",
    subject="memory",
    cases=four_rows,
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
            raise WrongOutput(wanted, f"{_named(row)}: {difference}", place(seen.walked))
        if row != before:
            columns.add(column)
            count += 1
    only = "" if "handle" in columns else " (raw columns only)"
    return Examined(count, f"outputs compared between rows{only}")


def _named(row: tuple[bool, str]) -> str:
    names = {"raw": "raw", "handle": "memhandle"}
    return f"{'memhandle' if row[0] else 'raw'}/{names[row[1]]}"


def raw_again(facts: MemoryFacts) -> Cases:
    """QMG-06: a graph prepared memhandle, executed raw several times; a graph prepared raw as control."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := watched(scene, tape, HINTED):
            _executed(scene, tape, name, handles=False, turns=tape.pick((2, 3, 4, 10)))
            _executed(scene, tape, watched(scene, tape, PLAIN), handles=False)

    return scenes(facts, core, before=2, after=0)


@rule(
    "QMG-06",
    Level.MUST,
    "A graph prepared MEMHANDLE uses the IO buffers of its first raw inference for all later ones.",
    source=f"{_TABLE}, row 3 (first inference)",
    subject="memory",
    cases=raw_again,
    gate=("HTP", "separate IO buffers"),
    weight=_WEIGHT,
)
def qmg_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Raw executes after the first bring no new mapping."""
    _require_raw(case, trace, "prepared memhandle, executed raw")
    count = 0
    for row, inferences in _seen(case, trace, raw=False, handles=False):
        for inference in inferences[1:]:
            demand_new(row, inference, 0, "the first raw inference has allocated them")
            count += 1
    return Examined(count, "raw inferences after the first")


def alternating(facts: MemoryFacts) -> Cases:
    """QMG-07: raw and memhandle executes in any order on one graph, prepared in any way."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        first = tape.below(2)
        for turn in range(2 + tape.below(5)):
            seed = 16 * turn + tape.below(16)
            handles = (turn + first + tape.chance(4)) % 2
            if handles:
                load(scene, name, memory, seed)
            execute(scene, name, memory if handles else None, seed=seed)
            if handles:
                read(scene, [output_of(scene, name, memory)])

    return scenes(facts, core)


@rule(
    "QMG-07",
    Level.MUST,
    "Raw memory and memory handles may alternate in the executes of one graph.",
    source=_TABLE,
    subject="memory",
    cases=alternating,
    gate=("502", "1101"),
)
def qmg_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Each execute of an alternating sequence succeeds with correct numbers."""
    require_executed_memory(case, trace)
    found = judge_run(case, trace, "outputs and buffers of alternating executes", "executes may alternate")
    used = {frozenset(kinds(step)) for step in case.steps if isinstance(step, Execute)}
    return found if len(used) > 1 else Examined(0, found.what)


def mixed_hints(facts: MemoryFacts) -> Cases:
    """QMG-08: some IO tensors prepared memhandle, the others raw, and a raw execute."""

    def core(scene: Scene, tape: Tape) -> None:
        name = watched(scene, tape, PLAIN)
        if not name:
            return
        tensors = tensors_of(scene, name)
        hints = 1 + tape.below((1 << tensors) - 2)
        mem_types = tuple(hints >> tensor & 1 for tensor in range(tensors))
        hint(scene, name, mem_types)
        _executed(scene, tape, name, handles=False)

    return scenes(facts, core, before=2, after=0)


@rule(
    "QMG-08",
    Level.MUST,
    "The hint (memory type MEMHANDLE at preparation) is given per IO tensor: only tensors left RAW get IO "
    "buffers at preparation.",
    source="seed 001, Online Prepare (memory type of each IO tensor)",
    subject="memory",
    cases=mixed_hints,
    gate=("HTP", "separate IO buffers"),
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
            demand_new(row, inference, row.tensors - row.raw, "these tensors carry the hint")
        count += 1
    return Examined(count, "graphs with mixed hints")


def freed(facts: MemoryFacts) -> Cases:
    """QMG-09: graphs with IO buffers, one after the other, each from before it is prepared to its end."""

    def core(scene: Scene, tape: Tape) -> None:
        name = watched(scene, tape, tape.pick((PLAIN, HINTED)))
        if not name:
            return
        made = scene.graphs[name]
        more = tape.pick((0, 0, 2))
        look = Observe(size_of(scene, name))
        _executed(scene, tape, name, handles=False)
        scene.free_context(made.context)
        scene.add(Observe(look.region, patient=True))
        # The first life of all has its graph alone.
        for _ in range(_LIVES - (0 if more else 1)):
            again = msgspec.structs.replace(made, graph=scene.name("g"), context=scene.context())
            for _ in range(more):
                scene.follow(msgspec.structs.replace(again, graph=scene.name("g")))
            scene.add(look)
            scene.follow(again)
            scene.add(look)
            _executed(scene, tape, again.graph, handles=False)
            scene.free_context(again.context)
            scene.add(Observe(look.region, patient=True))

    return scenes(facts, core, before=2, after=0)


@rule(
    "QMG-09",
    Level.MUST,
    "QnnContext_free releases the internal IO buffers of the context's graphs, or keeps them for others.",
    source=f"{_TABLE}; QnnContext.h: QnnContext_free",
    subject="memory",
    cases=freed,
    gate=("HTP", "separate IO buffers"),
    weight=0.15,
)
def qmg_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Of mappings that appeared, no more are left after each contextFree than after the one before.

    Some may be kept for the next graph of the same sizes: a bounded pool is no leak.
    """
    require_htp(trace)
    require_execute(case, trace)
    found = rows(case, trace)
    require_visible(found)
    made: set[int] = set()
    kept: list[int] = []
    after = 0
    for row in found:
        freed = _after_free(case, trace, row)
        if freed is None:
            continue
        after = freed
        made |= {*row.at_prepare, *(address for each in row.inferences for address in each.new)}
        kept.append(len([address for address, _ in trace.steps[after].regions if address in made]))
    counts = [0, *kept][-(_LIVES + 1) :]
    if len(counts) > _LIVES and all(fewer < more for fewer, more in itertools.pairwise(counts)):
        seen = f"{', '.join(map(str, counts[1:]))} IO buffers are left, after each contextFree more"
        raise Violation("IO buffers are released, or used again", seen, f"step {after}, observe")
    return Examined(len(kept) if made else 0, "contexts freed whose graphs had IO buffers")


def _after_free(case: MemoryCase, trace: MemoryTrace, row: Row) -> int | None:
    """The index of the look right behind the end of the row's context."""
    for index in range(row.step, len(trace.steps) - 1):
        step, look = case.steps[index], case.steps[index + 1]
        ended = isinstance(step, ContextFree) and step.context == row.made.context
        if ended and trace.steps[index].code == 0 and isinstance(look, Observe):
            return index + 1
    return None


def _stale(scene: Scene, tape: Tape, name: str) -> str:
    """A handle that was deregistered."""
    made = scene.graphs[name]
    buffer = scene.alloc(nbytes(made.shape, made.dtype))
    described = Descriptor(buffer, made.shape, made.dtype, tape.pick(scene.types))
    (handle,) = scene.register(made.context, described)
    scene.deregister(handle)
    return handle


def same_mistakes(facts: MemoryFacts) -> Cases:
    """QMG-11: one operator prepared raw and with the hint, and the same mistakes with both."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (plain := graph(scene, tape, ())):
            return
        hinted = scene.name("g")
        types = (1,) * tensors_of(scene, plain)
        scene.follow(msgspec.structs.replace(scene.graphs[plain], graph=hinted, mem_types=types))
        stale = ""
        if scene.facts.supports(1101) and tape.below(2):
            stale = _stale(scene, tape, plain)
        for _ in range(1 + tape.below(3)):
            mistake(scene, tape, plain)
            step = scene.steps[-1]
            assert isinstance(step, Execute)
            if stale and tape.below(2):
                bound = change(raw(scene, plain), 0, kind="handle", handle=stale)
                step = scene.steps[-1] = Execute(plain, bound)
            scene.add(msgspec.structs.replace(step, graph=hinted))

    return scenes(facts, core)


@rule(
    "QMG-11",
    Level.MUST,
    "The hint (memory type MEMHANDLE at preparation) changes no error: a graph with it and a graph without "
    "it answer the same mistake alike.",
    source=f"{_TABLE} (the memory type at preparation is a hint only)",
    subject="memory",
    cases=same_mistakes,
)
def qmg_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Equal codes for equal executes of a graph prepared raw and of one prepared memhandle."""
    require_prepared(case, trace)
    require_execute(case, trace)
    hinted = {step.graph for step in case.steps if isinstance(step, Prepare) and any(step.mem_types)}
    count = 0
    before: Walked | None = None
    for walked in walk(case, trace):
        step = walked.step
        if not isinstance(step, Execute) or walked.code is None or not walked.allowed.faults:
            before = None
        elif step.graph not in hinted:
            before = walked
        elif before is not None and _same(before.step, step):
            if before.code != walked.code:
                wanted = f"{named(before.code or 0)}, as without the hint"
                raise Violation(wanted, named(walked.code), place(walked))
            count += 1
    return Examined(count, "mistakes made with and without the hint")


def _same(one: AnyStep, other: Execute) -> bool:
    """The same execute, of another graph."""
    alike = isinstance(one, Execute) and (one.bindings, one.inputs) == (other.bindings, other.inputs)
    return alike and one != other
