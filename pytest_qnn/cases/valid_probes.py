"""Unusual executes and preparations, and probing steps, from files: numbers of C types, and bounded work."""

from __future__ import annotations

from typing import Any

from pytest_qnn.abi.qnn_codes import LogLevel
from pytest_qnn.cases.memory import Binding, Execute, Prepare
from pytest_qnn.cases.memory_async import MOST_CALLS
from pytest_qnn.cases.memory_pieces import ContextWithCallback
from pytest_qnn.cases.memory_probes import Churn, Environment, Message, Parallel
from pytest_qnn.cases.memory_sections import ApplySection, GetSection, UpdateWeights
from pytest_qnn.core.bounds import need, within

MOST_ROUNDS = 20_000
MOST_THREADS = 16
MOST_BESIDE = 1 << 20
"""Bytes before a piece of a binary in its memory."""
_MOST_PARTS = 64
_U32 = (1 << 32) - 1
_INT = (1 << 31) - 1
_KNOWN = (0, 1)
"""RAW, which is said by leaving ``mem_type`` out, and MEMHANDLE, which is said by ``kind``."""


def check_unusual(where: str, step: Any) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for numbers that no C type holds, or for too much work."""
    if isinstance(step, Execute):
        for positions in (step.inputs or (), step.outputs or ()):
            need(len(positions) <= _MOST_PARTS, f"{where}: more than {_MOST_PARTS} tensors")
            for position in positions:
                within(f"{where}: the position of a tensor", position, 0, _MOST_PARTS)
        within(f"{where}: asynchronous", step.asynchronous, 0, MOST_CALLS)
        for binding in step.bindings:
            _binding(where, binding)
    elif isinstance(step, Prepare):
        within(f"{where}: relay_mem_type", step.relay_mem_type, 0, _U32)
        need(len(step.node_mem_types) <= _MOST_PARTS, f"{where}: more than {_MOST_PARTS} memory types")
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
        within(f"{where}: fails", step.fails, 0, _INT)
        within(f"{where}: start", step.start, 0, MOST_BESIDE)
    elif isinstance(step, Churn):
        within(f"{where}: rounds", step.rounds, 1, MOST_ROUNDS)
        within(f"{where}: tensors", step.tensors, 1, _MOST_PARTS)
        within(f"{where}: mem_type", step.mem_type, 0, _U32)
    elif isinstance(step, Parallel):
        within(f"{where}: threads", step.threads, 1, MOST_THREADS)
        within(f"{where}: rounds", step.rounds, 1, MOST_ROUNDS // MOST_THREADS)
        within(f"{where}: mem_type", step.mem_type, 0, _U32)
        within(f"{where}: level", step.level, LogLevel.ERROR, LogLevel.DEBUG)
        within(f"{where}: lowered", step.lowered, 0, step.level)


def _binding(where: str, binding: Binding) -> None:
    within(f"{where}: short", binding.short, 0, _INT)
    within(f"{where}: data_size", binding.data_size or 0, 0, _U32)
    if binding.mem_type is not None:
        within(f"{where}: mem_type", binding.mem_type, 0, _U32)
        need(binding.mem_type not in _KNOWN, f"{where}: memory type {binding.mem_type} is a kind of binding")
