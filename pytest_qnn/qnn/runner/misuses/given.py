"""What calls with a bad argument are given: places, lists, tensors, and graphs that are composed for them."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.qnn.abi.codes import DataType, EncodingDefinition, QuantizationEncoding
from pytest_qnn.qnn.abi.layouts import ContextConfig, OpConfig, Tensor
from pytest_qnn.qnn.cases.arguments import NO_VALUE, NO_VERSION, Argument
from pytest_qnn.qnn.cases.case import BadArgument, Prepare
from pytest_qnn.qnn.runner.client import Operator, array_of
from pytest_qnn.qnn.runner.graphs import operator_of
from pytest_qnn.qnn.runner.state import Graph, Skip, State

Place = Any
"""A pointer as ctypes takes it; None is NULL."""
_CUSTOM = 0
"""The option CUSTOM of every component's configurations and properties."""


def given(step: BadArgument, name: Argument, place: Place) -> Place:
    """The place, or NULL where the step is about this argument."""
    return None if step.argument == name else place


_CUSTOM_OF_NULL: frozenset[Argument] = frozenset({"config.customConfig", "properties.customProperty"})
_UNKNOWN_OPTION: frozenset[Argument] = frozenset({"config.option", "properties.option"})


def options(step: BadArgument) -> tuple[Place, Any]:
    """A list of one option, CUSTOM of NULL or none that there is, if the step is about it; what it leads to.

    NULL, and nothing, if it is not.
    """
    if step.argument not in _CUSTOM_OF_NULL | _UNKNOWN_OPTION:
        return None, None
    # Of the components' configurations and properties all begin as those of contexts: option, pointer.
    entry = ContextConfig(option=NO_VALUE if step.argument in _UNKNOWN_OPTION else _CUSTOM)
    listed = array_of(ctypes.c_void_p, 2)(ctypes.addressof(entry), None)
    return ctypes.addressof(listed), (entry, listed)


def freed_again(state: State, code: int, out: Any) -> int:
    """The code; a context that was made nevertheless is freed."""
    if code == 0 and out.value:
        state.client.call("contextFree", out.value, None)
    return code


def last_binary(state: State) -> tuple[Any, int]:
    """A copy of the binary that was written last, and its bytes. Raises Skip where there is none."""
    data = next(reversed(state.binaries.values()), b"")
    if not data:
        raise Skip("there is no binary")
    held = ctypes.create_string_buffer(data, len(data))
    state.held.append(held)
    return held, len(data)


def prepared(state: State, step: BadArgument) -> Graph:
    """The graph of the step. Raises Skip where it was never made."""
    made = state.graphs.get(step.graph)
    if made is None:
        raise Skip(f"graph {step.graph} was never made")
    return made


def new_name(state: State) -> bytes:
    """A name that no graph has."""
    state.mistaken += 1
    return b"bad argument %d" % state.mistaken


def begun(state: State, step: BadArgument) -> tuple[int, Operator]:
    """A new graph without tensors, and those that it will have. Raises Skip where there is none."""
    operator = operator_of(Prepare("bad argument", step.context, step.op, step.dtype))
    context = state.context_value(step.context)
    code, graph = state.client.create("graphCreate", context, new_name(state), None)
    if code != 0:
        raise Skip(f"graphCreate gives {code}")
    return graph, operator


def spoilt_operator(operator: Operator, step: BadArgument) -> OpConfig:
    """The operator's node, of which one field is NULL, or a version that there is not."""
    config: OpConfig = operator.config()
    field = step.argument.partition(".")[2]
    if field == "version":
        config.version = NO_VERSION
    elif field == "params":
        config.v1.numOfParams = 1
    else:
        setattr(config.v1, field, type(getattr(config.v1, field))() if "Tensors" in field else None)
    return config


def spoilt_tensor(tensor: Tensor, step: BadArgument) -> Tensor:
    """The tensor, of which one field is NULL, or what there is not.

    Raises Skip for a quantisation of elements that have none.
    """
    if step.argument == "tensor.version":
        tensor.version = NO_VERSION
    elif step.argument == "tensor.name":
        tensor.v1.name = None
    elif step.argument == "tensor.type":
        tensor.v1.type = NO_VALUE
    elif step.argument == "tensor.dataType":
        tensor.v1.dataType = NO_VALUE
    elif step.argument == "tensor.dimensions":
        tensor.v1.dimensions = type(tensor.v1.dimensions)()
    elif step.argument == "tensor.axisScaleOffset":
        _by_axis(tensor)
    return tensor


def _by_axis(tensor: Tensor) -> None:
    """A scale for each element of the last dimension, and no array of them."""
    if tensor.v1.dataType != DataType.UFIXED_POINT_8:
        raise Skip("elements of this type are not quantised")
    last = tensor.v1.rank - 1
    parameters = tensor.v1.quantizeParams
    parameters.encodingDefinition = EncodingDefinition.DEFINED
    parameters.quantizationEncoding = QuantizationEncoding.AXIS_SCALE_OFFSET
    found = parameters.axisScaleOffsetEncoding
    found.axis, found.numScaleOffsets = last, tensor.v1.dimensions[last]
    found.scaleOffset = type(found.scaleOffset)()
