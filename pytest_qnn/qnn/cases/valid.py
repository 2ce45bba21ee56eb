"""QNN cases from files: numbers that the C types hold, and no more memory or work than a machine has."""

from __future__ import annotations

from typing import Any

from pytest_qnn.core.bounds import need, within
from pytest_qnn.qnn.abi.codes import LogLevel
from pytest_qnn.qnn.cases.case import (
    MOST_CALLS,
    Alloc,
    AllocNeeded,
    ApplySection,
    Binding,
    Capability,
    Carry,
    Churn,
    ContextFinalize,
    ContextFromBinary,
    ContextProperty,
    ContextWithCallback,
    Deregister,
    Descriptor,
    Environment,
    Execute,
    Fill,
    GetBinary,
    GetSection,
    MemoryCase,
    Message,
    Observe,
    Parallel,
    Prepare,
    Register,
    UpdateWeights,
    Write,
)
from pytest_qnn.qnn.cases.lives import INT_MAX, MOST_NEEDED, Spent

MOST_ROUNDS = 20_000
MOST_THREADS = 16
MOST_BESIDE = 1 << 20
"""Bytes before a piece of a binary in its memory."""
_U32 = (1 << 32) - 1
_KNOWN = (0, 1)
"""RAW, which is said by leaving ``mem_type`` out, and MEMHANDLE, which is said by ``kind``."""


def check_unusual(where: str, step: Any) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for numbers that no C type holds, or for too much work."""
    if isinstance(step, Execute):
        for positions in (step.inputs or (), step.outputs or ()):
            need(len(positions) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} tensors")
            for position in positions:
                within(f"{where}: the position of a tensor", position, 0, MOST_PARTS)
        within(f"{where}: asynchronous", step.asynchronous, 0, MOST_CALLS)
        for binding in step.bindings:
            _binding(where, binding)
    elif isinstance(step, Prepare):
        within(f"{where}: relay_mem_type", step.relay_mem_type, 0, _U32)
        need(len(step.node_mem_types) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} memory types")
        for mem_type in step.node_mem_types:
            within(f"{where}: a memory type of the node", mem_type, 0, _U32)
    elif isinstance(step, Message):
        within(f"{where}: error", step.error, 0, (1 << 64) - 1)
    elif isinstance(step, Environment):
        within(f"{where}: option", step.option, 0, _U32)
    elif isinstance(step, UpdateWeights | GetSection | ApplySection):
        number = step.weights if isinstance(step, UpdateWeights) else step.mem_type
        within(f"{where}: weights or mem_type", number, 0, _U32)
    elif isinstance(step, ContextWithCallback):
        within(f"{where}: fails", step.fails, 0, INT_MAX)
        within(f"{where}: start", step.start, 0, MOST_BESIDE)
    elif isinstance(step, Churn):
        within(f"{where}: rounds", step.rounds, 1, MOST_ROUNDS)
        within(f"{where}: tensors", step.tensors, 1, MOST_PARTS)
        within(f"{where}: mem_type", step.mem_type, 0, _U32)
    elif isinstance(step, Parallel):
        within(f"{where}: threads", step.threads, 1, MOST_THREADS)
        within(f"{where}: rounds", step.rounds, 1, MOST_ROUNDS // MOST_THREADS)
        within(f"{where}: mem_type", step.mem_type, 0, _U32)
        within(f"{where}: level", step.level, LogLevel.ERROR, LogLevel.DEBUG)
        within(f"{where}: lowered", step.lowered, 0, step.level)


def _binding(where: str, binding: Binding) -> None:
    within(f"{where}: short", binding.short, 0, INT_MAX)
    within(f"{where}: data_size", binding.data_size or 0, 0, _U32)
    if binding.mem_type is not None:
        within(f"{where}: mem_type", binding.mem_type, 0, _U32)
        need(binding.mem_type not in _KNOWN, f"{where}: memory type {binding.mem_type} is a kind of binding")


BinaryStep = Carry | GetBinary | ContextFromBinary | ContextFinalize | ContextProperty | AllocNeeded

MOST_STEPS = 400
MOST_PARTS = 64
"""Descriptors, handles, bindings, dimensions: per step."""
MOST_RESERVED = 1 << 34
"""Bytes of all allocations that can succeed. Memory that nobody touches costs nothing."""
MOST_TOUCHED = 1 << 28
"""Bytes that the steps write and read, in all."""
MOST_PROCESSES = 4


def check_memory(case: MemoryCase) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for a case that must not be run."""
    need(len(case.steps) <= MOST_STEPS, f"{len(case.steps)} steps are more than {MOST_STEPS}")
    spent = Spent()
    for position, step in enumerate(case.steps):
        _numbers(step, f"step {position}")
        spent.spend(step)
        need(spent.processes <= MOST_PROCESSES, f"more than {MOST_PROCESSES} processes")
        need(spent.reserved <= MOST_RESERVED, f"the steps reserve more than {MOST_RESERVED} bytes")
        need(spent.touched <= MOST_TOUCHED, f"the steps touch more than {MOST_TOUCHED} bytes")


