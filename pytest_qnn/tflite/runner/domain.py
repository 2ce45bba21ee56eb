"""Carry out cells of the input domain: apply the chain to each model, and invoke where it claims the node."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from pytest_qnn.isolation.worker import OnStep
from pytest_qnn.tflite.abi import layouts, view
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import Application
from pytest_qnn.tflite.cases.domain import CellsBeside, DomainCase
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.coverage import loosened
from pytest_qnn.tflite.domain.judging import is_right
from pytest_qnn.tflite.domain.node import NoSuchCellError, OneNode
from pytest_qnn.tflite.domain.table import Beside, Made, beside, is_plain, made
from pytest_qnn.tflite.observe.failures import KeptFailures
from pytest_qnn.tflite.runner.delegates import DelegateFactory, DelegateUnusable, LiveDelegate
from pytest_qnn.tflite.runtime.runtime import RAISED, Runtime
from pytest_qnn.tflite.runtime.state import context_of, private_plan
from pytest_qnn.tflite.runtime.tensors import value_of
from pytest_qnn.tflite.trace import DELEGATE, CellSeen, DomainTrace

_LONGEST = 200
"""Characters of a message."""


TOGETHER = "beside others it fails"
"""Why the outcome of a cell is unknown: the model of several of which it is one has failed."""
WRONG = "beside others its results are not as expected"
"""Why it is unknown: it is for a model of its own to show what is wrong."""


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


def run_beside(
    case: CellsBeside, chain: Sequence[DelegateFactory], runtime: Runtime, on_step: OnStep | None = None
) -> DomainTrace:
    """What becomes of the cells as nodes of one model, or of two: many delegates cannot take dynamic tensors.

    What the runtime refuses, which a delegate may be able to do, is not shown to any. Where a model fails it
    is not known because of which cell (`TOGETHER`), but for dynamic tensors: it is refused for the first.

    Args:
        case: the cells.
        chain: delegates that are applied, made twice at most for each model.
        runtime: loads the models.
        on_step: called with `step_of` before each cell is prepared on the CPU, and with the step of a cell
            behind the last one before delegates are made.
    """
    found: dict[int, CellSeen] = {}
    static: list[int] = []
    dynamic: list[int] = []
    for number, cell in enumerate(case.cells):
        _teller(on_step, number)(True)
        try:
            run = _run(made(cell), None, runtime, invoke=False)
        except NoSuchCellError as error:
            found[number] = CellSeen("none", str(error))
            continue
        if isinstance(run.outputs, str):
            found[number] = CellSeen("refused", run.outputs)
        else:
            (dynamic if run.is_dynamic else static).append(number)
    _teller(on_step, len(case.cells))(False)
    for numbers in filter(None, (static, dynamic)):
        cells = [case.cells[number] for number in numbers]
        shown = _run(beside(cells), chain, runtime, invoke=False)
        if not isinstance(shown.outputs, str):
            seen = _seen_beside(cells, shown.claimed, case.half, chain, runtime)
        elif shown.is_undone and numbers is dynamic:
            seen = [CellSeen("undone", shown.outputs)] * len(cells)
        else:
            seen = [CellSeen("unknown", TOGETHER)] * len(cells)
        found.update(zip(numbers, seen, strict=True))
    return DomainTrace(cells=tuple(found[number] for number in range(len(case.cells))))


def _seen_beside(
    cells: Sequence[Cell],
    claimed: Collection[int],
    half: Collection[str],
    chain: Sequence[DelegateFactory],
    runtime: Runtime,
) -> list[CellSeen]:
    """What a chain gives for those that it has claimed beside the others; these are left to the CPU."""
    seen = [CellSeen("left")] * len(cells)
    places = sorted(claimed)
    if not places:
        return seen
    model = beside([cells[at] for at in places])
    run = _run(model, chain, runtime)
    outputs = iter(run.outputs)
    for number, (at, node) in enumerate(zip(places, model.nodes, strict=True)):
        if isinstance(run.outputs, str):
            seen[at] = CellSeen("unknown", TOGETHER)
        elif number in run.claimed:
            expected = list(map(loosened, node.results)) if cells[at].op in half else node.results
            given = [next(outputs) for _ in expected]
            # The CPU is asked by who carries it out alone: its kernel may end the process.
            right = all(map(is_right, expected, given))
            computed = CellSeen("computed", outputs=tuple(map(Array.of, given)))
            seen[at] = computed if right else CellSeen("unknown", WRONG)
        elif run.claimed:
            for _ in node.results:
                next(outputs)
    return seen


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
    claimed: frozenset[int]
    """Nodes that delegates claim, by their number in the model."""
    is_undone: bool
    """The application failed, and the runtime goes on without it, as it is made to."""
    outputs: Any
    """Arrays, node by node; or what was raised, in words."""
    is_dynamic: bool = False
    """On the CPU, without an inference: how large a result is shows in an inference only."""


def _run(
    model: Made | Beside, chain: Sequence[DelegateFactory] | None, runtime: Runtime, *, invoke: bool = True
) -> _Ran:
    """Apply the chain, and invoke if it claims a node. Without a chain the CPU computes."""
    nodes = model.nodes if isinstance(model, Beside) else (model.node,)
    delegates: list[LiveDelegate] = []
    claimed: frozenset[int] = frozenset()
    failure, outputs = "", []
    kept: list[KeptFailures | None] = []
    applied = is_undone = is_dynamic = False
    interpreter: Any = None
    try:
        interpreter = runtime.interpreter(model.model)
        for factory in chain or ():
            delegates.append(factory.make(Application()))
            kept.append(_applied(delegates[-1], interpreter, nodes, runtime))
            _require_success(kept, _FailedAloneError)
        applied = True
        interpreter.allocate_tensors()
        _require_success(kept, RuntimeError)
        claimed = _claimed(interpreter, runtime, len(nodes)) if chain is not None else claimed
        if invoke and (claimed or chain is None):
            outputs = _invoked(nodes, interpreter)
        elif chain is None and runtime.observed:
            is_dynamic = _is_dynamic(interpreter)
    except _FailedAloneError as error:
        failure, is_undone, applied = str(error), True, True
    except (DelegateUnusable, *RAISED) as error:
        failure = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
    if failure and interpreter is not None and not applied:
        is_undone = _works_without(interpreter, runtime)
    # The exception is gone, and with it the last frame that holds the interpreter, which goes before them.
    del interpreter
    for delegate in reversed(delegates):
        delegate.close()
    return _Ran(claimed, is_undone, failure or outputs, is_dynamic)


def cpu_outputs(model: Made, runtime: Runtime) -> Any:
    """What the runtime's own kernel computes: arrays; or why it does not, in words."""
    return _run(model, None, runtime).outputs


