"""A QNN backend out of two: the graphs of a real library, and the reference's QnnMem in front of it.

A library may compute and yet offer no memory handles, as libQnnHtp does on a host. Behind this table its
numerics are judged under handles all the same: the handles of an execute become addresses before the library
sees them. Everything that has nothing to do with memory is the library's own function, untouched; a few calls
that have are not offered.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pytest_qnn.qnn.abi.codes import Error, Property, TensorMemType
from pytest_qnn.qnn.abi.layouts import Tensor as TensorStruct
from pytest_qnn.qnn.abi.table import PROTOTYPES, Interface
from pytest_qnn.qnn.reference.objects import Context, Graph, QnnError, Registration, Tensor
from pytest_qnn.qnn.reference.operators.described import read_tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality
from pytest_qnn.qnn.reference.registrations import Memory
from pytest_qnn.qnn.reference.table import ENTRIES

_OURS = {
    Property.TENSOR_SUPPORT_MEMHANDLE_TYPE,
    Property.GROUP_MEMORY,
    Property.MEMORY_SUPPORT_MEM_TYPE_ION,
    Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM,
    Property.MEMORY_SUPPORT_MEM_TYPE_DMA_BUF,
}
_WITHHELD = {
    "graphExecuteAsync": Property.GRAPH_SUPPORT_ASYNC_EXECUTION,
    "contextGetBinarySection": Property.CONTEXT_SUPPORT_BINARY_UPDATES,
    "contextApplyBinarySection": Property.CONTEXT_SUPPORT_BINARY_UPDATES,
    "contextCreateFromBinaryWithSignal": Property.CONTEXT_SUPPORT_CREATE_FROM_BINARY_WITH_SIGNALS,
    "contextCreateFromBinaryListAsync": Property.CONTEXT_SUPPORT_CREATE_FROM_BINARY_LIST_ASYNC,
    "contextCreateFromBinaryWithCallback": Property.CONTEXT_SUPPORT_CREATE_FROM_BINARY_WITH_CALLBACK,
}
"""Calls that take handles, or make contexts, in ways that are not mirrored: not offered, nor their keys."""
BAD_TENSOR = Error.GRAPH_ERROR_INVALID_TENSOR


class Proxy(Memory):
    """The table of a library with another QnnMem.

    The objects that a registration depends on (contexts, graphs, their tensors) are mirrored as the library
    makes and frees them. Hooks are those of `Memory`, and ``bound``, ``find_registration`` and
    ``client_address``.

    Args:
        library: the QnnInterface_t of the library; whatever it lies in must outlive this object.
        personality: what QnnMem offers.
    """

    entries: ClassVar[dict[str, str]] = {
        name: ENTRIES[name]
        for name in (
            "propertyHasCapability",
            "backendFree",
            "deviceFree",
            "contextCreate",
            "contextCreateFromBinary",
            "contextFree",
            "graphCreate",
            "graphRetrieve",
            "graphExecute",
            "tensorCreateGraphTensor",
            "memRegister",
            "memDeRegister",
        )
    }

    def __init__(self, library: Interface, personality: Personality = DEFAULT) -> None:
        self.library = library
        super().__init__(personality)

    def _fill(self, interface: Interface) -> None:
        super()._fill(interface)
        interface.backendId = self.library.backendId
        interface.providerName = self.library.providerName
        interface.apiVersion = self.library.apiVersion
        for name in PROTOTYPES:
            own = getattr(self.library.implementation, name)
            if not own or (name not in self.entries and name not in _WITHHELD):
                setattr(interface.implementation, name, own)

    def forward(self, name: str, *arguments: Any) -> None:
        """Call the library; its code, all 64 bits of it, is ours."""
        code = getattr(self.library.implementation, name)(*arguments)
        if code:
            raise QnnError(code)

    def property_has_capability(self, key: int) -> None:
        """The keys of QnnMem are ours, every other the library's, but for what is withheld."""
        if key in _WITHHELD.values():
            raise QnnError(Error.PROPERTY_NOT_SUPPORTED)
        if key in _OURS:
            super().property_has_capability(key)
        else:
            self.forward("propertyHasCapability", key)

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        """Mirrored."""
        self.forward("contextCreate", backend, device, config, out)
        self._enter(Context(out[0], backend or 0, device or 0))

    def context_create_from_binary(
        self, backend: int | None, device: int | None, config: int | None, *arguments: Any
    ) -> None:
        """Mirrored; the graphs of the binary are mirrored when they are retrieved."""
        self.forward("contextCreateFromBinary", backend, device, config, *arguments)
        self._enter(Context(arguments[2][0], backend or 0, device or 0))

    def context_free(self, context: int | None, profile: int | None) -> None:
        """The registrations go with the context, if the library lets it go."""
        self.forward("contextFree", context, profile)
        self._leave([found] if (found := self.contexts.get(context or 0)) else [])

    def backend_free(self, backend: int | None) -> None:
        """Contexts go with their backend."""
        self.forward("backendFree", backend)
        self._leave([each for each in self.contexts.values() if each.backend == backend])

    def device_free(self, device: int | None) -> None:
        """Where the library frees a device under contexts, they go with it."""
        self.forward("deviceFree", device)
        self._leave([each for each in self.contexts.values() if each.device == device])

    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        """Mirrored."""
        self.forward("graphCreate", context, name, config, out)
        self._mirror(context, name, out[0])

    def graph_retrieve(self, context: int | None, name: bytes | None, out: Any) -> None:
        """Mirrored, where the graph came out of a binary."""
        self.forward("graphRetrieve", context, name, out)
        if out[0] not in self.graphs:
            self._mirror(context, name, out[0])

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        """The library's, which then knows the tensor by the id that it gave."""
        self.forward("tensorCreateGraphTensor", graph, tensor)
        owner = self.graphs.get(graph or 0)
        made = _readable(tensor[0])
        if owner is not None and made is not None:
            owner.tensors[made.id] = made

    def graph_execute(
        self,
        graph: int | None,
        inputs: Any,
        num_inputs: int,
        outputs: Any,
        num_outputs: int,
        *more: Any,
    ) -> None:
        """The library's, on the addresses behind the handles; 6004 for an invalid handle."""
        owner = self.graphs.get(graph or 0)
        if owner is None:
            raise QnnError(Error.GRAPH_ERROR_INVALID_HANDLE)
        sources, sinks = self.bound(owner, inputs, num_inputs), self.bound(owner, outputs, num_outputs)
        self.forward("graphExecute", graph, sources, num_inputs, sinks, num_outputs, *more)

    def bound(self, graph: Graph, given: Any, count: int) -> Any:
        """Hook: the client's array of tensors, or a copy of it in which no handle is left."""
        if not given or all(given[i].v1.memType != TensorMemType.MEMHANDLE for i in range(count)):
            return given
        copies = (TensorStruct * count)(*given[:count])
        for copy in copies:
            if copy.v1.memType == TensorMemType.MEMHANDLE:
                tensor = graph.tensors.get(copy.v1.id) or _readable(copy)
                registration = self.find_registration(copy.v1.memHandle)
                address = self.client_address(graph, tensor, registration)
                copy.v1.memType = TensorMemType.RAW
                copy.v1.clientBuf.data = address
                copy.v1.clientBuf.dataSize = tensor.size if tensor else 0
        return copies

    def find_registration(self, handle: int | None) -> Registration | None:
        """Hook: what a handle stands for; None for NULL, unknown and deregistered ones."""
        return self.registrations.get(handle or 0)

    def client_address(self, graph: Graph, tensor: Tensor | None, registration: Registration | None) -> int:
        """Hook: where a registered tensor lies; 6004 unless it is of the graph's context and large enough."""
        if tensor is None or registration is None or registration.context is not graph.context:
            raise QnnError(BAD_TENSOR)
        if registration.request.size < tensor.size:
            raise QnnError(BAD_TENSOR)
        # A view and not a sum: memory that a fault unmapped must not reach the library.
        return registration.shared.mapping.view(registration.request.offset, tensor.size).ctypes.data

    def release_graphs(self, context: Context) -> None:
        """Forget the mirrored graphs of a context."""
        for graph in context.graphs.values():
            self.graphs.pop(graph.handle, None)
        context.graphs.clear()

    def _enter(self, context: Context) -> None:
        self.contexts[context.handle] = context

    def _leave(self, contexts: list[Context]) -> None:
        for context in contexts:
            self.free_context(context)

    def _mirror(self, context: int | None, name: bytes | None, handle: int) -> None:
        owner = self.contexts.get(context or 0)
        if owner is not None:
            graph = Graph(handle, (name or b"").decode(errors="replace"), owner)
            self.graphs[handle] = owner.graphs[graph.name] = graph


def _readable(tensor: Any) -> Tensor | None:
    """The tensor that a struct describes; None where it is of a kind that no handle can be bound to."""
    try:
        return read_tensor(tensor.v1)
    except QnnError:
        return None
