"""PRE: creating tensors: what they may come with, what is copied, written and remembered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from pytest_qnn.core.printable import counted
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import (
    Examined,
    FailedCall,
    Level,
    Unsupported,
    Violation,
    WrongOutput,
    WrongRefusal,
)
from pytest_qnn.qnn.abi.codes import API_VERSION, Error, Property, TensorMemType, low
from pytest_qnn.qnn.cases.case import Binding, Execute, GetBinary, Inspect, MemoryCase, Prepare
from pytest_qnn.qnn.cases.sizes import arity, io_inputs
from pytest_qnn.qnn.facts import HTP_BACKEND_ID, MemoryFacts
from pytest_qnn.qnn.model.codes import named, one_of
from pytest_qnn.qnn.model.contents import compare, differs
from pytest_qnn.qnn.model.expected import Walked, walk
from pytest_qnn.qnn.model.notes import Fault
from pytest_qnn.qnn.rules.binaries import demand_refused
from pytest_qnn.qnn.rules.graphs import CREATE_TENSOR, require_execution, require_handles, require_prepared
from pytest_qnn.qnn.rules.io_buffers import HINTED, PLAIN, rows, watched
from pytest_qnn.qnn.rules.judging import (
    call_name,
    demand_code,
    facts_of,
    own_steps,
    place,
    require_operator,
    require_session,
)
from pytest_qnn.qnn.strategies.graphs import (
    MEMHANDLE,
    ODD_SHAPES,
    OUTSIDE,
    RAW,
    Cases,
    graph,
    of_many,
)
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace, PrepareCounts, StepSeen

_REFUSED = frozenset({int(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)})


def _creation_codes(seen: StepSeen) -> list[int]:
    """The codes of the tensor creations of a prepare, in the order of its IO tensors."""
    return [code for call, code in seen.calls if call == CREATE_TENSOR]


def _judge_preset(case: MemoryCase, trace: MemoryTrace, mem_type: int, because: str) -> int:
    """The first tensor of this memory type that comes with memory answers 7004; gives how many there were."""
    require_session(trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Prepare)):
        step = walked.step
        if not isinstance(step, Prepare) or True not in step.preset:
            continue
        first = step.preset.index(True)
        codes = _creation_codes(walked.seen)
        given = step.mem_types[first] if first < len(step.mem_types) else TensorMemType.RAW
        if given != mem_type or len(codes) <= first:
            continue
        if mem_type == TensorMemType.MEMHANDLE:
            require_handles(trace, codes[first])
        demand_code(_with_code(walked, codes[first]), _REFUSED, because)
        count += 1
    return count


def _with_code(walked: Walked, code: int) -> Walked:
    return Walked(walked.index, walked.step, StepSeen(code=code), walked.allowed)


def _require_hint(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Unsupported when a target without property 502 refuses a MEMHANDLE tensor that has no handle."""
    if facts_of(trace).supports(Property.TENSOR_SUPPORT_MEMHANDLE_TYPE):
        return
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if (
            isinstance(step, Prepare)
            and TensorMemType.MEMHANDLE in step.mem_types
            and True not in step.preset
        ):
            codes = _creation_codes(seen)
            if codes and codes[-1] != 0:
                raise Unsupported(f"{CREATE_TENSOR} of a MEMHANDLE tensor answers {named(codes[-1])}")


# PRE


def _preset(facts: MemoryFacts, kind: int) -> Cases:
    """Tensors of memory type ``kind`` that are created with memory, then a graph without."""

    def core(scene: Scene, tape: Tape) -> None:
        operators = scene.operators or (("ElementWiseAdd", "UFIXED_POINT_8"),)
        op, dtype = tape.pick(operators)
        shape = tape.pick(ODD_SHAPES)
        tensors = arity(op) + 1
        chosen = 1 + tape.below((1 << tensors) - 1)
        other = tape.byte()
        types = tuple(kind if chosen >> tensor & 1 else other >> tensor & 1 for tensor in range(tensors))
        preset = tuple(bool(chosen >> tensor & 1) for tensor in range(tensors))
        context = scene.context()
        scene.add(Prepare(scene.name("g"), context, op, dtype, shape, types, preset))
        scene.add(Prepare(scene.name("g"), context, op, dtype, shape, types))

    return scenes(facts, core)


