"""EXE: executing graphs, and how their tensors are given."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation, WrongOutput
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    MAPPED,
    NULL,
    Binding,
    Descriptor,
    Execute,
    Fill,
    MemoryCase,
    Prepare,
    Write,
)
from pytest_qnn.qnn.cases.sizes import arity, io_inputs, nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.contents import Compared, compare, differs
from pytest_qnn.qnn.model.expected import Walked
from pytest_qnn.qnn.model.notes import Fault, Note
from pytest_qnn.qnn.rules.graphs import (
    judge_contents,
    judge_executes,
    judge_run,
    kinds,
    require_execute,
    require_executed_memory,
    require_handles,
)
from pytest_qnn.qnn.rules.judging import WRONG_OUTPUT, demand_code, demand_life, own_steps, place
from pytest_qnn.qnn.strategies.binaries import composed
from pytest_qnn.qnn.strategies.graphs import (
    MEMORY_BYTES,
    ODD_SHAPES,
    OUTSIDE,
    any_memory,
    change,
    execute,
    graph,
    load,
    mistake,
    of_many,
    output_of,
    raw,
    read,
    shuffled,
    tensors_of,
    terms_of,
)
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import ExecuteCounts, MemoryTrace

_EXECUTE = "QnnGraph.h: QnnGraph_execute"
_UNTOUCHED = 0xEE
"""What the runner fills raw outputs with before an execute."""


def _executes(case: MemoryCase, trace: MemoryTrace) -> list[Walked]:
    return list(own_steps(case, trace, lambda walked: isinstance(walked.step, Execute)))


def judge_mistakes(case: MemoryCase, trace: MemoryTrace, fault: Fault, because: str) -> int:
    """Executes whose only fault this is are refused with its codes; gives how many there were."""
    found = [walked for walked in _executes(case, trace) if walked.allowed.only(fault)]
    for walked in found:
        demand_code(walked, walked.allowed.codes, because)
    return len(found)


def _noted(case: MemoryCase, trace: MemoryTrace, note: Note, because: str) -> int:
    """Executes in order with this note succeed, with the right output; gives how many outputs were seen."""
    for walked in _executes(case, trace):
        if walked.allowed.valid and note in walked.allowed.notes:
            demand_code(walked, {0}, because)

    def own(seen: Compared) -> bool:
        return seen.where == "output" and note in seen.walked.allowed.notes

    return judge_contents(case, trace, own, because)


Cases = st.SearchStrategy[MemoryCase]
_SIZES = (1, 0xFFFFFFFF, 7, 4096, 0x55555555)


def _last(scene: Scene, **fields: object) -> None:
    """Change the step that was added last."""
    scene.steps[-1] = msgspec.structs.replace(scene.steps[-1], **fields)


def sized_handles(facts: MemoryFacts) -> Cases:
    """EXE-06: handles come with any dataSize."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        for turn in range(1 + tape.below(2)):
            load(scene, name, memory, 16 * turn + tape.below(16))
            execute(scene, name, memory)
            step = scene.steps[-1]
            assert isinstance(step, Execute)
            sized = tuple(
                msgspec.structs.replace(each, data_size=tape.pick(_SIZES)) for each in step.bindings
            )
            _last(scene, bindings=sized)
            read(scene, [output_of(scene, name, memory)])

    return scenes(facts, core)


