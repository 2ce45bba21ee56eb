"""Carry out a DelegateCase on a runtime with a chain of delegates, and write down what was seen."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from pytest_qnn.core.printable import heard
from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.isolation.host import checked_heap
from pytest_qnn.isolation.host.checked_heap import Heap
from pytest_qnn.isolation.host.refusals import Lacking
from pytest_qnn.isolation.observe.control_words import Watch
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.observe import handles
from pytest_qnn.tflite.observe.context_hooks import ContextHooks
from pytest_qnn.tflite.observe.spy import Session
from pytest_qnn.tflite.runner.delegates import PROBE, DelegateFactory, DelegateUnusable, LiveDelegate
from pytest_qnn.tflite.runner.history import Past, lived
from pytest_qnn.tflite.runner.interpreter import attempt
from pytest_qnn.tflite.runtime.runtime import Runtime
from pytest_qnn.tflite.runtime.state import context_of, delegates_applied, private_plan
from pytest_qnn.tflite.trace import Applied, BaselineRun, DelegateTrace, HeapSeen, Name, PlanNode, Spied

_OTHER_SEED = 0x5EED
"""Combined with the case's seed, for the inputs that nothing may depend on."""


def hooks_of(case: DelegateCase) -> ContextHooks | None:
    """The context hooks that the case asks for; None: none."""
    if not case.look and not any(application.refused for application in case.applications):
        return None
    return ContextHooks(case.look, arena=case.late)


def run_early(interpreter: Any, case: DelegateCase) -> None:
    """Allocate and invoke on the CPU, with other inputs than the case's."""
    interpreter.allocate_tensors()
    other = msgspec.structs.replace(case, data_seed=case.data_seed ^ _OTHER_SEED, fill="mixed")
    for tensor, values in zip(case.graph.inputs, inputs_of(other), strict=True):
        interpreter.set_tensor(tensor, values)
    interpreter.invoke()


def resize_and_back(interpreter: Any, case: DelegateCase) -> None:
    """Resize the first input that has a dimension, give it its shape again, and allocate.

    A static delegate is undone by the first of these and applied again by the last.
    """
    for tensor in case.graph.inputs:
        shape = case.graph.tensors[tensor].shape
        if shape:
            interpreter.resize_tensor_input(tensor, (shape[0] + 1, *shape[1:]))
            interpreter.resize_tensor_input(tensor, shape)
            break
    interpreter.allocate_tensors()


def order_of(context: int, owners: Mapping[int, int]) -> tuple[int, ...]:
    """Applications of the delegates in force; -1: a delegate that the case did not apply."""
    return tuple(owners.get(address, -1) for address in delegates_applied(context))


_BEGINNING = 8
"""Elements."""


