"""Steps on context binaries: written, read, deferred, looked into; also while descriptors are scarce."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from pytest_qnn.isolation.host import library_files
from pytest_qnn.isolation.libc import few_descriptors
from pytest_qnn.isolation.observe import control_words
from pytest_qnn.qnn.abi.codes import ContextOption
from pytest_qnn.qnn.abi.layouts import ContextConfig, ContextProperty, HtpContextProperty
from pytest_qnn.qnn.abi.system import SYSTEM_VERSION, BinaryInfoP, GetSystemProviders, SystemInterfaceP
from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.case import FLIPPED_BYTES, Damage
from pytest_qnn.qnn.reference.system import ReferenceSystem
from pytest_qnn.qnn.runner.asynchronous import Entry, create_listed
from pytest_qnn.qnn.runner.client import UNTOUCHED, array_of
from pytest_qnn.qnn.runner.graphs import operator_of
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.library import QnnEntry, serves
from pytest_qnn.qnn.runner.state import Context, Graph, NeverMade, Skip, State
from pytest_qnn.qnn.trace import InspectCounts, StepSeen, WrittenCounts

T = TypeVar("T")


RELEASED = 0xEE
_GUARD = 64
"""Bytes behind the buffer of a binary that must stay as they are."""
_UNTOUCHED = 0x5555555555555555
_NO_OPTION = 0x7FFFFFFE
"""Of no enumeration of QNN."""
_MOST = 1 << 30
"""Bytes of the largest binary that is fetched: no graph of the suite needs as many."""
_LIMIT = 1
"""MB that graphs may hold while others run: a limit, which is what asks for switching."""


@handles(case.GetBinary)
def get_binary(state: State, step: case.GetBinary) -> StepSeen:
    """QnnContext_getBinarySize, then QnnContext_getBinary.

    ``calls``, ``code``: as for `Prepare`; ``values``: (size that was answered, bytes written),
    0x5555555555555555 where untouched; ``data``: the binary, if the step says ``keep``. A size that cannot be
    is not asked for.
    """
    context = _context(state, step.context)
    size = ctypes.c_uint64(_UNTOUCHED)
    out = None if step.null == "size" else ctypes.byref(size)
    calls = [("contextGetBinarySize", state.client.call("contextGetBinarySize", context, out))]
    if calls[0][1] or step.null == "size" or size.value > _MOST:
        return StepSeen(code=calls[0][1], calls=tuple(calls), values=(size.value, _UNTOUCHED))
    room = max(0, size.value - step.missing)
    buffer = (ctypes.c_uint8 * (room + _GUARD))()
    ctypes.memset(buffer, RELEASED, room + _GUARD)
    written = ctypes.c_uint64(_UNTOUCHED)
    code = state.client.call(
        "contextGetBinary",
        context,
        None if step.null == "buffer" else ctypes.addressof(buffer),
        room,
        None if step.null == "written" else ctypes.byref(written),
    )
    calls.append(("contextGetBinary", code))
    data = bytes(buffer)
    if code == 0 and written.value <= room:
        state.binaries[step.binary] = data[: written.value]
        state.written[step.binary] = dict(state.graphs)
    counts = WrittenCounts(
        overrun=_GUARD - data[room:].count(RELEASED),
        touched=room - data[:room].count(RELEASED) if code else 0,
    )
    kept = step.keep and step.binary in state.binaries and code == 0
    return StepSeen(
        code=code,
        calls=tuple(calls),
        values=(size.value, written.value),
        data=(state.binaries[step.binary],) if kept else (),
        counts=counts,
    )


@handles(case.ContextFromBinary)
def context_from_binary(state: State, step: case.ContextFromBinary) -> StepSeen:
    """QnnContext_createFromBinary, or another call (``by``); ``values``: (handle,).

    Of createFromBinaryListAsync: `pytest_qnn.qnn.runner.asynchronous.create_listed`. After a refusal that has
    written a handle: (handle, what contextFree answers to it).
    """
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    if step.binary not in state.binaries:
        raise NeverMade(f"binary {step.binary} was never made")
    data = _damaged(state.binaries[step.binary], step.damage)
    held = ctypes.create_string_buffer(data, max(1, len(data)))
    config, kept = configuration(step.defer, step.beside, switching=step.switching)
    # What is given must stay until contextFinalize of a deferred context; here, to the end of the case.
    state.held.append((held, kept))
    out = ctypes.c_void_p(UNTOUCHED)
    if step.by.startswith("list"):
        seen = _create_listed(state, step, Entry(config, held, len(data)), out)
    else:
        seen = StepSeen(code=_create(state, step, config, held, len(data), out))
    if seen.skipped:
        return seen
    if seen.code == 0:
        graphs = state.written.get(step.binary, {})
        made = Context(out.value or 0, held=held, held_size=len(data), graphs=graphs)
        if kept is not None:
            listed, options, behind = kept
            made.config = (listed, *options, *behind)
        state.take_context(step.context, made)
    values: tuple[int, ...] = (out.value or 0,)
    if seen.code and out.value not in (None, UNTOUCHED):
        values = (*values, state.client.call("contextFree", out.value, None))
    return msgspec.structs.replace(seen, values=values)


def _create(
    state: State, step: case.ContextFromBinary, config: int | None, held: Any, size: int, out: Any
) -> int:
    """The call that the step names, but for a list; its code, and the handle in ``out``."""
    session, client = state.session, state.client
    place = (session.backend, session.device, config, ctypes.addressof(held), size, ctypes.byref(out), None)
    if step.by == "signal":
        return client.call("contextCreateFromBinaryWithSignal", *place, None)
    return client.call("contextCreateFromBinary", *place)


def _create_listed(state: State, step: case.ContextFromBinary, last: Entry, out: Any) -> StepSeen:
    """The step's context as the last of a list."""
    whole = state.binaries[step.binary]
    others = []
    for _ in range(step.ahead):
        held = ctypes.create_string_buffer(whole, max(1, len(whole)))
        state.held.append(held)
        others.append(Entry(last.config, held, len(whole)))
    entries, of_list = [*others, last], None
    if step.by == "list-config":
        entries, of_list = [each._replace(config=None) for each in entries], last.config
    return create_listed(state, entries, of_list, out)