@rule(
    "EXE-06",
    Level.MUST,
    "QnnGraph_execute reads the union of a tensor by its memory type: with MEMHANDLE it ignores dataSize.",
    source="QnnTypes.h: Qnn_TensorV1_t, memType; ONNX Runtime passes 0",
    subject="memory",
    cases=sized_handles,
    gate=("502", "1101"),
)
def exe_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Executes with handles and any dataSize succeed with correct numbers."""
    require_executed_memory(case, trace)
    count = _noted(case, trace, Note.DATA_SIZE, "dataSize belongs to raw memory")
    return Examined(count, "outputs of executes with handles and a dataSize")


def handle_sizes(facts: MemoryFacts) -> Cases:
    """EXE-07: a handle of fewer bytes than the tensor, and one of more."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        made = scene.graphs[name]
        grain = 4 if made.dtype == "FLOAT_32" else 1
        elements = nbytes(made.shape, made.dtype) // grain
        position = tape.below(tensors_of(scene, name))
        for count in (elements - 1 - tape.below(elements), elements + 1 + tape.below(8)):
            if count < 1:
                continue
            buffer = scene.alloc(max(count, elements) * grain)
            scene.add(Fill(buffer))
            scene.add(Write(buffer, min(count, elements) * grain, seed=3, dtype=made.dtype))
            described = Descriptor(buffer, (count,), made.dtype, tape.pick(scene.types))
            (handle,) = scene.register(made.context, described)
            bindings = change(raw(scene, name, 1), position, kind="handle", handle=handle)
            scene.add(Execute(name, bindings))

    return scenes(facts, core)


@rule(
    "EXE-07",
    Level.MUST,
    "QnnGraph_execute refuses a memory handle of fewer bytes than its tensor with "
    "QNN_GRAPH_ERROR_INVALID_TENSOR (6004) or QNN_GRAPH_ERROR_INVALID_ARGUMENT (6000), and accepts one of as "
    "many or more.",
    source=f"{_EXECUTE}, QNN_GRAPH_ERROR_INVALID_TENSOR; ONNX Runtime uses larger registrations",
    subject="memory",
    cases=handle_sizes,
    gate=("502", "1101"),
)
def exe_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6004 or 6000 for too few bytes; success and correct numbers for more than enough."""
    require_executed_memory(case, trace)
    count = judge_mistakes(
        case, trace, Fault.SHORT_HANDLE, "the registered memory is too small for the tensor"
    )
    count += judge_executes(case, trace, lambda _: True, "the registered memory is large enough")
    judge_contents(case, trace, lambda seen: seen.where == "output")
    return Examined(count, "executes with smaller and larger registrations")


def shared_handles(facts: MemoryFacts) -> Cases:
    """EXE-08: two graphs of a context, and handles that serve now this tensor and now that one, or two."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (first := graph(scene, tape)):
            return
        made = scene.graphs[first]
        fitting = [op for op, dtype in scene.operators if dtype == made.dtype]
        second = scene.name("g")
        scene.follow(msgspec.structs.replace(made, graph=second, op=tape.pick(fitting), mem_types=()))
        size = nbytes(made.shape, made.dtype)
        buffers = [scene.alloc(size) for _ in range(3)]
        kind = tape.pick(scene.types)
        handles = scene.register(
            made.context, *(Descriptor(each, made.shape, made.dtype, kind) for each in buffers)
        )
        for turn in range(2 + tape.below(4)):
            name = (first, second)[(turn + tape.below(2)) % 2]
            order = shuffled(tape, 3)
            if arity(scene.graphs[name].op) == 2 and tape.chance(4):
                order[1] = order[0]
            for buffer in buffers:
                scene.add(Fill(buffer))
            for position, which in enumerate(order[: arity(scene.graphs[name].op)]):
                scene.add(Write(buffers[which], size, seed=8 * turn + position, dtype=made.dtype))
            bound = (Binding("handle", handles[which]) for which in order[: tensors_of(scene, name)])
            scene.add(Execute(name, tuple(bound)))
            read(scene, [buffers[order[tensors_of(scene, name) - 1]]])

    return scenes(facts, core, core_bytes=48)


