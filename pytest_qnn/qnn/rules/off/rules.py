"""OFF: context binaries, and graphs that come out of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.qnn.abi.codes import Error, TensorMemType, low
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    FLIPPED_BYTES,
    NULL,
    AnyStep,
    ContextFree,
    ContextFromBinary,
    Damage,
    GetBinary,
    Inspect,
    MemoryCase,
    Misuse,
    Observe,
    Prepare,
    ReleaseBinary,
    Retrieve,
)
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes
from pytest_qnn.qnn.model.expected import Model, Walked
from pytest_qnn.qnn.model.notes import Fault
from pytest_qnn.qnn.rules.binaries import (
    demand_equal,
    demand_sizes,
    executed_after_release,
    inspected,
    judge_flow,
    require_binaries,
)
from pytest_qnn.qnn.rules.graphs import require_execute, require_execution
from pytest_qnn.qnn.rules.io_buffers import (
    Row,
    demand_copied,
    demand_new,
    demand_not_copied,
    loads,
    require_htp,
    require_visible,
)
from pytest_qnn.qnn.rules.judging import demand_code, own_steps, place
from pytest_qnn.qnn.strategies.binaries import Saved, composed, elsewhere, loaded, retrieved, saved, written
from pytest_qnn.qnn.strategies.graphs import (
    MEMORY_BYTES,
    ODD_SHAPES,
    any_memory,
    execute,
    load,
    output_of,
    read,
)
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import InspectCounts, MemoryTrace, WrittenCounts

_OFFLINE = "seed 001, Offline Prepare"
_GATE = ("202",)
_CLOSED = frozenset(
    map(
        int,
        (
            Error.COMMON_ERROR_OPERATION_NOT_PERMITTED,
            Error.GRAPH_ERROR_GRAPH_FINALIZED,
            Error.TENSOR_ERROR_INVALID_HANDLE,
            Error.TENSOR_ERROR_INVALID_TENSOR_PARAM,
            Error.TENSOR_ERROR_UNSUPPORTED_FEATURE,
        ),
    )
)
"""What a tensor is refused with in a graph that is finalised, and whose context is read-only: QnnTensor.h
lists for the call three codes beside that of a lack of memory, and none of them is for this."""
_GENERAL = frozenset({int(Error.GRAPH_ERROR_GENERAL)})
"""QnnGraph.h at this code: any function of graphs may return it."""


def _graphs_of(case: MemoryCase, trace: MemoryTrace) -> dict[str, list[Prepare]]:
    """By binary: its graphs, by name."""
    model = Model(trace.facts)
    for step, seen in zip(case.steps, trace.steps, strict=False):
        model.follow(step, seen)
    return {
        binary: sorted(graphs.values(), key=lambda made: made.graph.encode())
        for binary, graphs in model.alive.binaries.items()
    }


def _memory_types(made: Prepare) -> tuple[int, ...]:
    tensors = io_inputs(made) + 1
    return (*made.mem_types, *[0] * tensors)[:tensors]


def _metadata(scene: Scene, tape: Tape) -> None:
    """OFF-01, OFF-06: one to three graphs with any memory types, written and looked into."""
    made = saved(scene, tape, count=1 + tape.below(3))
    if made is not None:
        scene.add(Inspect(made.binary))


metadata = embedded(_metadata)


@rule(
    "OFF-01",
    Level.MUST,
    "A context binary records the memory type of each IO tensor as it was given when the tensor was created.",
    source=_OFFLINE,
    subject="memory",
    cases=metadata,
    gate=_GATE,
)
def off_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """What the System interface says of each tensor's memType, against the types given at creation."""
    require_binaries(case, trace)
    graphs = _graphs_of(case, trace)
    count = 0
    for walked in inspected(case, trace):
        assert isinstance(walked.step, Inspect)
        demand_code(walked, {0}, "the binary is whole")
        wanted = tuple(kind for made in graphs[walked.step.binary] for kind in _memory_types(made))
        if walked.seen.values != wanted:
            seen = f"{list(walked.seen.values)}"
            raise Violation(f"memory types {list(wanted)} in the binary", seen, place(walked))
        count += len(wanted)
    return Examined(count, "IO tensors in binaries")


