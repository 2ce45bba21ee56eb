"""QMG-13: seed 001's table where one block of memory holds all IO tensors of a graph."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.cases.case import MemoryCase, Observe, Prepare
from pytest_qnn.qnn.cases.sizes import PAGE, nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.rules.graphs import judge_executes, require_executed_memory
from pytest_qnn.qnn.rules.io_buffers import (
    HINTED,
    PLAIN,
    SMALL,
    Inference,
    Regions,
    Row,
    loads,
    require_htp,
    rows,
)
from pytest_qnn.qnn.strategies.binaries import loaded, retrieved, written
from pytest_qnn.qnn.strategies.graphs import any_memory, execute, load, prepared, tensors_of
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace

_BINARIES = 202
_LATER = 3
"""Raw executes of a graph: the first may allocate if the graph has the hint, the others may not."""


def _looked(scene: Scene, made: Prepare, mem_types: tuple[int, ...], *, binary: bool) -> tuple[str, Observe]:
    """A graph like ``made``, with a look for all its tensors together before and after it comes about.

    ``binary``: it is composed elsewhere, and what is looked at is the loading of its binary.
    """
    context = scene.context()
    graph = msgspec.structs.replace(made, graph=scene.name("g"), context=context, mem_types=mem_types)
    look = Observe(nbytes(made.shape, made.dtype) * tensors_of(scene, made.graph))
    if not binary:
        scene.add(look)
        scene.follow(graph)
        scene.add(look)
        return graph.graph, look
    scene.follow(graph)
    file = written(scene, context)
    scene.add(look)
    context = loaded(scene, file)
    scene.add(look)
    return retrieved(scene, context, graph.graph), look


def _executed(scene: Scene, tape: Tape, name: str, look: Observe, hints: int | None, turns: int = 1) -> None:
    """Executes with handles for the tensors whose bits ``hints`` has (None: raw), with looks around each."""
    memory = None if hints is None else any_memory(scene, tape, name)
    for turn in range(turns):
        seed = 16 * turn + tape.below(16)
        if memory is not None:
            load(scene, name, memory, seed)
        scene.add(look)
        execute(scene, name, memory, raw=0 if hints is None else ~hints, seed=seed)
        scene.add(look)


def one_block(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """One operator, each time in a context of its own: hinted, RAW with handles, RAW and raw; hinted and raw.

    Which comes first is part of the judgement: see `qmg_13`.
    """

    def core(scene: Scene, tape: Tape) -> None:
        binary = tape.chance(3) and scene.facts.supports(_BINARIES)
        some = tape.chance(3)
        small = prepared(scene, tape.cut(4), PLAIN, SMALL)
        if not small:
            return
        # libQnnHtp maps arenas with the first graph of a process (facts, 7.20).
        execute(scene, small, None)
        shape = (1, 3, 251, 201 + 2 * tape.below(64))
        made = msgspec.structs.replace(scene.graphs[small], shape=shape)
        every = (1 << tensors_of(scene, small)) - 1
        hints = 1 + tape.below(every - 1) if some else every
        hinted = tuple(hints >> tensor & 1 for tensor in range(every.bit_length()))
        all_hinted = HINTED[: every.bit_length()]
        table = ((hinted, hints, 1), (PLAIN, every, 1), (PLAIN, None, _LATER), (all_hinted, None, _LATER))
        for mem_types, handles, turns in table:
            name, look = _looked(scene, made, mem_types, binary=binary)
            _executed(scene, tape.cut(8), name, look, handles, turns)

    return scenes(facts, core, before=2, after=0)


@rule(
    "QMG-13",
    Level.MUST,
    "Where one block of memory holds all IO tensors of a graph, it is reserved when the graph is prepared "
    "RAW, not reserved for tensors with the hint, allocated once for all raw inferences, and not filled "
    "where memory handles are given.",
    source="seed 001, Mis-matching mem_type during preparation and execution",
    subject="memory",
    cases=one_block,
    gate=("502", "1101", "HTP", "one IO buffer for all"),
    weight=0.15,
)
def qmg_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Mappings of the size of all tensors together, which a raw execute of a graph prepared RAW has filled.

    A mapping of that size may also be memory in which nodes compute. Such memory is there, and filled, in
    each row of the table; so nothing is demanded but where one row shows it and another does not:

    * with the hint it is there, and at least a tensor of it is not filled: it is an IO buffer, and unused;
    * with the hint it is not there, though nothing before could have left it: what then appears with a graph
      prepared RAW is an IO buffer. Handles do not fill it, and executes do not bring it.

    "Once" is demanded where raw executes of a graph prepared RAW leave no such mappings behind.

    A block that handles fill also where tensors carry the hint is not told from memory for nodes.
    """
    require_htp(trace)
    require_executed_memory(case, trace)
    judge_executes(case, trace, lambda _: True, "each row of the table can be executed")
    found = sorted(
        (*rows(case, trace, whole=True), *loads(case, trace, whole=True)), key=lambda row: row.step
    )
    raw = [row for row in found if row.raw == row.tensors and _kinds(row) == {"raw"}]
    if found and not any(_filled(row) for row in raw):
        raise Unsupported(
            "no block of the size of all IO tensors together is seen, which a raw execute fills"
        )
    # What a backend keeps of each inference, whatever the graph was prepared for, is not its IO buffers.
    keeps = any(_piles_up(row) for row in raw)
    for row in found:
        if row.raw < row.tensors and "handle" in _kinds(row):
            _demand_unreserved(row)
        if not row.raw and _kinds(row) == {"raw"} and not keeps:
            _demand_once(row)
    # What has appeared with an earlier graph may serve later ones: the first row that could show it decides.
    first = found[0] if found else None
    if first is not None and not first.raw and _kinds(first) == {"handle"} and _shows_none(first):
        for row in found:
            if row.raw == row.tensors and _kinds(row) == {"handle"}:
                _demand_unused(row)
        _demand_at_prepare(found)
    return Examined(len(found), "graphs whose IO buffers can be one block")


