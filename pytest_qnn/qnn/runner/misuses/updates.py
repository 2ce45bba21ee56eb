"""Calls of a `BadArgument` step that make an update of a binary's section, or free one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from pytest_qnn.qnn.abi.layouts import ContextBuffer
from pytest_qnn.qnn.cases.arguments import NO_VERSION, PointedCall
from pytest_qnn.qnn.cases.case import BadArgument
from pytest_qnn.qnn.runner.client import array_of
from pytest_qnn.qnn.runner.misuses.given import given, last_binary, prepared
from pytest_qnn.qnn.runner.sections import raw_buffer
from pytest_qnn.qnn.runner.state import State

_KEEP_UPDATABLE = 1


def _made(state: State, step: BadArgument) -> int:
    """An update of the binary that was written last, with the weights of a graph; what is made is freed."""
    operator = prepared(state, step).operator.again()
    held, size = last_binary(state)
    binary = raw_buffer(ctypes.addressof(held), size)
    if step.argument == "binaryBuffer.version":
        binary.version = NO_VERSION
    elif step.argument == "binaryBuffer.data":
        binary.v1.binaryBuf.data = None
    weights = operator.inputs[len(operator.inputs) - 1]
    listed = array_of(ctypes.c_void_p, 1)(given(step, "tensors[0]", ctypes.addressof(weights)))
    update = _update(step)
    state.held.append((operator, binary, listed, update))
    code = state.client.call(
        step.call,
        given(step, "binaryBuffer", ctypes.addressof(binary)),
        None,
        given(step, "tensors", ctypes.addressof(listed)),
        1,
        _KEEP_UPDATABLE,
        None,
        None,
        None,
        given(step, "binarySectionUpdate", ctypes.addressof(update)),
    )
    if code == 0 and step.argument != "binarySectionUpdate":
        state.client.call("contextFreeBinarySectionUpdate", update, None)
    return code


def _freed(state: State, step: BadArgument) -> int:
    """An update without memory: no other that was not made can be freed."""
    return state.client.call(step.call, _update(step), None)


def _update(step: BadArgument) -> ContextBuffer:
    """A place for an update, without memory."""
    made = raw_buffer(0, 0)
    if step.argument == "binarySectionUpdate.version":
        made.version = NO_VERSION
    return made


UPDATES: dict[PointedCall, Callable[[State, BadArgument], int]] = {
    "contextGetBinarySectionUpdate": _made,
    "contextFreeBinarySectionUpdate": _freed,
}
"""How each is made."""
