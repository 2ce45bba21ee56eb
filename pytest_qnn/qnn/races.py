"""Reference backends with one mistake of threading each, for QTHR-06: alone, each thread is answered rightly.

They give the reference's lock up in the middle of a call, as a backend does that lets others go on meanwhile,
and forget that what they have seen, or what they share, may be another by then. No delay makes them easier to
find: how long it takes is in docs/measured/races.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.mutants import faulty_backend, without_lock
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.mapping import Mapping
from pytest_qnn.qnn.reference.objects import (
    KINDS,
    Binding,
    Context,
    Graph,
    Identity,
    Kind,
    Node,
    Parameters,
    QnnError,
    Registration,
    Request,
    Shared,
    Tensor,
)
from pytest_qnn.qnn.reference.operators import suite
from pytest_qnn.qnn.reference.operators.values import Values
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

_SHIFT = 56
"""Bits of a handle behind its kind."""


@faulty_backend(
    "race-numbers", "The counter of memory handles is read and written without a lock.", "QTHR-06"
)
class _Numbers(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.last = 0

    def mint(self, kind: Kind) -> int:
        if kind != "mem":
            return super().mint(kind)
        with without_lock(self):
            number = self.last + 1
            handle = (KINDS.index(kind) + 1) << _SHIFT | number
            self.last = number
        return handle


@faulty_backend(
    "race-current-context",
    "A registration belongs to the context that was looked up last, by any thread.",
    "QTHR-06",
)
class _CurrentContext(ReferenceBackend):
    """Others may register while the system maps."""

    current: Context

    def registration_context(self, context: int | None) -> Context:
        self.current = super().registration_context(context)
        return self.current

    def map_memory(self, request: Request) -> Mapping:
        with without_lock(self):
            return super().map_memory(request)

    def adopt(self, registration: Registration) -> None:
        registration.context = self.current
        super().adopt(registration)


@dataclasses.dataclass(eq=False)
class _Mapped:
    """A mapping that registrations of all contexts use."""

    shared: Shared
    users: int = 0


_Key = tuple[Identity, int]
"""A file, and how long it is."""


class _OneMapping(ReferenceBackend):
    """Contexts share the mapping of a file: no fault yet."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.mapped: dict[_Key, _Mapped] = {}

    def shared_for(self, context: Context, request: Request) -> Shared:
        if request.declared is not None:
            return super().shared_for(context, request)
        found = self.mapped.get(_key(request)) or self.map_file(request)
        found.users += 1
        return found.shared

    def map_file(self, request: Request) -> _Mapped:
        """Map what nobody has mapped yet."""
        made = self.mapped[_key(request)] = _Mapped(Shared(self.map_memory(request), None))
        return made

    def undo_mapping(self, context: Context, request: Request, shared: Shared) -> None:
        if request.declared is not None:
            super().undo_mapping(context, request, shared)
        else:
            self.leave(request)

    def drop_user(self, registration: Registration) -> None:
        if registration.request.declared is not None:
            super().drop_user(registration)
        else:
            self.leave(registration.request)

    def leave(self, request: Request) -> None:
        """The last one unmaps."""
        found = self.mapped[_key(request)]
        found.users -= 1
        if not found.users:
            self.give_back(self.mapped.pop(_key(request)).shared.mapping)


def _key(request: Request) -> _Key:
    return request.identity, request.length


@faulty_backend(
    "race-mapped-twice",
    "Who maps memory that contexts share does not look again whether another thread has mapped it.",
    "QTHR-06",
)
class _MappedTwice(_OneMapping):
    def map_memory(self, request: Request) -> Mapping:
        with without_lock(self):
            return super().map_memory(request)