def _grown(row: Row) -> Row:
    """The row without mappings that came to have this size in another way than by being mapped.

    A neighbour that is unmapped leaves one, too, where the two were anonymous and shown as one.
    """
    least = -_tensor(row)
    at_prepare = row.at_prepare if row.unexplained > least else {}
    inferences = tuple(
        each if each.unexplained > least else msgspec.structs.replace(each, new={}) for each in row.inferences
    )
    return msgspec.structs.replace(row, at_prepare=at_prepare, inferences=inferences)


def _shows_none(row: Row) -> bool:
    """Neither a block nor growth in which one could be hidden, shown as one with a neighbour."""
    growth = (row.unexplained, *(inference.unexplained for inference in row.inferences))
    return not _blocks(row) and max(growth) < row.size - _tensor(row)


def _kinds(row: Row) -> set[str]:
    return row.inferences[0].kinds if row.inferences else set()


def _blocks(row: Row) -> Regions:
    """Blocks that appeared with the graph or with one of its executes, as they were when last seen new."""
    found = dict(row.at_prepare)
    for inference in row.inferences:
        found |= {at: resident for at, resident in inference.after.items() if at in found} | inference.new
    return found


def _filled(row: Row) -> bool:
    """A block holds all tensors."""
    return any(resident >= row.size // PAGE * PAGE for resident in _blocks(row).values())


def _tensor(row: Row) -> int:
    """Bytes of the whole pages of a tensor."""
    return row.size // row.tensors // PAGE * PAGE


def _demand_unreserved(row: Row) -> None:
    """No block in which a tensor, or more, has no memory after executes with handles for hinted tensors."""
    for address, resident in _blocks(row).items():
        if row.size - resident >= _tensor(row):
            where = "preparation" if address in row.at_prepare else "an execute with memory handles"
            raise Violation(
                f"no IO buffers for the {row.tensors - row.raw} of {row.tensors} tensors with the hint",
                f"{where} maps {row.size} bytes, as without the hint, of which {resident} are used",
                f"step {row.step}, graph {row.made.graph}",
            )


def _piles_up(row: Row) -> bool:
    """Each execute after the first brings a block, and those of earlier executes stay.

    One that takes the place of another may be a copy of results that a backend keeps.
    """
    later = row.inferences[1:]
    stay = [inference.new.keys() <= later[-1].present for inference in later]
    return len(later) > 1 and all(inference.new for inference in later) and all(stay)


def _demand_once(row: Row) -> None:
    """Not a new block at each raw execute."""
    if _piles_up(row):
        later = row.inferences[1:]
        raise Violation(
            "raw inferences after the first use its IO buffers",
            f"a further mapping of {row.size} bytes at each of {len(later)} inferences",
            f"step {later[-1].step}, execute",
        )


def _demand_unused(row: Row) -> None:
    """A graph prepared RAW: executes with handles bring no block, and fill none."""
    for inference in row.inferences:
        where = f"step {inference.step}, execute"
        if inference.new:
            seen = f"a mapping of {row.size} bytes, the size of all tensors together"
            raise Violation("no IO buffers allocated: memory handles need none", seen, where)
        for address, filled in _newly_filled(inference):
            if filled >= _tensor(row):
                seen = f"the IO buffer of {row.size} bytes at {address:#x} has {filled} bytes more in use"
                raise Violation("the copy is avoided", seen, where)


def _newly_filled(inference: Inference) -> Iterator[tuple[int, int]]:
    for address, resident in inference.after.items():
        if address in inference.before:
            yield address, resident - inference.before[address]


def _demand_at_prepare(found: list[Row]) -> None:
    """What a raw execute needs, and one with handles does not, is there before the execute."""
    plain = [row for row in found if row.raw == row.tensors]
    handles = [row for row in plain if _kinds(row) == {"handle"}]
    if not handles or any(map(_blocks, handles)):
        return
    for row in plain:
        if _kinds(row) == {"raw"} and not row.at_prepare and row.inferences[0].new:
            raise Violation(
                f"IO buffers of {row.tensors} RAW tensors allocated at preparation",
                f"a mapping of {row.size} bytes appears with the first raw inference",
                f"step {row.inferences[0].step}, execute",
            )
