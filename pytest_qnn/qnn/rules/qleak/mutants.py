"""Reference backends with one fault each, for the rules of QLEAK."""

from __future__ import annotations

import os
from typing import Any

from pytest_qnn.isolation.libc import die_at_exit
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.binaries import Binary
from pytest_qnn.qnn.reference.objects import Binding, Context, Graph, QnnError, Registration, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

_FIRST = 16 << 20
"""Bytes that come with the first graph of a process."""
_LEAKED = 8192
"""Bytes that a mutant keeps at a time: none of a client's, whose memory is that of other rules."""


class _Grave(ReferenceBackend):
    """Keeps what nothing will ever ask for."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.grave: list[bytes] = []

    def leak(self) -> None:
        self.grave.append(b"\1" * _LEAKED)


@faulty_backend("leak-registrations", "Each registration keeps 8 KiB.", "QLEAK-01")
class _LeaksPerRegistration(_Grave):
    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self.leak()


@faulty_backend("leak-failures", "Each failed registration keeps 8 KiB.", "QLEAK-03")
class _LeaksPerFailure(_Grave):
    def roll_back(self, batch: list[Registration]) -> None:
        super().roll_back(batch)
        self.leak()


@faulty_backend("leak-binaries", "Each binary that is refused keeps 8 KiB.", "QLEAK-03")
class _LeaksPerBinary(_Grave):
    def read_binary(self, data: bytes) -> Binary:
        try:
            return super().read_binary(data)
        except ValueError:
            self.leak()
            raise


@faulty_backend("leak-contexts", "Freed contexts keep 8 KiB per registration.", "QLEAK-02")
class _LeaksPerContext(_Grave):
    def release_registrations(self, context: Context) -> None:
        for _ in context.registrations:
            self.leak()
        super().release_registrations(context)


@faulty_backend(
    "exit-with-registrations", "A process that ends with a registration alive dies.", "QLEAK-04", deadly=True
)
class _NeedsNoRegistrations(ReferenceBackend):
    """Its static table is gone at the end, and the entries that are left refer to it."""

    armed = False

    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        if not self.armed:
            self.armed = True
            die_at_exit(lambda: bool(self.registrations))
        super().mem_register(context, descriptors, count, handles)


@faulty_backend(
    "exit-with-contexts", "A process that ends with a context alive dies.", "QLEAK-04", deadly=True
)
class _NeedsNoContexts(ReferenceBackend):
    """Contexts that are left at the end tell a thread to stop that has gone."""

    armed = False

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        if not self.armed:
            self.armed = True
            die_at_exit(lambda: bool(self.contexts))
        super().context_create(backend, device, config, out)


@faulty_backend("end-keeps-weights", "The weights of a context stay until another is freed.", "QLEAK-05")
class _KeepsWeights(ReferenceBackend):
    """As in onnxruntime#22511: what a session took stays in use when it is over, once and not each time."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.last: list[bytes] = []

    def release_graphs(self, context: Context) -> None:
        tensors = [each for graph in context.graphs.values() for each in graph.tensors.values()]
        self.last = [each.data for each in tensors if each.data is not None]
        super().release_graphs(context)


@faulty_backend("end-keeps-arena", "The memory of the last tensors stays for the next session.", "QLEAK-05")
class _KeepsArena(ReferenceBackend):
    """One arena, as large as the last context needed."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.arena = bytearray()

    def release_graphs(self, context: Context) -> None:
        tensors = [each for graph in context.graphs.values() for each in graph.tensors.values()]
        self.arena = bytearray(b"\1") * sum(each.size for each in tensors)
        super().release_graphs(context)


@faulty_backend("first-graph-keeps", "The first graph takes 16 MiB, which outlive the backend.", "QLEAK-06")
class _KeepsOfFirstGraph(ReferenceBackend):
    """As in onnxruntime#22511: what came with the first model stays, and no later one takes as much."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.compiler = bytearray()

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        super().graph_finalize(graph, profile, signal)
        self.compiler = self.compiler or bytearray(b"\1") * _FIRST


@faulty_backend(
    "first-execute-keeps", "The first execute takes 16 MiB, which outlive the backend.", "QLEAK-06"
)
class _KeepsOfFirstExecute(ReferenceBackend):
    """A scratch arena for all graphs, as large as it will ever be."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.scratch = bytearray()

    def graph_execute(self, *arguments: Any) -> None:
        self.scratch = self.scratch or bytearray(b"\1") * _FIRST
        super().graph_execute(*arguments)


@faulty_backend("leak-refused-executes", "Each execute with a bad tensor keeps 8 KiB.", "QLEAK-07")
class _LeaksPerRefusedExecute(_Grave):
    """What was made for the call is given back behind its last tensor, which a bad one keeps it from."""

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        try:
            return super().bind_all(graph, given, count, wanted)
        except QnnError:
            self.leak()
            raise


@faulty_backend("leak-stale-lookups", "Each execute with a deregistered handle keeps 8 KiB.", "QLEAK-07")
class _LeaksPerStaleLookup(_Grave):
    """A handle that is found among those that have ended has a report made of it, which nobody reads."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.ended: set[int] = set()

    def forget(self, registration: Registration) -> None:
        super().forget(registration)
        self.ended.add(registration.handle)

    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        try:
            return super().find_registration(graph, handle)
        except QnnError:
            if handle in self.ended:
                self.leak()
            raise


@faulty_backend("leak-execute-descriptors", "Each execute with a bad output keeps a descriptor.", "QLEAK-07")
class _KeepsFence(ReferenceBackend):
    """A fence is opened once the inputs are good, and closed behind the computation."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.fences: list[int] = []

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        if wanted is graph.outputs:
            try:
                self.fences.append(os.eventfd(0, os.EFD_CLOEXEC))
            except OSError:
                raise QnnError(Error.COMMON_ERROR_MEM_ALLOC) from None
        return super().bind_all(graph, given, count, wanted)

    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        try:
            super().carry_out(graph, sources, sinks)
        finally:
            os.close(self.fences.pop())

    def close(self) -> None:
        super().close()
        while self.fences:
            os.close(self.fences.pop())


@faulty_backend("leak-executes", "Each execute keeps 8 KiB.", "QLEAK-08")
class _LeaksPerExecute(_Grave):
    def graph_execute(self, *arguments: Any) -> None:
        self.leak()
        super().graph_execute(*arguments)


@faulty_backend("leak-sixteenth-execute", "Each sixteenth execute that succeeds keeps 128 KiB.", "QLEAK-08")
class _LeaksNowAndThen(_Grave):
    """Results are kept in pieces of sixteen, which are never given back."""

    done = 0

    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        super().carry_out(graph, sources, sinks)
        self.done += 1
        if self.done % 16 == 0:
            for _ in range(16):
                self.leak()


@faulty_backend("leak-execute-pins", "Each execute with registered memory keeps a descriptor.", "QLEAK-08")
class _KeepsPins(ReferenceBackend):
    """The memory is held while the graph computes, by a descriptor of its own."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.pins: list[int] = []

    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        if any(each.registration is not None for each in (*sources, *sinks)):
            try:
                self.pins.append(os.eventfd(0, os.EFD_CLOEXEC))
            except OSError:
                raise QnnError(Error.COMMON_ERROR_MEM_ALLOC) from None
        super().carry_out(graph, sources, sinks)

    def close(self) -> None:
        super().close()
        while self.pins:
            os.close(self.pins.pop())
