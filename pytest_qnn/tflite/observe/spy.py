"""Observe any delegate from outside: its claims, every callback of its kernels, what it keeps."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.observe.context_hooks import ContextHooks, replacing, scope_of
from pytest_qnn.tflite.observe.plugin_struct import used_tail
from pytest_qnn.tflite.observe.stray_writes import snapshot, writes_since
from pytest_qnn.tflite.runtime.state import private_plan, public_plan
from pytest_qnn.tflite.trace import During, Event, EventKind, Kernel, PlanNode, Replace, SubgraphCall, Write

Seen = Callable[[bool, int, int], None]
"""(acquire, index of the subgraph, status)."""

# All callbacks of this module are made once per process, and find their session by address: ctypes would
# free one that a session owns while a delegate or a kernel still holds its address.
_ACQUIRE: Final = layouts.Context.AcquireSubgraphContext.offset
_RELEASE: Final = layouts.Context.ReleaseSubgraphContext.offset


@contextlib.contextmanager
def recorded_calls(context: int, seen: Seen) -> Iterator[None]:
    """While the block runs, report to ``seen`` each call of the two functions on this context."""
    # Swapped while Prepare runs, and put back at once: the runtime has another pair of them for kernels
    # (subgraph.cc, SwitchToKernelContext), and switches by itself.
    own = peek.pointer(context + _ACQUIRE), peek.pointer(context + _RELEASE)
    _recording[context] = (layouts.AcquireSubgraph(own[0]), layouts.ReleaseSubgraph(own[1]), seen)
    peek.set_pointer(context + _ACQUIRE, _HOOKS[0])
    peek.set_pointer(context + _RELEASE, _HOOKS[1])
    try:
        yield
    finally:
        del _recording[context]
        peek.set_pointer(context + _ACQUIRE, own[0])
        peek.set_pointer(context + _RELEASE, own[1])


_recording: Final[dict[int, tuple[Callable[..., int], Callable[..., int], Seen]]] = {}


def _on_acquire(context: int, index: int, answer: int) -> int:
    acquire, _, seen = _recording[context]
    status = acquire(context, index, answer)
    seen(True, index, status)
    return status


def _on_release(context: int, index: int) -> int:
    _, release, seen = _recording[context]
    status = release(context, index)
    seen(False, index, status)
    return status


_keep_subgraph_hooks: Final = (layouts.AcquireSubgraph(_on_acquire), layouts.ReleaseSubgraph(_on_release))
_HOOKS: Final = tuple(ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in _keep_subgraph_hooks)

_PREPARE: Final = layouts.Delegate.Prepare.offset
_REPLACE: Final = layouts.Context.ReplaceNodeSubsetsWithDelegateKernels.offset
_USER_DATA: Final = layouts.Node.user_data.offset
_FLAGS: Final = layouts.Delegate.flags.offset


@functools.lru_cache(maxsize=256)
def _function(kind: Any, address: int | None) -> Any:
    return kind(address) if address else None


class _Functions:
    """A registration's own callbacks, and for whom they are called."""

    def __init__(self, session: Session, application: int, own: layouts.Registration) -> None:
        self.session = session
        self.application = application
        self.init = _function(layouts.KernelInit, own.init)
        self.free = _function(layouts.KernelFree, own.free)
        self.prepare = _function(layouts.KernelCall, own.prepare)
        self.invoke = _function(layouts.KernelCall, own.invoke)

    def wrap(self, own: layouts.Registration) -> layouts.Registration:
        """A copy of the registration with the spy's callbacks. A missing invoke stays missing."""
        wrapped = layouts.Registration.from_buffer_copy(own)
        wrapped.init, wrapped.free, wrapped.prepare = _INIT, _FREE, _KERNEL_PREPARE
        wrapped.invoke = _KERNEL_INVOKE if own.invoke else None
        return wrapped


class _Live:
    """A kernel that the runtime holds."""

    __slots__ = ("_name", "functions", "kernel", "user_data")

    def __init__(self, kernel: Kernel, functions: _Functions, user_data: int) -> None:
        self.kernel = kernel
        self.functions = functions
        self.user_data = user_data
        self._name = ""

    def call(self, what: str, function: Any, context: int, argument: int) -> Any:
        """Call one of the kernel's functions, and note that where calls are noted."""
        if call_log.active() is None:
            return function(context, argument)
        self._name = self._name or kernel_name(self.kernel.kernel, self.kernel.nodes)
        return call_log.call(f"{what} of {self._name}".encode(), function, context, argument)


def kernel_name(number: int, nodes: tuple[int, ...]) -> str:
    """``kernel 0, node 3``, as it is named in the list of calls."""
    return f"kernel {number}, node{'s' * (len(nodes) != 1)} {', '.join(map(str, nodes))}"


