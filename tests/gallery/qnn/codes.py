"""Which of several documented codes is answered, which argument is looked at first, what is written then."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable
from typing import Any

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import Error, HtpMemType, MemType
from pytest_qnn.qnn.reference.binaries import MAGIC
from pytest_qnn.qnn.reference.execute import Admitted
from pytest_qnn.qnn.reference.objects import (
    Binding,
    Context,
    Graph,
    Identity,
    QnnError,
    Registration,
    Request,
    Tensor,
)
from pytest_qnn.qnn.reference.personalities import DEFAULT
from pytest_qnn.qnn.reference.registrations import ROLES
from tests.gallery.qnn.oddity import Odd, odd, write_handle

_INVALID = Error.MEM_ERROR_INVALID_ARGUMENT
_SIGNED_LIMIT = 2**31


@odd(
    "codes-of-registering",
    "what is wrong with a descriptor has the other code wherever the catalogue lists two",
    source="facts 7.4 (8000, 8003, 8004), REG-09, REG-10, REG-13, SHB-02",
    seen="8000 for an unknown memory type and for fd -1, 8004 for a buffer that is too small",
    tried_by="REG-09 REG-10 REG-13 REG-15 SHB-04",
)
class OfRegistering(Odd):
    def require_mem_type(self, kind: int) -> None:
        known = kind in list(MemType) and kind != MemType.UNDEFINED
        if not known:
            self.meet()
            raise QnnError(_INVALID)
        super().require_mem_type(kind)

    def needed_bytes(self, descriptor: Any) -> int:
        if descriptor.memShape.numDim and not descriptor.memShape.dimSize:
            self.meet()
            raise QnnError(Error.MEM_ERROR_INVALID_SHAPE)
        return super().needed_bytes(descriptor)

    def examine_fd(self, fd: int) -> tuple[Identity, int]:
        if fd == -1:
            self.meet()
            raise QnnError(_INVALID)
        return super().examine_fd(fd)

    def check_fits(self, context: Context, request: Request) -> None:
        if request.role not in ROLES and self.range_end(request) > min(request.total, request.length):
            self.meet()
            raise QnnError(Error.MEM_ERROR_INVALID_SHAPE)
        super().check_fits(context, request)


@odd(
    "codes-of-executing",
    "tensors that will not do are an invalid argument (6000) and not an invalid tensor (6004)",
    source="facts EXE-07, EXE-14, EXE-16: 6004 or 6000",
    seen="6000 for missing tensors, short buffers and short registrations",
    tried_by="EXE-07 EXE-14 EXE-16",
)
class OfExecuting(Odd):
    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        if count != len(wanted) or {given[i].v1.id for i in range(count)} != wanted.keys():
            self.meet()
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT)
        return super().bind_all(graph, given, count, wanted)

    def check_registration(self, registration: Registration, tensor: Tensor) -> None:
        if registration.request.size < tensor.size:
            self.meet()
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT)

    def check_client_buffer(self, tensor: Tensor, buffer: Any) -> None:
        if buffer.data and buffer.dataSize < tensor.size:
            self.meet()
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT)
        super().check_client_buffer(tensor, buffer)


@odd(
    "codes-of-binaries",
    "a foreign binary is one of another version (5004), a damaged one has a bad configuration (5008)",
    source="facts 3.8 and OFF-08: the family of 5005",
    seen="5004 and 5008 where the reference has 5005",
    tried_by="OFF-08",
)
class OfBinaries(Odd):
    def context_create_from_binary(self, *arguments: Any) -> None:
        try:
            super().context_create_from_binary(*arguments)
        except QnnError as error:
            if error.code != Error.CONTEXT_ERROR_CREATE_FROM_BINARY:
                raise
            self.meet()
            ours = ctypes.string_at(arguments[3], min(arguments[4], len(MAGIC))) == MAGIC
            other = Error.CONTEXT_ERROR_BINARY_CONFIGURATION if ours else Error.CONTEXT_ERROR_BINARY_VERSION
            raise QnnError(other) from None


@odd(
    "file-before-shape",
    "the descriptor of the file is looked at before the shape",
    source="facts 7.3: precedence is not specified, any applicable code",
    seen="8003 where shape and descriptor are both wrong",
    tried_by="REG-10 REG-14",
)
class FileBeforeShape(Odd):
    def read_descriptor(self, descriptor: Any) -> Request:
        self.require_mem_type(descriptor.memType)
        if descriptor.memType == MemType.ION:
            self.meet()
            self.examine_fd(descriptor.ionInfo.fd)
        elif descriptor.memType == MemType.CUSTOM and descriptor.customInfo:
            custom = layouts.HtpMemDescriptor.from_address(descriptor.customInfo)
            if custom.type == HtpMemType.SHARED_BUFFER:
                self.meet()
                self.examine_fd(custom.sharedBufferConfig.fd)
        return super().read_descriptor(descriptor)


@odd(
    "last-descriptor-first",
    "a batch is registered from its last descriptor to its first, and deregistered so",
    source="facts 7.3: precedence; REG-02 and REG-08 say only what comes of it",
    seen="the code of the last bad descriptor; handle values descend",
    tried_by="REG-02 REG-08 DRG-05",
)
class LastDescriptorFirst(Odd):
    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        if not descriptors or not handles or count < 2:
            super().mem_register(context, descriptors, count, handles)
            return
        self.meet()
        turned = (layouts.MemDescriptor * count)(*(descriptors[i] for i in reversed(range(count))))
        made = (ctypes.c_void_p * count)()
        try:
            super().mem_register(context, turned, count, made)
        finally:
            for i in range(count):
                handles[i] = made[count - 1 - i]

    def deregister_all(self, handles: list[int | None]) -> bool:
        return super().deregister_all(handles[::-1])


@odd(
    "outputs-first",
    "graphExecute looks at its outputs before its inputs, and at both before its profile",
    source="facts 7.3: precedence is not specified",
    seen="the code of the output where input and output are both wrong",
    tried_by="EXE-03 EXE-15",
)
class OutputsFirst(Odd):
    def admit(self, graph: int | None, *arguments: Any) -> Admitted:
        inputs, num_inputs, outputs, num_outputs, *_ = arguments
        found = self.graphs.get(graph or 0)
        if found is not None and found.finalised and inputs and outputs and num_inputs and num_outputs:
            self.meet()
            self.bind_all(found, outputs, num_outputs, found.outputs)
        return super().admit(graph, *arguments)


@odd(
    "huge-is-not-mapped",
    "memory of 2 GiB or more cannot be mapped (8003), whatever else is wrong with it",
    source="facts 7.17: rpcmem_alloc takes an int, the protection domain ends at 2 to 4 GB",
    seen="8003 for huge sizes and offsets",
    tried_by="SHB-05 SHB-06",
)
class HugeIsNotMapped(Odd):
    def check_fits(self, context: Context, request: Request) -> None:
        if max(request.total, self.range_end(request)) >= _SIGNED_LIMIT:
            self.meet()
            raise QnnError(Error.MEM_ERROR_MAPPING)
        super().check_fits(context, request)


@odd(
    "overlap-is-an-argument",
    "tensors of one shared buffer must not overlap: an invalid argument (8000)",
    source="facts SHB-12: {0, 8000, 8002}",
    seen="8000",
    tried_by="SHB-12",
)
class OverlapIsAnArgument(Odd):
    chosen = dataclasses.replace(DEFAULT, overlap=False)

    def resolve_duplicate(self, existing: Registration) -> Registration | None:
        if self._overlaps:
            self.meet()
            raise QnnError(_INVALID)
        return super().resolve_duplicate(existing)

    def find_duplicate(
        self, context: Context, request: Request, batch: list[Registration]
    ) -> Registration | None:
        found = super().find_duplicate(context, request, batch)
        self._overlaps = found is not None and not (
            request.role in ROLES or found.request.role in ROLES or self.same_memory(request, found.request)
        )
        return found

    _overlaps = False


_MAKERS = (
    *("backend_create", "device_create", "log_create", "context_create", "context_create_from_binary"),
    *("graph_create", "graph_retrieve", "profile_create", "signal_create"),
)
_OUT_BEFORE_LAST = "context_create_from_binary"
"""Its last argument is a profile."""


class _Marking(Odd):
    """Writes to where a handle was to go when none does."""

    def mark(self, out: Any) -> None:
        raise NotImplementedError


def _marking(name: str) -> Callable[..., None]:
    def call(self: _Marking, *arguments: Any) -> None:
        out = arguments[-2 if name == _OUT_BEFORE_LAST else -1]
        try:
            getattr(super(_Marking, self), name)(*arguments)
        except QnnError:
            if out:
                self.meet()
                self.mark(out)
            raise

    return call


for _name in _MAKERS:
    setattr(_Marking, _name, _marking(_name))


@odd(
    "null-on-failure",
    "a call that fails to make an object writes NULL where the handle would go",
    source="facts 2.1 and OFF-08: what is written then is not specified, no handle may be usable",
    seen="NULL instead of what was there",
    tried_by="OFF-08 CTX-06 IF-10",
)
class NullOnFailure(_Marking):
    def mark(self, out: Any) -> None:
        write_handle(out, None)


@odd(
    "junk-on-failure",
    "a call that fails to make an object leaves a value there that is no handle",
    source="facts 2.1 and OFF-08: what is written then is not specified, no handle may be usable",
    seen="0x7777777777777777, which every call refuses",
    tried_by="OFF-08 IF-10",
)
class JunkOnFailure(_Marking):
    def mark(self, out: Any) -> None:
        write_handle(out, 0x7777_7777_7777_7777)


@odd(
    "size-on-failure",
    "contextGetBinary says how many bytes it needs when the memory is too small (5007)",
    source="facts OFF-07: too small is refused; of the out-parameter nothing is said",
    seen="writtenBufferSize is the size needed, the buffer is untouched",
    tried_by="OFF-07",
)
class SizeOnFailure(Odd):
    def context_get_binary(self, context: int | None, buffer: int | None, size: int, written: Any) -> None:
        try:
            super().context_get_binary(context, buffer, size, written)
        except QnnError as error:
            if error.code == Error.CONTEXT_ERROR_GET_BINARY_FAILED:
                self.meet()
                written[0] = len(self.serialise(self.contexts[context or 0]))
            raise
