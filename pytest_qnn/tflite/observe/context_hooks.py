"""Functions of a TfLiteContext that are hooked while a delegate's callback is at work.

The runtime has two sets of them, and switches: those for a delegate's Prepare, and those for kernels, where
six are forbidden (subgraph.cc, SwitchToDelegateContext and SwitchToKernelContext). What is replaced here is
put back as it stood there, as soon as the callback returns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from pytest_qnn.core.printable import heard
from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.cases.delegate import Look, Refused
from pytest_qnn.tflite.observe.immutability import DataSeen, Difference, GraphSeen
from pytest_qnn.tflite.observe.lifetime_copies import STALE, LifetimeCopies
from pytest_qnn.tflite.trace import Added, Asked, Call, Change, During, Kernel, Name, Preview, Report

_SLOTS: Final = {
    name: getattr(layouts.Context, name).offset
    for name in (
        "GetExecutionPlan",
        "GetNodeAndRegistration",
        "PreviewDelegatePartitioning",
        "ReplaceNodeSubsetsWithDelegateKernels",
        "AcquireSubgraphContext",
        "ReleaseSubgraphContext",
        "ReportError",
    )
}
FORBIDDEN: Final = tuple(name for name in _SLOTS if name != "ReportError")
"""Functions that a kernel's prepare and invoke must not call."""
_REFUSED: Final[dict[Refused, str]] = {
    "plan": "GetExecutionPlan",
    "node": "GetNodeAndRegistration",
    "node-in-init": "GetNodeAndRegistration",
    "preview": "PreviewDelegatePartitioning",
    "replace": "ReplaceNodeSubsetsWithDelegateKernels",
}


class ContextHooks:
    """The context hooks of one case: what they observe, and what was seen.

    Args:
        look: what is observed.
        arena: data in the arena is compared too: it is allocated when delegates are applied.
    """

    def __init__(self, look: Collection[Look], *, arena: bool) -> None:
        self.look = frozenset(look)
        self.arena = arena
        self.refusals: dict[int, tuple[Refused, int]] = {}
        """Application -> what is refused, and which call."""
        self.refused: list[Call] = []
        self.forbidden: list[Call] = []
        self.stale: list[Call] = []
        self.changes: list[Change] = []
        self.looked_at = 0
        self.names: list[tuple[int, int, str]] = []
        """(application, address of custom_name, its text) of each Replace."""
        self.reports: list[Report] = []
        self.previews: list[Preview] = []
        self.asked: list[Asked] = []
        self.added: list[Added] = []
        self.errors: list[BaseException] = []
        """What went wrong in the hooks themselves."""
        self.copies = LifetimeCopies()

    def prepare(self, context: int, application: int, nodes: Collection[int]) -> Scope:
        """A delegate's Prepare begins, on a plan of these nodes."""
        return _PrepareScope(self, context, application, nodes)

    def kernel(self, context: int, kernel: Kernel, during: During) -> Scope:
        """A kernel's prepare or invoke begins."""
        return _KernelScope(self, context, kernel, during)

    def named(self) -> tuple[Name, ...]:
        """The names as they were and as they are now."""
        return tuple(Name(application, text, text_at(at)) for application, at, text in self.names)

    def changed(self, scope: Scope, differences: Collection[Difference]) -> None:
        """Record what a callback changed."""
        self.changes += (Change(scope.application, scope.kernel, scope.during, *one) for one in differences)


class Scope:
    """One callback at work, with functions of its context replaced."""

    def __init__(
        self,
        hooks: ContextHooks,
        context: int,
        who: tuple[int, int, During],
        replaced: Mapping[str, int],
    ) -> None:
        self.hooks = hooks
        self.context = context
        self.application, self.kernel, self.during = who
        self.inits = 0
        """Inits that have begun."""
        self.own = {name: peek.pointer(context + _SLOTS[name]) for name in replaced}
        self._outer = _scopes.get(context)
        _scopes[context] = self
        for name, address in replaced.items():
            peek.set_pointer(context + _SLOTS[name], address)

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *_: object) -> None:
        """The callback has returned: what was replaced is put back."""
        for name, address in self.own.items():
            peek.set_pointer(self.context + _SLOTS[name], address)
        if self._outer is None:
            del _scopes[self.context]
        else:
            _scopes[self.context] = self._outer
        self.ended()

    def ended(self) -> None:
        """Compare what the callback has done."""

    def enter_init(self) -> None:
        """Init of a kernel begins, within Prepare."""
        self.inits += 1
        self.during = "init"

    def leave_init(self) -> None:
        """Init of a kernel is over."""
        self.during = "Prepare"

    def refuses(self, _function: str) -> bool:
        """Whether this call is to be answered with an error."""
        return False

    def call(self, function: str) -> Call:
        """A call of the function, at this time."""
        return Call(self.application, self.kernel, self.during, function)


