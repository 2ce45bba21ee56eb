"""What else may be set on, or asked of, the objects of the reference backend; execution environments."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.qnn.abi.codes import ContextOption, Error, TensorMemType
from pytest_qnn.qnn.abi.layouts import EnvironmentOption, ExecuteEnvironment, OperationName
from pytest_qnn.qnn.reference.binaries import Binaries
from pytest_qnn.qnn.reference.core import context_config
from pytest_qnn.qnn.reference.execute import Execution
from pytest_qnn.qnn.reference.objects import Graph, QnnError
from pytest_qnn.qnn.reference.operators.suite import PACKAGE
from pytest_qnn.qnn.reference.operators.table import NAMES
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality
from pytest_qnn.qnn.reference.sections import pointers

_GRAPH_PRIORITY = 3
"""QNN_GRAPH_CONFIG_OPTION_PRIORITY."""
_OPERATIONS = (OperationName * len(NAMES))(
    *(OperationName(PACKAGE.encode(), name.encode(), None) for name in NAMES)
)
_HARMLESS = frozenset({ContextOption.PRIORITY, ContextOption.ERROR_REPORTING})


class Settings(Binaries):
    """Configurations after creation, properties, the list of operators, a look at a binary, long messages."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.texts: dict[int, Any] = {}
        """Verbose messages that clients have not given back, by address."""

    def backend_set_config(self, backend: int | None, config: int | None) -> None:
        """QnnBackend_setConfig: there is no option (4003)."""
        self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        _take(config, frozenset(), Error.BACKEND_ERROR_NOT_SUPPORTED)

    def context_set_config(self, context: int | None, config: int | None) -> None:
        """QnnContext_setConfig: priority and error reporting, without effect."""
        self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        _take(config, _HARMLESS, Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)

    def graph_set_config(self, graph: int | None, config: int | None) -> None:
        """QnnGraph_setConfig: priority, without effect."""
        self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
        _take(config, frozenset({_GRAPH_PRIORITY}), Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)

    def device_set_config(self, device: int | None, config: int | None) -> None:
        """QnnDevice_setConfig: there is no option (1000)."""
        self.require("device", device, Error.DEVICE_ERROR_INVALID_HANDLE)
        _take(config, frozenset(), Error.DEVICE_ERROR_UNSUPPORTED_FEATURE)

    def backend_get_property(self, backend: int | None, properties: int | None) -> None:
        """QnnBackend_getProperty: there is no property (4003)."""
        self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        if not properties:
            raise QnnError(Error.BACKEND_ERROR_INVALID_ARGUMENT)
        _take(properties, frozenset(), Error.BACKEND_ERROR_NOT_SUPPORTED)

    def graph_get_property(self, graph: int | None, properties: int | None) -> None:
        """QnnGraph_getProperty: there is no property (1000)."""
        self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
        if not properties:
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT)
        _take(properties, frozenset(), Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)

    def backend_get_supported_operations(self, backend: int | None, count: Any, out: Any) -> None:
        """QnnBackend_getSupportedOperations; without a backend those of the one package that there is."""
        if backend:
            self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        if not count or not out:
            raise QnnError(Error.BACKEND_ERROR_INVALID_ARGUMENT)
        count[0], out[0] = len(_OPERATIONS), ctypes.addressof(_OPERATIONS)

    def context_validate_binary(
        self, backend: int | None, device: int | None, config: int | None, buffer: int | None, size: int
    ) -> None:
        """QnnContext_validateBinary: as contextCreateFromBinary, and nothing is made."""
        self.require_binaries()
        self.require("backend", backend, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if device:
            self.require("device", device, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if not buffer or not size:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        self.check_binary_config(config)
        try:
            self.read_binary(ctypes.string_at(buffer, size))
        except ValueError:
            raise QnnError(Error.CONTEXT_ERROR_CREATE_FROM_BINARY) from None

    def error_get_verbose_message(self, code: int, out: Any) -> None:
        """QnnError_getVerboseMessage: the message in memory of its own; 10001 as errorGetMessage."""
        self.error_get_message(code, out)
        text = ctypes.create_string_buffer(out[0])
        self.texts[ctypes.addressof(text)] = text
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = ctypes.addressof(text)

    def error_free_verbose_message(self, text: int | None) -> None:
        """QnnError_freeVerboseMessage: 10000 for any other address."""
        if self.texts.pop(text or 0, None) is None:
            raise QnnError(Error.ERROR_INVALID_ARGUMENT)


def _take(config: int | None, harmless: frozenset[int], code: int) -> None:
    """Refuse a list with an option that is not harmless."""
    if any(entry.option not in harmless for entry in context_config(config)):
        raise QnnError(code)


_INVALID = Error.GRAPH_ERROR_INVALID_ARGUMENT


class Environments(Execution):
    """graphPrepareExecutionEnvironment and graphReleaseExecutionEnvironment."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.environments: dict[int, list[int]] = {}
        """By graph: the options of its environments that were not released."""
        super().__init__(personality)

    def graph_prepare_execution_environment(
        self, graph: int | None, environments: int | None, count: int
    ) -> None:
        """QnnGraph_prepareExecutionEnvironment: all environments are good, or none is prepared."""
        owner, found = self._environments(graph, environments, count)
        for each in found:
            self.check_environment(owner, each)
        for each in found:
            if each.option == EnvironmentOption.POPULATE_CLIENT_BUFS:
                self.populate(owner, each.tensorSet.v1)
            self.environments.setdefault(owner.handle, []).append(each.option)

    def graph_release_execution_environment(
        self, graph: int | None, environments: int | None, count: int
    ) -> None:
        """QnnGraph_releaseExecutionEnvironment: 6000 for one that was not prepared."""
        owner, found = self._environments(graph, environments, count)
        left = list(self.environments.get(owner.handle, []))
        for each in found:
            if each.option not in left:
                raise QnnError(_INVALID)
            left.remove(each.option)
        self.environments[owner.handle] = left

    def check_environment(self, graph: Graph, environment: Any) -> None:
        """Hook: 6000 unless its tensors are IO tensors of the graph; to be bound, with registered handles."""
        tensors = environment.tensorSet.v1
        if environment.tensorSet.version != 1 or not (tensors.numInputs or tensors.numOutputs):
            raise QnnError(_INVALID)
        for given, known in _tensors(graph, tensors):
            if given.v1.id not in known:
                raise QnnError(_INVALID)
            if environment.option == EnvironmentOption.POPULATE_CLIENT_BUFS:
                continue
            if given.v1.memType != TensorMemType.MEMHANDLE:
                raise QnnError(_INVALID)
            try:
                self.bind(graph, known[given.v1.id], given.v1)
            except QnnError:
                raise QnnError(_INVALID) from None

    def populate(self, graph: Graph, tensors: Any) -> None:
        """Hook: write to each tensor where its IO buffer lies."""
        for given, known in _tensors(graph, tensors):
            buffer = self.buffer_of(graph, known[given.v1.id])
            given.v1.memType = TensorMemType.RAW
            given.v1.clientBuf.data, given.v1.clientBuf.dataSize = buffer.address, known[given.v1.id].size

    def release_buffers(self, graph: Graph) -> None:
        """The environments of a graph go with it."""
        self.environments.pop(graph.handle, None)
        super().release_buffers(graph)

    def _environments(self, graph: int | None, listed: int | None, count: int) -> tuple[Graph, list[Any]]:
        """The graph, and what is asked of it; 1000 for an option that is not offered."""
        if not self.personality.environments:
            raise QnnError(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)
        owner: Graph = self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
        if not listed or not count:
            raise QnnError(_INVALID)
        addresses = pointers(listed, count)
        if not all(addresses):
            raise QnnError(_INVALID)
        found = [ExecuteEnvironment.from_address(address) for address in addresses]
        if not all(each.option in list(EnvironmentOption) for each in found):
            raise QnnError(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)
        return owner, found


def _tensors(graph: Graph, tensors: Any) -> list[tuple[Any, Any]]:
    """Each tensor of a Qnn_TensorSetV1_t, with the graph's tensors among which it must be; 6000 for NULL."""
    if (tensors.numInputs and not tensors.inputs) or (tensors.numOutputs and not tensors.outputs):
        raise QnnError(_INVALID)
    inputs = [(tensors.inputs[i], graph.inputs) for i in range(tensors.numInputs)]
    return inputs + [(tensors.outputs[i], graph.outputs) for i in range(tensors.numOutputs)]