@handles(case.ReleaseBinary)
def release_binary(state: State, step: case.ReleaseBinary) -> StepSeen:
    """Nothing is called: the client's bytes change, those of the binary and of its configuration."""
    context = state.contexts.get(step.context)
    if context is None or context.held is None:
        raise Skip(f"context {step.context} was not created from a binary")
    ctypes.memset(context.held, RELEASED, context.held_size)
    for each in context.config:
        ctypes.memset(ctypes.addressof(each), RELEASED, ctypes.sizeof(each))
    return StepSeen()


@handles(case.ContextFinalize)
def context_finalize(state: State, step: case.ContextFinalize) -> StepSeen:
    """QnnContext_finalize without a profile."""
    context = _context(state, step.context)
    few = contextlib.nullcontext() if step.descriptors is None else few_descriptors(step.descriptors)
    with few:
        code = state.client.call("contextFinalize", context, None)
    return StepSeen(code=code)


@handles(case.ContextProperty)
def context_property(state: State, step: case.ContextProperty) -> StepSeen:
    """QnnContext_getProperty; ``values``: each property after the call."""
    context = _context(state, step.context)
    asked = [HtpContextProperty(option=option, value=_UNTOUCHED) for option in step.options]
    # The list is of pointers. Whoever takes it for an array finds behind each property one that there is not.
    entries = [(ContextProperty * 2)() for _ in asked]
    for entry, each in zip(entries, asked, strict=True):
        entry[0].option, entry[0].customProperty = ContextOption.CUSTOM, ctypes.addressof(each)
        entry[1].option = _NO_OPTION
    listed = array_of(ctypes.c_void_p, len(entries) + 1)(*map(ctypes.addressof, entries), None)
    address = None if step.null_list else ctypes.addressof(listed)
    code = state.client.call("contextGetProperty", context, address)
    if code == 0 and step.context in state.contexts:
        state.contexts[step.context].said.update((each.option, each.value) for each in asked)
    return StepSeen(code=code, values=tuple(each.value for each in asked))


@handles(case.Retrieve)
def retrieve(state: State, step: case.Retrieve) -> StepSeen:
    """QnnGraph_retrieve; ``values``: the graph's handle."""
    context = _context(state, step.context)
    made = state.contexts.get(step.context)
    source = (made.graphs if made is not None else {}).get(step.source) or state.graphs.get(step.source)
    if source is None:
        raise NeverMade(f"graph {step.source} was never made")
    code, value = state.client.create("graphRetrieve", context, state.name_of_graph(source.step.graph))
    if code == 0:
        state.graphs[step.graph] = Graph(value, source.step, source.operator.again())
    return StepSeen(code=code, values=(value,))


