"""Reference backends with one fault each, for the rules of ION."""

from __future__ import annotations

from typing import Any

from pytest_qnn.qnn.abi.codes import Error, MemType
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.objects import Binding, Graph, QnnError, Registration, Request
from pytest_qnn.qnn.reference.personalities import DEFAULT, PERSONALITIES, Personality


@faulty_backend("ion-whole-union", "The union behind an ION fd is looked at.", "ION-01")
class _ReadsWholeUnion(ReferenceBackend):
    def read_descriptor(self, descriptor: Any) -> Request:
        if descriptor.memType == MemType.ION and (descriptor.customInfo or 0) >> 32:
            raise QnnError(Error.MEM_ERROR_MAPPING)
        return super().read_descriptor(descriptor)


@faulty_backend("ion-second-handle", "An ION fd gets a second handle.", "ION-02")
class _ReplacesIon(ReferenceBackend):
    """Another tensor over the same ION memory takes the place of the first."""

    def same_memory(self, request: Request, other: Request) -> bool:
        return super().same_memory(request, other) and not (
            request.mem_type == other.mem_type == MemType.ION and request.size != other.size
        )


@faulty_backend("ion-undeclared", "ION is registered although its key says no.", "ION-06")
class _IonAllTheSame(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["no-ion"])

    def require_mem_type(self, kind: int) -> None:
        if kind != MemType.ION:
            super().require_mem_type(kind)


@faulty_backend("ion-one-mapping", "ION registrations of a context share one mapping", "ION-03")
class _IonShared(ReferenceBackend):
    def registered(self, binding: Binding, registration: Registration) -> Stored:
        if registration.request.mem_type == MemType.ION:
            for other in registration.context.registrations.values():
                if other.request.mem_type == MemType.ION and other.request.size >= binding.tensor.size:
                    return super().registered(binding, other)
        return super().registered(binding, registration)


@faulty_backend("input-snapshot", "the bytes of an input are those at its registration", "ION-04", "EXE-19")
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


@faulty_backend(
    "output-late", "an output behind a handle that has had one comes at the next execute", "ION-05", "EXE-19"
)
class _LateOutput(ReferenceBackend):
    """Once an output was written to registered memory, later ones wait: a cache that is not written back."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.written: set[int] = set()
        self.late: list[tuple[Graph, Binding, Stored]] = []

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        for owner, binding, stored in self.late:
            if binding.registration is None or binding.registration.handle in self.registrations:
                super().write_output(owner, binding, stored)
        self.late.clear()
        super().begin_execute(graph, sources, sinks)

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        if binding.registration is not None and binding.registration.handle in self.written:
            self.late.append((graph, binding, stored.copy()))
            return
        if binding.registration is not None:
            self.written.add(binding.registration.handle)
        super().write_output(graph, binding, stored)