@rule(
    "OFF-06",
    Level.MUST,
    "The tensors that a context binary's information lists have NULL data.",
    source="QnnSystemContext.h: QnnSystemContext_getBinaryInfo",
    subject="memory",
    cases=metadata,
    gate=_GATE,
)
def off_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """clientBuf.data of each IO tensor is NULL."""
    require_binaries(case, trace)
    count = 0
    for walked in inspected(case, trace):
        data = walked.seen.counted(InspectCounts).data
        if walked.code == 0 and data:
            seen = f"{data} with another pointer"
            raise Violation("a NULL data pointer in every tensor", seen, place(walked))
        count += len(walked.seen.values)
    return Examined(count, "IO tensors in binaries")


def _demand_unharmed(walked: Walked) -> None:
    """A refused call has written nothing; an accepted one not more than there was room for."""
    counts = walked.seen.counted(WrittenCounts)
    for found, words in ((counts.touched, "into the buffer"), (counts.overrun, "behind the buffer")):
        if found:
            seen = f"{found} bytes {words}"
            raise Violation("nothing is written beyond an accepted buffer", seen, place(walked))


def _unfinished(scene: Scene, tape: Tape, name: str) -> None:
    """The binary of a context with a graph of which a tensor is refused, or that is not finalised."""
    whole = tape.chance(2)
    context = scene.context()
    source = composed(scene, tape, context, weights=False, hints=())
    if not source:
        return
    made = scene.graphs[source]
    begun = Prepare(scene.name("g"), context, made.op, made.dtype, made.shape)
    scene.add(msgspec.structs.replace(begun, **({"finalise": False} if whole else {"preset": (True,)})))
    scene.add(GetBinary(context, name))


def _asked_wrongly(scene: Scene, tape: Tape) -> None:
    """OFF-07: a binary asked for rightly, twice; then with each argument NULL, too little room, too early.

    Or rightly again, when the context has one graph more.
    """
    made = saved(scene, tape.cut(8), count=1 + tape.below(2))
    if made is None:
        return
    scene.add(GetBinary(made.context, scene.name("f")))
    for _ in range(1 + tape.below(4)):
        wrong = tape.cut(4)
        kind = wrong.below(9)
        name = scene.name("x")
        if kind < 3:
            scene.add(GetBinary(made.context, name, missing=wrong.pick((1, 2, 64, 1000))))
        elif kind < 6:
            scene.add(GetBinary(made.context, name, null=wrong.pick(("size", "buffer", "written"))))
        elif kind == 6:
            scene.add(GetBinary(loaded(scene, made.binary), name))
        elif kind == 7:
            composed(scene, wrong, made.context, weights=False, hints=())
            scene.add(GetBinary(made.context, name))
        else:
            _unfinished(scene, wrong, name)


def _nobody(scene: Scene, tape: Tape) -> None:
    """OFF-07: the binary of a context that is none, beside one that is."""
    saved(scene, tape.cut(8))
    scene.add(GetBinary(tape.pick((NULL, BOGUS)), scene.name("x")))


def _asked(scene: Scene, tape: Tape) -> None:
    (_nobody if tape.chance(8) else _asked_wrongly)(scene, tape)


get_binary = embedded(_asked, core_bytes=40)