class _FailedAloneError(Exception):
    """An application has failed, and the runtime, which was not told, would go on without it."""


def _applied(
    delegate: LiveDelegate, interpreter: Any, nodes: Sequence[OneNode], runtime: Runtime
) -> KeptFailures | None:
    """Apply it; the failures that the runtime is not told of, where it would do harm undoing them (RT-14)."""
    operands = [each for node in nodes for each in node.operands if each is not None]
    if not (any(each.values.dtype == np.float16 for each in operands) and _loses_operands(runtime)):
        interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
        return None
    with KeptFailures(delegate.address) as kept:
        interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
    return kept


@functools.cache
def _loses_operands(runtime: Runtime) -> bool:
    """RT-14: of a failed application nodes lose their operands of float16. False where it cannot be seen."""
    if not runtime.observed:
        return False
    # The kernel of a CAST survives the loss: others end the process.
    interpreter = runtime.interpreter(made(Cell("CAST", "float16", 1)).model)
    fails = layouts.DelegatePrepare(lambda *_: layouts.ERROR)
    delegate = layouts.Delegate(Prepare=ctypes.cast(fails, ctypes.c_void_p))
    with contextlib.suppress(*RAISED):
        interpreter._interpreter.ModifyGraphWithDelegate(ctypes.addressof(delegate))
    return any(index < 0 for node in private_plan(context_of(interpreter), {}) for index in node.inputs)


def _require_success(kept: Sequence[KeptFailures | None], error: type[Exception]) -> None:
    """Raise the error where something failed of which the runtime was not told."""
    for each in filter(None, kept):
        if each.seen:
            raise error(each.seen[0])


def _works_without(interpreter: Any, runtime: Runtime) -> bool:
    """An application has failed: whether the interpreter is ready for an inference on the CPU."""
    try:
        interpreter.allocate_tensors()
    except RAISED:
        return False
    return not runtime.observed or not _claimed(interpreter, runtime, 1)


def _claimed(interpreter: Any, runtime: Runtime, nodes: int) -> frozenset[int]:
    """Of so many nodes. Where plans cannot be read, every one is taken to be claimed."""
    plan = private_plan(context_of(interpreter), {}) if runtime.observed else ()
    left = {node.index for node in plan if node.op != DELEGATE}
    return frozenset(range(nodes)) - left


def _is_dynamic(interpreter: Any) -> bool:
    """Whether a result of the model is allocated when it is invoked."""
    context = context_of(interpreter)
    outputs = map(int, interpreter._interpreter.OutputIndices())
    return any(view.tensor(context, index).allocation_type == layouts.ALLOCATION_DYNAMIC for index in outputs)


def _invoked(nodes: Sequence[OneNode], interpreter: Any) -> list[Any]:
    """Results, in the order of their tensors (`pytest_qnn.tflite.domain.model.emit`)."""
    tensor = itertools.count()
    results = []
    for node in nodes:
        for operand in filter(None, node.operands):
            index = next(tensor)
            if not operand.constant and operand.values.size:
                interpreter.set_tensor(index, operand.values)
        results += [next(tensor) for _ in node.results]
    interpreter.invoke()
    return [value_of(interpreter, index) for index in results]