@rule(
    "EXE-08",
    Level.SHOULD,
    "A memory handle may be used for any tensor of any graph of its context, any number of times.",
    source="device report: pytorch/executorch issue 13421",
    subject="memory",
    cases=shared_handles,
    gate=("502", "1101"),
)
def exe_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every execute succeeds with correct numbers."""
    require_executed_memory(case, trace)
    return judge_run(case, trace, "outputs through handles in any role", "a handle belongs to no one tensor")


def chained(facts: MemoryFacts) -> Cases:
    """EXE-09: the output of one graph is the first input of the next, through the same handle."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (first := graph(scene, tape)):
            return
        made = scene.graphs[first]
        memory = any_memory(scene, tape, first)
        load(scene, first, memory, tape.below(16))
        execute(scene, first, memory)
        through = memory.handles[tensors_of(scene, first) - 1]
        fitting = [op for op, dtype in scene.operators if dtype == made.dtype]
        for _ in range(1 + tape.below(2)):
            name = scene.name("g")
            scene.follow(msgspec.structs.replace(made, graph=name, op=tape.pick(fitting)))
            buffer = scene.alloc(nbytes(made.shape, made.dtype))
            scene.add(Fill(buffer))
            kind = tape.pick(scene.types)
            (handle,) = scene.register(made.context, Descriptor(buffer, made.shape, made.dtype, kind))
            bindings = change(raw(scene, name, 5), 0, kind="handle", handle=through, seed=0)
            bindings = change(bindings, len(bindings) - 1, kind="handle", handle=handle)
            scene.add(Execute(name, bindings))
            read(scene, [buffer])
            through = handle

    return scenes(facts, core)


@rule(
    "EXE-09",
    Level.MUST,
    "The output of one graph may be the input of the next graph through the same memory handle.",
    source="seed 002, execute QNN graph with input tensor and output tensor",
    subject="memory",
    cases=chained,
    gate=("502", "1101"),
)
def exe_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Chains of graphs succeed with correct numbers."""
    require_executed_memory(case, trace)
    return judge_run(case, trace, "outputs of chains", "an output's handle may be the next graph's input")


def inputs_kept(facts: MemoryFacts) -> Cases:
    """EXE-10: executes raw and with handles, and a look at every byte of every buffer.

    Among the graphs are some of several nodes, whose inner results a backend may put where inputs are.
    """

    def core(scene: Scene, tape: Tape) -> None:
        number = tape.byte()
        name = of_many(scene, tape.cut(4), terms_of(number))
        if not name and number % 2:
            name = composed(scene, tape.cut(6), scene.context(), weights=False, hints=(), relay=True)
        if not (name or (name := graph(scene, tape))):
            return
        if tape.below(2):
            memory = any_memory(scene, tape, name)
            load(scene, name, memory, tape.below(16))
            execute(scene, name, memory)
            read(scene, memory.buffers)
        execute(scene, name, None, seed=tape.below(16))

    return scenes(facts, core, core_bytes=56)


@rule(
    "EXE-10",
    Level.MUST,
    "QnnGraph_execute changes neither its inputs nor the bytes behind its output.",
    source=f"seed 002; {_EXECUTE}, inputs and outputs",
    subject="memory",
    cases=inputs_kept,
)
def exe_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Inputs byte by byte, the bytes behind raw outputs, and every byte of registered buffers."""
    require_execute(case, trace)
    count = 0
    for walked in _executes(case, trace):
        if not walked.allowed.valid or walked.code != 0:
            continue
        counts = walked.seen.counted(ExecuteCounts)
        for counted, found, wanted in (
            ("inputs changed", counts.inputs_changed, "inputs as they were"),
            ("bytes written behind the output", counts.output_overrun, "nothing written behind the output"),
        ):
            if found:
                raise WrongOutput(wanted, f"{counted}: {found}", place(walked))
        count += 1
    judge_contents(case, trace, lambda seen: seen.where == "buffer", "only the output's bytes are written")
    return Examined(count, "executes")