@rule(
    "OFF-07",
    Level.MUST,
    "QnnContext_getBinary needs a composed context whose graphs are all finalised and a buffer that is large "
    "enough; anything else is refused.",
    source="QnnContext.h: QnnContext_getBinarySize, QnnContext_getBinary",
    subject="memory",
    cases=get_binary,
    gate=_GATE,
)
def off_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success; 5000 for NULL, 5007 (or 5000) for too little room, 5003 before finalise, 1005 out of a binary.

    A buffer that is too small stays as it was. One smaller than the size may be large enough: the size may be
    a bound, as writtenBufferSize then shows.
    """
    require_binaries(case, trace)
    count = 0
    own = list(own_steps(case, trace, lambda w: isinstance(w.step, GetBinary) and w.allowed.specified))
    for walked in own:
        _demand_unharmed(walked)
        of_the_same = [each for each in own if _of_the_same_graphs(case, each, walked)]
        if _is_size_untold(walked) or _perhaps_fits(walked, of_the_same):
            continue
        demand_code(walked, walked.allowed.codes, walked.allowed.wrong)
        count += 1
    return Examined(count, "binaries asked for")


def _is_size_untold(walked: Walked) -> bool:
    """The size was asked for with success and was not given (OFF-11), so that nothing more was asked for."""
    assert isinstance(walked.step, GetBinary)
    asked = [call for call, _ in walked.seen.calls]
    is_size_right = walked.step.null != "size" and walked.allowed.only(Fault.TOO_SMALL, Fault.NULL_ARGUMENT)
    return is_size_right and walked.code == 0 and asked == ["contextGetBinarySize"]


def _perhaps_fits(walked: Walked, own: Sequence[Walked]) -> bool:
    """The room that was less than the size may be enough for the binary, as far as a whole one shows.

    ``own``: binaries of the same context with the same graphs. contextGetBinary says how much it has written
    because the size may be more than that.
    """
    step = walked.step
    if not isinstance(step, GetBinary) or not walked.allowed.only(Fault.TOO_SMALL) or walked.code != 0:
        return False
    size, written = walked.seen.values
    whole = {each.seen.values for each in own if each.code == 0 and _is_whole(each.step)}
    is_bound = any(wrote < told for told, wrote in whole)
    return written <= size - step.missing and (is_bound or whole <= {(size, written)})


def _is_whole(step: AnyStep) -> bool:
    return isinstance(step, GetBinary) and not step.missing


def _of_the_same_graphs(case: MemoryCase, one: Walked, other: Walked) -> bool:
    """Binaries of one context to which no graph was added in between."""
    assert isinstance(one.step, GetBinary)
    assert isinstance(other.step, GetBinary)
    begin, end = sorted((one.index, other.index))
    graphs = (step.context for step in case.steps[begin:end] if isinstance(step, Prepare))
    return one.step.context == other.step.context and one.step.context not in graphs


_DAMAGES: tuple[Damage, ...] = (
    "truncated",
    "garbage",
    "zeros",
    "trailing",
    "empty",
    "flipped",
    "flipped-end",
)


def _changed(scene: Scene, made: Saved, first: int) -> None:
    """A binary with a byte changed in each of its sixteenths, and what can be had of it where it is taken."""
    for number in range(len(FLIPPED_BYTES)):
        context = scene.name("c")
        damage = FLIPPED_BYTES[(first + number) % len(FLIPPED_BYTES)]
        scene.add(ContextFromBinary(context, made.binary, damage=damage))
        scene.add(Retrieve(scene.name("g"), context, made.graphs[0]))
        scene.add(ContextFree(context))


def _damaged(scene: Scene, tape: Tape) -> None:
    """OFF-08: binaries with one damage each, and the whole one afterwards.

    In one case of two a binary with a byte changed in each of its sixteenths, too: of twenty cases some have.
    """
    made = saved(scene, tape.cut(8), count=1 + tape.below(2))
    if made is None:
        return
    for _ in range(1 + tape.below(3)):
        scene.add(ContextFromBinary(scene.name("c"), made.binary, damage=tape.pick(_DAMAGES)))
    if tape.chance(2):
        scene.add(ContextFree(loaded(scene, made.binary)))
        _changed(scene, made, tape.below(len(FLIPPED_BYTES)))
    execute(scene, retrieved(scene, loaded(scene, made.binary), made.graphs[0]), None)


damaged = embedded(_damaged, before=2)


@rule(
    "OFF-08",
    Level.MUST,
    "QnnContext_createFromBinary refuses a truncated or foreign binary and makes no context; one with a "
    "changed byte is refused, or makes a context that QnnContext_free frees.",
    source="QnnContext.h: QnnContext_createFromBinary",
    subject="memory",
    cases=damaged,
    gate=_GATE,
)
def off_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """5005, 5004 or 5008 (5000 too for no bytes at all), and no context is left behind.

    No document says that a flipped bit must be noticed, or a byte behind the binary's end: one that is, is
    refused in the same way. Of a byte that is changed anywhere any error will do (it may be of a length, for
    which there is no memory), and what the graphs compute is left open: it may be one of their weights. Nor
    does a document say what is written to *context: only a context must not be there.
    """
    require_binaries(case, trace)
    count = 0
    unnoticed = 0
    _demand_freed(case, trace)
    for walked in own_steps(case, trace, lambda w: Fault.DAMAGED in w.allowed.faults):
        if walked.code == 0 and not walked.allowed.specified:
            unnoticed += 1
            continue
        if not _is_changed(walked.step):
            demand_code(walked, walked.allowed.codes, "the binary is damaged")
        if len(walked.seen.values) > 1 and low(walked.seen.values[1]) == 0:
            seen = f"*context is 0x{walked.seen.values[0]:x}, which contextFree frees"
            raise Violation("no context from a binary that is refused", seen, place(walked))
        count += 1
    judge_flow(case, trace, "the whole binary is loaded after damaged ones were refused")
    only = f" ({unnoticed} with a flipped bit or a longer tail taken)" if unnoticed else ""
    return Examined(count, f"damaged binaries{only}")


def _is_changed(step: AnyStep) -> bool:
    return isinstance(step, ContextFromBinary) and step.damage in FLIPPED_BYTES


def _demand_freed(case: MemoryCase, trace: MemoryTrace) -> None:
    """Contexts from changed binaries are freed as the one from the whole binary is."""
    taken: dict[str, bool] = {}
    """Of each context from a binary: it is a changed one."""
    for walked in own_steps(case, trace, lambda _: True):
        step = walked.step
        if isinstance(step, ContextFromBinary) and walked.code == 0:
            taken[step.context] = bool(step.damage)
        elif isinstance(step, ContextFree) and step.context in taken and walked.code:
            if not taken.pop(step.context):
                return  # CTX-01
            demand_code(walked, {0}, "contextCreateFromBinary answered 0 to the changed binary")


def _require_before(case: MemoryCase, trace: MemoryTrace) -> None:
    """`require_binaries` without what the rule's own, wrong step is answered with."""
    own = [index for index, step in enumerate(case.steps) if isinstance(step, ContextFromBinary)]
    steps = case.steps[: own[0] + 1] if own else case.steps
    require_binaries(MemoryCase(steps), trace)


