"""Deferred graph initialisation with client memory for weights and spill-fill."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterable
from typing import Any

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import (
    ContextOption,
    Error,
    HtpContextConfigOption,
    HtpContextOption,
    HtpMemType,
    MemType,
    TensorType,
)
from pytest_qnn.qnn.reference import mapping
from pytest_qnn.qnn.reference.binaries import Binaries, Binary
from pytest_qnn.qnn.reference.core import context_config
from pytest_qnn.qnn.reference.execute import Execution, Stored
from pytest_qnn.qnn.reference.objects import (
    Context,
    External,
    Graph,
    QnnError,
    Request,
    Tensor,
)
from pytest_qnn.qnn.reference.registrations import ALIGNMENT, ROLES, SPILL, WEIGHTS, Memory

_KEPT = {int(TensorType.STATIC): WEIGHTS, int(TensorType.NATIVE): SPILL}
"""Which buffer holds a tensor that is no IO tensor."""
_NAMES = {WEIGHTS: "weights", SPILL: "spill-fill"}
_INCOMPATIBLE = frozenset(
    {
        HtpContextConfigOption.REGISTER_MULTI_CONTEXTS,
        HtpContextConfigOption.REGISTER_CONCURRENT_RESOURCE_SHARING,
        HtpContextConfigOption.USE_EXTENDED_UDMA,
    }
)
_PROPERTIES = ctypes.POINTER(ctypes.POINTER(layouts.ContextProperty))
_MEMORY_FILES = ("/memfd:", "/dmabuf:", "/dev/ashmem", "/dev/dma_heap")
"""How the links of descriptors of shared memory begin in /proc."""


class ExternalBuffers(Memory, Binaries, Execution):
    """contextFinalize, contextGetProperty, and descriptors of the types WEIGHTS and SHARED_SPILLFILL."""

    def check_binary_config(self, config: int | None) -> None:
        """Hook: initialisation may be deferred (1000 without the feature), but not beside some other options.

        Seed 002, limitations: several contexts in a group, concurrent sharing of resources, switching of
        graphs and extended udma exclude it (5010; or contextFinalize refuses).
        """
        if not _deferred(config):
            self.check_context_config(config)
            return
        if not self.personality.deferred:
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
        for entry in context_config(config):
            if _excluding(entry) and not self.personality.early_limits:
                continue
            if entry.option == ContextOption.GRAPH_RETENTION_ORDER:
                raise QnnError(Error.CONTEXT_ERROR_INVALID_CONFIG)
            if entry.option == ContextOption.CUSTOM:
                self.check_beside_deferred(entry.customConfig)
            elif entry.option != ContextOption.DEFER_GRAPH_INIT and not self.takes_option(entry):
                raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)

    def check_beside_deferred(self, config: int | None) -> None:
        """Hook: a custom option that excludes deferred initialisation."""
        if config and ctypes.c_uint32.from_address(config).value in _INCOMPATIBLE:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_CONFIG)
        self.check_custom_config(config)

    def load(self, context: Context, binary: Binary, config: int | None) -> None:
        """Hook: deferred, the context knows what it needs and has no graph yet."""
        if _deferred(config):
            needed = {int(WEIGHTS): self.needed_weights(binary), int(SPILL): self.needed_spill(binary)}
            excluded = any(map(_excluding, context_config(config))) and not self.personality.early_limits
            context.external = External(needed, binary, excluded=excluded or self.excludes_external(binary))
        else:
            super().load(context, binary, config)

    def excludes_external(self, binary: Binary) -> bool:
        """Hook: contextFinalize refuses the contexts of a binary that was prepared with extended udma."""
        return binary.udma64

    def check_elsewhere(self, config: int | None) -> None:
        """Hook: only contextCreateFromBinary defers (seed 002, limitations): 1000, or contextFinalize's."""
        if _deferred(config) and self.personality.early_limits:
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)

    def made_elsewhere(self, context: Context) -> None:
        """Hook: a deferred one cannot be finalised."""
        if context.external is not None:
            context.external.excluded = True

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        """Graphs may be prepared with extended udma, where the personality has it."""
        super().context_create(backend, device, config, out)
        if self.personality.udma64 and any(map(_far, context_config(config))):
            self.contexts[out[0]].udma64 = True

    def needed_weights(self, binary: Binary) -> int:
        """Hook: bytes of the weights of all graphs, in whole pages."""
        if not self.personality.weights:
            return 0
        return _pages(sum(_bytes(graph.tensors, TensorType.STATIC) for graph in binary.graphs))

    def needed_spill(self, binary: Binary) -> int:
        """Hook: bytes of the graph that needs the most: they share the buffer and take turns."""
        if not self.personality.spill_fill:
            return 0
        return _pages(max((_bytes(graph.tensors, TensorType.NATIVE) for graph in binary.graphs), default=0))

    def context_get_property(self, context: int | None, properties: int | None) -> None:
        """QnnContext_getProperty: the three HTP properties of a deferred context; all or none is written."""
        if not properties:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        owner: Context = self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        asked = _asked(properties)
        # All before the first is written: one unknown option, and none is.
        values = [self.context_property(owner, each.option) for each in asked]
        for each, value in zip(asked, values, strict=True):
            each.value = value

    def context_property(self, context: Context, option: int) -> int:
        """Hook: one property in bytes; 1000 where there is none."""
        if context.external is None:
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
        values = {
            HtpContextOption.BUFFER_START_ALIGNMENT: ALIGNMENT,
            HtpContextOption.MAX_SPILLFILL_BUFFER_SIZE: context.external.needed[SPILL],
            HtpContextOption.WEIGHTS_BUFFER_SIZE: context.external.needed[WEIGHTS],
        }
        if option not in list(HtpContextOption):
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
        return values[HtpContextOption(option)]

    def read_descriptor(self, descriptor: Any) -> Request:
        """Hook: shape and data type mean nothing for weights and spill-fill memory."""
        if self.personality.deferred and _role(descriptor) in ROLES:
            self.require_mem_type(descriptor.memType)
            custom = layouts.HtpMemDescriptor.from_address(descriptor.customInfo)
            fd, offset = custom.sharedBufferConfig.fd, custom.sharedBufferConfig.offset
            identity, length = self.examine_fd(fd)
            self.require_dma_buffer(fd)
            return Request(MemType.CUSTOM, fd, identity, length, 0, offset, custom.size, custom.type)
        return super().read_descriptor(descriptor)

    def require_dma_buffer(self, fd: int) -> None:
        """Hook: 8003 for a file that is no memory: on a host, memfds take the place of DMA buffers."""
        link = os.readlink(f"/proc/self/fd/{fd}")
        if not link.startswith(_MEMORY_FILES) and "/memfd:" not in link:  # see `shared_memory`
            raise QnnError(Error.MEM_ERROR_MAPPING)

    def context_finalize(self, context: int | None, profile: int | None) -> None:
        """QnnContext_finalize: the graphs of a deferred context; 1000 for any other, or a second time."""
        if not self.personality.finalize:
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
        if not context and self.personality.null_context:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        owner: Context = self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if profile:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        external = owner.external
        if external is None or external.pending is None or external.excluded:
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
        # Three states: ``external`` is None, of a context that is not deferred; ``pending`` is the binary,
        # and buffers may be registered; ``pending`` is None, and they are fixed until contextFree.
        binary, external.pending = external.pending, None
        try:
            for role in ROLES:
                if external.needed[role]:
                    external.memory[role] = self.external_memory(owner, role)
            self.initialise(owner, binary)
        except QnnError:
            self.undo_finalize(owner, binary)
            raise
        except OSError:
            self.undo_finalize(owner, binary)
            raise QnnError(Error.CONTEXT_ERROR_MEM_ALLOC) from None
        self.place(owner)

    def undo_finalize(self, context: Context, binary: Binary) -> None:
        """Hook: there is no memory (1002): the context is what it was before, and holds no more than then."""
        assert context.external is not None
        self.release_graphs(context)
        context.external.pending = binary

    def external_memory(self, context: Context, role: int) -> tuple[mapping.Mapping, int]:
        """Hook: (mapping, offset) of the client's memory, or of memory of our own."""
        assert context.external is not None
        given = context.external.given.get(role)
        if given is not None:
            return given.shared.mapping, given.request.offset
        name = f"qnn-{_NAMES[HtpMemType(role)]}:{context.handle:x}"
        return mapping.anonymous(name, context.external.needed[role], self.mappings), 0

    def place(self, context: Context) -> None:
        """Hook: weights go one behind the other into their memory; of spill-fill, each graph uses all."""
        at = 0
        for graph in context.graphs.values():
            spill = 0
            for tensor in graph.tensors.values():
                if tensor.type == TensorType.STATIC and self.personality.weights:
                    tensor.placed, at = at, at + tensor.size
                    self.held(graph, tensor)[:] = memoryview(tensor.data or b"")
                elif tensor.type == TensorType.NATIVE and self.personality.spill_fill:
                    tensor.placed, spill = spill, spill + tensor.size

    def held(self, graph: Graph, tensor: Tensor) -> Stored:
        """Hook: the bytes of a tensor in external memory, in place."""
        assert graph.context.external is not None
        memory, offset = graph.context.external.memory[_KEPT[tensor.type]]
        return memory.view(offset + tensor.placed, tensor.size)

    def constant(self, graph: Graph, tensor: Tensor, data: bytes) -> Stored:
        """Hook: a weight, from external memory where it is there."""
        return self.held(graph, tensor) if tensor.placed >= 0 else super().constant(graph, tensor, data)

    def keep(self, graph: Graph, tensor: Tensor, stored: Stored) -> Stored:
        """Hook: a result between two nodes, in spill-fill memory where it is there."""
        if tensor.type != TensorType.NATIVE or tensor.placed < 0:
            return super().keep(graph, tensor, stored)
        held = self.held(graph, tensor)
        held[:] = stored
        return held

    def release_graphs(self, context: Context) -> None:
        """Hook: the backend's own external memory goes with the context."""
        super().release_graphs(context)
        if context.external is not None:
            # Mappings of registered memory are released with their registrations, not here.
            own = {memory for memory, _ in context.external.memory.values()}
            for memory in own - {each.shared.mapping for each in context.external.given.values()}:
                memory.release()
            context.external.memory.clear()