def preset_handles(facts: MemoryFacts) -> Cases:
    """PRE-01: MEMHANDLE tensors created with a handle."""
    return _preset(facts, MEMHANDLE)


@rule(
    "PRE-01",
    Level.MUST,
    "QnnTensor_createGraphTensor refuses an IO tensor of memory type MEMHANDLE whose memHandle is not NULL: "
    "QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM (7004).",
    source="seed 001, Online Prepare, comment; seed 002, comment; QnnTensor.h: QnnTensor_createGraphTensor",
    subject="memory",
    cases=preset_handles,
)
def pre_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A handle at creation answers 7004."""
    require_session(trace)
    _require_hint(case, trace)
    count = _judge_preset(case, trace, TensorMemType.MEMHANDLE, "memHandle is NULL at creation")
    return Examined(count, "MEMHANDLE tensors created with a handle")


def preset_data(facts: MemoryFacts) -> Cases:
    """PRE-02: RAW tensors created with data."""
    return _preset(facts, RAW)


@rule(
    "PRE-02",
    Level.MUST,
    "QnnTensor_createGraphTensor refuses an IO tensor of memory type RAW whose data is not NULL: "
    "QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM (7004).",
    source="QnnTensor.h: QnnTensor_createGraphTensor",
    subject="memory",
    cases=preset_data,
)
def pre_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Data at creation answers 7004."""
    count = _judge_preset(case, trace, TensorMemType.RAW, "clientBuf.data is NULL at creation")
    return Examined(count, "RAW tensors created with data")


def hinted(facts: MemoryFacts) -> Cases:
    """PRE-04: graphs created with the hint; every other time with a look at what the hint changes."""

    def core(scene: Scene, tape: Tape) -> None:
        if not tape.chance(2):
            hints = 7 - tape.below(7)
            name = graph(scene, tape, tuple(hints >> tensor & 1 for tensor in range(3)))
            if name and len(scene.graphs[name].shape) > _USUAL_RANK:
                _compare(scene, name)
        elif watched(scene, tape, HINTED):
            watched(scene, tape, PLAIN)

    return scenes(facts, core)


_USUAL_RANK = 4
"""Of a tensor. No document names the ranks that a backend must take, and libQnnHtp refuses an addition of
rank 6 with or without the hint: above this rank the graph is composed without it as well."""


def _compare(scene: Scene, name: str) -> None:
    """The same graph without a hint before the one that has hints."""
    made = scene.graphs[name]
    plain = msgspec.structs.replace(made, graph=scene.name("g"), mem_types=())
    scene.steps.insert(scene.steps.index(made), plain)


def _composes(case: MemoryCase, trace: MemoryTrace, made: Prepare) -> bool:
    """A graph of so many dimensions is composed without hints; of fewer ones it is known that they are."""
    return len(made.shape) <= _USUAL_RANK or any(
        isinstance(step, Prepare)
        and seen.code == 0
        and (step.op, step.dtype, step.shape, any(step.mem_types)) == (made.op, made.dtype, made.shape, False)
        for step, seen in zip(case.steps, trace.steps, strict=False)
    )