def _altered(scene: Scene, tape: Tape) -> None:
    """OFF-09: a new tensor in a graph from a binary, or a new graph beside it, too; what there was goes on.

    Each twice: what a refused call has left there shows in the next one.
    """
    made = saved(scene, tape.cut(8))
    if made is None:
        return
    context = loaded(scene, made.binary)
    name = retrieved(scene, context, made.graphs[0])
    source = scene.alive.prepared[made.graphs[0]]
    new = source.graph if tape.chance(4) else scene.name("n")
    refused: list[AnyStep] = [Misuse("tensorCreateGraphTensor", name)]
    if not tape.chance(2):
        refused.insert(0, Prepare(new, context, source.op, source.dtype, source.shape))
    for step in refused:
        scene.add(step)
        scene.add(step)
    execute(scene, name, None, seed=tape.below(16))


altered = embedded(_altered)


@rule(
    "OFF-09",
    Level.MUST,
    "A context from a binary cannot be altered: creating graphs or tensors in it is refused.",
    source="QnnContext.h: QnnContext_createFromBinary; QnnCommon.h: "
    "QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED; QnnGraph.h: QNN_GRAPH_ERROR_GRAPH_FINALIZED; QnnTensor.h: "
    "QnnTensor_createGraphTensor",
    subject="memory",
    cases=altered,
    gate=_GATE,
)
def off_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """GraphCreate answers 1005 or 1100, a new tensor in a graph 1005, 6024 or what QnnTensor.h lists."""
    _require_before(case, trace)
    count = 0
    retrieved: dict[str, str] = {}
    for walked in own_steps(case, trace, lambda _: True):
        step = walked.step
        if isinstance(step, Retrieve) and walked.code == 0:
            retrieved[step.graph] = step.context
        elif isinstance(step, ContextFree) and walked.code == 0:
            retrieved = {graph: owner for graph, owner in retrieved.items() if owner != step.context}
        elif walked.allowed.only(Fault.READ_ONLY):
            demand_code(walked, walked.allowed.codes | _GENERAL, "the context comes from a binary")
            count += 1
        elif isinstance(step, Misuse) and step.handle in retrieved:
            demand_code(walked, _CLOSED, "the graph comes from a binary")
            count += 1
    judge_flow(case, trace, "the context goes on")
    return Examined(count, "graphs and tensors refused")


def _demand_at_load(row: Row) -> None:
    if len(row.at_prepare) != row.raw and not row.per_tensor:
        wanted = f"{row.raw} IO buffers allocated by loading ({row.raw} of {row.tensors} tensors are RAW)"
        raise Violation(wanted, f"{len(row.at_prepare)}", f"step {row.step}, context-from-binary")


def _demand_table(row: Row) -> None:
    """Seed 001's table for a loaded graph: what its executes allocate and copy."""
    raw_before = False
    for inference in row.inferences:
        if inference.kinds == {"handle"}:
            demand_new(row, inference, 0, "memory handles need none")
            demand_not_copied(row, inference)
        elif inference.kinds == {"raw"}:
            wanted = 0 if raw_before else row.tensors - row.raw
            because = "the first raw inference has allocated them" if raw_before else "they carry the hint"
            demand_new(row, inference, wanted, because)
            demand_copied(row, inference, {**inference.after, **inference.new})
            raw_before = True


