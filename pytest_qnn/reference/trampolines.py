"""The C callbacks of every reference delegate, made once per process.

Runtime and delegate find each other by the delegate's address and by a kernel's user data (a number, not
an address). So a delegate costs no new callbacks, and none is freed while C may still call it. An
exception never leaves a callback: ctypes would return an undefined status.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Final

from pytest_qnn.abi import peek, tflite

if TYPE_CHECKING:
    from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate

_delegates: Final[dict[int, ReferenceDelegate]] = {}
_kernels: Final[dict[int, tuple[ReferenceDelegate, Kernel]]] = {}
_numbers: Final = itertools.count(1)

_USER_DATA: Final = tflite.Node.user_data.offset


def enter(delegate: ReferenceDelegate) -> None:
    """Let callbacks reach the delegate."""
    _delegates[delegate.address] = delegate


def leave(delegate: ReferenceDelegate) -> None:
    """Forget the delegate, and the kernels of it that the runtime never freed."""
    if _delegates.get(delegate.address) is not delegate:
        return
    del _delegates[delegate.address]
    for number in [number for number, (owner, _) in _kernels.items() if owner is delegate]:
        del _kernels[number]


def delegate_at(address: int) -> ReferenceDelegate | None:
    """The delegate whose TfLiteDelegate is at this address; None: it is closed, or none of ours."""
    return _delegates.get(address)


def _told(delegate: ReferenceDelegate, context: int, status: int, what: str) -> int:
    """The status; of one that is no success the runtime is told in words."""
    if status:
        delegate.explain(context, f"reference delegate: {what} failed")
    return status


def _raised(delegate: ReferenceDelegate, context: int, what: str, error: BaseException) -> int:
    """The status of a callback that ended in an exception; the runtime is told in words."""
    delegate.errors.append(error.with_traceback(None))
    delegate.explain(context, f"reference delegate: {what} failed: {error}")
    return tflite.ERROR


def _prepare(context: int, address: int) -> int:
    delegate = _delegates.get(address)
    if delegate is None:
        return tflite.ERROR
    try:
        return _told(delegate, context, delegate.prepare(context), "Prepare")
    except BaseException as error:
        return _raised(delegate, context, "Prepare", error)


def _init(context: int, params: int, _length: int) -> int:
    address, nodes, inputs, outputs = (peek.pointer(params + at) for at in (0, 8, 16, 24))
    delegate = _delegates.get(address)
    if delegate is None:
        return tflite.KERNEL_INIT_FAILED
    try:
        kernel = delegate.init(context, peek.integers(nodes), peek.integers(inputs), peek.integers(outputs))
    except BaseException as error:
        delegate.errors.append(error.with_traceback(None))
        kernel = None
    if kernel is None:
        delegate.explain(context, "reference delegate: init of a kernel failed")
        return tflite.KERNEL_INIT_FAILED
    number = next(_numbers)
    _kernels[number] = delegate, kernel
    return number


def _kernel_prepare(context: int, node: int) -> int:
    found = _kernels.get(peek.pointer(node + _USER_DATA))
    if found is None:
        return tflite.ERROR  # init failed, on a runtime that does not know KERNEL_INIT_FAILED
    delegate, kernel = found
    try:
        return _told(delegate, context, delegate.kernel_prepare(context, kernel), "prepare of a kernel")
    except BaseException as error:
        return _raised(delegate, context, "prepare of a kernel", error)


def _kernel_invoke(context: int, node: int) -> int:
    found = _kernels.get(peek.pointer(node + _USER_DATA))
    if found is None:
        return tflite.ERROR
    delegate, kernel = found
    try:
        return _told(delegate, context, delegate.kernel_invoke(context, kernel), "invoke of a kernel")
    except BaseException as error:
        return _raised(delegate, context, "invoke of a kernel", error)


def _free(_context: int, user_data: int | None) -> None:
    found = _kernels.pop(user_data or 0, None)
    if found is None:
        return
    delegate, kernel = found
    try:
        delegate.free(kernel)
    except BaseException as error:
        delegate.errors.append(error.with_traceback(None))


_keep: Final = (
    tflite.DelegatePrepare(_prepare),
    tflite.KernelInit(_init),
    tflite.KernelFree(_free),
    tflite.KernelCall(_kernel_prepare),
    tflite.KernelCall(_kernel_invoke),
)
PREPARE, INIT, FREE, KERNEL_PREPARE, KERNEL_INVOKE = (
    ctypes.cast(callback, ctypes.c_void_p).value for callback in _keep
)
