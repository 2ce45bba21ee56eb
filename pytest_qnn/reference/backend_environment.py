"""Execution environments of the reference backend (properties 317 and 318).

QnnGraph.h, QnnGraph_prepareExecutionEnvironment. BIND_MEM_HANDLES takes a set of IO tensors with registered
handles, which an execute may then use or not: registered memory is used in place anyway.
POPULATE_CLIENT_BUFS tells the client where the backend's own IO buffers lie; an execute with raw memory there
copies to where it is.
"""

from __future__ import annotations

from typing import Any

from pytest_qnn.abi.qnn import ExecuteEnvironment
from pytest_qnn.abi.qnn_codes import Error, TensorMemType
from pytest_qnn.abi.qnn_environment import EnvironmentOption
from pytest_qnn.reference.backend_execute import Execution
from pytest_qnn.reference.backend_objects import Graph, QnnError
from pytest_qnn.reference.backend_sections import pointers
from pytest_qnn.reference.personalities import DEFAULT, Personality

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