class Session:
    """What is seen of the delegates of one case.

    Args:
        observed: private state may be read, else only what the C interface offers.
        stray_writes: look for writes outside a kernel's outputs at each invoke.
    """

    def __init__(self, *, observed: bool, stray_writes: bool) -> None:
        self.stray_writes = stray_writes
        self.live: frozenset[int] = frozenset()
        """Tensors that hold memory of their own while kernels run; compared besides a kernel's inputs."""
        self.read_plan = private_plan if observed else public_plan
        self.owners: dict[int, int] = {}
        """Delegate address -> application."""
        self.kernels: list[Kernel] = []
        self.events: list[Event] = []
        self.writes: list[Write] = []
        self.plans: dict[int, tuple[PlanNode, ...]] = {}
        """Application -> the plan when its Prepare was first called."""
        self.replaces: dict[int, list[Replace]] = {}
        """Application -> its calls of Replace."""
        self.statuses: dict[int, int] = {}
        """Application -> what its Prepare returned last."""
        self.errors: list[BaseException] = []
        """What went wrong in the spy itself."""
        self.flags: dict[int, list[int]] = {}
        """Application -> its delegate's flags before and after each Prepare, repetitions left out."""
        self.subgraphs: dict[int, int] = {}
        """Context -> number, in the order in which they were first prepared."""
        self.subgraph_calls: list[SubgraphCall] | None = None
        """Calls for contexts of other subgraphs, by each Prepare; None: nobody asked."""
        self.hooks: ContextHooks | None = None
        """What else is observed while callbacks are at work; None: nobody asked."""
        self.running: tuple[int, int] | None = None
        """(application, kernel) of the callback that is at work; kernel -1: Prepare or an init."""
        self.around: Callable[[int, bool], None] | None = None
        """Called with (kernel, True) before a kernel's invoke, and with (kernel, False) after it."""
        self._numbers: dict[int, int] = {}
        """User data as the runtime holds it -> number of the kernel; freed ones are left out."""
        self._contexts: set[int] = set()

    def hook(self, address: int, application: int) -> None:
        """Observe the delegate at ``address`` from now on."""
        self.owners[address] = application
        self.replaces[application] = []
        own = _hooked[address][2] if address in _hooked else peek.pointer(address + _PREPARE)
        if own:  # a NULL Prepare stays what it is: an opaque delegate, or a fault of the delegate
            _hooked[address] = self, application, own
            peek.replace_pointer(address + _PREPARE, _DELEGATE_PREPARE)

    def adopt(self, context: int) -> None:
        """Take what delegates do on this context for this session's, whichever session hooked them last."""
        self._contexts.add(context)
        _adopted[context] = self

    def unhook(self) -> None:
        """Give each delegate its own Prepare back, and forget kernels that were never freed."""
        for address in self.owners:
            release(address)
        self.forget()

    def forget(self) -> None:
        """Forget the interpreter, which is gone, and kernels that were never freed."""
        for number in self._numbers:
            _live.pop(number, None)
        for context in self._contexts:
            _failed.pop(context, None)
            _contexts.pop(context, None)
            _adopted.pop(context, None)

    def begin(self, context: int, application: int) -> tuple[int, tuple[PlanNode, ...]]:
        """A delegate begins to prepare; the place of its event, and the plan that it finds."""
        self._contexts.add(context)
        _contexts[context] = self
        plan = self.read_plan(context, self.owners)
        self.plans.setdefault(application, plan)
        self.subgraphs.setdefault(context, len(self.subgraphs))
        self.events.append(Event("Prepare", application, -1))
        return len(self.events) - 1, plan

    def note_flags(self, application: int, address: int) -> None:
        """Remember a delegate's flags as they are now, if they have changed."""
        known = self.flags.setdefault(application, [])
        value = peek.pointer(address + _FLAGS)
        if known[-1:] != [value]:
            known.append(value)

    def enter(self, functions: _Functions, context: int, params: int, user_data: int) -> int:
        """Enter the kernel that init has made; what the runtime shall hold as its user data."""
        _, nodes, inputs, outputs = view.params(params)
        subgraph = self.subgraphs.get(context, 0)
        kernel = Kernel(functions.application, len(self.kernels), nodes, inputs, outputs, subgraph)
        self.kernels.append(kernel)
        failed = user_data == layouts.KERNEL_INIT_FAILED
        self.events.append(Event("init", functions.application, kernel.kernel, int(failed)))
        live = _Live(kernel, functions, user_data)
        if failed:
            # This value has to reach the runtime as it is: one that knows it lets Replace fail.
            _failed.setdefault(context, []).append(live)
            return user_data
        # The runtime holds a number of ours as user data, never reused: two kernels of a delegate may have
        # the same user data, and a freed address may come back.
        number = next(_counter)
        _live[number] = live
        self._numbers[number] = kernel.kernel
        return number

    def over(self, user_data: int) -> None:
        """A kernel is freed."""
        self._numbers.pop(user_data, None)

    def drop_kernels(self, known: int) -> None:
        """Forget the latest kernels as far as they are freed already, but for the first ``known`` ones."""
        alive = set(self._numbers.values())
        while len(self.kernels) > known and len(self.kernels) - 1 not in alive:
            self.kernels.pop()

    def record(self, kind: EventKind, live: _Live, status: int) -> None:
        """Add a kernel's callback to the events."""
        self.events.append(Event(kind, live.kernel.application, live.kernel.kernel, status))


