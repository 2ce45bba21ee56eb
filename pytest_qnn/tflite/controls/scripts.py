"""Controls that are scripts: buffers, memory of the client's, resizes, loops, each on the plainest graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from pytest_qnn.core.target import Control
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AllocCustom,
    AnyScriptStep,
    Apply,
    AssignCustom,
    Close,
    CopyFrom,
    FreeBuffer,
    HandleOutput,
    Invoke,
    MakeDelegate,
    Open,
    Place,
    PlainStep,
    Poison,
    Read,
    ReadCustom,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.controls.graphs import body_of_addition, linked
from pytest_qnn.tflite.graph.control import loop_around
from pytest_qnn.tflite.graph.graph import Graph, Tensor

Steps = tuple[AnyScriptStep, ...]
_MOST_SEEDS = 4


def of_memory(case: object, some: Sequence[Graph]) -> Iterator[Control]:
    """Nodes whose results may be in buffers; the same, and the case's graph, in custom memory if it has any.

    What these rules look for is no matter of numbers, so nothing plainer comes before them.
    """
    for graph in some:
        # Where a handle is none, nothing can be said of what is in its buffer, or who copies it.
        for owner in ("BUF-01", "BUF-02", "BUF-03"):
            yield Control(_run(graph, buffers=True), (owner,), spoils=True)
        yield Control(_copied(graph), ("BUF-04",))
    if not isinstance(case, ScriptCase):
        return
    position = next((step.position for step in case.steps if isinstance(step, AllocCustom)), None)
    if position is not None:
        yield from _of_custom_memory(case.graphs[0], some, position)


def of_guarded_memory(some: Sequence[Graph]) -> Iterator[Control]:
    """Nodes with bytes beside their inputs and outputs that are looked at: who writes there spoils all."""
    for graph in some:
        places = tuple(Place("i0", tensor, guard="after", seed=tensor) for tensor in _border(graph))
        steps = (*_applied("0", 0, *places), Poison("i0"), Invoke("i0"), Read("i0"))
        yield Control(ScriptCase((graph,), steps), ("MEM-03",), spoils=True)


def _of_custom_memory(whole: Graph, some: Sequence[Graph], position: int) -> Iterator[Control]:
    """Of one node, of its first tensor only, of a tensor that two kernels have, and of the case's graph."""
    yield from (Control(_run(graph, position), ("TFL-10",)) for graph in some)
    yield from (Control(_run(graph, position, first_only=True), ("TFL-13",)) for graph in some)
    graph, parted = linked()
    yield Control(_run(graph, position, parted=parted), ("TFL-17",))
    yield Control(_run(whole, position), ("TFL-18",))


def _run(
    graph: Graph,
    custom: int | None = None,
    *,
    buffers: bool = False,
    first_only: bool = False,
    parted: Sequence[int] = (),
) -> ScriptCase:
    """Two invokes; ``custom``: one, with its tensors in custom memory of that delegate, then without it.

    Args:
        graph: at work.
        custom: position of the delegate whose custom memory it is.
        buffers: buffer handles are looked at.
        first_only: one tensor is in custom memory; else inputs and outputs are.
        parted: nodes that a probe takes before; tensors between kernels are in custom memory then, too.
    """
    if custom is None:
        again = (SetInputs("i0", 1), Poison("i0", 0x99), Invoke("i0"), Read("i0"))
        steps: Steps = (*_applied("0", 0, parted=parted), Poison("i0"), Invoke("i0"), Read("i0"), *again)
        return ScriptCase((graph,), steps, buffers=buffers)
    placed = range(len(graph.tensors)) if parted else _border(graph)
    tensors = [at for at in placed if graph.tensors[at].data is None][: 1 if first_only else None]
    memory = tuple(AllocCustom(f"c{at}", _bytes(graph.tensors[at]), position=custom) for at in tensors)
    assigned: Steps = (*memory, *(AssignCustom("i0", at, f"c{at}") for at in tensors), Allocate("i0"))
    steps = (*_applied("0", custom, *assigned, parted=parted), Poison("i0"), Invoke("i0"), Read("i0"))
    own = tuple(ReadCustom("i0", at) for at in graph.outputs if at in tensors)
    plain = (*_applied("1", custom, parted=parted), Invoke("i1"), Read("i1"))
    return ScriptCase((graph,), (*steps, *own, *plain))


