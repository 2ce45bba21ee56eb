"""QMG-12: whether executes with memory handles touch memory that a raw execute does not need."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Measured, Unsupported
from pytest_qnn.qnn.cases.case import Execute, MemoryCase, Prepare
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.rules.graphs import judge_executes, kinds, require_executed_memory
from pytest_qnn.qnn.rules.io_buffers import HINTED, PLAIN, SMALL, require_htp
from pytest_qnn.qnn.strategies.graphs import Memory, any_memory, execute, load, prepared
from pytest_qnn.qnn.strategies.history import PLAIN as UNSCALED
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import ExecuteCounts, MemoryTrace

_SHAPE = (1, 2, 256, 512)
"""A quarter of a mebibyte and more: what a process touches besides, by chance, is a small part of it."""
_TURNS = 3
_NEW, _USED = 1 / 2, 3 / 4
"""Parts of a tensor that are no copy of it, of new pages and of used ones.

What a backend in Python does besides an execute (it maps memory, say) uses pages of the interpreter's: up to
150 KiB were seen. A copy that is kept, which is what used pages show, takes a whole tensor.
"""
_LEAST = 1 << 17
"""Bytes of a tensor, below which its copy is not told from what a process touches by chance."""
_WHAT = "executes with memory handles"


class _Execution(msgspec.Struct, frozen=True):
    """One successful execute that was measured."""

    step: int
    new: int
    used: int
    mapped_late: int
    """Bytes of tensors that the target can only have mapped meanwhile."""


class _Graph(msgspec.Struct, frozen=True):
    """The measured executes of one graph, each kind in order."""

    made: Prepare
    raw: tuple[_Execution, ...]
    handles: tuple[_Execution, ...]

    @property
    def size(self) -> int:
        """Bytes of a tensor."""
        return nbytes(self.made.shape, self.made.dtype)

    @property
    def raw_first(self) -> bool:
        """The graph was executed raw before it was with handles."""
        return self.raw[0].step < self.handles[0].step

    @property
    def copied(self) -> int:
        """Bytes of the copies that raw executes were seen to make.

        That is what the first one takes beyond a later one, in a graph that has been executed with handles:
        such a graph has all that an execute of any kind needs, and lacks what raw memory needs.
        """
        needed = self.raw[0].new - self.raw[-1].new
        return 0 if self.raw_first else max(0, min(needed, self.size * (io_inputs(self.made) + 1)))


def measured(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """A graph of large tensors, executed raw and with handles, each kind thrice, either kind first.

    Behind it a small graph twice in each way: `_small`.
    """

    def core(scene: Scene, tape: Tape) -> None:
        # More often with handles first: only then a later raw execute shows what a raw one copies (`copied`).
        order, hints = bool(tape.below(8)), tape.pick((PLAIN, HINTED))
        if not (name := prepared(scene, tape, hints, _SHAPE)):
            return
        memory = any_memory(scene, tape, name)
        turns = [*(order,) * _TURNS, *(not order,) * _TURNS]
        for turn, handles in enumerate(turns):
            seed = 16 * turn + tape.below(16)
            _measured(scene, name, memory if handles else None, seed)
        scale, scene.scale = scene.scale, UNSCALED
        small = prepared(scene, tape, hints, SMALL)
        memory = any_memory(scene, tape, small)
        scene.scale = scale
        for handles in (True, False) * 2:  # what a first execute of either kind prepares shows in no second
            _measured(scene, small, memory if handles else None, 0)

    return scenes(facts, core, before=2, after=0, without=frozenset({"offset"}))


def _measured(scene: Scene, name: str, memory: Memory | None, seed: int) -> None:
    if memory is not None:
        load(scene, name, memory, seed)
    execute(scene, name, memory, seed=seed)
    scene.steps[-1] = msgspec.structs.replace(scene.steps[-1], measured=True)


def _graphs(case: MemoryCase, trace: MemoryTrace) -> list[_Graph]:
    """The graphs of large tensors that were executed in both ways, each at least twice."""
    return [
        graph
        for graph in _executed(case, trace)
        if graph.size >= _LEAST and min(len(graph.raw), len(graph.handles)) > 1
    ]


def _small(case: MemoryCase, trace: MemoryTrace) -> int | None:
    """Bytes that a raw execute of a small graph uses, of which next to nothing can be copies.

    The small graph is the last object of the case. A target that looks for graphs and handles in one list
    goes through all of its objects, and their pages, as it does for the handles, and not for an older graph:
    150 KiB more after 300 contexts in a C backend. None: no small graph was executed.
    """
    used = [min(each.used for each in graph.raw) for graph in _executed(case, trace) if graph.size < _LEAST]
    return max(used, default=None)


def _executed(case: MemoryCase, trace: MemoryTrace) -> list[_Graph]:
    """The graphs that were executed in both ways.

    Raises:
        Unsupported: the kernel does not let the process see what it touches.
    """
    made = {step.graph: step for step in case.steps if isinstance(step, Prepare)}
    found: dict[tuple[str, str], list[_Execution]] = {}
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, Execute) or not step.measured or seen.code != 0 or step.graph not in made:
            continue
        counts = seen.counted(ExecuteCounts)
        if counts.new is None or counts.used is None:
            raise Unsupported("the process cannot see which memory it touches (/proc/self/clear_refs)")
        (kind, *others) = kinds(step)
        if not others:
            execution = _Execution(index, counts.new, counts.used, counts.mapped_late)
            found.setdefault((step.graph, kind), []).append(execution)
    both = (
        (step, found.get((name, "raw"), []), found.get((name, "handle"), [])) for name, step in made.items()
    )
    return [_Graph(step, tuple(raw), tuple(handles)) for step, raw, handles in both if raw and handles]


@rule(
    "QMG-12",
    Level.MUST,
    "An execute with memory handles touches no memory of this process, beside the tensors' own, that a raw "
    "execute of the graph does without.",
    source="seed 001, Mis-matching mem_type during preparation and execution, rows 2 and 4 (data copy "
    "avoided)",
    subject="memory",
    cases=measured,
    gate=("502", "1101", "HTP"),
    weight=0.15,
)
def qmg_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """New pages as few as those of a later raw execute, and used ones fewer by what that one copies.

    Memory of the tensors that nobody but the client had mapped beforehand may be new: nothing says when a
    target maps it.

    A raw execute is the measure of what the computation needs: one of the graph, or of a small one if that
    uses more than the graph's without its copies. What a device does is not seen, nor a copy in
    memory that raw executes copy through as well and that was used before the graph was.
    """
    require_htp(trace)
    require_executed_memory(case, trace)
    judge_executes(case, trace, lambda step: kinds(step) == {"handle"}, "executed with memory handles")
    small = _small(case, trace)
    if small is None:
        return Examined(0, _WHAT)
    count = 0
    for graph in _graphs(case, trace):
        later = graph.raw[-1]
        # The first execute of a graph, of whatever kind, may take what all later ones need.
        known = graph.handles if graph.raw_first else graph.handles[1:]
        for each in known:
            _demand(graph, each, each.new, later.new + each.mapped_late, "new memory of a raw execute", _NEW)
            count += 1
        # Another thread of the process may use memory meanwhile; a target that copies does so each time.
        least = min(known, key=lambda each: each.used)
        most = max(each.used for each in graph.raw)
        less = f" less the {graph.copied} that it copies" if graph.copied else ""
        words = less if most - graph.copied >= small else " of a small graph"
        words = f"used memory of a raw execute{words}"
        _demand(graph, least, least.used, max(small, most - graph.copied), words, _USED)
    return Examined(count, _WHAT)


def _demand(graph: _Graph, each: _Execution, seen: int, raw: int, words: str, part: float) -> None:
    if seen > max(raw, 0) + graph.size * part:
        raise Measured(
            f"no copy of a tensor ({graph.size} bytes): the {words}, {max(raw, 0)} bytes, and little more",
            f"{seen} bytes",
            f"step {each.step}, execute",
        )