def _numbers(step: Any, where: str) -> None:
    """Each number fits the C type that it becomes, and each list is short."""
    check_unusual(where, step)
    if isinstance(step, Alloc):
        within(f"{where}: size", step.size, -(1 << 63), (1 << 63) - 1)
    elif isinstance(step, Capability):
        within(f"{where}: key", step.key, 0, _U32)
    elif isinstance(step, Fill):
        within(f"{where}: byte", step.byte, 0, 255)
    elif isinstance(step, Observe):
        within(f"{where}: region", step.region, 0, INT_MAX)
    elif isinstance(step, Write):
        within(f"{where}: size", step.size, 0, INT_MAX)
        within(f"{where}: offset", step.offset, 0, INT_MAX)
        within(f"{where}: seed", step.seed, 0, _U32)
    elif isinstance(step, Register):
        _batch(where, step.count, step.handles)
        need(len(step.descriptors) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} descriptors")
        for descriptor in step.descriptors:
            _descriptor(where, descriptor)
    elif isinstance(step, Deregister):
        _batch(where, step.count, step.handles)
    elif isinstance(step, Prepare):
        _prepare(where, step)
    elif isinstance(step, BinaryStep):
        _binary(where, step)
    elif isinstance(step, Execute):
        need(len(step.bindings) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} bindings")
        for binding in step.bindings:
            within(f"{where}: seed", binding.seed, 0, _U32)


def _batch(where: str, count: int | None, handles: tuple[str, ...]) -> None:
    need(len(handles) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} handles")
    if count is not None:
        within(f"{where}: count", count, 0, MOST_PARTS)


def _descriptor(where: str, descriptor: Descriptor) -> None:
    need(len(descriptor.shape) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} dimensions")
    for length in descriptor.shape:
        within(f"{where}: a dimension", length, 0, _U32)
    within(f"{where}: mem_type", descriptor.mem_type, 0, _U32)
    within(f"{where}: htp_type", descriptor.htp_type, 0, _U32)
    within(f"{where}: offset", descriptor.offset, 0, (1 << 64) - 1)
    within(f"{where}: data_type", descriptor.data_type or 0, 0, _U32)
    within(f"{where}: size", descriptor.size or 0, 0, (1 << 64) - 1)


def _binary(where: str, step: BinaryStep) -> None:
    """Steps on context binaries and what is made of them."""
    if isinstance(step, ContextFinalize):
        within(f"{where}: descriptors", step.descriptors or 0, 0, MOST_PARTS)
    elif isinstance(step, GetBinary):
        within(f"{where}: missing", step.missing, 0, INT_MAX)
    elif isinstance(step, AllocNeeded):
        within(f"{where}: option", step.option, 0, _U32)
        within(f"{where}: extra", step.extra, -MOST_NEEDED, MOST_NEEDED)
    elif isinstance(step, Carry):
        need(len(step.data) <= MOST_TOUCHED, f"{where}: a binary of more than {MOST_TOUCHED} bytes")
        need(len(step.graphs) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} graphs")
        for each in step.graphs:
            _prepare(where, each.prepared)
            need(len(each.ids) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} tensors")
            for number in each.ids:
                within(f"{where}: a tensor's id", number, 0, _U32)
    else:
        options = step.options if isinstance(step, ContextProperty) else step.beside
        need(len(options) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} options")
        for option in options:
            within(f"{where}: option", option, 0, _U32)


def _prepare(where: str, step: Prepare) -> None:
    within(f"{where}: the number of dimensions", len(step.shape), 1, 8)
    for length in step.shape:
        within(f"{where}: a dimension", length, 1, MOST_TOUCHED)
    within(f"{where}: weights", step.weights or 0, 0, _U32)
    need(len(step.preset) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} presets")
    need(len(step.mem_types) <= MOST_PARTS, f"{where}: more than {MOST_PARTS} memory types")
    for mem_type in step.mem_types:
        within(f"{where}: mem_type", mem_type, 0, _U32)
