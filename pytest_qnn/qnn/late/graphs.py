"""Late faults of composing graphs: both struct versions, several graphs, data of STATIC tensors."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.qnn.abi.codes import Error, TensorMemType, TensorType
from pytest_qnn.qnn.late.conditions import KIB64, Versions
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import Context, Graph, Kind, QnnError, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality


@faulty_backend(
    "late-version-2-preset", "A version 2 tensor for handles may be created with a handle that is not NULL."
)
class _Version2Preset(Versions):
    """Source: seed 001, listing 1 lines 8 to 10; QnnTensor.h; catalogue, PRE-01 and PRE-08."""

    def check_preset(self, given: Any) -> None:
        if not (self.newer and given.memType == TensorMemType.MEMHANDLE):
            super().check_preset(given)


@faulty_backend(
    "late-version-2-hint", "An output that is created as version 2 loses its memory type: it is prepared raw."
)
class _Version2Hint(Versions):
    """Source: seed 001, online preparation (the hint is memType); catalogue, PRE-04, PRE-08 and QMG-04."""

    def hint(self, graph: Graph, tensor: Tensor) -> int:
        if self.newer and tensor.type == TensorType.APP_READ:
            return int(TensorMemType.RAW)
        return super().hint(graph, tensor)


@faulty_backend(
    "late-second-graph-allocates",
    "From the second graph of a context on, IO buffers are allocated at preparation in any case.",
)
class _SecondGraphAllocates(ReferenceBackend):
    """Source: seed 001, table of memory types, rows 3 and 4; catalogue, QMG-03 and QMG-04."""

    def wants_buffer(self, graph: Graph, tensor: Tensor) -> bool:
        second = graph is not next(iter(graph.context.graphs.values()))
        return second or super().wants_buffer(graph, tensor)


@faulty_backend("late-ids-third-graph", "From the third graph of a context on, tensor ids begin at 1 again.")
class _IdsThirdGraph(ReferenceBackend):
    """Source: QnnTensor.h, QnnTensor_createGraphTensor (ids are unique in the context); catalogue, PRE-07."""

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        owner = self.graphs.get(graph or 0)
        if owner is None or owner in list(owner.context.graphs.values())[:2]:
            super().tensor_create_graph_tensor(graph, tensor)
            return
        given_out, owner.context.tensors = owner.context.tensors, len(owner.tensors)
        try:
            super().tensor_create_graph_tensor(graph, tensor)
        finally:
            owner.context.tensors = given_out


@faulty_backend(
    "late-name-third-context", "A graph name that two other contexts have is refused in a third one (6003)."
)
class _NameThirdContext(ReferenceBackend):
    """Source: QnnGraph.h, QnnGraph_create (names are unique in a context)."""

    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        text = (name or b"").decode(errors="replace")
        others = [each for each in self.contexts.values() if each.handle != context and text in each.graphs]
        if len(others) >= 2 and out and context in self.contexts:
            raise QnnError(Error.GRAPH_ERROR_INVALID_NAME)
        super().graph_create(context, name, config, out)


@faulty_backend(
    "late-retrieve-third-context",
    "graphRetrieve of a name that three contexts have gives the graph of the first of them.",
)
class _RetrieveThirdContext(ReferenceBackend):
    """Source: QnnGraph.h, QnnGraph_retrieve; seed 002, listing 3 lines 141 to 148."""

    def graph_retrieve(self, context: int | None, name: bytes | None, out: Any) -> None:
        super().graph_retrieve(context, name, out)
        text = (name or b"").decode(errors="replace")
        having = [each for each in self.contexts.values() if text in each.graphs]
        if len(having) >= 3:
            out[0] = having[0].graphs[text].handle


@faulty_backend(
    "late-stale-graph-name",
    "The handle of a graph that is gone is taken for a newer graph of the same name.",
)
class _StaleGraphName(ReferenceBackend):
    """Source: QnnGraph.h, QNN_GRAPH_ERROR_INVALID_HANDLE; catalogue, IF-10."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.gone: dict[int, str] = {}
        super().__init__(personality)

    def release_graphs(self, context: Context) -> None:
        self.gone |= {graph.handle: graph.name for graph in context.graphs.values()}
        super().release_graphs(context)

    def require(self, kind: Kind, value: int | None, code: int) -> Any:
        if kind == "graph" and value in self.gone:
            for graph in self.graphs.values():
                if graph.name == self.gone[value or 0] and graph.handle > (value or 0):
                    return graph
        return super().require(kind, value, code)


@faulty_backend(
    "late-static-64k",
    "Data of STATIC tensors of 64 KiB or more is read when the graph is finalised, not when it is created.",
    deadly=True,
)
class _Static64K(ReferenceBackend):
    """Source: QnnTensor.h, QnnTensor_createGraphTensor (data is copied); catalogue, PRE-03."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.places: dict[tuple[int, int], int] = {}
        """Addresses of client memory, by graph and tensor."""
        super().__init__(personality)

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        super().tensor_create_graph_tensor(graph, tensor)
        made = self.graphs[graph or 0].tensors[tensor[0].v1.id]
        if made.type == TensorType.STATIC and made.size >= KIB64:
            self.places[graph or 0, made.id] = tensor[0].v1.clientBuf.data

    def prepare_buffers(self, graph: Graph) -> None:
        super().prepare_buffers(graph)
        for tensor in graph.tensors.values():
            address = self.places.pop((graph.handle, tensor.id), None)
            if address is not None:
                tensor.data = ctypes.string_at(address, tensor.size)


@faulty_backend(
    "late-io-buffers-kept",
    "contextFree gives back the internal IO buffers of a context's first two graphs only.",
)
class _IoBuffersKept(ReferenceBackend):
    """Source: seed 001 (QNN reserves them for the graph); QnnContext.h, QnnContext_free; QMG-09."""

    def release_buffers(self, graph: Graph) -> None:
        if graph in list(graph.context.graphs.values())[:2]:
            super().release_buffers(graph)
