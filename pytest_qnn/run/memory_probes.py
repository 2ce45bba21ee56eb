"""Steps that ask a target about itself."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.abi.qnn import (
    ApiVersion,
    ExecuteEnvironment,
    TensorP,
)
from pytest_qnn.abi.qnn_table import Interface as InterfaceStruct
from pytest_qnn.abi.qnn_table import InterfaceP
from pytest_qnn.cases.memory_probes import Environment, Interface, Message, Restart, Version
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.run.memory_state import Skip, State
from pytest_qnn.run.qnn_client import UNTOUCHED, array_of
from pytest_qnn.trace import StepSeen

_TEXT = 512
_SENTINEL_TEXT = ctypes.create_string_buffer(b"untouched")


def interface(state: State, step: Interface) -> StepSeen:
    """The bytes of the first interface, its name, and its version."""
    del step
    listed, count = ctypes.POINTER(InterfaceP)(), ctypes.c_uint32()
    code: int = state.client.entry.get_providers(ctypes.byref(listed), ctypes.byref(count))
    if code or not count.value or not listed or not listed[0]:
        return StepSeen(code=code)
    found = listed[0].contents
    address = ctypes.cast(listed[0], ctypes.c_void_p).value or 0
    body = ctypes.string_at(address, ctypes.sizeof(InterfaceStruct))
    counts = _version(found.apiVersion)
    return StepSeen(code=code, values=(address,), data=(body, found.providerName or b""), counts=counts)


def _version(api: Any) -> dict[str, int]:
    core, own = api.coreApiVersion, api.backendApiVersion
    named = {"core": core, "backend": own}
    return {
        f"{name}_{part}": getattr(version, part)
        for name, version in named.items()
        for part in ("major", "minor", "patch")
    }


def version(state: State, step: Version) -> StepSeen:
    """The version, or the build id, as a backend says it before it is created."""
    if step.call == "api":
        said = ApiVersion()
        code = state.client.call("backendGetApiVersion", None if step.null else ctypes.byref(said))
        return StepSeen(code=code, counts=_version(said) if code == 0 and not step.null else {})
    code, values, data = _text(state, step.null, "backendGetBuildId")
    return StepSeen(code=code, values=values, data=data)


def message(state: State, step: Message) -> StepSeen:
    """What an error code means, in the backend's words."""
    state.session.open()
    code, values, data = _text(state, step.null, "errorGetMessage", step.error)
    return StepSeen(code=code, values=values, data=data)


def _text(
    state: State, null: bool, call: str, *arguments: int
) -> tuple[int, tuple[int, ...], tuple[bytes, ...]]:
    """A call that gives a text: (0,) NULL, (1,) a text, or `UNTOUCHED` for its pointer; and the text."""
    out = ctypes.c_char_p(ctypes.addressof(_SENTINEL_TEXT))
    code = state.client.call(call, *arguments, None if null else ctypes.byref(out))
    address = ctypes.cast(out, ctypes.c_void_p).value or 0
    if address == ctypes.addressof(_SENTINEL_TEXT):
        return code, (UNTOUCHED,), ()
    return code, (int(bool(address)),), (out.value[:_TEXT],) if out.value else ()


def restart(state: State, step: Restart) -> StepSeen:  # noqa: ARG001 - each kind of step has one
    """Only the reference can be made to lose what a restart takes."""
    backend = state.client.entry.owner
    if not isinstance(backend, ReferenceBackend):
        raise Skip("nothing here can make the subsystem behind this target restart")
    backend.restart()
    return StepSeen()


def environment(state: State, step: Environment) -> StepSeen:
    """QnnGraph_prepareExecutionEnvironment over the graph's own tensors."""
    state.session.open()
    graph = state.graph_value(step.graph)
    made = state.graphs.get(step.graph)
    if made is None:
        raise Skip(f"graph {step.graph} was never made")
    operator = made.operator
    given = ExecuteEnvironment(option=step.option)
    given.tensorSet.version = 1
    given.tensorSet.v1.numInputs, given.tensorSet.v1.numOutputs = operator.io_inputs, 1
    given.tensorSet.v1.inputs = ctypes.cast(operator.inputs, TensorP)
    given.tensorSet.v1.outputs = ctypes.cast(operator.outputs, TensorP)
    table = array_of(ctypes.c_void_p, 1)(ctypes.addressof(given))
    code = state.client.call("graphPrepareExecutionEnvironment", graph, table, 1)
    if code == 0:
        state.client.call("graphReleaseExecutionEnvironment", graph, table, 1)
    return StepSeen(code=code)