@handles(case.Carry)
def carry(state: State, step: case.Carry) -> StepSeen:
    """Nothing is called: the client has these bytes, and knows the graphs in them."""
    for each in step.graphs:
        operator = operator_of(each.prepared)
        for tensor, number in zip(operator.tensors, each.ids, strict=False):
            tensor.v1.id = number
        state.graphs[each.prepared.graph] = Graph(0, each.prepared, operator)
    state.binaries[step.binary] = step.data
    return StepSeen()


@handles(case.NewProcess)
def new_process(state: State, step: case.NewProcess) -> StepSeen:
    """Whoever runs a case sees to other processes; within one, there is none."""
    del state, step
    raise Skip("the steps run in one process")


SYMBOL = "QnnSystemInterface_getProviders"
LIBRARY = "libQnnSystem.so"


class SystemUnusable(Exception):  # noqa: N818 - a finding about a named file, not an error of ours
    """There is no System interface beside the backend; the text says why."""


def describe(entry: QnnEntry, binary: bytes) -> tuple[int, tuple[int, ...], InspectCounts]:
    """Ask the System interface beside a backend about a binary.

    Returns:
        The code of the first call that failed, or 0. For each IO tensor, inputs of a graph first, in the
        order of the graphs' names: its memType. What there is in the binary.

    Raises:
        SystemUnusable: there is none.
    """
    code, found = of_binary(entry, binary, _read)
    return code, *(found or ((), InspectCounts()))


def of_binary(entry: QnnEntry, binary: bytes, read: Callable[[Any], T]) -> tuple[int, T | None]:
    """The code of the first call of the System interface that failed, or 0 and what ``read`` makes.

    ``read`` is given the `BinaryInfo`, which exists no longer than the call.

    Raises:
        SystemUnusable: there is no System interface beside the backend.
    """
    table = _table(entry.system)
    handle = ctypes.c_void_p()
    code: int = table.systemContextCreate(ctypes.byref(handle))
    if code:
        return code, None
    try:
        info, size = BinaryInfoP(), ctypes.c_uint64()
        held = ctypes.create_string_buffer(binary, len(binary))
        address, out = ctypes.addressof(held), ctypes.byref(info)
        code = table.systemContextGetBinaryInfo(handle, address, len(binary), out, ctypes.byref(size))
        return (code, None) if code else (code, read(info.contents))
    finally:
        table.systemContextFree(handle)


def _read(info: Any) -> tuple[tuple[int, ...], InspectCounts]:
    content = info.contextBinaryInfoV3
    graphs = [content.graphs[i].graphInfoV3 for i in range(content.numGraphs)]
    graphs.sort(key=lambda graph: graph.graphName or b"")
    inputs = [graph.graphInputs[i].v1 for graph in graphs for i in range(graph.numGraphInputs)]
    outputs = [graph.graphOutputs[i].v1 for graph in graphs for i in range(graph.numGraphOutputs)]
    each = [
        tensor
        for graph in graphs
        for tensor in (
            *(graph.graphInputs[i].v1 for i in range(graph.numGraphInputs)),
            *(graph.graphOutputs[i].v1 for i in range(graph.numGraphOutputs)),
        )
    ]
    data = sum(bool(tensor.clientBuf.data) for tensor in each)
    counts = InspectCounts(info.version, len(graphs), len(inputs), len(outputs), data)
    return tuple(tensor.memType for tensor in each), counts


@functools.cache
def _table(system: str) -> Any:
    """The functions of the System library at a path; of the reference's, where it is ``reference``."""
    if not system:
        raise SystemUnusable("the backend has no System interface")
    if system == "reference":
        made = ReferenceSystem()
        return _providers(made.get_providers, made)
    if not os.path.isfile(system):
        raise SystemUnusable(f"there is no {LIBRARY} beside the backend")
    flaw = library_files.flaw(system)
    if flaw:
        raise SystemUnusable(f"{system} {flaw}")
    try:
        with control_words.loading(system):
            library = ctypes.CDLL(system)
    except OSError as error:
        raise SystemUnusable(f"{system} cannot be loaded: {error}") from None
    if not hasattr(library, SYMBOL):
        raise SystemUnusable(f"{system} does not export {SYMBOL}")
    return _providers(GetSystemProviders((SYMBOL, library)), library)