def release(address: int) -> None:
    """Give the delegate at ``address`` its own Prepare back, if it was hooked."""
    if address in _hooked:
        peek.replace_pointer(address + _PREPARE, _hooked.pop(address)[2])


_counter: Final = itertools.count(1)
_hooked: Final[dict[int, tuple[Session, int, int]]] = {}
"""Delegate -> session, application, address of its own Prepare."""
_preparing: Final[dict[int, tuple[Session, int, int]]] = {}
"""Context -> session, application, address of the runtime's own Replace."""
_registering: Final[dict[int, _Functions]] = {}
"""Context -> the registration that Replace is at work with."""
_live: Final[dict[int, _Live]] = {}
"""User data as the runtime holds it -> kernel."""
_contexts: Final[dict[int, Session]] = {}
"""Context -> session, until the session is over."""
_adopted: Final[dict[int, Session]] = {}
"""Context -> the session that asked for it. A delegate may be applied to interpreters of several."""
_failed: Final[dict[int, list[_Live]]] = {}
"""Context -> kernels whose init failed: a runtime that knows no such thing prepares and frees them, in
the order of their init."""


def _find(context: int, user_data: int | None) -> _Live | None:
    if user_data == layouts.KERNEL_INIT_FAILED:
        return next(iter(_failed.get(context, ())), None)
    return _live.get(user_data or 0)


_NOTHING: Final[contextlib.AbstractContextManager[Any]] = contextlib.nullcontext()


def _recording_calls(
    session: Session, application: int, context: int
) -> contextlib.AbstractContextManager[None]:
    """Record calls for contexts of other subgraphs, if the case asks for it."""
    calls = session.subgraph_calls
    if calls is None:
        return _NOTHING
    subgraph = session.subgraphs[context]
    return recorded_calls(
        context,
        lambda acquire, index, status: calls.append(
            SubgraphCall(application, subgraph, index, acquire, status)
        ),
    )


def _observing(
    session: Session, application: int, context: int, plan: tuple[PlanNode, ...]
) -> contextlib.AbstractContextManager[Any]:
    """Hook the context while Prepare is at work, if the case asks for it."""
    if session.hooks is None:
        return _NOTHING
    return session.hooks.prepare(context, application, [node.index for node in plan])


def _on_prepare(context: int, address: int) -> int:
    session, application, own = _hooked[address]
    # One delegate may be applied to interpreters of several sessions, and its Prepare is hooked once: whose
    # call it is, the context says.
    if context in _adopted:
        session = _adopted[context]
        application = session.owners[address]
    slot = context + _REPLACE
    session.running = application, -1
    try:
        at, plan = session.begin(context, application)
        replace = peek.pointer(slot)
        _preparing[context] = session, application, replace
        peek.set_pointer(slot, _REPLACE_HOOK)
        try:
            session.note_flags(application, address)
            recording = _recording_calls(session, application, context)
            with recording, _observing(session, application, context, plan):
                name = b"Prepare of delegate %d" % application
                function = _function(layouts.DelegatePrepare, own)
                status: int = call_log.call(name, function, context, address)
            session.note_flags(application, address)
        finally:
            peek.set_pointer(slot, replace)
            del _preparing[context]
            session.running = None
        session.events[at] = Event("Prepare", application, -1, status, session.subgraphs[context])
        session.statuses[application] = status
    except BaseException as error:
        # Never through C. Without its traceback, whose frames would keep interpreter and delegate alive.
        session.errors.append(error.with_traceback(None))
        return layouts.ERROR
    return status


