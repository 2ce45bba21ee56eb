"""Context binaries and contexts made from them: what their calls may answer, and what becomes of the model.

Faults, with the rules that give their codes; a fault whose set of codes is empty is refused with whatever
code, since no document names one.

GetBinary
    ``bad-context``, ``dead-context``, ``null-argument``, ``too-small``, ``unfinished`` (OFF-07),
    ``deserialised`` (OFF-07). An empty context is unsettled.
ContextFromBinary
    ``damaged`` (OFF-08; a flipped bit is unsettled: no document says that it must be noticed),
    ``incompatible`` (EXT-28). Notes: ``loaded``, ``deferred``.
ContextWithCallback
    Unsettled but for DMA buffers that begin with their piece, none of which is refused, and for binaries
    with graphs. Notes: ``provided``.
ContextFinalize
    ``bad-context``, ``dead-context``, ``nothing-pending`` (EXT-25). Notes: ``finalises``. Unsettled where
    descriptors are scarce, and after that has failed.
ContextProperty
    ``bad-context``, ``dead-context``, ``null-list``, ``unknown-option`` (EXT-04). Unsettled for contexts
    without deferred initialisation.
Retrieve
    ``bad-context``, ``dead-context``, ``pending`` (EXT-01), and unsettled for a graph that is none of the
    context's.
ContextCreate
    ``defer-create`` (EXT-02). Notes: ``not-deferred``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_qnn.abi.qnn_codes import Error, HtpContextConfigOption, HtpContextOption
from pytest_qnn.cases.memory import (
    AllocNeeded,
    Carry,
    ContextCreate,
    ContextFinalize,
    ContextFromBinary,
    ContextProperty,
    GetBinary,
    NewProcess,
    Retrieve,
)
from pytest_qnn.cases.memory_pieces import ContextWithCallback
from pytest_qnn.cases.memory_probes import FreeParent
from pytest_qnn.oracle.memory_state import Allowed, Buffer, Context, Graph
from pytest_qnn.trace import StepSeen

if TYPE_CHECKING:
    from pytest_qnn.oracle.memory import Model

Faults = dict[str, frozenset[int]]

_SUCCESS = frozenset({0})
_UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
_ARGUMENT = int(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
_CONTEXT = frozenset({int(Error.CONTEXT_ERROR_INVALID_HANDLE)})
_GRAPH = frozenset({int(Error.GRAPH_ERROR_INVALID_HANDLE)})
_PERMITTED = frozenset({int(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)})
_CONFIG = frozenset({int(Error.CONTEXT_ERROR_INVALID_CONFIG), _UNSUPPORTED})
MALFORMED = frozenset(
    {
        int(Error.CONTEXT_ERROR_CREATE_FROM_BINARY),
        int(Error.CONTEXT_ERROR_BINARY_VERSION),
        int(Error.CONTEXT_ERROR_BINARY_CONFIGURATION),
    }
)
"""QnnContext_createFromBinary: it cannot be deserialised, has another version, is not for this device."""
INCOMPATIBLE = frozenset(
    {
        int(HtpContextConfigOption.REGISTER_MULTI_CONTEXTS),
        int(HtpContextConfigOption.REGISTER_CONCURRENT_RESOURCE_SHARING),
        int(HtpContextConfigOption.USE_EXTENDED_UDMA),
    }
)
"""Seed 002, limitations: options of a context that exclude deferred initialisation."""
PROPERTIES = frozenset(map(int, HtpContextOption))
_FLIPPED = ("flipped", "flipped-end")


def _settle(faults: Faults, notes: set[str], *, settled: bool = True) -> Allowed:
    codes = frozenset[int]().union(*faults.values()) if faults else _SUCCESS
    return Allowed(codes, frozenset(faults), frozenset(notes), settled=settled)


def _no_context(model: Model, name: str, faults: Faults, codes: frozenset[int] = _CONTEXT) -> bool:
    """Enter the fault of a context that does not live; True if its value may be another's."""
    if model.context_lives(name):
        return False
    faults["dead-context" if name in model.contexts else "bad-context"] = codes
    return model.context_alias(name)


def context_create(model: Model, step: ContextCreate) -> Allowed:
    """Deferring is for what comes out of a binary; not deferring is the same as giving no option."""
    del model
    if step.defer:
        return _settle({"defer-create": _CONFIG}, set())
    return _settle({}, {"not-deferred"} if step.defer is False else set())


def _get_binary(model: Model, step: GetBinary) -> Allowed:
    faults: Faults = {}
    vague = _no_context(model, step.context, faults)
    if step.null:
        faults["null-argument"] = frozenset({_ARGUMENT})
    elif step.missing:
        faults["too-small"] = frozenset({int(Error.CONTEXT_ERROR_GET_BINARY_FAILED), _ARGUMENT})
    context = model.contexts.get(step.context)
    if context is not None and context.live:
        if context.binary is not None:
            faults["deserialised"] = _PERMITTED
        elif context.unfinished:
            faults["unfinished"] = frozenset({int(Error.CONTEXT_ERROR_NOT_FINALIZED)})
        else:
            vague = vague or not context.graphs
    return _settle(faults, set(), settled=not vague)


def _from_binary(model: Model, step: ContextFromBinary) -> Allowed:
    del model
    faults: Faults = {}
    notes = {"deferred" if step.defer else "loaded"}
    if step.defer is False:
        notes.add("not-deferred")
    if step.damage == "empty":
        faults["damaged"] = MALFORMED | {_ARGUMENT}
    elif step.damage:
        faults["damaged"] = MALFORMED
    if step.defer and (step.switching or INCOMPATIBLE.intersection(step.beside)):
        faults["incompatible"] = _CONFIG
    others = set(step.beside) - (INCOMPATIBLE if step.defer else set())
    return _settle(faults, notes, settled=not others and step.damage not in _FLIPPED)