@faulty_backend(
    "race-last-user",
    "Whether a mapping that contexts share has another user is asked before the lock, and not again.",
    "QTHR-06",
)
class _LastUser(_OneMapping):
    def leave(self, request: Request) -> None:
        found = self.mapped[_key(request)]
        with without_lock(self):
            found.users -= 1
            is_last = not found.users
        if is_last:
            self.mapped.pop(_key(request), None)
            self.give_back(found.shared.mapping)


@faulty_backend("race-file", "What fstat says of a descriptor is kept where all threads keep it.", "QTHR-06")
class _File(ReferenceBackend):
    examined: tuple[Identity, int]

    def examine_fd(self, fd: int) -> tuple[Identity, int]:
        with without_lock(self):
            self.examined = super().examine_fd(fd)
        return self.examined


@faulty_backend(
    "race-values", "The values of the tensors that execute are kept where all threads keep them.", "QTHR-06"
)
class _CurrentValues(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.values: dict[int, Stored] = {}

    def compute(self, graph: Graph, values: dict[int, Stored]) -> None:
        self.values = values
        with without_lock(self):
            super().compute(graph, values)
        self.values = {}

    def results(
        self, graph: Graph, node: Node, outputs: list[Tensor], values: dict[int, Stored]
    ) -> list[Values]:
        del values
        return super().results(graph, node, outputs, self.values)


_STAGE = 1 << 16
"""Bytes."""


@faulty_backend(
    "race-stage", "Inputs of all executes are staged in one buffer, and computed from there.", "QTHR-06"
)
class _Stage(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.stage = np.zeros(_STAGE, np.uint8)
        self.used = 0

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        super().begin_execute(graph, sources, sinks)
        self.used = 0

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        stored = super().read_input(graph, binding)
        end = self.used + len(stored)
        if end > _STAGE:
            return stored
        staged = self.stage[self.used : end]
        staged[:] = stored
        self.used = end
        return staged

    def compute(self, graph: Graph, values: dict[int, Stored]) -> None:
        with without_lock(self):
            super().compute(graph, values)


@faulty_backend(
    "race-last-graph",
    "An execute compares its handle with the last one's before it locks, and takes the last graph then.",
    "QTHR-06",
)
class _LastGraph(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.last_handle = 0
        self.last_graph: Graph | None = None

    def admit(self, graph: int | None, *arguments: Any) -> Any:
        with without_lock(self):
            is_last = self.last_graph is not None and self.last_handle == graph
        if is_last and self.last_graph is not None:
            graph = self.last_graph.handle
        admitted = super().admit(graph, *arguments)
        self.last_graph, self.last_handle = admitted[0], admitted[0].handle
        return admitted

    def release_graphs(self, context: Context) -> None:
        if self.last_graph is not None and self.last_graph.context is context:
            self.last_graph = None
        super().release_graphs(context)


@faulty_backend(
    "race-duplicates", "QnnMem_register looks for duplicates in the table of all without the lock.", "QTHR-06"
)
class _Duplicates(ReferenceBackend):
    def find_duplicate(
        self, context: Context, request: Request, batch: list[Registration]
    ) -> Registration | None:
        with without_lock(self):
            return super().find_duplicate(context, request, batch)


@faulty_backend(
    "race-backend-free",
    "QnnBackend_free gathers the contexts that stay without the lock, and lets those stay only.",
    "QTHR-06",
)
class _BackendFree(ReferenceBackend):
    def backend_free(self, backend: int | None) -> None:
        with without_lock(self):
            kept = {handle: each for handle, each in self.contexts.items() if each.backend != backend}
        super().backend_free(backend)
        self.contexts.clear()
        self.contexts.update(kept)


@faulty_backend(
    "race-tensor", "Tensors are read out of their structures into one variable of all threads.", "QTHR-06"
)
class _TensorRead(ReferenceBackend):
    last_read: Tensor

    def read(self, given: Any) -> Tensor:
        with without_lock(self):
            self.last_read = super().read(given)
        return self.last_read


@faulty_backend(
    "race-accepted", "Other threads find the answer for an operator before it is there.", "QTHR-06"
)
class _Accepted(ReferenceBackend):
    """Remembers the answer for the operator and the tensors that it was asked for last."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.last_asked: Any = None
        self.is_accepted = False

    def operator_accepts(
        self, operator: str, inputs: list[Tensor], outputs: list[Tensor], parameters: Parameters
    ) -> bool:
        tensors = (*inputs, *outputs)
        if not suite.concerns(operator, tensors):
            return super().operator_accepts(operator, inputs, outputs, parameters)
        asked = (
            operator,
            len(inputs),
            *((each.data_type, each.shape, each.scale, each.offset) for each in tensors),
        )
        if asked != self.last_asked:
            self.last_asked, self.is_accepted = asked, False
            with without_lock(self):
                self.is_accepted = super().operator_accepts(operator, inputs, outputs, parameters)
        return self.is_accepted


@faulty_backend(
    "race-lock-order",
    "QnnMem_deRegister locks the mappings before the objects, QnnMem_register after them.",
    "QTHR-06",
    deadly=True,
    timeout=2.0,
)
class _LockOrder(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.of_mappings = threading.RLock()

    def map_memory(self, request: Request) -> Mapping:
        with self.of_mappings:
            return super().map_memory(request)

    def deregister_all(self, handles: list[int | None]) -> bool:
        self.lock.release()
        with self.of_mappings:
            self.lock.acquire()
            return super().deregister_all(handles)


@faulty_backend("race-busy", "An execute answers 1010 while another one computes.", "QTHR-06")
class _Busy(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.device = threading.Lock()

    def compute(self, graph: Graph, values: dict[int, Stored]) -> None:
        if not self.device.acquire(blocking=False):
            raise QnnError(Error.COMMON_ERROR_RESOURCE_UNAVAILABLE)
        with self.device_released(), without_lock(self):
            super().compute(graph, values)

    @contextlib.contextmanager
    def device_released(self) -> Iterator[None]:
        """The next one may compute, whatever becomes of this one."""
        try:
            yield
        finally:
            self.device.release()


@faulty_backend(
    "race-wake",
    "A thread that is about to wait for the device misses that another one has left it.",
    "QTHR-06",
    deadly=True,
    timeout=2.0,
)
class _Wake(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.computing = False
        self.left = threading.Event()

    def compute(self, graph: Graph, values: dict[int, Stored]) -> None:
        while self.computing:
            with without_lock(self):
                self.left.clear()
                self.left.wait()
        self.computing = True
        with without_lock(self):
            try:
                super().compute(graph, values)
            finally:
                self.computing = False
                self.left.set()


@faulty_backend(
    "race-freed-number",
    "The number of a handle is given out again before its registration has ended.",
    "QTHR-06",
)
class _FreedNumber(ReferenceBackend):
    """The number that was freed last is given out first."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.free_numbers: list[int] = []

    def mint(self, kind: Kind) -> int:
        if kind != "mem" or not self.free_numbers:
            return super().mint(kind)
        number = self.free_numbers.pop()
        self.lost.discard((kind, number))
        return number

    def deregister_one(self, handle: int | None) -> bool:
        found = self.registrations.get(handle or 0)
        if found is not None and not self.is_fixed(found):
            with without_lock(self):
                self.free_numbers.append(found.handle)
        return super().deregister_one(handle)


@faulty_backend("race-status", "The code that a call answers is kept where all threads keep it.", "QTHR-06")
class _Status(ReferenceBackend):
    """Calls are counted by what they answer, and others may go on meanwhile."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.status = 0
        self.answers: dict[int, int] = {}
        super().__init__(personality)

    def answer(self, name: str, code: int) -> int:
        if name not in {"memRegister", "graphExecute"}:
            return super().answer(name, code)
        self.status = super().answer(name, code)
        with without_lock(self):
            self.answers[self.status] = self.answers.get(self.status, 0) + 1
        return self.status
