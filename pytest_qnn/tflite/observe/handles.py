"""Buffer handles of a delegate: calls of its functions for them, and handles at the borders of kernels."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.trace import (
    BufferCall,
    BufferCallKind,
    BufferFunctions,
    CallbackCounts,
    Event,
    EventKind,
    Handled,
)

if TYPE_CHECKING:
    from pytest_qnn.tflite.observe.spy import Session

Around = Callable[[int, bool], None]
_MOST = 2000
"""Tensors and calls that are recorded of one interpreter."""
_TENSOR_SIZE: Final = ctypes.sizeof(layouts.Tensor)
_OFFSETS: Final = (
    layouts.Delegate.CopyFromBufferHandle.offset,
    layouts.Delegate.CopyToBufferHandle.offset,
    layouts.Delegate.FreeBufferHandle.offset,
)


class Handles:
    """What is seen of buffer handles in the main graph of one interpreter.

    Args:
        context: its TfLiteContext.
        session: the spy on its kernels.
        where: which step is running.
    """

    def __init__(self, context: int, session: Session, where: Where) -> None:
        self.handled: list[Handled] = []
        self.calls: list[BufferCall] = []
        self.functions: list[BufferFunctions] = []
        """By application."""
        self._context = context
        self._session = session
        self._where = where
        self._before: dict[int, bytes] = {}
        """Data of the outputs of the kernel that is being invoked."""
        _observed[context] = self

    def forget(self) -> None:
        """The interpreter is gone."""
        _observed.pop(self._context, None)

    def hook(self, address: int) -> None:
        """Record calls of the functions of the delegate at ``address`` from now on."""
        note(address)
        self.functions.append(BufferFunctions(*map(bool, _hooked[address])))

    def around(self, inner: Around | None) -> Around:
        """What the spy calls around each invoke of a kernel; ``inner`` is called too."""

        def both(kernel: int, begins: bool) -> None:
            if inner:
                inner(kernel, begins)
            self._look(kernel, begins=begins)

        return both

    def _look(self, number: int, *, begins: bool) -> None:
        kernel = self._session.kernels[number]
        if kernel.subgraph or len(self.handled) >= _MOST:
            return
        if begins:
            self._before = {index: self._contents(index) for index in kernel.outputs}
        for index in kernel.inputs if begins else kernel.outputs:
            if index < 0:
                continue
            tensor = tensor_of(self._context, index)
            if not begins or tensor.data_is_stale:
                owned = self._session.owners.get(tensor.delegate or 0, -1) == kernel.application
                state = tensor.buffer_handle, bool(tensor.data_is_stale), owned
                written = not begins and self._contents(index) != self._before.get(index)
                self.handled.append(Handled(number, index, begins, *state, written))

    def _contents(self, index: int) -> bytes:
        tensor = tensor_of(self._context, index)
        return ctypes.string_at(tensor.data, tensor.bytes) if tensor.data else b""

    def record(self, kind: BufferCallKind, delegate: int, handle: int, tensor: int, status: int) -> None:
        """A function of a delegate was called; ``tensor`` is an address."""
        if len(self.calls) < _MOST:
            application = self._session.owners.get(delegate, -1)
            index = index_of(self._context, tensor)
            self.calls.append(BufferCall(kind, application, handle, index, status, self._where.number))


def note(address: int) -> None:
    """Have the list of calls name each FreeBufferHandle of the delegate at ``address``, until `release`."""
    if address not in _hooked:
        _hooked[address] = tuple(peek.pointer(address + offset) for offset in _OFFSETS)
        for offset, own, ours in zip(_OFFSETS, _hooked[address], _HOOKS, strict=True):
            if own:
                peek.replace_pointer(address + offset, ours)


def release(address: int) -> None:
    """Give the delegate at ``address`` its own functions back, if they were hooked."""
    for offset, own in zip(_OFFSETS, _hooked.pop(address, ()), strict=False):
        if own:
            peek.replace_pointer(address + offset, own)


def tensor_of(context: int, index: int) -> layouts.Tensor:
    """Tensor ``index`` as it is, to read and to write."""
    tensors = peek.pointer(context + layouts.Context.tensors.offset)
    return layouts.Tensor.from_address(tensors + index * _TENSOR_SIZE)


def index_of(context: int, tensor: int) -> int:
    """Which tensor of the context stands at this address; -1: none."""
    index, rest = divmod(tensor - peek.pointer(context + layouts.Context.tensors.offset), _TENSOR_SIZE)
    return index if not rest and 0 <= index < peek.pointer(context) else -1


_hooked: Final[dict[int, tuple[int, ...]]] = {}
"""Delegate -> addresses of its own functions, 0 for NULL."""
_observed: Final[dict[int, Handles]] = {}


@functools.lru_cache(maxsize=64)
def _function(kind: Any, address: int) -> Any:
    return kind(address)


def _on_copy(which: int, kind: BufferCallKind, context: int, delegate: int, handle: int, tensor: int) -> int:
    own = _function(layouts.CopyBufferHandle, _hooked[delegate][which])
    status: int = own(context, delegate, handle, tensor)
    handles = _observed.get(context)
    if handles is not None:
        handles.record(kind, delegate, handle, tensor, status)
    return status


def _on_free(context: int, delegate: int, handle: int) -> None:
    before = peek.integer(handle)
    own = _function(layouts.FreeBufferHandle, _hooked[delegate][2])
    call_log.call(b"FreeBufferHandle", own, context, delegate, handle)
    handles = _observed.get(context)
    if handles is not None:
        handles.record("free", delegate, before, 0, peek.integer(handle))


_keep: Final = (
    layouts.CopyBufferHandle(functools.partial(_on_copy, 0, "from")),
    layouts.CopyBufferHandle(functools.partial(_on_copy, 1, "to")),
    layouts.FreeBufferHandle(_on_free),
)
_HOOKS: Final = tuple(ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in _keep)


class CallbackTally:
    """How often each callback was called while steps were repeated, and in whose applications one failed."""

    def __init__(self) -> None:
        self._by_kind: Counter[EventKind] = Counter()
        self._failed: set[int] = set()

    def add(self, events: Sequence[Event]) -> None:
        """Callbacks that were made since."""
        self._by_kind.update(event.kind for event in events)
        self._failed |= {event.application for event in events if event.status}

    def join(self, other: CallbackTally) -> None:
        """Those of another thread."""
        self._by_kind.update(other._by_kind)
        self._failed |= other._failed

    def seen(self) -> CallbackCounts:
        """As a trace has them."""
        return CallbackCounts(dict(self._by_kind), tuple(sorted(self._failed)))


class Where(threading.local):
    """What the running thread is at."""

    number = 0
    """Of the step."""
    round = 0
    """Which time of a Repeat."""
    middle = False
    """This time of the Repeat is neither the first nor the last."""
    counts: CallbackTally | None = None
    """Callbacks, while a Repeat counts them."""
    alone: frozenset[str] | None = None
    """In a Parallel: interpreters that other branches use."""