def _on_replace(context: int, own: layouts.Registration, nodes: int, delegate: int) -> int:
    session, application, replace = _preparing[context]
    subgraph = session.subgraphs[context]
    try:
        functions = _Functions(session, application, own)
        _registering[context] = functions
        # A registration_external has callbacks of its own, which the runtime calls instead of ours.
        given = own if own.registration_external else functions.wrap(own)
        claimed = peek.integers(nodes)
        scope = scope_of(context)
        if scope is not None and not replacing(scope, own.custom_name or 0, nodes, len(session.kernels)):
            del _registering[context]
            session.replaces[application].append(Replace(claimed, layouts.ERROR, used_tail(own), subgraph))
            return layouts.ERROR
        try:
            status: int = _function(layouts.ReplaceNodeSubsets, replace)(context, given, nodes, delegate)
        finally:
            del _registering[context]
        session.replaces[application].append(Replace(claimed, status, used_tail(own), subgraph))
    except BaseException as error:
        session.errors.append(error.with_traceback(None))
        return layouts.ERROR
    return status


def _on_init(context: int, params: int, length: int) -> int:
    functions = _registering[context]
    scope = scope_of(context)
    try:
        if scope is not None:
            scope.enter_init()
        user_data = _init(functions, context, params, length) if functions.init else None
        return functions.session.enter(functions, context, params, user_data or 0)
    except BaseException as error:
        functions.session.errors.append(error.with_traceback(None))
        return layouts.KERNEL_INIT_FAILED
    finally:
        if scope is not None:
            scope.leave_init()


def _init(functions: _Functions, context: int, params: int, length: int) -> int | None:
    log = call_log.active()
    if log is None:
        return functions.init(context, params, length)  # type: ignore[no-any-return]  # by its prototype
    name = kernel_name(len(functions.session.kernels), view.params(params)[1])
    number = log.begin(f"init of {name}".encode())
    user_data: int | None = functions.init(context, params, length)
    log.end(number, int(user_data == layouts.KERNEL_INIT_FAILED))
    return user_data


def _call(own: Any, context: int, node: int, live: _Live, during: During) -> int:
    """Call a kernel's own function with its own user data in the node."""
    slot = node + _USER_DATA
    ours = peek.pointer(slot)
    session, kernel = live.functions.session, live.kernel
    outer = session.running
    peek.set_pointer(slot, live.user_data)
    session.running = kernel.application, kernel.kernel
    try:
        if session.hooks is None:
            status: int = live.call(during, own, context, node)
        else:
            with session.hooks.kernel(context, kernel, during):
                status = live.call(during, own, context, node)
    finally:
        peek.set_pointer(slot, ours)
        session.running = outer
    return status


def _on_kernel_prepare(context: int, node: int) -> int:
    live = _find(context, peek.pointer(node + _USER_DATA))
    if live is None:
        return layouts.ERROR
    session = live.functions.session
    try:
        own = live.functions.prepare
        status = _call(own, context, node, live, "prepare") if own else layouts.OK
        session.record("prepare", live, status)
    except BaseException as error:
        session.errors.append(error.with_traceback(None))
        return layouts.ERROR
    return status


def _on_kernel_invoke(context: int, node: int) -> int:
    live = _find(context, peek.pointer(node + _USER_DATA))
    if live is None:
        return layouts.ERROR
    session = live.functions.session
    try:
        before = snapshot(context, node, session.live) if session.stray_writes else None
        if session.around:
            session.around(live.kernel.kernel, True)
        status = _call(live.functions.invoke, context, node, live, "invoke")
        if session.around:
            session.around(live.kernel.kernel, False)
        session.record("invoke", live, status)
        if before is not None:
            session.writes += writes_since(before, live.kernel)
    except BaseException as error:
        session.errors.append(error.with_traceback(None))
        return layouts.ERROR
    return status


def _on_free(context: int, user_data: int | None) -> None:
    live = _find(context, user_data)
    session = live.functions.session if live else _contexts.get(context)
    if session is None:
        return
    if live is None:
        session.events.append(Event("free", -1, -1))
        return
    try:
        _live.pop(user_data or 0, None)
        session.over(user_data or 0)
        if user_data == layouts.KERNEL_INIT_FAILED:
            _failed[context].pop(0)
        session.record("free", live, layouts.OK)
        if live.functions.free:
            live.call("free", live.functions.free, context, live.user_data)
    except BaseException as error:
        session.errors.append(error.with_traceback(None))


_keep: Final = (
    layouts.DelegatePrepare(_on_prepare),
    layouts.ReplaceNodeSubsets(_on_replace),
    layouts.KernelInit(_on_init),
    layouts.KernelFree(_on_free),
    layouts.KernelCall(_on_kernel_prepare),
    layouts.KernelCall(_on_kernel_invoke),
)
_DELEGATE_PREPARE, _REPLACE_HOOK, _INIT, _FREE, _KERNEL_PREPARE, _KERNEL_INVOKE = (
    ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in _keep
)