def _providers(get_providers: Any, owner: Any) -> Any:
    listed, count = ctypes.POINTER(SystemInterfaceP)(), ctypes.c_uint32()
    code = get_providers(ctypes.byref(listed), ctypes.byref(count))
    there = [] if code or not listed else [listed[i].contents for i in range(count.value) if listed[i]]
    if not there:
        raise SystemUnusable(f"{SYMBOL} gave no provider (code {code})")
    # The table lies in the library, or in our own object: neither may go while the table is cached.
    _OWNERS.append(owner)
    return max(there, key=lambda each: serves(each.systemApiVersion, SYSTEM_VERSION)).implementation


_OWNERS: list[Any] = []
"""Whatever the tables lie in, for as long as the process lives."""


@handles(case.Inspect)
def inspect(state: State, step: case.Inspect) -> StepSeen:
    """QnnSystemContext_getBinaryInfo; see `describe`."""
    if step.binary not in state.binaries:
        raise NeverMade(f"binary {step.binary} was never made")
    try:
        code, values, counts = describe(state.client.entry, state.binaries[step.binary])
    except SystemUnusable as error:
        raise Skip(str(error)) from None
    return StepSeen(code=code, values=values, counts=counts)


def configuration(
    defer: bool | None, beside: tuple[int, ...] = (), *, switching: bool = False
) -> tuple[int | None, Any]:
    """The address of a NULL-terminated array of context options, and what it points to.

    ``switching``: the two options that ask for graph switching (documentation of the SDK, version 2.29, LoRA
    and graph switching).
    """
    made: list[Any] = []
    kept: list[Any] = []
    if defer is not None:
        option = ContextConfig(option=ContextOption.DEFER_GRAPH_INIT)
        option.isGraphInitDeferred = int(defer)
        made.append(option)
    for number in beside:
        # QnnHtpContext_CustomConfig_t: option, and a union of at most 16 bytes.
        custom = (ctypes.c_uint64 * 3)(number, 1, 0)
        kept.append(custom)
        option = ContextConfig(option=ContextOption.CUSTOM)
        option.customConfig = ctypes.addressof(custom)
        made.append(option)
    if switching:
        limit = ContextConfig(option=ContextOption.MEMORY_LIMIT_HINT)
        limit.memoryLimitHint = _LIMIT
        persistent = ContextConfig(option=ContextOption.PERSISTENT_BINARY)
        persistent.isPersistentBinary = 1
        made += (limit, persistent)
    if not made:
        return None, None
    listed = array_of(ctypes.c_void_p, len(made) + 1)(*map(ctypes.addressof, made), None)
    return ctypes.addressof(listed), (listed, made, kept)


def _context(state: State, name: str) -> int | None:
    state.session.open()
    return state.context_value(name)


def _damaged(data: bytes, damage: Damage) -> bytes:
    middle = len(data) // 2
    if damage in FLIPPED_BYTES:
        return _flipped(data, FLIPPED_BYTES.index(damage))
    ways: dict[Damage, bytes] = {
        "": data,
        "empty": b"",
        "truncated": data[:middle],
        "trailing": data + b"\0",
        "zeros": bytes(middle) + data[middle:],
        "flipped": data[:middle]
        + bytes(byte ^ 0x10 for byte in data[middle : middle + 1])
        + data[middle + 1 :],
        "flipped-end": data[:-1] + bytes(byte ^ 0x10 for byte in data[-1:]),
        # Without a pattern that a format could know.
        "garbage": bytes(itertools.islice(itertools.cycle(range(7, 251, 13)), len(data))),
    }
    return ways[damage]


def _flipped(data: bytes, number: int) -> bytes:
    """All bits changed of one byte of a sixteenth: the first from its middle on, then around, that is not 0.

    Between its sections a binary has thousands of zeros, which nobody reads.
    """
    begin, end = (len(data) * each // len(FLIPPED_BYTES) for each in (number, number + 1))
    middle = (begin + end) // 2
    at = next((at for at in (*range(middle, end), *range(begin, middle)) if data[at]), middle)
    return data[:at] + bytes(byte ^ 0xFF for byte in data[at : at + 1]) + data[at + 1 :]