@rule(
    "PRE-04",
    Level.MUST,
    "An IO tensor created with memory type MEMHANDLE and a NULL handle is accepted as a hint that memory "
    "handles will be used, and the hint takes effect.",
    source="seed 001, Online Prepare",
    subject="memory",
    cases=hinted,
    weight=0.5,
)
def pre_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Creation, node and finalise answer 0; no IO buffers appear where raw preparation shows some.

    The effect can be judged only where a graph prepared raw shows its IO buffers to an observer outside.
    """
    require_operator(trace)
    _require_hint(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Prepare)):
        step = walked.step
        if isinstance(step, Prepare) and TensorMemType.MEMHANDLE in step.mem_types:
            if walked.code != 0 and not _composes(case, trace, step):
                continue
            demand_code(walked, {0}, "the tensors carry the hint")
            count += 1
    require_prepared(case, trace)
    found = rows(case, trace)
    # Seed 001 says of the HTP alone what the hint does.
    is_htp = facts_of(trace).backend_id == HTP_BACKEND_ID
    raw_has_buffers = is_htp and any(row.raw and row.at_prepare for row in found)
    for row in found:
        if raw_has_buffers and not row.raw and row.at_prepare:
            seen = f"{len(row.at_prepare)} of them at preparation"
            raise Violation("no IO buffers: every tensor carries the hint", seen, f"step {row.step}, prepare")
    return Examined(count, "graphs created with the hint")


_CREATE = "QnnTensor.h: QnnTensor_createGraphTensor"
_PARAMETER = int(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)


def _prepared(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[Walked, Prepare]]:
    require_operator(trace)
    for walked in walk(case, trace):
        if isinstance(walked.step, Prepare) and walked.seen.code is not None:
            yield walked, walked.step


def _creations(seen: StepSeen) -> list[int]:
    """Low 16 bits of the creations' codes, in the order of the tensors."""
    return [low(code) for call, code in seen.calls if call == CREATE_TENSOR]


def _refused(walked: Walked) -> str:
    """The call that ended the preparation, with its code; empty if none did."""
    return f"{walked.seen.calls[-1][0]} answers {named(walked.seen.code or 0)}" if walked.seen.code else ""


def _demand(walked: Walked, seen: int, codes: frozenset[int], because: str) -> None:
    if seen not in codes:
        raise Violation(f"{one_of(codes)}: {because}", named(seen), place(walked))


def _demand_outputs(case: MemoryCase, trace: MemoryTrace, graphs: set[str], because: str) -> int:
    """Executes of ``graphs`` gave the right output; gives how many."""
    try:
        require_execution(trace)
    except Unsupported:
        return 0
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, Execute) and step.graph in graphs and walked.allowed.valid and walked.code:
            raise FailedCall(f"success: {because}", named(walked.code), place(walked))
    count = 0
    for seen in compare(case, trace):
        if seen.made is None or seen.made.graph not in graphs or seen.where != "output":
            continue
        if seen.difference:
            raise WrongOutput(f"the right output: {because}", seen.difference, place(seen.walked))
        count += 1
    return count


def _made(scene: Scene, tape: Tape, *, binary: bool = False) -> Prepare | None:
    """A graph in a context of its own, not yet among the steps; None where no operator fits."""
    fitting = tuple(pair for pair in scene.operators if arity(pair[0]) == 2 or not binary)
    if not fitting:
        return None
    op, dtype = tape.pick(fitting)
    shape = scene.scale.of_graph(tape.pick(ODD_SHAPES), dtype)
    return Prepare(scene.name("g"), scene.context(), op, dtype, shape)


def _again(scene: Scene, made: Prepare, **fields: object) -> Prepare:
    """Prepare the same graph under another name, with some things changed."""
    other = msgspec.structs.replace(made, graph=scene.name("g"), **fields)
    scene.add(other)
    return other


def _execute(scene: Scene, made: Prepare, seed: int) -> None:
    """Execute with raw memory."""
    inputs = io_inputs(made)
    scene.add(
        Execute(made.graph, (*(Binding(seed=seed + position) for position in range(inputs)), Binding()))
    )


