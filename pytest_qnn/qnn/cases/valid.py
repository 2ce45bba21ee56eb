"""QNN cases from files: what the types of single fields cannot say, and no more work than a machine has."""

from __future__ import annotations

from typing import Any

from pytest_qnn.core.bounds import need, within
from pytest_qnn.qnn.cases.arguments import ARGUMENTS
from pytest_qnn.qnn.cases.case import (
    MOST_ROUNDS,
    MOST_TOUCHED,
    Alloc,
    BadArgument,
    Binding,
    Descriptor,
    Execute,
    Executes,
    MemoryCase,
    Message,
    Parallel,
    Register,
)
from pytest_qnn.qnn.cases.lives import Spent

MOST_RESERVED = 1 << 40
"""Bytes of all allocations that can succeed: several times what strategies draw (RPC-05, REG-02). Memory that
nobody touches costs nothing."""
MOST_PROCESSES = 4
_U64 = (1 << 64) - 1
_KNOWN = (0, 1)
"""RAW, which is said by leaving ``mem_type`` out, and MEMHANDLE, which is said by ``kind``."""


def check_memory(case: MemoryCase) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for a case that must not be run."""
    spent = Spent()
    for position, step in enumerate(case.steps):
        _check_step(f"step {position}", step)
        spent.spend(step)
        need(spent.processes <= MOST_PROCESSES, f"more than {MOST_PROCESSES} processes")
        need(spent.reserved <= MOST_RESERVED, f"the steps reserve more than {MOST_RESERVED} bytes")
        need(spent.touched <= MOST_TOUCHED, f"the steps touch more than {MOST_TOUCHED} bytes")


def _check_step(where: str, step: Any) -> None:
    if isinstance(step, Alloc):
        within(f"{where}: size", step.size, -(1 << 63), (1 << 63) - 1)
    elif isinstance(step, BadArgument):
        of_call = step.argument in ARGUMENTS[step.call]
        need(of_call, f"{where}: {step.call} has no argument {step.argument} that leads somewhere")
    elif isinstance(step, Message):
        within(f"{where}: error", step.error, 0, _U64)
    elif isinstance(step, Parallel):
        within(f"{where}: lowered", step.lowered, 0, step.level)
        within(f"{where}: rounds of all threads", step.threads * step.rounds, 1, MOST_ROUNDS)
        threads = step.threads if step.what == "histories" else 0
        need(len(step.calls) == threads, f"{where}: calls of {len(step.calls)} threads, and not of {threads}")
    elif isinstance(step, Register):
        for descriptor in step.descriptors:
            _check_descriptor(where, descriptor)
    elif isinstance(step, Execute | Executes):
        for binding in step.bindings:
            _check_binding(where, binding)


def _check_descriptor(where: str, descriptor: Descriptor) -> None:
    within(f"{where}: offset", descriptor.offset, 0, _U64)
    within(f"{where}: size", descriptor.size or 0, 0, _U64)


def _check_binding(where: str, binding: Binding) -> None:
    need(binding.mem_type not in _KNOWN, f"{where}: memory type {binding.mem_type} is a kind of binding")
