"""Reference backends with one fault each in registered memory and in executing with it (ION, SHB, EXE)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pytest_qnn.abi.qnn_codes import Error, MemType, TensorMemType
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_execute import Stored
from pytest_qnn.reference.backend_objects import (
    Binding,
    Context,
    Graph,
    QnnError,
    Registration,
    Request,
    Shared,
    Tensor,
)
from pytest_qnn.reference.mapping import at
from pytest_qnn.reference.personalities import DEFAULT, Personality


@faulty_backend("ion-one-mapping", "ION registrations of a context share one mapping", "ION-03")
class _IonShared(ReferenceBackend):
    def shared_for(self, context: Context, request: Request) -> Shared:
        if request.mem_type == MemType.ION:
            for shared in context.shared.values():
                if shared.mapping.length >= request.size:
                    return shared
        return super().shared_for(context, request)


@faulty_backend("input-snapshot", "the bytes of an input are those at its registration", "ION-04", "EXE-01")
class _Snapshot(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.snapshots: dict[int, Stored] = {}

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        view = registration.shared.mapping.view(self.locate(registration), registration.request.size)
        self.snapshots[registration.handle] = view.copy()

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        if binding.registration is None:
            return super().read_input(graph, binding)
        return self.snapshots[binding.registration.handle][: binding.tensor.size].copy()


@faulty_backend("output-late", "an output reaches registered memory at the next execute", "ION-05", "EXE-19")
class _LateOutput(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.late: list[tuple[Graph, Binding, Stored]] = []

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        for owner, binding, stored in self.late:
            if binding.registration is None or binding.registration.handle in self.registrations:
                super().write_output(owner, binding, stored)
        self.late.clear()
        super().begin_execute(graph, sources, sinks)

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        if binding.registration is None:
            super().write_output(graph, binding, stored)
        else:
            self.late.append((graph, binding, stored.copy()))


@faulty_backend("input-stale-line", "an input begins with bytes of before", "EXE-19")
class _StaleLines(ReferenceBackend):
    """The first bytes of an input behind a handle are those of the execute before: a stale cache line."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.lines: dict[int, Stored] = {}

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        data = super().read_input(graph, binding)
        if binding.registration is None:
            return data
        fresh = data.copy()
        stale = self.lines.get(binding.registration.handle, fresh)[:64]
        self.lines[binding.registration.handle] = data.copy()
        fresh[: len(stale)] = stale[: len(fresh)]
        return fresh


@faulty_backend("shared-any-size", "a mapped fd may be registered with another size", "SHB-03")
class _AnySize(ReferenceBackend):
    def check_declared(self, shared: Shared, request: Request) -> None:
        pass


@faulty_backend("shared-end-late", "a tensor may end one byte behind its buffer", "SHB-04")
class _EndOneLate(ReferenceBackend):
    def range_end(self, request: Request) -> int:
        return super().range_end(request) - 1


@faulty_backend("shared-end-early", "a tensor must end one byte before its buffer's end", "SHB-04")
class _EndOneEarly(ReferenceBackend):
    def range_end(self, request: Request) -> int:
        return super().range_end(request) + 1


@faulty_backend("shared-offset-32", "offsets are cut to 32 bits", "SHB-06")
class _Offset32(ReferenceBackend):
    def effective_offset(self, offset: int) -> int:
        return offset & 0xFFFF_FFFF


@faulty_backend("shared-end-wraps", "offset + bytes wraps around at 2**64", "SHB-06")
class _EndWraps(ReferenceBackend):
    def range_end(self, request: Request) -> int:
        return super().range_end(request) & 0xFFFF_FFFF_FFFF_FFFF


@faulty_backend("shared-one-handle", "all tensors of a buffer get the first one's handle", "SHB-07")
class _HandlePerBuffer(ReferenceBackend):
    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        for i, registration in enumerate(batch):
            handles[i] = min(registration.shared.users)


@faulty_backend("shared-offset-ignored", "every tensor begins where its buffer begins", "SHB-08")
class _OffsetIgnored(ReferenceBackend):
    def locate(self, registration: Registration) -> int:
        del registration
        return 0