def _with_callback(model: Model, step: ContextWithCallback) -> Allowed:
    """The trace says whether a piece was refused; that raw memory and offsets are taken no document says."""
    plain = step.memory == "dma" and not step.fails and not step.start
    return _settle({}, {"provided"}, settled=plain and bool(model.binaries.get(step.binary)))


def _finalize(model: Model, step: ContextFinalize) -> Allowed:
    faults: Faults = {}
    vague = _no_context(model, step.context, faults)
    context = model.contexts.get(step.context)
    if context is not None and context.live and not context.pending:
        faults["nothing-pending"] = frozenset({_UNSUPPORTED, _ARGUMENT})
    elif step.descriptors is not None or (context is not None and context.failed):
        vague = True
    return _settle(faults, set() if faults else {"finalises"}, settled=not vague)


def _property(model: Model, step: ContextProperty) -> Allowed:
    faults: Faults = {}
    vague = _no_context(model, step.context, faults) or not (step.options or step.null_list)
    if step.null_list:
        faults["null-list"] = frozenset({_ARGUMENT})
    elif not PROPERTIES.issuperset(step.options):
        faults["unknown-option"] = frozenset({_ARGUMENT, _UNSUPPORTED})
    context = model.contexts.get(step.context)
    if context is not None and context.live and not context.deferred:
        vague = True
    return _settle(faults, set(), settled=not vague)


def _retrieve(model: Model, step: Retrieve) -> Allowed:
    faults: Faults = {}
    vague = _no_context(model, step.context, faults, _GRAPH)
    context = model.contexts.get(step.context)
    if context is not None and context.live:
        if context.pending:
            faults["pending"] = frozenset()
        else:
            vague = step.source not in context.graphs
    return _settle(faults, set(), settled=not vague)


EXPECT: dict[type[Any], Callable[[Any, Any], Allowed]] = {
    GetBinary: _get_binary,
    ContextFromBinary: _from_binary,
    ContextWithCallback: _with_callback,
    ContextFinalize: _finalize,
    ContextProperty: _property,
    Retrieve: _retrieve,
}
"""As in `pytest_qnn.oracle.memory_expect`."""


def _follow_get_binary(model: Model, step: GetBinary, seen: StepSeen) -> None:
    context = model.contexts.get(step.context)
    if seen.code == 0 and not step.null and context is not None:
        model.binaries[step.binary] = dict(context.graphs)


def _follow_carry(model: Model, step: Carry, seen: StepSeen) -> None:
    del seen
    model.binaries[step.binary] = {each.prepared.graph: each.prepared for each in step.graphs}


def _follow_from_binary(model: Model, step: ContextFromBinary, seen: StepSeen) -> None:
    if seen.code != 0:
        return
    graphs = {} if step.damage else dict(model.binaries.get(step.binary, {}))
    value = seen.values[0] if seen.values else 0
    made = Context(value, graphs=graphs, binary=step.binary, deferred=bool(step.defer))
    made.pending = made.deferred
    model.contexts[step.context] = made


def _follow_with_callback(model: Model, step: ContextWithCallback, seen: StepSeen) -> None:
    _follow_from_binary(model, ContextFromBinary(step.context, step.binary), seen)


def _follow_finalize(model: Model, step: ContextFinalize, seen: StepSeen) -> None:
    context = model.contexts.get(step.context)
    if context is None or not context.pending or (seen.code != 0 and step.descriptors is None):
        return
    context.pending, context.failed = seen.code != 0, seen.code != 0
    for registration in model.live(step.context).values():
        registration.fixed = registration.role != 0


def _follow_property(model: Model, step: ContextProperty, seen: StepSeen) -> None:
    context = model.contexts.get(step.context)
    if seen.code == 0 and context is not None and not step.null_list:
        context.said.update(zip(step.options, seen.values, strict=False))


def _follow_retrieve(model: Model, step: Retrieve, seen: StepSeen) -> None:
    context = model.contexts.get(step.context)
    source = context.graphs.get(step.source) if context is not None else None
    if seen.code == 0 and source is not None:
        model.graphs[step.graph] = Graph.of(source, step.context, live=model.context_lives(step.context))


def _follow_needed(model: Model, step: AllocNeeded, seen: StepSeen) -> None:
    if len(seen.values) > 1 and seen.values[0]:
        model.buffers[step.buffer] = Buffer(seen.values[1])


def _follow_new_process(model: Model, step: NewProcess, seen: StepSeen) -> None:
    del step, seen
    model.forget_objects()


def _follow_free_parent(model: Model, step: FreeParent, seen: StepSeen) -> None:
    del step
    if seen.code == 0:
        model.end_contexts()


FOLLOW: dict[type[Any], Callable[[Any, Any, StepSeen], None]] = {
    GetBinary: _follow_get_binary,
    Carry: _follow_carry,
    ContextFromBinary: _follow_from_binary,
    ContextWithCallback: _follow_with_callback,
    ContextFinalize: _follow_finalize,
    ContextProperty: _follow_property,
    Retrieve: _follow_retrieve,
    AllocNeeded: _follow_needed,
    NewProcess: _follow_new_process,
    FreeParent: _follow_free_parent,
}
"""What becomes of the model: (model, step, seen)."""