def watched_tensors(facts: MemoryFacts) -> Cases:
    """EXE-11: executes that succeed and executes that do not, with a look at their structs."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        act = tape.below(3)
        if act == 1:
            memory = any_memory(scene, tape, name)
            load(scene, name, memory, 1)
            execute(scene, name, memory)
            _last(scene, watch=True)
        elif act == 2:
            scene.add(Execute(name, change(raw(scene, name), 0, kind="handle", handle=NULL), watch=True))
        execute(scene, name, None, seed=tape.below(16))
        _last(scene, watch=True)

    return scenes(facts, core)


@rule(
    "EXE-11",
    Level.MUST,
    "QnnGraph_execute does not write to the structs of its tensors.",
    source=f"{_EXECUTE} (the inputs are const); QnnTypes.h: Qnn_Tensor_t",
    subject="memory",
    cases=watched_tensors,
)
def exe_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The arrays are the same before and after, byte by byte."""
    require_execute(case, trace)
    count = 0
    for walked in _executes(case, trace):
        if not isinstance(walked.step, Execute) or not walked.step.watch:
            continue
        if walked.seen.counted(ExecuteCounts).tensors_changed:
            raise Violation("the tensors' structs as they were", "bytes of them differ", place(walked))
        count += 1
    return Examined(count, "executes with a look at their structs")


def refused_executes(facts: MemoryFacts) -> Cases:
    """EXE-12: executes that are wrong in one of several ways, with a raw output."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        for _ in range(1 + tape.below(2)):
            mistake(scene, tape, name)

    return scenes(facts, core)


@rule(
    "EXE-12",
    Level.SHOULD,
    "A QnnGraph_execute that fails leaves its outputs unchanged.",
    source="inference: documents are silent, and clients keep the last good output",
    subject="memory",
    cases=refused_executes,
)
def exe_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Raw outputs of refused executes are as the client left them."""
    require_execute(case, trace)
    count = 0
    for walked in _executes(case, trace):
        if not walked.allowed.faults or not walked.code:
            continue
        for data in walked.seen.data:
            before = bytes([_UNTOUCHED]) * len(data)
            if data != before:
                seen = differs(before, data, "UFIXED_POINT_8")
                raise WrongOutput("an output that is left alone", seen, place(walked))
        count += 1
    return Examined(count, "executes that were refused")


def _one_tensor(facts: MemoryFacts, fields: Callable[[Scene, Tape, str], dict[str, object]]) -> Cases:
    """A good execute in one case of three, then one with a tensor that is changed."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        if tape.chance(3):
            execute(scene, name, None, seed=tape.below(16))
        position = tape.below(tensors_of(scene, name))
        scene.add(Execute(name, change(raw(scene, name), position, **fields(scene, tape, name))))

    return scenes(facts, core)


def unknown_memory_types(facts: MemoryFacts) -> Cases:
    """EXE-13: a memory type that there is not."""

    def fields(scene: Scene, tape: Tape, name: str) -> dict[str, object]:
        del scene, name
        return {"mem_type": tape.pick(OUTSIDE)}

    return _one_tensor(facts, fields)


@rule(
    "EXE-13",
    Level.SHOULD,
    "QnnGraph_execute refuses a memory type that is not in Qnn_TensorMemType_t: "
    "QNN_GRAPH_ERROR_INVALID_TENSOR (6004) or, since the tensor is ill-formed, "
    "QNN_GRAPH_ERROR_INVALID_ARGUMENT (6000).",
    source=f"QnnTypes.h: Qnn_TensorMemType_t; {_EXECUTE}, QNN_GRAPH_ERROR_INVALID_TENSOR and "
    "QNN_GRAPH_ERROR_INVALID_ARGUMENT (ill-formed)",
    subject="memory",
    cases=unknown_memory_types,
)
def exe_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6004, or 6000 as in EXE-03, -14 and -16, for values outside the enum and for UNDEFINED.

    A SHOULD: QnnGraph.h takes the attributes that it does not except from a tensor's creation, and does not
    name the memory type among the exceptions, which seed 001 needs to be one.
    """
    require_execute(case, trace)
    count = judge_mistakes(case, trace, Fault.MEM_TYPE, "there is no such memory type")
    return Examined(count, "executes with an unknown memory type")