class _PrepareScope(Scope):
    def __init__(self, hooks: ContextHooks, context: int, application: int, nodes: Collection[int]) -> None:
        self._refusal, self._turn = hooks.refusals.get(application, ("", 0))
        self._calls = 0
        self.previewed = False
        wanted = {"ReportError"} if "reports" in hooks.look else set()
        if "lifetimes" in hooks.look:
            wanted |= {"GetExecutionPlan", "GetNodeAndRegistration", "PreviewDelegatePartitioning"}
        if "previews" in hooks.look:
            wanted.add("PreviewDelegatePartitioning")
        if self._refusal and self._refusal != "replace":  # Replace is the spy's own already
            wanted.add(_REFUSED[self._refusal])
        self._graph = GraphSeen(context, nodes, arena=hooks.arena) if "graph" in hooks.look else None
        super().__init__(
            hooks, context, (application, -1, "Prepare"), {name: _IN_PREPARE[name] for name in wanted}
        )

    def ended(self) -> None:
        self.hooks.copies.prepared()
        if self._graph is not None:
            self.hooks.looked_at += self._graph.size
            self.hooks.changed(self, self._graph.differences())

    def refuses(self, function: str) -> bool:
        """Count the call, and record it if it is the one to be refused."""
        if not self._refusal or _REFUSED[self._refusal] != function:
            return False
        if self._refusal == "node-in-init":
            refused = self.during == "init" and self.inits - 1 == self._turn
        else:
            refused = self.during == "Prepare" and self._calls == self._turn
            self._calls += self.during == "Prepare"
        if refused:
            self.hooks.refused.append(self.call(function))
        return refused


class _KernelScope(Scope):
    def __init__(self, hooks: ContextHooks, context: int, kernel: Kernel, during: During) -> None:
        replaced = dict(_IN_KERNEL) if "forbidden" in hooks.look else {}
        if "reports" in hooks.look:
            replaced["ReportError"] = _IN_PREPARE["ReportError"]
        self._data = None
        if "data" in hooks.look and during == "prepare":
            self._data = DataSeen(context, kernel.inputs + kernel.outputs)
        self._tensors = peek.pointer(context)
        super().__init__(hooks, context, (kernel.application, kernel.kernel, during), replaced)

    def ended(self) -> None:
        if "tensors" in self.hooks.look:
            count = peek.pointer(self.context) - self._tensors
            self.hooks.added.append(Added(self.kernel, self.during, count))
        if self._data is not None:
            self.hooks.looked_at += self._data.size
            self.hooks.changed(self, self._data.differences())


# Callbacks on one context may nest; what an inner one has replaced is put back before the outer one's.
_scopes: Final[dict[int, Scope]] = {}
"""Context -> the innermost callback at work on it."""


def scope_of(context: int) -> Scope | None:
    """The callback at work on this context, if it is observed."""
    return _scopes.get(context)


def text_at(address: int, most: int = 128) -> str:
    """A C string, read so that an address that is not valid (any more) gives an empty text."""
    if not address:
        return ""
    # By the file, not by the address: a read of an unmapped page fails there, and would end the process here.
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            page = 4096 - address % 4096
            memory.seek(address)
            data = memory.read(min(most, page))
            if b"\0" not in data and page < most:
                data += memory.read(most - page)
    except (OSError, ValueError, OverflowError):
        return ""
    return data.partition(b"\0")[0].decode(errors="backslashreplace")


def _gives_copies(scope: Scope) -> bool:
    return "lifetimes" in scope.hooks.look


def _safe(hook: Callable[..., int]) -> Callable[..., int]:
    """The hook, which answers with an error, and keeps the exception, where it would raise one."""

    def answer(context: int, *arguments: int) -> int:
        try:
            return hook(context, *arguments)
        except BaseException as error:
            _scopes[context].hooks.errors.append(error.with_traceback(None))
            return layouts.ERROR

    return answer


def _on_plan(context: int, answer: int) -> int:
    scope = _scopes[context]
    if scope.refuses("GetExecutionPlan"):
        return layouts.ERROR
    status: int = layouts.GetExecutionPlan(scope.own["GetExecutionPlan"])(context, answer)
    if not status and _gives_copies(scope):
        scope.hooks.copies.plan(answer, scope.application)
    return status