def weights(facts: MemoryFacts) -> Cases:
    """PRE-03: STATIC tensors whose memory is used for something else at once, or that have none."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape, binary=True)
        if made is None:
            return
        seed, inputs = tape.below(16), tape.below(16)
        _execute(scene, _again(scene, made, weights=seed), inputs)
        if tape.below(2):
            _again(scene, made, weights=seed, weights_as="null")
        else:
            _execute(scene, _again(scene, made, weights=seed, weights_as="scribbled"), inputs)

    return scenes(facts, core)


@rule(
    "PRE-03",
    Level.MUST,
    "QnnTensor_createGraphTensor refuses a STATIC tensor without data with "
    "QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM (7004); once created, the client may reuse the memory of the "
    "data.",
    source=_CREATE,
    subject="memory",
    cases=weights,
)
def pre_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """7004 without data; with data that is gone the output is that of a graph whose data stays, bit by bit.

    What the output should be is no matter here: a backend may fold a constant and so round ties otherwise.
    """
    count = 0
    for walked, step in _prepared(case, trace):
        if step.weights is None:
            continue
        codes = _creations(walked.seen)
        if step.weights_as == "null":
            if len(codes) >= arity(step.op):
                code = codes[arity(step.op) - 1]
                _demand(walked, code, frozenset({_PARAMETER}), "a STATIC tensor needs data")
                count += 1
            continue
        if step.weights_as == "kept" and walked.seen.code:
            raise Unsupported(f"with a STATIC input {_refused(walked)}")
        if step.weights_as == "scribbled":
            because = "the data of a STATIC tensor is copied at creation"
            if walked.seen.code:
                raise WrongRefusal(
                    f"success: {because}", _refused(walked), place(walked), call=call_name(step)
                )
    count += _demand_copied(case, trace)
    return Examined(count, "STATIC tensors without data, or with data that is gone")


def _demand_copied(case: MemoryCase, trace: MemoryTrace) -> int:
    """Graphs with scribbled weights give what those with kept ones give; gives how many were compared."""
    made: dict[str, Prepare] = {}
    kept: dict[tuple[object, ...], bytes] = {}
    count = 0
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, Prepare) and walked.seen.code == 0:
            made[step.graph] = step
        if not isinstance(step, Execute) or walked.seen.code != 0 or step.graph not in made:
            continue
        graph = made[step.graph]
        key = (graph.op, graph.dtype, graph.shape, graph.weights, step.bindings)
        if graph.weights_as == "kept":
            kept[key] = walked.seen.data[0]
        elif key in kept:
            difference = differs(kept[key], walked.seen.data[0], "UFIXED_POINT_8")
            if difference:
                wanted = "the output of the weights at creation: they are copied"
                raise Violation(wanted, difference, place(walked))
            count += 1
    return count


def native_hints(facts: MemoryFacts) -> Cases:
    """PRE-05: a NATIVE tensor without and with memory type MEMHANDLE."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape)
        if made is None:
            return
        _again(scene, made, relay=True)
        _again(scene, made, mem_types=(1,) * (arity(made.op) + 1))
        hinted = _again(scene, made, relay=True, relay_mem_type=1)
        if tape.below(2):
            _execute(scene, hinted, tape.below(16))

    return scenes(facts, core)


@rule(
    "PRE-05",
    Level.SHOULD,
    "QnnTensor_createGraphTensor accepts a NATIVE tensor of memory type MEMHANDLE.",
    source="ONNX Runtime's QNN execution provider creates such tensors",
    subject="memory",
    cases=native_hints,
)
def pre_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """What is prepared with a RAW NATIVE tensor is prepared, and gives the same numbers, with MEMHANDLE."""
    graphs: set[str] = set()
    for walked, step in _prepared(case, trace):
        if not step.relay:
            if any(step.mem_types) and walked.seen.code:
                raise Unsupported(f"with MEMHANDLE IO tensors {_refused(walked)}")
            continue
        if not step.relay_mem_type:
            if walked.seen.code:
                raise Unsupported(f"with a NATIVE tensor {_refused(walked)}")
            continue
        if walked.seen.code:
            demanded = "success: the NATIVE tensor carries MEMHANDLE"
            raise WrongRefusal(demanded, _refused(walked), place(walked), call=call_name(step))
        graphs.add(step.graph)
    _demand_outputs(case, trace, graphs, "the NATIVE tensor carries MEMHANDLE")
    return Examined(len(graphs), "graphs with a NATIVE tensor of memory type MEMHANDLE")


