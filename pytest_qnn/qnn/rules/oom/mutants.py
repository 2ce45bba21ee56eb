"""Reference backends with one fault each, for the rules of OOM."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.mapping import Mapping, anonymous
from pytest_qnn.qnn.reference.objects import Binding, Context, Graph, QnnError, Registration, Request, Shared
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

_LONG = 3600.0
"""Seconds."""
_WORK = 4096
"""Bytes of a piece of memory."""


def _is_refused(backend: ReferenceBackend, call: Callable[[], None]) -> bool:
    """Whether the call failed because of a refusal of the system's; for any other reason it raises."""
    before = backend.refusing.refused
    try:
        call()
    except QnnError:
        if backend.refusing.refused == before:
            raise
        return True
    return False


@faulty_backend(
    "oom-writes-to-null",
    "Memory that was refused is written to all the same.",
    "OOM-01",
    deadly=True,
)
class _WritesToNull(ReferenceBackend):
    def ask(self, wanted: str) -> None:
        ask = super().ask
        if _is_refused(self, lambda: ask(wanted)):
            if self.refusing.wanted != "new":
                ctypes.memset(0, 0, 8)
            raise QnnError(Error.COMMON_ERROR_MEM_ALLOC)


@faulty_backend(
    "oom-waits",
    "A mapping that was refused is waited for.",
    "OOM-01",
    deadly=True,
    timeout=1.0,
)
class _Waits(ReferenceBackend):
    def ask(self, wanted: str) -> None:
        try:
            super().ask(wanted)
        except QnnError:
            if wanted == "mapping":
                time.sleep(_LONG)
            raise


@faulty_backend(
    "oom-throws",
    "An allocation that throws is not caught in the call.",
    "OOM-02",
    deadly=True,
)
class _Throws(ReferenceBackend):
    """Does what a library in C++ does whose function lets std::bad_alloc through to its client in C."""

    def ask(self, wanted: str) -> None:
        ask = super().ask
        if _is_refused(self, lambda: ask(wanted)):
            if self.refusing.wanted == "new":
                sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n")
                sys.stderr.flush()
                os.abort()
            raise QnnError(Error.COMMON_ERROR_MEM_ALLOC)


@faulty_backend(
    "oom-other-memory",
    "Memory that cannot be mapped is registered as if it could, with zeros of the backend's in its place.",
    "OOM-03",
)
class _OtherMemory(ReferenceBackend):
    def map_memory(self, request: Request) -> Mapping:
        try:
            return super().map_memory(request)
        except QnnError:
            return anonymous("other", request.length, self.mappings)


@faulty_backend(
    "oom-execute-gives-up",
    "QnnGraph_execute without memory for its work computes nothing and answers success.",
    "OOM-03",
)
class _ExecuteGivesUp(ReferenceBackend):
    def graph_execute(self, *arguments: Any) -> None:
        execute = super().graph_execute
        _is_refused(self, lambda: execute(*arguments))


@faulty_backend(
    "oom-node-is-lost",
    "QnnGraph_addNode without memory for the node answers success, and the graph has none.",
    "OOM-03",
)
class _NodeIsLost(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        add = super().graph_add_node
        _is_refused(self, lambda: add(graph, config))


@faulty_backend(
    "oom-growth-keeps-half",
    "A registration for which the table of registrations cannot grow is refused, and is in it.",
    "OOM-05",
)
class _GrowthKeepsHalf(ReferenceBackend):
    """The table has room for twice as many each time, as one of a library in C++ has."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.table_rows = 0
        super().__init__(personality)

    def register_one(self, context: Context, descriptor: Any, batch: list[Registration]) -> Registration:
        made = super().register_one(context, descriptor, batch)
        if len(self.registrations) > self.table_rows:
            self.ask("memory")
            self.table_rows = max(1, 2 * self.table_rows)
        return made


@faulty_backend(
    "oom-drops-registrations",
    "A registration that finds no memory ends those of all contexts.",
    "OOM-04",
)
class _DropsRegistrations(ReferenceBackend):
    def undo_mapping(self, context: Context, request: Request, shared: Shared) -> None:
        super().undo_mapping(context, request, shared)
        for registration in list(self.registrations.values()):
            self.forget(registration)


@faulty_backend(
    "oom-unprepares-graphs",
    "A graph that finds no buffer at preparation makes all graphs be prepared again.",
    "OOM-04",
)
class _UnpreparesGraphs(ReferenceBackend):
    def undo_prepare(self, graph: Graph) -> None:
        super().undo_prepare(graph)
        for other in self.graphs.values():
            other.finalised = False


@faulty_backend(
    "oom-takes-the-name",
    "A graph that finds no memory leaves its name taken.",
    "OOM-05",
)
class _TakesTheName(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        create = super().graph_create
        if _is_refused(self, lambda: create(context, name, config, out)):
            owner = self.contexts[context or 0]
            graph = Graph(self.mint("graph"), (name or b"").decode(errors="replace"), owner)
            self.graphs[graph.handle] = owner.graphs[graph.name] = graph
            raise QnnError(Error.COMMON_ERROR_MEM_ALLOC)


@faulty_backend(
    "oom-half-a-batch",
    "A batch of registrations that finds no memory in its middle leaves those before it alive.",
    "OOM-05",
)
class _HalfABatch(ReferenceBackend):
    def roll_back(self, batch: list[Registration]) -> None:
        # Behind the call the number of what was refused in it stays: another batch that fails is rolled back.
        if not (self.refusing.wanted and self.refusing.refused):
            super().roll_back(batch)


@faulty_backend(
    "oom-keeps-mapping",
    "A registration that finds no memory behind its mapping leaves the memory mapped.",
    "OOM-06",
)
class _KeepsMapping(ReferenceBackend):
    def undo_mapping(self, context: Context, request: Request, shared: Shared) -> None:
        if not shared.users:
            context.shared.pop(request.identity, None)


@faulty_backend(
    "oom-keeps-work-memory",
    "An execute that finds no second piece of memory keeps its first.",
    "OOM-06",
)
class _KeepsWorkMemory(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.kept: list[bytes] = []

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        super().begin_execute(graph, sources, sinks)
        work = b"\1" * _WORK
        ask = super().ask
        if _is_refused(self, lambda: ask("memory")):
            self.kept.append(work)
            raise QnnError(Error.COMMON_ERROR_MEM_ALLOC)