def _on_node(context: int, index: int, node: int, registration: int) -> int:
    scope = _scopes[context]
    if scope.refuses("GetNodeAndRegistration"):
        return layouts.ERROR
    if index == STALE:
        scope.hooks.stale.append(scope.call("GetNodeAndRegistration"))
        return layouts.ERROR
    get_node = layouts.GetNodeAndRegistration(scope.own["GetNodeAndRegistration"])
    status: int = get_node(context, index, node, registration)
    if not status and _gives_copies(scope):
        scope.hooks.copies.node(node, registration, scope.application)
    return status


def _on_preview(context: int, nodes: int, answer: int, count: int) -> int:
    scope = _scopes[context]
    if isinstance(scope, _PrepareScope):
        scope.previewed = True
    if scope.refuses("PreviewDelegatePartitioning"):
        return layouts.ERROR
    if stale(scope, nodes, "PreviewDelegatePartitioning"):
        return layouts.ERROR
    scope.hooks.asked.append(Asked(scope.application, peek.integers(nodes), scope.inits))
    preview = layouts.PreviewPartitioning(scope.own["PreviewDelegatePartitioning"])
    status: int = preview(context, nodes, answer, count)
    if not status and _gives_copies(scope):
        scope.hooks.copies.partitions(answer, peek.integer(count), scope.application)
    return status


def stale(scope: Scope, nodes: int, function: str) -> bool:
    """Whether a TfLiteIntArray names nodes of a plan that is not valid any more; the call is recorded."""
    if STALE not in peek.integers(nodes):
        return False
    scope.hooks.stale.append(scope.call(function))
    return True


def _on_report(context: int, text: bytes | None, argument: int | None) -> None:
    scope = _scopes[context]
    shown = ctypes.string_at(argument) if text == b"%s" and argument else text or b""
    scope.hooks.reports.append(Report(scope.application, scope.kernel, scope.during, heard(shown)))
    layouts.ReportError(scope.own["ReportError"])(context, b"%s", shown)


def _forbidden(function: str) -> Callable[[int], int]:
    def answer(context: int) -> int:
        scope = _scopes[context]
        scope.hooks.forbidden.append(scope.call(function))
        return layouts.ERROR

    return answer


def replacing(scope: Scope, name: int, nodes: int, kernels: int) -> bool:
    """A delegate calls Replace; whether the runtime is to carry it out.

    Args:
        scope: its Prepare.
        name: address of the registration's custom_name.
        nodes: address of the TfLiteIntArray that it passes.
        kernels: how many there are already.
    """
    function = "ReplaceNodeSubsetsWithDelegateKernels"
    if scope.refuses(function) or stale(scope, nodes, function):
        return False
    if "names" in scope.hooks.look:
        scope.hooks.names.append((scope.application, name, text_at(name)))
    _preview(scope, nodes, kernels)
    return True


def _preview(scope: Scope, nodes: int, kernels: int) -> None:
    """Ask the runtime for the partitions of ``nodes``, unless the delegate did so: its answer would die."""
    if not isinstance(scope, _PrepareScope) or scope.previewed or "previews" not in scope.hooks.look:
        return
    answer = ctypes.c_void_p()
    count = ctypes.c_int()
    call = layouts.PreviewPartitioning(scope.own["PreviewDelegatePartitioning"])
    status = call(scope.context, nodes, ctypes.addressof(answer), ctypes.addressof(count))
    size = ctypes.sizeof(layouts.DelegateParams)
    found = []
    for position in range(count.value if not status else 0):
        _, *members = view.params((answer.value or 0) + position * size)
        found.append((members[0], members[1], members[2]))
    scope.hooks.previews.append(Preview(scope.application, status, tuple(found), kernels))


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_prepare_hooks: Final = {
    "GetExecutionPlan": layouts.GetExecutionPlan(_safe(_on_plan)),
    "GetNodeAndRegistration": layouts.GetNodeAndRegistration(_safe(_on_node)),
    "PreviewDelegatePartitioning": layouts.PreviewPartitioning(_safe(_on_preview)),
    "ReportError": layouts.ReportHook(_on_report),
}
_kernel_hooks: Final = {name: layouts.AnyOfContext(_forbidden(name)) for name in FORBIDDEN}
_IN_PREPARE: Final = {name: _address(function) for name, function in _prepare_hooks.items()}
_IN_KERNEL: Final = {name: _address(function) for name, function in _kernel_hooks.items()}
