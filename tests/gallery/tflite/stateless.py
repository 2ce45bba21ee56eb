"""Kernels without some of their four functions, and with user data that tells them apart in no way.

A kernel is found again by what the runtime keeps for it: its node names the delegate, and `builtin_data` is
the TfLiteDelegateParams that init was given (tflite/core/subgraph.cc, AddNodeWithParameters). Lists of nodes
and tensors are kept by the delegate, by context, since a kernel may not ask for nodes (facts 3).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, delegate_at
from pytest_qnn.tflite.reference.plan import PlanView
from tests.gallery.tflite.odd import note, oddity, pointer_to

_NODE_DELEGATE: Final = layouts.Node.delegate.offset
_PARAMS: Final = layouts.Node.builtin_data.offset
_Place = tuple[int, tuple[int, ...]]


class Stateless(ReferenceDelegate):
    """Kernels are known by context and nodes.

    Where ``free`` is not called nobody says when an interpreter is gone, and the next one may have another
    context: equal plans are kept once, so that a further context costs a reference and no plan.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.plans: dict[int, PlanView] = {}
        self.kernels: dict[_Place, Kernel] = {}

    def read(self, context: int) -> PlanView:
        seen = super().read(context)
        before = self.plans.get(context)
        nodes = {**(before.nodes if before else {}), **seen.nodes}
        tensors = {**(before.tensors if before else {}), **seen.tensors}
        plan = PlanView(seen.plan, nodes, tensors, seen.constants, seen.called)
        self.forget(context)
        self.plans[context] = next((known for known in self.plans.values() if known == plan), plan)
        return seen

    def forget(self, context: int) -> None:
        """What was kept for a context."""
        self.plans.pop(context, None)
        for place in [place for place in self.kernels if place[0] == context]:
            del self.kernels[place]

    def kernel_of(self, context: int, params: view.ParamsView) -> Kernel:
        place = context, params.nodes
        if place not in self.kernels:
            plan = self.plans[context]
            steps = tuple(plan.nodes[index] for index in params.nodes)
            self.kernels[place] = Kernel(params.nodes, params.inputs, params.outputs, steps, plan.tensors)
        return self.kernels[place]


def _kernel_at(context: int, node: int) -> tuple[Stateless, Kernel]:
    found = delegate_at(peek.pointer(node + _NODE_DELEGATE))
    assert isinstance(found, Stateless)
    return found, found.kernel_of(context, view.params(peek.pointer(node + _PARAMS)))


def _call(context: int, node: int, name: str) -> int:
    try:
        found, kernel = _kernel_at(context, node)
        status: int = getattr(found, name)(context, kernel)
    except BaseException as error:
        owner = delegate_at(peek.pointer(node + _NODE_DELEGATE))
        if owner is not None:
            owner.errors.append(error.with_traceback(None))
            owner.explain(context, f"{name}: {error!r}")
        return layouts.ERROR
    if status:
        found.explain(context, f"{name} failed")
    return status


def _init_null(_context: int, params: int, _length: int) -> int | None:
    found = delegate_at(view.params(params).delegate)
    if found is not None:
        note(found)
    return None


def _init_delegate(context: int, params: int, _length: int) -> int:
    address = view.params(params).delegate
    found = delegate_at(address)
    if isinstance(found, OneState):
        note(found)
        found.live[context] += 1
    return address


def _free_nothing(_context: int, _user_data: int | None) -> None:
    return None


def _free_delegate(context: int, address: int | None) -> None:
    found = delegate_at(address or 0)
    if isinstance(found, OneState):
        found.live[context] -= 1
        if not found.live[context]:
            del found.live[context]
            found.forget(context)


_keep: Final = (
    layouts.KernelInit(_init_null),
    layouts.KernelInit(_init_delegate),
    layouts.KernelFree(_free_nothing),
    layouts.KernelFree(_free_delegate),
    layouts.KernelCall(lambda context, node: _call(context, node, "kernel_prepare")),
    layouts.KernelCall(lambda context, node: _call(context, node, "kernel_invoke")),
)
_INIT_NULL, _INIT_DELEGATE, _FREE_NOTHING, _FREE_DELEGATE, _PREPARE, _INVOKE = map(pointer_to, _keep)


@oddity(
    "null-state",
    "init returns NULL, since its kernels have no state; free does nothing",
    "common.h, TfLiteRegistration.init: 'simply implement this function to return nullptr'",
    "nothing",
)
class NullState(Stateless):
    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        made = super().registration(nodes)
        made.init, made.free, made.prepare, made.invoke = _INIT_NULL, _FREE_NOTHING, _PREPARE, _INVOKE
        return made


@oddity(
    "one-state",
    "init returns the same pointer, the delegate's, for every kernel",
    "common.h, TfLiteRegistration.init: it returns opaque data, which nobody says to be unique",
    "free is called several times with one pointer",
)
class OneState(Stateless):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.live: Counter[int] = Counter()
        """Kernels by context: the plan of a context is kept for as long as it has one."""

    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        made = super().registration(nodes)
        made.init, made.free, made.prepare, made.invoke = _INIT_DELEGATE, _FREE_DELEGATE, _PREPARE, _INVOKE
        return made


@oddity(
    "invoke-only",
    "its kernels have invoke and none of the other three functions",
    "facts/tflite-delegates.md 7 (i): NULL init, free and prepare are fine; tflite/core/subgraph.cc, OpInit",
    "no callback before the first invoke",
)
class InvokeOnly(Stateless):
    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        made = super().registration(nodes)
        made.init, made.free, made.prepare, made.invoke = None, None, None, _INVOKE
        return made

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        note(self)
        return super().kernel_invoke(context, kernel)


@oddity(
    "no-prepare",
    "its kernels have no prepare",
    "facts/tflite-delegates.md 7 (i): NULL prepare is fine",
    "nothing happens between init and invoke",
)
class NoPrepare(ReferenceDelegate):
    """A runtime that does not know of a failed init asks in a kernel's prepare: here Prepare says it."""

    lost = False
    """An init of the present Prepare has failed."""

    def prepare(self, context: int) -> int:
        self.lost = False
        return super().prepare(context) or (layouts.ERROR if self.lost else layouts.OK)

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        self.lost = self.lost or kernel is None
        return kernel

    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        note(self)
        made = super().registration(nodes)
        made.prepare = None
        return made
