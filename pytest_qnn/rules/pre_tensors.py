"""PRE: what is copied, written and remembered when tensors are created."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.abi.qnn_codes import Error, TensorMemType, low
from pytest_qnn.cases import memory_tensor_strategies as strategies
from pytest_qnn.cases.memory import Execute, Inspect, MemoryCase, Prepare
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.oracle.memory import Walked, walk
from pytest_qnn.oracle.memory_codes import named, one_of
from pytest_qnn.oracle.memory_contents import compare, differs
from pytest_qnn.oracle.qnn_ops import inputs_of
from pytest_qnn.rules.memory_graph_support import CREATE_TENSOR, require_execution
from pytest_qnn.rules.memory_support import place, require_operator
from pytest_qnn.trace import MemoryTrace, StepSeen

_CREATE = "QnnTensor.h: QnnTensor_createGraphTensor"
_PARAMETER = int(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)
_OUTSIDE = frozenset({_PARAMETER, int(Error.TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM)})


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
            raise Violation(f"success: {because}", named(walked.code), place(walked))
    count = 0
    for seen in compare(case, trace):
        if seen.made is None or seen.made.graph not in graphs or seen.where != "output":
            continue
        if seen.difference:
            raise Violation(f"the right output: {because}", seen.difference, place(seen.walked))
        count += 1
    return count


@rule(
    "PRE-03",
    Level.MUST,
    "A STATIC tensor has its data at creation; the client's memory is free for other use afterwards.",
    source=_CREATE,
    subject="memory",
    cases=strategies.weights,
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
            if len(codes) >= inputs_of(step.op):
                code = codes[inputs_of(step.op) - 1]
                _demand(walked, code, frozenset({_PARAMETER}), "a STATIC tensor needs data")
                count += 1
            continue
        if step.weights_as == "kept" and walked.seen.code:
            raise Unsupported(f"with a STATIC input {_refused(walked)}")
        if step.weights_as == "scribbled":
            because = "the data of a STATIC tensor is copied at creation"
            if walked.seen.code:
                raise Violation(f"success: {because}", _refused(walked), place(walked))
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


@rule(
    "PRE-05",
    Level.SHOULD,
    "A NATIVE tensor may carry memory type MEMHANDLE.",
    source="ONNX Runtime's QNN execution provider creates such tensors",
    subject="memory",
    cases=strategies.native_hints,
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
            raise Violation("success: the NATIVE tensor carries MEMHANDLE", _refused(walked), place(walked))
        graphs.add(step.graph)
    _demand_outputs(case, trace, graphs, "the NATIVE tensor carries MEMHANDLE")
    return Examined(len(graphs), "graphs with a NATIVE tensor of memory type MEMHANDLE")


@rule(
    "PRE-06",
    Level.SHOULD,
    "An IO tensor of a memory type that is none is refused when it is created.",
    source=f"{_CREATE}, QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM, QNN_TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM",
    subject="memory",
    cases=strategies.unknown_types,
)
def pre_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """7004 or 7005."""
    count = 0
    for walked, step in _prepared(case, trace):
        if not walked.allowed.only("mem-type"):
            continue
        first = next(at for at, kind in enumerate(step.mem_types) if kind > TensorMemType.MEMHANDLE)
        codes = _creations(walked.seen)
        if len(codes) > first:
            because = f"memory type {step.mem_types[first]} is none"
            _demand(walked, codes[first], _OUTSIDE, because)
            count += 1
    return Examined(count, "tensors created with an unknown memory type")


@rule(
    "PRE-07",
    Level.MUST,
    "A creation writes nothing but the id, and ids are unique within the context.",
    source=f"{_CREATE}, note on the id",
    subject="memory",
    cases=strategies.watched_creations,
)
def pre_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The structs byte by byte, and the ids of all tensors of each context."""
    count = 0
    known: dict[str, set[int]] = {}
    for walked, step in _prepared(case, trace):
        if not walked.allowed.valid or not step.watch:
            continue
        changed = walked.seen.counts.get("tensor_bytes_changed", 0)
        if changed:
            raise Violation("nothing but the id is written", f"{changed} other bytes", place(walked))
        made = sum(code == 0 for code in _creations(walked.seen))
        ids = walked.seen.values[1 : 1 + made]
        others = known.setdefault(step.context, set())
        if len(set(ids)) < made or not others.isdisjoint(ids):
            seen = f"{list(ids)} beside {sorted(others)}"
            raise Violation("ids that are unique within the context", seen, place(walked))
        others.update(ids)
        count += made
    return Examined(count, "tensors created")


@rule(
    "PRE-08",
    Level.MUST,
    "The same holds for tensors of version 1 and of version 2.",
    source=f"QnnTypes.h: Qnn_Tensor_t, version; {_CREATE}",
    subject="memory",
    cases=strategies.versions,
)
def pre_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Both versions of a preparation are answered alike, call by call, and give the right numbers."""
    first: list[tuple[str, int]] | None = None
    graphs: set[str] = set()
    count = 0
    for walked, step in _prepared(case, trace):
        if not step.graph.startswith("g") or not walked.allowed.settled:
            continue
        calls = [(call, low(code)) for call, code in walked.seen.calls]
        if step.version == 1:
            first = calls
        elif first is not None:
            if calls != first:
                raise Violation(f"{_said(first)}, as with version 1", _said(calls), place(walked))
            count += 1
            if walked.code == 0:
                graphs.add(step.graph)
    _demand_outputs(case, trace, graphs, "the tensors are of version 2")
    return Examined(count, "preparations with tensors of version 2")


def _said(calls: list[tuple[str, int]]) -> str:
    """The call that ended a preparation."""
    call, code = calls[-1]
    return f"{call} answers {named(code)}"


@rule(
    "PRE-09",
    Level.SHOULD,
    "The memory type of a tensor is that of its creation, whatever the node's structs say.",
    source="seed 001, Online Prepare; libQnnHtp on x86-64",
    subject="memory",
    cases=strategies.node_types,
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
            if walked.seen.values != made[1].mem_types:
                wanted = f"memory types {list(made[1].mem_types)}, those of the creation"
                raise Violation(wanted, f"{list(walked.seen.values)}", place(walked))
            count += 1
    if made is not None and not count:
        raise Unsupported("the context binary cannot be written or looked into")
    return Examined(count, "graphs whose nodes say other memory types")