def unknown_types(facts: MemoryFacts) -> Cases:
    """PRE-06: IO tensors of a memory type that there is not."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape)
        if made is None:
            return
        scene.add(made)
        position = tape.below(arity(made.op) + 1)
        types = tuple(tape.pick(OUTSIDE) if at == position else 0 for at in range(arity(made.op) + 1))
        _again(scene, made, mem_types=types)

    return scenes(facts, core)


@rule(
    "PRE-06",
    Level.SHOULD,
    "An IO tensor whose memory type is not in Qnn_TensorMemType_t is refused before its graph is finalised.",
    source=f"{_CREATE}, QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM, QNN_TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM",
    subject="memory",
    cases=unknown_types,
)
def pre_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A refusal, with any code, of the creation, of the node or of graphFinalize."""
    count = 0
    for walked, step in _prepared(case, trace):
        if not walked.allowed.only(Fault.MEM_TYPE):
            continue
        odd = next(kind for kind in step.mem_types if kind > TensorMemType.MEMHANDLE)
        demand_refused(walked, f"memory type {odd} is none")
        count += 1
    return Examined(count, "graphs with a tensor of an unknown memory type")


_MOST_SHOWN = 8
"""Ids of a message."""
_MANY = 16
"""Inputs of a graph that has 47 tensors."""


def watched_creations(facts: MemoryFacts) -> Cases:
    """PRE-07: graphs in one context, with a look at the structs of their tensors.

    In one of three cases they are of many tensors each, up to three hundred and more together.
    """

    def core(scene: Scene, tape: Tape) -> None:
        many = of_many(scene, tape.cut(4), _MANY if tape.chance(3) else 0)
        made = scene.graphs[many] if many else _made(scene, tape)
        if made is None:
            return
        for _ in range(1 + tape.below(7 if many else 3)):
            hints = tape.byte()
            types = tuple(hints >> tensor & 1 for tensor in range(arity(made.op) + 1))
            _again(scene, made, mem_types=types, watch=True, version=1 + tape.below(2))

    return scenes(facts, core)


@rule(
    "PRE-07",
    Level.MUST,
    "QnnTensor_createGraphTensor writes nothing but the tensor's id, and ids are unique within a context.",
    source=f"{_CREATE}, note on the id",
    subject="memory",
    cases=watched_creations,
)
def pre_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The structs byte by byte, and the ids of all tensors of each context."""
    count = 0
    known: dict[str, set[int]] = {}
    for walked, step in _prepared(case, trace):
        if not walked.allowed.valid or not step.watch:
            continue
        changed = walked.seen.counted(PrepareCounts).tensor_bytes_changed
        if changed:
            raise Violation("nothing but the id is written", f"{changed} other bytes", place(walked))
        made = sum(code == 0 for code in _creations(walked.seen))
        ids = walked.seen.values[1 : 1 + made]
        others = known.setdefault(step.context, set())
        again = sorted(each for each, times in Counter((*others, *ids)).items() if times > 1)
        if again:
            shown = ", ".join(map(str, again[:_MOST_SHOWN])) + (", ..." if again[_MOST_SHOWN:] else "")
            seen = f"{counted(len(again), 'id')} given twice, of {len(others) + made} tensors: {shown}"
            raise Violation("ids that are unique within the context", seen, place(walked))
        others.update(ids)
        count += made
    return Examined(count, "tensors created")


def versions(facts: MemoryFacts) -> Cases:
    """PRE-08: the same preparation with tensors of version 1 and of version 2."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape)
        if made is None:
            return
        count = arity(made.op) + 1
        hints, chosen = tape.byte(), tape.below(1 << count)
        types = tuple(hints >> tensor & 1 for tensor in range(count))
        preset = tuple(bool(chosen >> tensor & 1) for tensor in range(count)) if tape.below(2) else ()
        for version in (1, 2):
            other = _again(scene, made, mem_types=types, preset=preset, version=version)
            if not any(preset):
                _execute(scene, other, 5)

    return scenes(facts, core)