def _deferred(config: int | None) -> bool:
    return any(
        entry.option == ContextOption.DEFER_GRAPH_INIT and entry.isGraphInitDeferred
        for entry in context_config(config)
    )


def _far(entry: layouts.ContextConfig) -> bool:
    """The option that asks for extended udma: its number, and behind it a bool."""
    if entry.option != ContextOption.CUSTOM or not entry.customConfig:
        return False
    number = ctypes.c_uint32.from_address(entry.customConfig).value
    wanted = ctypes.c_bool.from_address(entry.customConfig + ctypes.sizeof(ctypes.c_uint64)).value
    return wanted and number == HtpContextConfigOption.USE_EXTENDED_UDMA


def _excluding(entry: layouts.ContextConfig) -> bool:
    """An option that excludes deferred initialisation."""
    if entry.option != ContextOption.CUSTOM or not entry.customConfig:
        return bool(entry.option == ContextOption.GRAPH_RETENTION_ORDER)
    return ctypes.c_uint32.from_address(entry.customConfig).value in _INCOMPATIBLE


def _asked(properties: int) -> list[layouts.HtpContextProperty]:
    """The custom properties in a NULL-terminated list; 5000 for one of another kind, or without a place."""
    entries = ctypes.cast(properties, _PROPERTIES)
    found = []
    for entry in itertools.takewhile(bool, (entries[i] for i in itertools.count())):
        if entry[0].option != ContextOption.CUSTOM or not entry[0].customProperty:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        found.append(layouts.HtpContextProperty.from_address(entry[0].customProperty))
    return found


def _role(descriptor: Any) -> int:
    """QnnHtpMem_Type_t of a CUSTOM descriptor; that of an IO tensor for any other."""
    if descriptor.memType != MemType.CUSTOM or not descriptor.customInfo:
        return int(HtpMemType.SHARED_BUFFER)
    return int(layouts.HtpMemDescriptor.from_address(descriptor.customInfo).type)


def _bytes(tensors: Iterable[Tensor], kind: TensorType) -> int:
    return sum(tensor.size for tensor in tensors if tensor.type == kind)


def _pages(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