@faulty_backend("shared-padded-output", "outputs are written in whole blocks of 64 bytes", "SHB-08")
class _Padded(ReferenceBackend):
    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        registration = binding.registration
        if registration is not None:
            start, mapping = self.locate(registration), registration.shared.mapping
            padded = min(-(-binding.tensor.size // 64) * 64, mapping.length - start)
            mapping.view(start, padded)[:] = 0
        super().write_output(graph, binding, stored)


@faulty_backend("shared-ascending", "the handles of a batch are handed out in the order of offsets", "SHB-09")
class _Ascending(ReferenceBackend):
    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        super().deliver_handles(handles, sorted(batch, key=lambda each: each.request.offset))


@faulty_backend("shared-unmapped-first", "the first deregistration takes the buffer's mapping away", "SHB-13")
class _UnmapsFirst(ReferenceBackend):
    def drop_user(self, registration: Registration) -> None:
        self.unmap(registration.context, registration.request.identity)


@faulty_backend("shared-never-unmapped", "a buffer's mapping stays for ever", "SHB-13")
class _NeverUnmaps(ReferenceBackend):
    def unmap(self, context: Context, identity: tuple[int, int]) -> None:
        context.shared.pop(identity, None)


@faulty_backend("handle-output-off", "outputs through handles have bit 6 flipped", "EXE-01", "ION-03")
class _OutputOff(ReferenceBackend):
    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        wrong = stored ^ np.uint8(0x40) if binding.registration is not None else stored
        super().write_output(graph, binding, wrong)


@faulty_backend("execute-all-or-none", "raw memory and handles cannot be mixed", "EXE-02")
class _AllOrNone(ReferenceBackend):
    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        if len({each.registration is None for each in (*sources, *sinks)}) == 2:
            raise QnnError(Error.GRAPH_ERROR_INVALID_TENSOR)
        super().begin_execute(graph, sources, sinks)


class _Zeros(ReferenceBackend):
    """Takes some bad handles for memory full of zeros."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.zeros: list[Any] = []

    def good(self, handle: int | None) -> bool:
        del handle
        raise TypeError("each mutant says which handles it takes for good")

    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        if given.memType != TensorMemType.MEMHANDLE or self.good(given.memHandle):
            return super().bind(graph, tensor, given)
        self.zeros.append(ctypes.create_string_buffer(tensor.size))
        return Binding(tensor, address=ctypes.addressof(self.zeros[-1]))


@faulty_backend("null-handle-zeros", "a NULL handle stands for zeros", "EXE-03")
class _NullIsZeros(_Zeros):
    def good(self, handle: int | None) -> bool:
        return bool(handle)


@faulty_backend("unknown-handle-zeros", "an unknown handle stands for zeros", "EXE-04", "EXE-05")
class _UnknownIsZeros(_Zeros):
    def good(self, handle: int | None) -> bool:
        return not handle or handle in self.registrations


class _NewestFor(ReferenceBackend):
    """Takes some bad handles for the one that the context was given last."""

    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        if self.newest_stands_for(handle) and graph.context.registrations:
            return next(reversed(graph.context.registrations.values()))
        return super().find_registration(graph, handle)

    def newest_stands_for(self, handle: int | None) -> bool:
        """The handle is one of those that are mistaken."""
        raise TypeError(f"each mutant says which handles it mistakes, and whether {handle} is one")


@faulty_backend("null-handle-newest", "a NULL handle stands for the newest one", "EXE-03")
class _NullIsNewest(_NewestFor):
    def newest_stands_for(self, handle: int | None) -> bool:
        return not handle


@faulty_backend("unknown-handle-newest", "an unknown handle stands for the newest", "EXE-05")
class _UnknownIsNewest(_NewestFor):
    def newest_stands_for(self, handle: int | None) -> bool:
        return bool(handle) and handle not in self.registrations


@faulty_backend("context-as-handle", "a context's value stands for its memory", "EXE-05")
class _ContextIsNewest(_NewestFor):
    def newest_stands_for(self, handle: int | None) -> bool:
        return handle in self.contexts


@faulty_backend("stale-handle-executes", "a deregistered handle still executes", "EXE-04")
class _StaleExecutes(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.stale: dict[int, Registration] = {}

    def forget(self, registration: Registration) -> None:
        self.stale[registration.handle] = registration
        del self.registrations[registration.handle]
        del registration.context.registrations[registration.handle]

    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        return self.stale.get(handle or 0) or super().find_registration(graph, handle)


@faulty_backend("refused-execute-wipes", "raw outputs are cleared before handles are checked", "EXE-04")
class _WipesOutput(ReferenceBackend):
    def graph_execute(
        self,
        graph: int | None,
        inputs: Any,
        num_inputs: int,
        outputs: Any,
        num_outputs: int,
        profile: int | None,
        signal: int | None,
    ) -> None:
        for i in range(num_outputs):
            v1 = outputs[i].v1
            if v1.memType == TensorMemType.RAW:
                at(v1.clientBuf.data, v1.clientBuf.dataSize)[:] = 0
        super().graph_execute(graph, inputs, num_inputs, outputs, num_outputs, profile, signal)