def undersized(facts: MemoryFacts) -> Cases:
    """EXE-14: raw memory with too few bytes."""

    def fields(scene: Scene, tape: Tape, name: str) -> dict[str, object]:
        made = scene.graphs[name]
        size = nbytes(made.shape, made.dtype)
        return {"short": tape.pick((1, min(4, size), 1 + size // 2, size))}

    return _one_tensor(facts, fields)


@rule(
    "EXE-14",
    Level.MUST,
    "QnnGraph_execute refuses raw memory that is smaller than its tensor: QNN_GRAPH_ERROR_INVALID_TENSOR "
    "(6004) or QNN_GRAPH_ERROR_INVALID_ARGUMENT (6000).",
    source=f"{_EXECUTE}, QNN_GRAPH_ERROR_INVALID_TENSOR (ill-formed)",
    subject="memory",
    cases=undersized,
)
def exe_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6004 or 6000; behind the memory lies a page that nobody can touch, so an overrun ends the process."""
    require_execute(case, trace)
    count = judge_mistakes(case, trace, Fault.SHORT_DATA, "dataSize is smaller than the tensor")
    return Examined(count, "executes with too little raw memory")


def _binary(scene: Scene, tape: Tape, **fields: object) -> str:
    """A graph of an operator with two inputs; "" where the target takes none."""
    fitting = tuple(pair for pair in scene.operators if arity(pair[0]) == 2)
    if not fitting:
        return ""
    op, dtype = tape.pick(fitting)
    context, name = scene.context(), scene.name("g")
    made = Prepare(name, context, op, dtype, tape.pick(ODD_SHAPES))
    scene.follow(msgspec.structs.replace(made, **fields))
    return name


def permuted(facts: MemoryFacts) -> Cases:
    """EXE-15: the inputs in another order; of two, or of many; in raw memory, or with memory handles."""
    handles = facts.supports(_MEMORY) and facts.supports(_HANDLES)

    def core(scene: Scene, tape: Tape) -> None:
        terms = terms_of(tape.byte())
        if name := of_many(scene, tape, terms) or _binary(scene, tape):
            memory = any_memory(scene, tape.cut(MEMORY_BYTES), name) if handles and tape.chance(3) else None
            for turn in range(1 + tape.below(2)):
                count = io_inputs(scene.graphs[name])
                first, *others = shuffled(tape, count) if tape.chance(3) else range(count)
                seed = 16 * turn + tape.below(16)
                if memory is not None:
                    load(scene, name, memory, seed)
                execute(scene, name, memory, seed=seed)
                _last(scene, inputs=(*others, first))

    return scenes(facts, core, core_bytes=48)


@rule(
    "EXE-15",
    Level.MUST,
    "QnnGraph_execute identifies tensors by their ids: their order in the arrays is free.",
    source=f"{_EXECUTE}, note on the order of tensors",
    subject="memory",
    cases=permuted,
)
def exe_15(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Executes with permuted inputs succeed with correct numbers."""
    require_execute(case, trace)
    count = _noted(case, trace, Note.PERMUTED, "tensors are told by their ids")
    return Examined(count, "outputs of executes with permuted inputs")


def wrong_arrays(facts: MemoryFacts) -> Cases:
    """EXE-16: a tensor that is missing, there twice, foreign, in the wrong array or too much.

    In one case of two the graph has been executed in order before.
    """

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        if tape.below(4):
            execute(scene, name, None, seed=tape.below(16))
        made = scene.graphs[name]
        count = arity(made.op)
        every = tuple(range(count))
        act = tape.below(7)
        step = Execute(name, raw(scene, name))
        if act == 6:
            other = scene.name("g")
            scene.add(msgspec.structs.replace(made, graph=other))
            position = tape.below(count + 1)
            step = msgspec.structs.replace(step, bindings=change(step.bindings, position, of=other))
        else:
            arrays = (
                {"inputs": every[:-1]},
                {"inputs": every[1:]},
                {"inputs": (*every, 0)},
                {"inputs": (0,) * count if count > 1 else (count,)},
                {"outputs": ()},
                {"outputs": (count, count)},
            )
            step = msgspec.structs.replace(step, **arrays[act])
        scene.add(step)

    return scenes(facts, core)


@rule(
    "EXE-16",
    Level.MUST,
    "QnnGraph_execute refuses a tensor that is missing, given twice, of another graph or superfluous: "
    "QNN_GRAPH_ERROR_INVALID_TENSOR (6004) or QNN_GRAPH_ERROR_INVALID_ARGUMENT (6000).",
    source=f"{_EXECUTE}, QNN_GRAPH_ERROR_INVALID_TENSOR, QNN_GRAPH_ERROR_INVALID_ARGUMENT",
    subject="memory",
    cases=wrong_arrays,
)
def exe_16(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6004 or 6000."""
    require_execute(case, trace)
    count = judge_mistakes(case, trace, Fault.TENSORS, "every IO tensor is there exactly once")
    return Examined(count, "executes with wrong arrays of tensors")


def unfinished(facts: MemoryFacts) -> Cases:
    """EXE-17: a graph that was not finalised."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        if tape.chance(2):
            execute(scene, name, None)
        other = scene.name("g")
        scene.follow(msgspec.structs.replace(scene.graphs[name], graph=other, finalise=False))
        execute(scene, other, None, seed=tape.below(16))

    return scenes(facts, core)


@rule(
    "EXE-17",
    Level.MUST,
    "QnnGraph_execute refuses a graph that is not finalised: QNN_GRAPH_ERROR_GRAPH_NOT_FINALIZED (6023).",
    source=f"{_EXECUTE}, QNN_GRAPH_ERROR_GRAPH_NOT_FINALIZED",
    subject="memory",
    cases=unfinished,
)
def exe_17(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6023."""
    require_execute(case, trace)
    count = judge_mistakes(case, trace, Fault.NOT_FINALISED, "the graph is not finalised")
    return Examined(count, "executes of graphs that are not finalised")


_REFUSED = frozenset({int(Error.GRAPH_ERROR_INVALID_TENSOR)})
_ILL_FORMED = _REFUSED | {int(Error.GRAPH_ERROR_INVALID_ARGUMENT)}


# EXE


_MANY, _SMALL = 140, 256
"""Executes that a case of EXE-01 may have before, of tensors of fewer elements than that."""


def executed_both_ways(facts: MemoryFacts) -> Cases:
    """EXE-01: the same inputs in raw memory and in memory handles."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        turns = 1 + tape.below(2)
        for _ in range(_MANY if math.prod(scene.graphs[name].shape) < _SMALL and tape.chance(6) else 0):
            execute(scene, name, None)
        for turn in range(turns):
            seed = 16 * turn + tape.below(16)
            execute(scene, name, None, seed=seed)
            load(scene, name, memory, seed)
            execute(scene, name, memory)
            read(scene, [output_of(scene, name, memory)])

    return scenes(facts, core)


@rule(
    "EXE-01",
    Level.MUST,
    "QnnGraph_execute with registered memory handles for inputs and outputs succeeds, and its outputs are "
    "correct.",
    source="seed 002, execute QNN graph with input tensor and output tensor",
    subject="memory",
    cases=executed_both_ways,
    gate=("502", "1101"),
)
def exe_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Outputs through handles are right, and are those of a raw execute with the same inputs, bit by bit."""
    require_executed_memory(case, trace)
    because = "all tensors have registered handles"
    demand_life(case, trace, "graphExecute", WRONG_OUTPUT)
    judge_executes(case, trace, lambda step: kinds(step) == {"handle"}, because)
    judge_contents(case, trace, lambda seen: _through(seen) == {"handle"}, because)
    raw: dict[tuple[object, ...], bytes] = {}
    count = 0
    for seen in compare(case, trace):
        if seen.made is None:
            continue
        key = (seen.made.op, seen.made.dtype, seen.made.shape, *seen.inputs)
        if _through(seen) == {"raw"}:
            raw[key] = seen.data
        elif _through(seen) == {"handle"}:
            if key in raw and raw[key] != seen.data:
                difference = differs(raw[key], seen.data, "UFIXED_POINT_8")
                raise Violation("the output of the raw execute", difference, place(seen.walked))
            count += 1
    return Examined(count, "outputs through memory handles")


def _through(seen: Compared) -> set[str]:
    return kinds(seen.execute) if seen.execute else set()


def executed_mixed(facts: MemoryFacts) -> Cases:
    """EXE-02: some tensors raw, the others with memory handles."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        mixes = (1 << tensors_of(scene, name)) - 2
        for _ in range(1 + tape.below(3)):
            seed = tape.below(16)
            load(scene, name, memory, seed)
            execute(scene, name, memory, 1 + tape.below(mixes), seed)
            read(scene, [output_of(scene, name, memory)])

    return scenes(facts, core)


@rule(
    "EXE-02",
    Level.MUST,
    "One QnnGraph_execute may use raw memory for some tensors and memory handles for others.",
    source="seed 001 (memory types are given per IO tensor); QnnTypes.h: Qnn_TensorMemType_t",
    subject="memory",
    cases=executed_mixed,
    gate=("502", "1101"),
)
def exe_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Mixed executes succeed with correct numbers."""
    require_executed_memory(case, trace)
    because = "raw memory and handles may be mixed"
    judge_executes(case, trace, lambda step: len(kinds(step)) == 2, because)
    count = judge_contents(case, trace, lambda seen: len(_through(seen)) == 2, because)
    return Examined(count, "outputs of mixed executes")


def _judge_refused(
    case: MemoryCase, trace: MemoryTrace, fault: Fault, because: str, codes: frozenset[int] = _REFUSED
) -> int:
    """Executes whose only fault this is answer 6004, or one of ``codes``; gives how many there were."""
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only(fault)):
        if not isinstance(walked.step, Execute):
            continue
        require_handles(trace, walked.code)
        demand_code(walked, codes, because)
        count += 1
    return count


_MEMORY = 1101
"""QNN_PROPERTY_GROUP_MEMORY."""
_HANDLES = 502
"""QNN_PROPERTY_TENSOR_SUPPORT_MEMHANDLE_TYPE."""


def _executed_with(facts: MemoryFacts, *handles: str) -> Cases:
    """An execute with one of ``handles`` for one or more tensors and raw memory for the others.

    In one case of two, handles of the graph's own context are live that would fit each tensor. The context's
    name stands for its value, which is no memory handle.
    """

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        if tape.chance(3):
            execute(scene, name, None, seed=tape.below(16))
        bad = 1 + tape.below((1 << tensors_of(scene, name)) - 1)
        handle = tape.pick(handles) or scene.graphs[name].context
        if tape.chance(2) and facts.supports(_MEMORY):
            any_memory(scene, tape, name)
        bindings = (
            Binding("handle", handle) if bad >> tensor & 1 else Binding()
            for tensor in range(tensors_of(scene, name))
        )
        scene.add(Execute(name, tuple(bindings)))

    return scenes(facts, core)


def executed_with_null(facts: MemoryFacts) -> Cases:
    """EXE-03: NULL where a memory handle belongs, also while handles are live."""
    return _executed_with(facts, NULL)


@rule(
    "EXE-03",
    Level.MUST,
    "QnnGraph_execute refuses memory type MEMHANDLE with a NULL handle: QNN_GRAPH_ERROR_INVALID_TENSOR "
    "(6004) or, since the tensor is ill-formed, QNN_GRAPH_ERROR_INVALID_ARGUMENT (6000).",
    source="QnnGraph.h: QnnGraph_execute, QNN_GRAPH_ERROR_INVALID_TENSOR, QNN_GRAPH_ERROR_INVALID_ARGUMENT",
    subject="memory",
    cases=executed_with_null,
)
def exe_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """NULL answers 6004 or 6000, whether handles are live or none is."""
    require_execute(case, trace)
    count = _judge_refused(case, trace, Fault.NULL_HANDLE, "the memory handle is NULL", _ILL_FORMED)
    return Examined(count, "executes with a NULL handle")


def executed_with_stale(facts: MemoryFacts) -> Cases:
    """EXE-04: handles that were deregistered, after an execute that used them or without one."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        load(scene, name, memory, tape.below(16))
        if tape.chance(2):
            execute(scene, name, memory)
        every = (1 << tensors_of(scene, name)) - 1
        stale = 1 + tape.below(every)
        gone = [memory.handles[tensor] for tensor in range(every.bit_length()) if stale >> tensor & 1]
        scene.deregister(*gone)
        execute(scene, name, memory, tape.below(every + 1) & ~stale)

    return scenes(facts, core)


@rule(
    "EXE-04",
    Level.MUST,
    "QnnGraph_execute refuses a deregistered memory handle with QNN_GRAPH_ERROR_INVALID_TENSOR (6004).",
    source="QnnGraph.h: QnnGraph_execute, QNN_GRAPH_ERROR_INVALID_TENSOR; device log: "
    "QNN_GRAPH_ERROR_INVALID_TENSOR (6004)",
    subject="memory",
    cases=executed_with_stale,
    gate=("502", "1101"),
)
def exe_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A stale handle answers 6004. What becomes of the outputs is EXE-12's: no document says."""
    require_executed_memory(case, trace)
    count = _judge_refused(case, trace, Fault.DEAD_HANDLE, "the handle was deregistered")
    return Examined(count, "executes with a deregistered handle")


def executed_with_bogus(facts: MemoryFacts) -> Cases:
    """EXE-05: a value that was never given out, or is a context's or an address, for a memory handle."""
    return _executed_with(facts, BOGUS, "", MAPPED)


@rule(
    "EXE-05",
    Level.MUST,
    "QnnGraph_execute refuses an unknown memory handle with QNN_GRAPH_ERROR_INVALID_TENSOR (6004), without a "
    "crash.",
    source="QnnGraph.h: QnnGraph_execute, QNN_GRAPH_ERROR_INVALID_TENSOR; device log: "
    "QNN_GRAPH_ERROR_INVALID_TENSOR (6004)",
    subject="memory",
    cases=executed_with_bogus,
)
def exe_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A value that was never given out answers 6004, whether handles are live or none is.

    It may be a context's, or the address of memory that the client has mapped and not registered. A context's
    value that is a live memory handle as well is not judged (IF-09).
    """
    require_execute(case, trace)
    count = _judge_refused(case, trace, Fault.BAD_HANDLE, "no such handle was ever given out")
    return Examined(count, "executes with an unknown handle")


def rewritten_and_reread(facts: MemoryFacts) -> Cases:
    """EXE-19: other inputs in the same memory for each execute, and the output read after each.

    The client reads its memory before some of the executes as well, and overwrites the output.
    """

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        output = output_of(scene, name, memory)
        for turn in range(2 + tape.below(4)):
            load(scene, name, memory, 16 * turn + tape.below(16))
            if tape.chance(2):
                read(scene, memory.buffers)
            execute(scene, name, memory)
            read(scene, [output])
            if tape.chance(2) and memory.buffers.count(output) == 1:
                scene.add(Fill(output))

    return scenes(facts, core)


@rule(
    "EXE-19",
    Level.MUST,
    "QnnGraph_execute reads what the client last wrote to registered memory, and the client then reads what "
    "it wrote.",
    source="seed 002, RPCMEM_DEFAULT_FLAGS (cached memory); load the input, execute, get the output",
    subject="memory",
    cases=rewritten_and_reread,
    gate=("502", "1101"),
)
def exe_19(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Outputs are right, round after round: a cache line that is stale on either side shows in one of them.

    A host's caches are coherent: there the rule finds only what a backend keeps itself.
    """
    require_executed_memory(case, trace)
    because = "no stale bytes, whoever wrote last"
    return judge_run(case, trace, "outputs and buffers, written and read in turns", because)
