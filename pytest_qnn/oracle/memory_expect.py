"""What a step may be answered with: one function per kind of call, over the state of a `Model`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.cases.memory import (
    NULL,
    AnyStep,
    ContextCreate,
    ContextFree,
    Deregister,
    Execute,
    Prepare,
    Register,
)
from pytest_qnn.oracle.memory_binaries import EXPECT, context_create
from pytest_qnn.oracle.memory_external import register_notes
from pytest_qnn.oracle.memory_register import descriptor_faults
from pytest_qnn.oracle.memory_relations import relations
from pytest_qnn.oracle.memory_sections import EXPECT_SECTIONS
from pytest_qnn.oracle.memory_state import Allowed, Graph, Identity, Registration, identity, tensor_bytes
from pytest_qnn.oracle.memory_unusual import execute_faults, prepare_faults

if TYPE_CHECKING:
    from pytest_qnn.oracle.memory import Model

Faults = dict[str, frozenset[int]]

SUCCESS: frozenset[int] = frozenset({0})
NO_CALL = Allowed(frozenset())
_ARGUMENT = frozenset({int(Error.MEM_ERROR_INVALID_ARGUMENT)})
_HANDLE = frozenset({int(Error.MEM_ERROR_INVALID_HANDLE)})
_CONTEXT = frozenset({int(Error.CONTEXT_ERROR_INVALID_HANDLE)})
_GRAPH = frozenset({int(Error.GRAPH_ERROR_INVALID_HANDLE)})
_TENSOR = frozenset({int(Error.GRAPH_ERROR_INVALID_TENSOR)})
_PARAMETER = frozenset({int(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)})
_READ_ONLY = frozenset({int(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)})
_LOOSE = _TENSOR | {int(Error.GRAPH_ERROR_INVALID_ARGUMENT)}


def expect(model: Model, step: AnyStep) -> Allowed:
    """What ``step`` may be answered with now."""
    handler = _HANDLERS.get(type(step))
    return handler(model, step) if handler else NO_CALL


def _allowed(faults: Faults, notes: set[str], *, settled: bool) -> Allowed:
    codes = frozenset[int]().union(*faults.values()) if faults else SUCCESS
    return Allowed(codes, frozenset(faults), frozenset(notes), settled=settled)


def _context_free(model: Model, step: ContextFree) -> Allowed:
    if model.context_lives(step.context):
        return Allowed(SUCCESS)
    fault = "dead-context" if step.context in model.contexts else "bad-context"
    return Allowed(_CONTEXT, frozenset({fault}), settled=not model.context_alias(step.context))


def _register(model: Model, step: Register) -> Allowed:
    faults: Faults = {}
    notes: set[str] = set()
    settled = True
    if step.null_descriptors:
        faults["null-descriptors"] = _ARGUMENT
    if step.null_handles:
        faults["null-handles"] = _ARGUMENT
    count = len(step.descriptors) if step.count is None else step.count
    if count == 0:
        faults["count-zero"] = _ARGUMENT | SUCCESS
    if not model.context_lives(step.context):
        faults["bad-context"] = _HANDLE
        settled = not model.context_alias(step.context)
    before: list[Identity] = []
    for descriptor in step.descriptors[:count]:
        wrong, vague = descriptor_faults(model, step.context, descriptor, before)
        faults |= wrong
        settled = settled and not vague
        this = identity(step.context, descriptor)
        notes.add(f"after:{model.history[this]}" if this in model.history else "fresh")
        buffer = model.buffers.get(descriptor.buffer)
        if buffer is not None and buffer.size > tensor_bytes(descriptor.shape, descriptor.dtype):
            notes.add("larger")
        before.append(this)
    _note_others(model, step, set(before), notes)
    notes |= register_notes(model, step) | relations(model, step)
    return _allowed(faults, notes, settled=settled)


def _note_others(model: Model, step: Register, wanted: set[Identity], notes: set[str]) -> None:
    buffers = {this[1] for this in wanted}
    for found in model.live().values():
        if found.context != step.context and found.descriptor.buffer in buffers:
            notes.add("other-context")
        elif found.identity in wanted:
            notes |= _survived(found)


def _survived(found: Registration) -> set[str]:
    return {f"survived:{event}" for event in found.witnessed}


def _deregister(model: Model, step: Deregister) -> Allowed:
    faults: Faults = {}
    notes: set[str] = set()
    settled = True
    if step.null_handles:
        faults["null-handles"] = _ARGUMENT
    count = len(step.handles) if step.count is None else step.count
    if count == 0:
        faults["count-zero"] = _ARGUMENT | SUCCESS
    for position, name in enumerate(step.handles[:count]):
        found = model.registrations.get(name)
        if found is None:
            faults["bad-handle"] = _HANDLE
            settled = settled and not model.context_as_handle(name)
        elif found.life == "dead":
            faults["dead-handle"] = _HANDLE
            settled = settled and not model.handle_alias(name)
        elif found.life != "live":
            settled = False
            notes.add(f"{found.life}-handle")
        elif name in step.handles[:position]:
            faults["repeated-handle"] = _HANDLE
        elif found.fixed:
            faults["fixed-handle"] = frozenset()
            settled = settled and not model.contexts[found.context].failed
        else:
            notes |= {"taken-back"} if found.role else set()
            notes |= _survived(found)
    return _allowed(faults, notes, settled=settled)


def _prepare(model: Model, step: Prepare) -> Allowed:
    if not model.context_lives(step.context):
        settled = not model.context_alias(step.context)
        return _allowed({"bad-context": _GRAPH}, set(), settled=settled)
    if model.contexts[step.context].binary is not None:
        return _allowed({"read-only": _READ_ONLY}, set(), settled=True)
    if any(step.preset):
        return _allowed({"preset": _PARAMETER}, set(), settled=True)
    faults, vague = prepare_faults(step)
    settled = not vague if faults else (step.op, step.dtype) in model.facts.operators
    return _allowed(faults, set(), settled=settled)


def _execute(model: Model, step: Execute) -> Allowed:
    graph = model.graphs.get(step.graph)
    if graph is None or not graph.live:
        return _allowed({"bad-graph": _GRAPH}, set(), settled=graph is None)
    notes: set[str] = set()
    faults, vague = execute_faults(step, graph, notes)
    if len(step.bindings) != graph.inputs + 1:
        faults["arity"] = _LOOSE
    vague = _in_place(model, step, graph, notes) or vague
    for binding in step.bindings:
        if binding.kind != "handle":
            notes.add("raw")
            continue
        notes.add("handles")
        found = model.registrations.get(binding.handle)
        if found is not None and found.life in ("live", "dead"):
            fault, unsure = _bound(model, graph, binding.handle, found, notes)
            vague = vague or unsure
        elif found is not None:
            fault, vague = "", True
            notes.add(f"{found.life}-handle")
        else:
            fault = "null-handle" if binding.handle == NULL else "bad-handle"
            vague = vague or model.context_as_handle(binding.handle)
        if fault:
            faults[fault] = _LOOSE if fault == "short-handle" else _TENSOR
    return _allowed(faults, notes, settled=not vague)


def _bound(model: Model, graph: Graph, name: str, found: Registration, notes: set[str]) -> tuple[str, bool]:
    """What is wrong with a handle that was made, and whether documents leave it open."""
    if found.life == "dead":
        return "dead-handle", model.handle_alias(name)
    notes |= _survived(found)
    if found.context != graph.context:
        return "foreign-handle", model.handle_alias(name)
    if found.role:
        notes.add("external-handle")
        return "", True
    if found.bytes < graph.bytes:
        return "short-handle", False
    buffer = model.buffers.get(found.descriptor.buffer)
    freed = buffer is None or not buffer.live
    if freed:
        notes.add("freed-buffer")
    return "", freed


def _in_place(model: Model, step: Execute, graph: Graph, notes: set[str]) -> bool:
    """An output lies on other memory of the same execute: the result is unspecified (EXE-20)."""
    spans = [
        (position >= graph.inputs, found.descriptor.buffer, found.descriptor.offset, found.bytes)
        for position, binding in enumerate(step.bindings)
        if binding.kind == "handle" and (found := model.registrations.get(binding.handle)) is not None
    ]
    outputs = [span[1:] for span in spans if span[0]]
    inputs = [span[1:] for span in spans if not span[0]]
    clash = any(_overlap(a, b) for a in outputs for b in inputs)
    if clash:
        notes.add("in-place")
    return clash


def _overlap(a: tuple[str, int, int], b: tuple[str, int, int]) -> bool:
    return a[0] == b[0] and a[1] < b[1] + b[2] and b[1] < a[1] + a[2]


_HANDLERS: dict[type[Any], Callable[[Any, Any], Allowed]] = {
    **EXPECT,
    **EXPECT_SECTIONS,
    ContextCreate: context_create,
    ContextFree: _context_free,
    Register: _register,
    Deregister: _deregister,
    Prepare: _prepare,
    Execute: _execute,
}