def _applied(name: str, position: int, *placed: AnyScriptStep, parted: Sequence[int] = ()) -> Steps:
    """An interpreter with a delegate of its own, ready to be invoked."""
    probe: Steps = ()
    if parted:
        made = MakeDelegate(f"p{name}", "probe", claim=tuple(parted))
        probe = (made, Apply(f"i{name}", f"p{name}"))
    first = (MakeDelegate(f"d{name}", position=position), Open(f"i{name}"), *placed, *probe)
    return (*first, Apply(f"i{name}", f"d{name}"), Allocate(f"i{name}"), SetInputs(f"i{name}"))


def _border(graph: Graph) -> list[int]:
    return sorted({*graph.inputs, *graph.outputs})


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def _copied(graph: Graph) -> ScriptCase:
    """The outputs are copied out of their buffers once more."""
    copies = tuple(CopyFrom("i0", output) for output in range(len(graph.outputs)))
    first = (*_applied("0", 0), Poison("i0"), Invoke("i0"), Read("i0"))
    return ScriptCase((graph,), (*first, SetInputs("i0", 1), *copies, Read("i0")), buffers=True)


def of_linked_buffers(plain: Graph) -> Iterator[Control]:
    """Results that wait in buffers; and one kernel that reads what another one has left there."""
    copies = tuple(CopyFrom("i0", output) for output in range(len(plain.outputs)))
    waiting = (*_applied("0", 0), HandleOutput("i0"), Invoke("i0"), SetInputs("i0", 1), Invoke("i0"))
    yield Control(ScriptCase((plain,), (*waiting, *copies, Read("i0")), buffers=True), ("BUF-10",))
    graph, parted = linked()
    yield Control(_run(graph, buffers=True, parted=parted), ("BUF-07",))


def of_a_script(case: object, plain: Graph) -> Iterator[Control]:
    """What plain cases of one graph do not show: memory of the client's, resizes, loops."""
    yield Control(_placed(plain), ("MEM-04",))
    yield Control(_shared(plain), ("MEM-11",))
    yield from _until_resized(case)
    for owner, steps in (("DYN-02", _resized(plain)), ("RSZ-03", _redone(plain))):
        yield Control(ScriptCase((plain,), steps), (owner,))
    yield Control(_invoked(loop_around(body_of_addition()), range(1, 1 + _MOST_SEEDS)), ("CTRL-02",))
    for graph in case.graphs if isinstance(case, ScriptCase) else ():
        if graph.subgraphs:
            yield Control(_invoked(graph, _seeds(case)), ("CTRL-01",))


def _until_resized(case: object) -> Iterator[Control]:
    """The case up to its first resize: what is wrong by then with shapes is not for want of following it."""
    steps = case.steps if isinstance(case, ScriptCase) else ()
    first = next((at for at, step in enumerate(steps) if isinstance(step, Resize)), 0)
    if first and isinstance(case, ScriptCase):
        yield Control(msgspec.structs.replace(case, steps=steps[:first]), ("DYN-03",))


def _placed(graph: Graph) -> ScriptCase:
    """Inputs and outputs in memory of the client's; and then without."""
    places = tuple(Place("i0", tensor, guard="none") for tensor in _border(graph))
    placed = (*_applied("0", 0, *places), Poison("i0"), Invoke("i0"), Read("i0"))
    return ScriptCase((graph,), (*placed, *_applied("1", 0), Invoke("i1"), Read("i1")))


def _shared(graph: Graph) -> ScriptCase:
    """Another interpreter of the delegate has its first input and its output in one buffer."""
    places = tuple(Place("i1", tensor, "b0", guard="none") for tensor in (graph.inputs[0], graph.outputs[0]))
    use = (Apply("i1", "d0"), Allocate("i1"), SetInputs("i1"), Invoke("i1"), Read("i1"))
    first = (*_applied("0", 0), Invoke("i0"), Read("i0"))
    return ScriptCase((graph,), (*first, Open("i1"), *places, *use))


