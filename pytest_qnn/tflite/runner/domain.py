"""Carry out cells of the input domain: apply the chain to each model, and invoke where it claims the node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pytest_qnn.isolation.worker import OnStep
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import Application
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.judging import is_right
from pytest_qnn.tflite.domain.node import NoSuchCellError
from pytest_qnn.tflite.domain.table import Made, is_plain, made
from pytest_qnn.tflite.runner.delegates import DelegateFactory, DelegateUnusable, LiveDelegate
from pytest_qnn.tflite.runtime.runtime import Runtime
from pytest_qnn.tflite.runtime.state import context_of, private_plan
from pytest_qnn.tflite.trace import DELEGATE, CellSeen, DomainTrace

_LONGEST = 200
"""Characters of a message."""


def step_of(cell: int, *, cpu: bool = False) -> int:
    """The number under which a cell's application, or its run on the CPU, is begun."""
    return 2 * cell + cpu


def is_on_cpu(step: int) -> bool:
    """Whether `step_of` gives this number for a run on the CPU."""
    return bool(step % 2)


def run_domain_case(
    case: DomainCase, chain: Sequence[DelegateFactory], runtime: Runtime, on_step: OnStep | None = None
) -> DomainTrace:
    """Carry out the cells in order.

    What is special of a type that the runtime refuses at every rank is refused without being tried.

    Args:
        case: the cells.
        chain: delegates that are applied to each model.
        runtime: loads the models.
        on_step: called with `step_of` before each run.
    """
    seen: list[CellSeen] = []
    refused = _Refused()
    for number, cell in enumerate(case.cells):
        tell = _teller(on_step, number)
        known = "" if is_plain(cell) else refused.always(cell)
        found = (
            CellSeen("refused", f"{known} (as plain ones)") if known else _seen(cell, chain, runtime, tell)
        )
        refused.note(cell, found)
        seen.append(found)
    return DomainTrace(cells=tuple(seen))


def _teller(on_step: OnStep | None, number: int) -> Callable[[bool], None]:
    def tell(cpu: bool) -> None:
        if on_step is not None:
            on_step(step_of(number, cpu=cpu))

    return tell


class _Refused:
    """Types of operators of which the runtime has refused every plain cell so far."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, str], str] = {}
        self._taken: set[tuple[str, str]] = set()

    def note(self, cell: Cell, seen: CellSeen) -> None:
        """What became of a cell."""
        if is_plain(cell):
            if seen.outcome == "refused":
                self._reasons[cell.op, cell.dtype] = seen.reason
            elif seen.outcome != "none":
                self._taken.add((cell.op, cell.dtype))

    def always(self, cell: Cell) -> str:
        """Why all of them were refused; empty: not all were, or none was tried."""
        key = cell.op, cell.dtype
        return "" if key in self._taken else self._reasons.get(key, "")


def _seen(
    cell: Cell, chain: Sequence[DelegateFactory], runtime: Runtime, tell: Callable[[bool], None]
) -> CellSeen:
    try:
        model = made(cell)
    except NoSuchCellError as error:
        return CellSeen("none", str(error))
    tell(False)
    run = _run(model, chain, runtime)
    if run.is_undone:
        return CellSeen("undone", str(run.outputs))
    if isinstance(run.outputs, str):
        cpu = _run(model, None, runtime, invoke=False).outputs
        if not isinstance(cpu, str):
            tell(True)
            cpu = _run(model, None, runtime).outputs
        return CellSeen("refused", cpu) if isinstance(cpu, str) else CellSeen("failed", run.outputs)
    return _computed(model, run.outputs, runtime, tell) if run.claimed else CellSeen("left")


def _computed(
    model: Made, outputs: Sequence[Any], runtime: Runtime, tell: Callable[[bool], None]
) -> CellSeen:
    """What a delegate has computed; with what the CPU computes, where that is not what is expected."""
    given = tuple(map(Array.of, outputs))
    if all(map(is_right, model.node.results, outputs)):
        return CellSeen("computed", outputs=given)
    tell(True)
    cpu = _run(model, None, runtime).outputs
    if isinstance(cpu, str):
        return CellSeen("computed", cpu, given)
    return CellSeen("computed", outputs=given, cpu=tuple(map(Array.of, cpu)))


class _Ran(NamedTuple):
    claimed: bool
    """By a delegate."""
    is_undone: bool
    """The application failed, and the runtime goes on without it, as it is made to."""
    outputs: Any
    """Arrays; or what was raised, in words."""


def _run(
    model: Made, chain: Sequence[DelegateFactory] | None, runtime: Runtime, *, invoke: bool = True
) -> _Ran:
    """Apply the chain, and invoke if it claims the node. Without a chain the CPU computes."""
    delegates: list[LiveDelegate] = []
    claimed, failure, outputs = False, "", []
    applied = is_undone = False
    interpreter: Any = None
    try:
        interpreter = runtime.interpreter(model.model)
        for factory in chain or ():
            delegates.append(factory.make(Application()))
            interpreter._interpreter.ModifyGraphWithDelegate(delegates[-1].address)
        applied = True
        interpreter.allocate_tensors()
        claimed = chain is not None and _is_claimed(interpreter, runtime)
        if invoke and (claimed or chain is None):
            outputs = _invoked(model, interpreter)
    except (DelegateUnusable, RuntimeError, ValueError) as error:
        failure = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
    if failure and interpreter is not None and not applied:
        is_undone = _works_without(interpreter, runtime)
    # The exception is gone, and with it the last frame that holds the interpreter, which goes before them.
    del interpreter
    for delegate in reversed(delegates):
        delegate.close()
    return _Ran(claimed, is_undone, failure or outputs)


def cpu_outputs(model: Made, runtime: Runtime) -> Any:
    """What the runtime's own kernel computes: arrays; or why it does not, in words."""
    return _run(model, None, runtime).outputs


def _works_without(interpreter: Any, runtime: Runtime) -> bool:
    """An application has failed: whether the interpreter is ready for an inference on the CPU."""
    try:
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError):
        return False
    return not runtime.observed or not _is_claimed(interpreter, runtime)


def _is_claimed(interpreter: Any, runtime: Runtime) -> bool:
    """Where plans cannot be read, every node is taken to be claimed."""
    if not runtime.observed:
        return True
    return any(node.op == DELEGATE for node in private_plan(context_of(interpreter), {}))


def _invoked(model: Made, interpreter: Any) -> list[Any]:
    operands = [operand for operand in model.node.operands if operand is not None]
    for index, operand in enumerate(operands):
        if not operand.constant and operand.values.size:
            interpreter.set_tensor(index, operand.values)
    interpreter.invoke()
    return [
        _read(interpreter, len(operands) + place, result) for place, result in enumerate(model.node.results)
    ]


def _read(interpreter: Any, index: int, result: Any) -> Any:
    try:
        return interpreter.get_tensor(index)
    except ValueError:
        shape = tuple(map(int, interpreter._interpreter.TensorSize(index, 0)))
        if 0 not in shape:
            raise
        return np.empty(shape, result.dtype)  # a tensor without an element has no memory