_MEMORY = 1101
"""QNN_PROPERTY_GROUP_MEMORY."""


def _large(scene: Scene, tape: Tape) -> tuple[int, ...]:
    """A shape whose tensors are found among the mappings of the process."""
    del scene
    return (1, 3, 251, 201 + 2 * tape.below(64))


def _watched(scene: Scene, tape: Tape, hints: tuple[int, ...], *, handles: bool, away: bool) -> None:
    """A graph of large tensors, written, and loaded between two looks; then executed, each between two looks.

    ``handles``: with registered memory for every tensor; ``away``: in another process than it was written in.
    """
    made = saved(scene, tape.cut(8), weights=False, hints=hints, shape=_large(scene, tape))
    if made is None:
        return
    if away:
        elsewhere(scene)
    source = scene.alive.prepared[made.graphs[0]]
    look = Observe(nbytes(source.shape, source.dtype))
    scene.add(look)
    context = loaded(scene, made.binary)
    scene.add(look)
    name = retrieved(scene, context, source.graph)
    memory = any_memory(scene, tape.cut(MEMORY_BYTES), name) if handles else None
    for turn in range(1 + tape.below(2)):
        seed = 16 * turn + tape.below(16)
        if memory is not None:
            load(scene, name, memory, seed)
        scene.add(look)
        execute(scene, name, memory, seed=seed)
        scene.add(look)


def _load_hinted(scene: Scene, tape: Tape) -> None:
    """OFF-02: a binary with the hint on every tensor (or on some, or none); as control one without any.

    Executed raw or with memory handles; loaded here or in another process.
    """
    bits = 7 - tape.below(8)
    handles = tape.chance(2) and scene.facts.supports(_MEMORY)
    hints = tuple(bits >> at & 1 for at in range(3))
    _watched(scene, tape, hints, handles=handles, away=tape.chance(2))
    _watched(scene, tape, (), handles=False, away=False)


load_hinted = embedded(_load_hinted, core_bytes=48, before=2, after=0)


@rule(
    "OFF-02",
    Level.MUST,
    "A graph loaded from a binary allocates and copies as a composed one does (QMG-01 to QMG-04): loading "
    "allocates IO buffers for RAW tensors only.",
    source=f"{_OFFLINE}; the table of mismatching memory types",
    subject="memory",
    cases=load_hinted,
    gate=("202", "HTP", "separate IO buffers"),
    weight=0.15,
)
def off_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """As many new mappings at loading as RAW tensors, the others at the first raw inference.

    Raw executes fill them. Those with handles bring none and fill none. In the same process and in another.
    """
    require_htp(trace)
    require_binaries(case, trace)
    judge_flow(case, trace, "the graph comes out of a binary")
    found = loads(case, trace)
    require_visible(found)
    for row in found:
        _demand_at_load(row)
        _demand_table(row)
    return Examined(len(found), "binaries loaded")