@rule(
    "PRE-08",
    Level.MUST,
    "QnnTensor_createGraphTensor answers tensors of version 1 and of version 2 alike.",
    source=f"QnnTypes.h: Qnn_Tensor_t, version; {_CREATE}",
    subject="memory",
    cases=versions,
)
def pre_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Both versions of a preparation are answered alike, call by call, and give the right numbers."""
    first: list[tuple[str, int]] | None = None
    graphs: set[str] = set()
    count = 0
    for walked, step in _prepared(case, trace):
        if not step.graph.startswith("g") or not walked.allowed.specified:
            continue
        calls = [(call, low(code)) for call, code in walked.seen.calls]
        if step.version == 1:
            first = calls
        elif first is not None:
            _require_version_two(trace, first, calls)
            demanded = f"{_said(first)}, as with version 1"
            if calls != first and walked.code:
                raise WrongRefusal(demanded, _said(calls), place(walked), call=call_name(step))
            if calls != first:
                raise Violation(demanded, _said(calls), place(walked))
            count += 1
            if walked.code == 0:
                graphs.add(step.graph)
    _demand_outputs(case, trace, graphs, "the tensors are of version 2")
    return Examined(count, "preparations with tensors of version 2")


def _require_version_two(
    trace: MemoryTrace, first: list[tuple[str, int]], calls: list[tuple[str, int]]
) -> None:
    """Raise Unsupported where an older API may have had no tensors of version 2, and they are refused.

    Clients ask whether QnnTypes.h has QNN_TENSOR_V2_INIT (GStreamer's qtimlqnn does): there are headers that
    have version 1 only. Such a backend cannot read the other one, which is told from a refusal alone.
    """
    offered = facts_of(trace).core_version
    is_older = (0, 0) < offered[:2] < API_VERSION[:2]
    if is_older and not any(code for _, code in first) and calls[-1][0] == CREATE_TENSOR and calls[-1][1]:
        older = ".".join(map(str, offered))
        raise Unsupported(f"of API {older}: {_said(calls)} of a tensor of version 2", final=False)


def _said(calls: list[tuple[str, int]]) -> str:
    """The call that ended a preparation."""
    call, code = calls[-1]
    return f"{call} answers {named(code)}"


def node_types(facts: MemoryFacts) -> Cases:
    """PRE-09: memory types at creation, and others in the structs that the node is given."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape)
        if made is None:
            return
        count = arity(made.op) + 1
        hints = tape.below(1 << count)
        types = tuple(hints >> tensor & 1 for tensor in range(count))
        others = tuple(1 - kind for kind in types)
        scene.add(msgspec.structs.replace(made, mem_types=types, node_mem_types=others))
        scene.add(GetBinary(made.context, "bin0"))
        scene.add(Inspect("bin0"))

    return scenes(facts, core)


@rule(
    "PRE-09",
    Level.MAY,
    "The memory type of a tensor is that of its creation, whatever the structs of its node say.",
    source="what libQnnHtp does on x86-64; seed 001 gives the hint by both calls, and no document says "
    "which of the two counts",
    subject="memory",
    cases=node_types,
    gate=("202",),
)
def pre_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """As the context binary records it: judged where binaries can be written and looked into."""
    made: tuple[Walked, Prepare] | None = None
    count = 0
    require_operator(trace)
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, Prepare) and step.node_mem_types:
            if walked.seen.code:
                raise Unsupported(f"with mixed memory types {_refused(walked)}")
            made = walked, step
        if isinstance(step, Inspect) and made is not None and walked.seen.code == 0:
            if len(walked.seen.values) != len(made[1].mem_types):
                continue  # There are other graphs in the binary, and no document gives their order.
            if walked.seen.values != made[1].mem_types:
                wanted = f"memory types {list(made[1].mem_types)}, those of the creation"
                raise Violation(wanted, f"{list(walked.seen.values)}", place(walked))
            count += 1
    if made is not None and not count:
        raise Unsupported("the context binary cannot be written or looked into")
    return Examined(count, "graphs whose nodes say other memory types")