def _alike(value: Array) -> Array:
    """The same beginning; what is behind it in the opposite order."""
    array = value.numpy()
    flat = array.ravel()
    beginning = min(_BEGINNING, flat.size // 2)
    return Array.of(np.concatenate((flat[:beginning], flat[beginning:][::-1])).reshape(array.shape))


def spied(
    hooks: ContextHooks | None,
    target: Sequence[int],
    order: Sequence[tuple[int, ...]],
    names: tuple[Sequence[Name], Sequence[Name]],
) -> Spied:
    """What was seen, as data.

    Args:
        hooks: the context hooks of the case.
        target: applications of the target.
        order: of the delegates in force, at several times.
        names: of kernels, the first and the second time.
    """
    if hooks is None:
        return Spied()
    copies = hooks.copies
    wanted = set(target)
    count = {
        kind: sum(owner in wanted for owner in owners)
        for kind, owners in (
            ("plans", copies.plans),
            ("plans_invalidated", copies.plans_invalidated),
            ("nodes_invalidated", copies.nodes_invalidated),
            ("previews_invalidated", copies.previews_invalidated),
        )
    }
    return Spied(
        refused=tuple(hooks.refused),
        forbidden=tuple(hooks.forbidden),
        changes=tuple(hooks.changes),
        looked_at=hooks.looked_at,
        names=tuple(names[0]),
        names_again=tuple(name.text for name in names[1]),
        reports=tuple(hooks.reports),
        stale=tuple(hooks.stale),
        previews=tuple(hooks.previews),
        asked=tuple(hooks.asked),
        added=tuple(hooks.added),
        order=tuple(order),
        **count,
    )


OnPhase = Callable[[int], None]


def run_delegate_case(
    case: DelegateCase,
    chain: Sequence[DelegateFactory],
    runtime: Runtime,
    on_phase: OnPhase | None = None,
) -> DelegateTrace:
    """Build, apply, allocate, invoke, read, destroy.

    ``chain`` is the target: its delegates in order of precedence. ``on_phase`` is called with what
    begins, see `phase_name`. What the target does, errors included, is in the trace; outputs of a failed
    invoke are an empty tuple, and nothing is invoked after a failed allocate.

    Raises:
        ValueError: the runtime refuses the model.
        RuntimeError: the spy itself went wrong.
    """
    if "heap" in case.look:
        return _with_checked_heap(case, chain, runtime, on_phase)
    model = emit(case.graph)
    values = tuple(map(Array.of, inputs_of(case)))
    watch = Watch(*(getattr(each, "path", "") for each in chain))

    def begins(phase: int) -> None:
        watch.look(phase_name(case, len(chain), phase - 1))
        watch.step = phase
        if on_phase is not None:
            on_phase(phase)

    cpu = _cpu_outputs(runtime, model, case.graph.inputs, values, case.graph.outputs)
    with lived(Past(case.history, case.graph, _first_claim(case), chain, runtime)) as past:
        past.repeat(lambda: _again(case, chain, runtime, model, values))
        baseline = _baseline_run(case, chain, runtime, model) if case.baseline else None
        run = _Run(case, runtime, model, begins, past)
        try:
            run.apply_all(chain)
            run.execute(values)
            again = _again(case, chain, runtime, model, values) if case.again == "interpreter" else None
            run.look_at_names()
        finally:
            run.end()
    watch.look(phase_name(case, len(chain), watch.step))
    for error in run.session.errors:
        if not isinstance(error, Exception):
            raise error  # an interrupt, not a failure
        raise RuntimeError("the spy failed") from error
    return msgspec.structs.replace(run.trace(values, cpu, again, baseline), control_words=watch.changes)


def _with_checked_heap(
    case: DelegateCase, chain: Sequence[DelegateFactory], runtime: Runtime, on_phase: OnPhase | None
) -> DelegateTrace:
    """The case twice: the first time all is loaded that blocks may come to."""
    plain = msgspec.structs.replace(case, look=tuple(look for look in case.look if look != "heap"))
    seen = run_delegate_case(plain, chain, runtime, on_phase)
    with contextlib.ExitStack() as checked:
        try:
            if len(chain) > 1:
                raise Lacking("which of several delegates requests something cannot be told")
            # Libraries and the reference have it.
            heap: Heap | None = getattr(chain[0], "heap", None)
            if heap is None:
                raise Lacking(f"what {chain[0].name} requests cannot be checked: it is no library of its own")
            checked.enter_context(heap.during())
        except Lacking as lacking:
            return msgspec.structs.replace(seen, heap=HeapSeen(lacking=str(lacking)))
        seen = run_delegate_case(plain, chain, runtime, on_phase)
    return msgspec.structs.replace(seen, heap=HeapSeen(*checked_heap.seen()))


def _first_claim(case: DelegateCase) -> tuple[int, ...] | None:
    return next((each.claim for each in case.applications if each.who == "target"), None)


def ordered(chain: Sequence[DelegateFactory], number: int) -> Sequence[DelegateFactory]:
    """The chain in the order of `Application.order`."""
    if not number or len(chain) < 2:
        return chain
    return next(itertools.islice(itertools.permutations(chain), number % math.factorial(len(chain)), None))


IN_HISTORY: Final = "before the case's first step, where its history is carried out"
"""The place of what came before a case that has a history."""


def phase_name(case: DelegateCase, chain_length: int, phase: int) -> str:
    """What `run_delegate_case` was doing when it last called ``on_phase(phase)``."""
    applications = sum(chain_length if step.who == "target" else 1 for step in case.applications)
    if phase < 0:
        return "before the first delegate" if case.history is None else IN_HISTORY
    if phase < applications:
        return f"applying delegate {phase}"
    if phase == applications:
        warm = case.history is not None and case.history.warm
        return "allocating tensors" + (", or in the invokes that its history asks for" if warm else "")
    invoke = phase - applications - 1
    return f"invoke {invoke}" if invoke < case.invokes else "destroying the interpreter"


def _baseline_run(
    case: DelegateCase, chain: Sequence[DelegateFactory], runtime: Runtime, model: bytes
) -> BaselineRun | None:
    """What the target claims without the case's options, and without its probes if so wanted."""
    applications = tuple(
        msgspec.structs.replace(application, options=())
        for application in case.applications
        if application.who == "target" or case.baseline == "plain"
    )
    run = _Run(msgspec.structs.replace(case, applications=applications), runtime, model, None)
    try:
        run.apply_all(chain)
    finally:
        run.end()
    if run.session.errors or not all(applied.ok for applied in run.applied):
        return None
    nodes = range(len(case.graph.nodes))
    mine = {number for number, applied in enumerate(run.applied) if applied.is_target}
    claimed = {
        n for number in mine for call in run.applied[number].replaces for n in call.nodes if n in nodes
    }
    kernels = tuple(kernel.nodes for kernel in run.session.kernels if kernel.application in mine)
    return BaselineRun(tuple(sorted(claimed)), kernels)


def _again(
    case: DelegateCase,
    chain: Sequence[DelegateFactory],
    runtime: Runtime,
    model: bytes,
    values: tuple[Array, ...],
) -> _Run:
    """The same case on an interpreter of its own, with delegates of its own."""
    run = _Run(case, runtime, model, None)
    try:
        run.apply_all(chain)
        run.execute(values)
        run.look_at_names()
    finally:
        run.end()
    return run


@functools.lru_cache(maxsize=64)
def _cpu_outputs(
    runtime: Runtime,
    model: bytes,
    inputs: tuple[int, ...],
    values: tuple[Array, ...],
    outputs: tuple[int, ...],
) -> tuple[Array, ...]:
    """Outputs of the model on the runtime's own kernels."""
    interpreter = runtime.interpreter(model)
    interpreter.allocate_tensors()
    _set(interpreter, inputs, values)
    interpreter.invoke()
    return _get(interpreter, outputs)


def _set(interpreter: Any, indices: Sequence[int], values: Sequence[Array]) -> None:
    for index, value in zip(indices, values, strict=True):
        interpreter.set_tensor(index, value.numpy())


def _get(interpreter: Any, indices: Sequence[int]) -> tuple[Array, ...]:
    return tuple(Array.of(interpreter.get_tensor(index)) for index in indices)


class _Run:
    """One case on its way. Holds the only reference to its interpreter."""

    def __init__(
        self,
        case: DelegateCase,
        runtime: Runtime,
        model: bytes,
        on_phase: OnPhase | None,
        past: Past | None = None,
    ) -> None:
        self.case = case
        self._past = past
        self.observed = runtime.observed
        self.session = Session(observed=runtime.observed, stray_writes=case.watch)
        self.session.hooks = hooks_of(case) if self.observed else None
        self.order: list[tuple[int, ...]] = []
        self.names: tuple[Name, ...] = ()
        self.applied: list[Applied] = []
        self.allocate_error = ""
        self.unallocated = ""
        self.invoke_errors: list[str] = []
        self.outputs: list[tuple[Array, ...]] = []
        self.inputs_after: tuple[Array, ...] = ()
        self._delegates: list[LiveDelegate] = []
        self._on_phase = on_phase
        self._phase = 0
        self._interpreter: Any = runtime.interpreter(model)
        self._context = context_of(self._interpreter) if self.observed else 0
        if past is not None:
            past.profile(self._interpreter)
        self.plan_before = self._plan()
        self.plan: tuple[PlanNode, ...] = ()

    def apply_all(self, chain: Sequence[DelegateFactory]) -> None:
        """Carry out the applications; where one stands for the target, each delegate of the chain."""
        if self.case.late:
            run_early(self._interpreter, self.case)
        for step, application in enumerate(self.case.applications):
            if application.who == "probe":
                self._apply(PROBE, step, application)
                continue
            plain = msgspec.structs.replace(application, options=()) if application.options else application
            for factory in ordered(chain, application.order):
                self._apply(factory, step, application if factory is chain[-1] else plain)

    def execute(self, values: tuple[Array, ...]) -> None:
        """Allocate, set the inputs once, invoke."""
        self._begin()
        self._note_order()
        self.allocate_error = attempt(self._interpreter.allocate_tensors)
        self._note_order()
        for _ in range(self.case.redo if not self.allocate_error else 0):
            again = functools.partial(resize_and_back, self._interpreter, self.case)
            self.allocate_error = self.allocate_error or attempt(again)
            self._note_order()
        self.plan = self._plan()
        if self.allocate_error:
            return
        graph = self.case.graph
        nodes = (tensor for node in self.plan for tensor in (*node.inputs, *node.outputs))
        self.session.live = frozenset((*nodes, *graph.inputs, *graph.outputs))
        try:
            _set(self._interpreter, graph.inputs, values)
        except ValueError as error:
            self.unallocated = str(error)
            return
        self._warm(values)
        for number in range(self.case.invokes):
            self._begin()
            if self._past is not None:
                self._past.turn()
            if number < len(self.case.reseed):
                other = msgspec.structs.replace(self.case, data_seed=self.case.reseed[number])
                _set(self._interpreter, graph.inputs, tuple(map(Array.of, inputs_of(other))))
            if number < len(self.case.poison):
                self._poison(self.case.poison[number])
            failed = attempt(self._interpreter.invoke)
            self.invoke_errors.append(failed)
            self.outputs.append(() if failed else _get(self._interpreter, self.case.graph.outputs))
        self.inputs_after = _get(self._interpreter, self.case.graph.inputs)

    def _warm(self, values: tuple[Array, ...]) -> None:
        """The invokes that `History.warm` asks for, of which only what the spy notices is kept."""
        past, history = self._past, self.case.history
        if past is None or history is None or any(step.fault for step in self.case.applications):
            return
        graph, known = self.case.graph, len(self.session.events)
        for number in range(history.warm):
            if number < history.warm - 1:
                other = msgspec.structs.replace(self.case, data_seed=_OTHER_SEED + number)
                _set(self._interpreter, graph.inputs, tuple(map(Array.of, inputs_of(other))))
            else:
                _set(self._interpreter, graph.inputs, tuple(map(_alike, values)))
            error = attempt(self._interpreter.invoke)
            past.error = past.error or (error and f"invoke {number} of {history.warm} before: {error}")
        if history.warm:
            del self.session.events[known:]
            _set(self._interpreter, graph.inputs, values)

    def look_at_names(self) -> None:
        """Read the names of kernels, at a time when all of them still live."""
        if self.session.hooks is not None:
            self.names = self.session.hooks.named()

    def end(self) -> None:
        """Destroy the interpreter, then the delegates."""
        self._begin()
        self._interpreter = None
        self.session.unhook()
        for delegate in self._delegates:
            handles.release(delegate.address)
        if self.session.hooks is not None:
            self.session.errors += self.session.hooks.errors
        for delegate in reversed(self._delegates):
            delegate.close()

    def trace(
        self,
        values: tuple[Array, ...],
        cpu: tuple[Array, ...],
        again: _Run | None = None,
        baseline: BaselineRun | None = None,
    ) -> DelegateTrace:
        """What was seen, complete only after `end`."""
        mine = [number for number, applied in enumerate(self.applied) if applied.is_target]
        return DelegateTrace(
            plan_before=self.plan_before,
            applied=tuple(self.applied),
            kernels=tuple(self.session.kernels),
            events=tuple(self.session.events),
            plan=self.plan,
            allocate_error=self.allocate_error,
            unallocated=self.unallocated,
            invoke_errors=tuple(self.invoke_errors),
            inputs=values,
            outputs=tuple(self.outputs),
            inputs_after=self.inputs_after,
            cpu=cpu,
            writes=tuple(self.session.writes),
            again=tuple(again.outputs) if again else (),
            spied=spied(self.session.hooks, mine, self.order, (self.names, again.names if again else ())),
            baseline=baseline,
            observed=self.observed,
            past=self._past.error if self._past is not None else "",
        )

    def _apply(self, factory: DelegateFactory, step: int, application: Application) -> None:
        self._begin()
        number = len(self.applied)
        try:
            delegate = factory.make(application)
        except DelegateUnusable as error:
            message = heard(error)
        else:
            self._delegates.append(delegate)
            self.session.hook(delegate.address, number)
            if call_log.active() is not None:
                handles.note(delegate.address)
            if self.session.hooks is not None:
                self.session.hooks.refusals[number] = application.refused, application.refused_call
            modify = self._interpreter._interpreter.ModifyGraphWithDelegate
            message = attempt(functools.partial(modify, delegate.address))
        self.applied.append(
            Applied(
                name=factory.name,
                is_target=application.who == "target",
                step=step,
                ok=not message,
                message=message,
                plan_seen=self.session.plans.get(number, ()),
                prepared=number in self.session.plans,
                prepare_status=self.session.statuses.get(number, 0),
                replaces=tuple(self.session.replaces.get(number, ())),
                plan_after=self._plan(),
            )
        )

    def _begin(self) -> None:
        if self._on_phase is not None:
            self._on_phase(self._phase)
        self._phase += 1

    def _note_order(self) -> None:
        if "order" in self.case.look and self.observed:
            self.order.append(order_of(self._context, self.session.owners))

    def _plan(self) -> tuple[PlanNode, ...]:
        return private_plan(self._context, self.session.owners) if self.observed else ()

    def _poison(self, byte: int) -> None:
        """Fill the outputs that nodes produce; a graph input or a constant keeps its value.

        One without memory, as a dynamic tensor is before its kernel has run, keeps nothing.
        """
        produced = {index for node in self.case.graph.nodes for index in node.outputs}
        for index in produced.intersection(self.case.graph.outputs):
            with contextlib.suppress(ValueError):
                self._interpreter.tensor(index)().reshape(-1).view("uint8").fill(byte)