def _same_numbers(scene: Scene, tape: Tape) -> None:
    """OFF-03: a graph executed as composed, then out of its binary, here or in another process.

    Several graphs of a binary may have weights of one name and one size, with contents of their own.
    """
    number = tape.byte()
    twins = number % 4 == 1
    shape = ODD_SHAPES[number // 4 % len(ODD_SHAPES)] if twins else None
    count = 3 if twins else 1 + tape.below(2)
    made = saved(scene, tape.cut(12), count=count, weights=True if twins else None, shape=shape)
    if made is None:
        return
    seed = tape.below(16)
    for name in made.graphs:
        execute(scene, name, None, seed=seed)
    away = tape.chance(3)
    if away:
        elsewhere(scene)
    context = loaded(scene, made.binary)
    for source in made.graphs:
        name = retrieved(scene, context, source)
        for _ in range(1 + tape.below(2)):
            if tape.chance(2):
                memory = any_memory(scene, tape.cut(MEMORY_BYTES), name)
                load(scene, name, memory, seed)
                execute(scene, name, memory, raw=tape.below(8), seed=seed)
                read(scene, [output_of(scene, name, memory)])
            else:
                execute(scene, name, None, seed=seed)


same_numbers = embedded(_same_numbers, core_bytes=72)


@rule(
    "OFF-03",
    Level.MUST,
    "Graphs loaded from a binary compute the same results as when they were composed, with raw memory and "
    "with memory handles, in the same process and in another.",
    source=f"{_OFFLINE}; the table of mismatching memory types",
    subject="memory",
    cases=same_numbers,
    gate=_GATE,
    weight=0.5,
)
def off_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every step of the way succeeds, outputs are right, and those for equal inputs equal bit by bit."""
    require_binaries(case, trace)
    require_execute(case, trace)
    judge_flow(case, trace, "the graph comes out of a binary")
    composed = {step.graph for step in case.steps if isinstance(step, Prepare)}
    return Examined(demand_equal(case, trace, composed), "outputs compared with those of the composed graph")


_HINTED = (1, 1, 1)


def _option_or_not(scene: Scene, tape: Tape) -> None:
    """OFF-05: the same graph written with and without the hint, both loaded, executed with equal inputs."""
    first = saved(scene, tape.cut(8), hints=())
    if first is None:
        return
    other = scene.context()
    plain = scene.graphs[first.graphs[0]]
    hinted = msgspec.structs.replace(
        plain, graph=scene.name("g"), context=other, mem_types=_HINTED[: io_inputs(plain) + 1]
    )
    scene.follow(hinted)
    seed = tape.below(16)
    for binary, source in ((first.binary, plain.graph), (written(scene, other), hinted.graph)):
        execute(scene, retrieved(scene, loaded(scene, binary), source), None, seed=seed)


option_or_not = embedded(_option_or_not)


@rule(
    "OFF-05",
    Level.MUST,
    "Leaving out the memory type at offline preparation changes no result of an inference.",
    source=f"{_OFFLINE} (skipping this option)",
    subject="memory",
    cases=option_or_not,
    gate=_GATE,
)
def off_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Two binaries of one graph, with the hint and without: equal outputs for equal inputs, bit by bit.

    That it costs no time either cannot be judged from outside.
    """
    require_binaries(case, trace)
    judge_flow(case, trace, "the graph comes out of a binary")
    hinted = {
        step.graph
        for step in case.steps
        if isinstance(step, Prepare) and TensorMemType.MEMHANDLE in step.mem_types
    }
    plain = {step.graph for step in case.steps if isinstance(step, Retrieve) and step.source not in hinted}
    require_execution(trace)
    return Examined(demand_equal(case, trace, plain), "outputs with the hint compared with those without")


def _scribbled(scene: Scene, tape: Tape) -> None:
    """OFF-10: the client's bytes are gone before the graphs are retrieved, and between executes."""
    made = saved(scene, tape.cut(8), count=1 + tape.below(2))
    if made is None:
        return
    context = loaded(scene, made.binary)
    late = tape.chance(2)
    if not late:
        scene.add(ReleaseBinary(context))
    for source in made.graphs:
        name = retrieved(scene, context, source)
        execute(scene, name, None, seed=tape.below(16))
        if late:
            scene.add(ReleaseBinary(context))
            execute(scene, name, None, seed=tape.below(16))


scribbled = embedded(_scribbled)


@rule(
    "OFF-10",
    Level.SHOULD,
    "The client may free a binary once QnnContext_createFromBinary without deferred initialisation has "
    "returned.",
    source="QnnContext.h: QnnContext_createFromBinary (only deferred initialisation asks for more); common "
    "use",
    subject="memory",
    cases=scribbled,
    gate=_GATE,
)
def off_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The binary's bytes are overwritten; retrieving and executing give what they must."""
    require_binaries(case, trace)
    judge_flow(case, trace, "the binary was released after createFromBinary")
    require_execution(trace)
    return Examined(executed_after_release(case, trace), "executes after the binary was released")


def _sized(scene: Scene, tape: Tape) -> None:
    """OFF-11: one to three graphs, whose binary is written once or twice."""
    made = saved(scene, tape.cut(8), count=1 + tape.below(3))
    if made is not None and tape.chance(2):
        written(scene, made.context)


@rule(
    "OFF-11",
    Level.MUST,
    "QnnContext_getBinarySize gives the bytes that a binary needs, and QnnContext_getBinary those that it "
    "has written, which are no more.",
    source="QnnContext.h: QnnContext_getBinarySize, QnnContext_getBinary",
    subject="memory",
    cases=embedded(_sized),
    gate=_GATE,
)
def off_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Both numbers are written where the calls succeed: the second is 1 at least, and at most the first."""
    require_binaries(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, GetBinary) and w.allowed.valid):
        demand_sizes(walked)
        count += walked.code == 0
    return Examined(count, "binaries written")