def _longer(graph: Graph, *, by: int = 1) -> tuple[PlainStep, ...]:
    """Each input has more rows, and memory for them."""
    shapes = [graph.tensors[tensor].shape for tensor in graph.inputs]
    resized = (Resize("i0", at, (shape[0] + by, *shape[1:])) for at, shape in enumerate(shapes))
    return (*resized, Allocate("i0"))


def _resized(graph: Graph) -> Steps:
    again = (SetInputs("i0", 1), Invoke("i0"), Read("i0"))
    return (*_applied("0", 0), Invoke("i0"), Read("i0"), *_longer(graph), *again)


def _redone(graph: Graph) -> Steps:
    """Resized to and fro, as RSZ-03 does it."""
    rounds = Repeat(2, (*_longer(graph), *_longer(graph, by=0)))
    away = (*_longer(graph)[:-1], *_longer(graph, by=0))
    return (*_applied("0", 0)[:-1], *away, rounds, SetInputs("i0", 1), Invoke("i0"), Read("i0"))


def _invoked(graph: Graph, seeds: Sequence[int]) -> ScriptCase:
    runs = [(SetInputs("i0", seed), Invoke("i0"), Read("i0")) for seed in seeds]
    return ScriptCase((graph,), (*_applied("0", 0)[:-1], *(step for run in runs for step in run)))


def _seeds(case: object) -> tuple[int, ...]:
    """Of the inputs that a script sets."""
    steps = flat(case.steps) if isinstance(case, ScriptCase) else ()
    seeds = dict.fromkeys(step.seed for step in steps if isinstance(step, SetInputs))
    return tuple(seeds)[:_MOST_SEEDS]


def of_lives_together(case: object, plain: Graph, other: Graph) -> Iterator[Control]:
    """Where interpreters live beside the case's: two, each with a model and a delegate of its own."""
    history = getattr(case, "history", None)
    if history is None or not history.kept:
        return
    opened = (MakeDelegate("d1"), Open("i1", 1), Apply("i1", "d1"), Allocate("i1"))
    used = tuple(step for one in ("i0", "i1") for step in (SetInputs(one, 1), Invoke(one), Read(one)))
    yield Control(ScriptCase((plain, other), (*_applied("0", 0)[:-1], *opened, *used)), ("OWN-06",))


def of_memory_that_is_gone(plain: Graph) -> Iterator[Control]:
    """Addresses that a delegate keeps: of tensors that have other memory since, or of an interpreter gone.

    Which memory the runtime frees, and what is there afterwards, no plain run tells.
    """
    yield _given_back(plain)
    yield of_another_buffer(plain)


def _given_back(plain: Graph) -> Control:
    """Memory of the client's is given back before the delegate is destroyed, which must not read it then."""
    border = _border(plain)
    places = tuple(Place("i0", tensor, f"b{tensor}", guard="none") for tensor in border)
    frees = tuple(FreeBuffer(f"b{tensor}") for tensor in border)
    steps = (*_applied("0", 0, *places), Invoke("i0"), Close("i0"), *frees)
    return Control(ScriptCase((plain,), steps), ("MEM-14",), spoils=True)


def of_another_buffer(plain: Graph) -> Control:
    """Inputs and outputs get other memory between two invokes.

    What is wrong in memory of the client's that stays as well is no matter of addresses. The runtimes call
    nobody in this allocate_tensors, so that a delegate breaks MEM-13 with MEM-05, and both say so.
    """
    border = _border(plain)
    first, others = (
        tuple(Place("i0", tensor, guard="none", seed=seed) for tensor in border) for seed in (1, 2)
    )
    once = (*_applied("0", 0, *first), Poison("i0"), Invoke("i0"), Read("i0"))
    again = (SetInputs("i0", 1), Poison("i0", 0x99), Invoke("i0"), Read("i0"))
    alone = (*_applied("1", 0), Invoke("i1"), Read("i1"))
    stays = Control(ScriptCase((plain,), (*once, *again, *alone)), ("MEM-04",))
    moved = ScriptCase((plain,), (*once, *others, Allocate("i0"), *again))
    return Control(moved, ("MEM-05", "MEM-13"), presumes=stays, spoils=True)
