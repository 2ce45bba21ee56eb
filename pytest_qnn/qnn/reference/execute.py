"""Executing graphs on the reference backend: from client buffers, from registered memory, and in a queue."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UnsetType

from pytest_qnn.qnn.abi.codes import Error, LogLevel, TensorMemType
from pytest_qnn.qnn.abi.layouts import NotifyFn, NotifyStatus
from pytest_qnn.qnn.reference import mapping
from pytest_qnn.qnn.reference.graphs import Graphs
from pytest_qnn.qnn.reference.mapping import Mapping, at
from pytest_qnn.qnn.reference.objects import Binding, Graph, Node, QnnError, Registration, Tensor
from pytest_qnn.qnn.reference.operators import suite, table
from pytest_qnn.qnn.reference.operators import values as numbers
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

_BAD_TENSOR = Error.GRAPH_ERROR_INVALID_TENSOR
Stored = npt.NDArray[np.uint8]
"""The bytes of a tensor, flat."""
Admitted = tuple[Graph, list[Binding], list[Binding]]
"""A graph, and the memory that an execute gives to its inputs and its outputs."""


class Execution(Graphs):
    """graphExecute, taken apart into hooks: bind, begin, read, compute, write."""

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
        """QnnGraph_execute: every argument is checked before any byte is touched."""
        self.carry_out(*self.admit(graph, inputs, num_inputs, outputs, num_outputs, profile, signal))

    def admit(
        self,
        graph: int | None,
        inputs: Any,
        num_inputs: int,
        outputs: Any,
        num_outputs: int,
        profile: int | None,
        signal: int | None,
    ) -> Admitted:
        """The graph and the memory of an execute whose arguments are good; nothing is read or written."""
        owner: Graph = self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
        if not owner.finalised:
            raise QnnError(Error.GRAPH_ERROR_GRAPH_NOT_FINALIZED)
        if profile or signal:
            raise QnnError(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)
        if not inputs or not outputs or not num_inputs or not num_outputs:
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT)
        sources = self.bind_all(owner, inputs, num_inputs, owner.inputs)
        sinks = self.bind_all(owner, outputs, num_outputs, owner.outputs)
        return owner, sources, sinks

    def use_heap(self, graph: Graph) -> None:
        """Hook: request work memory of the size of the graph's first output, write it, and free it."""
        size = next((tensor.size for tensor in graph.outputs.values()), 0)
        block = self.heap.request(size)
        ctypes.memset(block, 0, size)
        self.heap.give_back(block)

    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        """Read the inputs, compute, write the outputs."""
        self.ask("memory")
        if self.heap.is_checked:
            self.use_heap(graph)
        self.begin_execute(graph, sources, sinks)
        values = {each.tensor.id: self.read_input(graph, each) for each in sources}
        self.compute(graph, values)
        for each in sinks:
            self.write_output(graph, each, values[each.tensor.id])
        if self.listeners:
            self.log_message(graph.context.backend, LogLevel.VERBOSE, b"graph executed")

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        """Hook: each wanted tensor exactly once, in any order, found by id; else 6004."""
        if count != len(wanted) or {given[i].v1.id for i in range(count)} != wanted.keys():
            raise QnnError(_BAD_TENSOR)
        return [self.bind(graph, wanted[given[i].v1.id], given[i].v1) for i in range(count)]

    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        """Hook: the memory of one IO tensor; memType says which member of the union counts."""
        if given.memType == TensorMemType.MEMHANDLE:
            registration = self.find_registration(graph, given.memHandle)
            self.check_registration(registration, tensor)
            return Binding(tensor, registration=registration)
        if given.memType != TensorMemType.RAW:
            raise QnnError(_BAD_TENSOR)
        self.check_client_buffer(tensor, given.clientBuf)
        return Binding(tensor, address=given.clientBuf.data)

    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        """Hook: the live registration of a handle in the graph's context; else 6004."""
        registration = self.registrations.get(handle or 0)
        if registration is None or registration.context is not graph.context:
            raise QnnError(_BAD_TENSOR)
        return registration

    def check_registration(self, registration: Registration, tensor: Tensor) -> None:
        """Hook: a registration may be larger than the tensor, never smaller (6004)."""
        if registration.request.size < tensor.size:
            raise QnnError(self.personality.code("short-handle", _BAD_TENSOR))

    def check_client_buffer(self, tensor: Tensor, buffer: Any) -> None:
        """Hook: a client buffer may be larger than the tensor, never NULL or smaller (6004)."""
        if not buffer.data or buffer.dataSize < tensor.size:
            raise QnnError(_BAD_TENSOR)

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        """Hook: all arguments are good; allocate the buffers that raw tensors still lack."""
        for each in (*sources, *sinks):
            if each.registration is None:
                self.buffer_of(graph, each.tensor)

    def buffer_of(self, graph: Graph, tensor: Tensor) -> Mapping:
        """Hook: the internal buffer of a raw tensor: from preparation, or made once at its first raw use."""
        buffer = graph.buffers.get(tensor.id)
        if buffer is None:
            buffer = graph.buffers[tensor.id] = self.allocate_buffer(graph, tensor)
        return buffer

    def locate(self, registration: Registration) -> int:
        """Hook: where in the mapping a registered tensor begins."""
        return registration.request.offset

    def registered(self, binding: Binding, registration: Registration) -> Stored:
        """Hook: the bytes of a registered tensor, in place."""
        return registration.shared.mapping.view(self.locate(registration), binding.tensor.size)

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        """Hook: the bytes of an input: in registered memory itself, or copied to the internal buffer."""
        if binding.registration is not None:
            return self.registered(binding, binding.registration)
        inside = self.buffer_of(graph, binding.tensor).view(0, binding.tensor.size)
        inside[:] = at(binding.address, binding.tensor.size)
        return inside

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        """Hook: deliver an output: into registered memory itself, or through the internal buffer."""
        if binding.registration is not None:
            self.registered(binding, binding.registration)[:] = stored
            return
        inside = self.buffer_of(graph, binding.tensor).view(0, binding.tensor.size)
        inside[:] = stored
        at(binding.address, binding.tensor.size)[:] = inside

    def compute(self, graph: Graph, values: dict[int, Stored]) -> None:
        """Hook: add the bytes of every tensor that a node writes, in the order of the nodes."""
        for tensor in graph.tensors.values():
            if tensor.data is not None:
                values[tensor.id] = self.constant(graph, tensor, tensor.data)
        with np.errstate(all="ignore"):
            for node in graph.nodes:
                self.compute_node(graph, node, values)

    def compute_node(self, graph: Graph, node: Node, values: dict[int, Stored]) -> None:
        """Hook: one operator, on real values."""
        outputs = [graph.tensors[each] for each in node.outputs]
        for tensor, result in zip(outputs, self.results(graph, node, outputs, values), strict=True):
            values[tensor.id] = self.keep(graph, tensor, self.store(tensor, result))

    def results(
        self, graph: Graph, node: Node, outputs: list[Tensor], values: dict[int, Stored]
    ) -> list[numbers.Values]:
        """Hook: the real values that a node computes of the bytes of its inputs."""
        inputs = [graph.tensors[each] for each in node.inputs]
        if not isinstance(node.parameters, UnsetType):
            try:
                return table.results(node.operator, inputs, outputs, node.parameters, values)
            except table.UNFIT:  # an index out of the data, which only the data shows
                raise QnnError(Error.GRAPH_ERROR_GENERAL) from None
        operands = [numbers.load(each, values[each.id]) for each in inputs]
        return [suite.OPERATORS[node.operator].compute(*operands)]

    def constant(self, graph: Graph, tensor: Tensor, data: bytes) -> Stored:
        """Hook: the bytes of a STATIC tensor."""
        del graph, tensor
        return np.frombuffer(data, np.uint8)

    def keep(self, graph: Graph, tensor: Tensor, stored: Stored) -> Stored:
        """Hook: where the result of a node waits for the nodes that read it."""
        del graph, tensor
        return stored

    def store(self, tensor: Tensor, real: numbers.Values) -> Stored:
        """Hook: the bytes of a tensor's real values."""
        return numbers.store(tensor, real, self.personality.rounding)


_ALIGNMENT = 64


class Part(mapping.Mapping):
    """Some bytes of a mapping, used as a mapping of their own. They go when the whole goes."""

    __slots__ = ("_offset", "_whole")

    def __init__(self, whole: mapping.Mapping, offset: int, length: int) -> None:
        self.address = whole.address + offset
        self.length = length
        self._whole, self._offset = whole, offset

    def view(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """As for any mapping."""
        if offset < 0 or offset + size > self.length:
            raise mapping.ReleasedError(f"bytes {offset}..{offset + size} are not mapped")
        return self._whole.view(self._offset + offset, size)

    def release(self) -> None:
        """Unmap the whole."""
        self._whole.release()


class InOnePiece(Execution):
    """At preparation one piece for the tensors prepared RAW, at the first raw execute one for the others."""

    def prepare_buffers(self, graph: Graph) -> None:
        """One allocation."""
        if not self.personality.one_piece:
            super().prepare_buffers(graph)
            return
        tensors = (*graph.inputs.values(), *graph.outputs.values())
        self.allocate_piece(graph, [each for each in tensors if self.wants_buffer(graph, each)])

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        """One allocation for all raw tensors that have no buffer yet."""
        if self.personality.one_piece:
            raw = [each.tensor for each in (*sources, *sinks) if each.registration is None]
            self.allocate_piece(graph, [each for each in raw if each.id not in graph.buffers])
        super().begin_execute(graph, sources, sinks)

    def allocate_piece(self, graph: Graph, tensors: Iterable[Tensor]) -> None:
        """Hook: a mapping called ``qnn-io:<graph>``, and a part of it for each tensor."""
        offsets: dict[Any, int] = {}
        end = 0
        for tensor in tensors:
            offsets[tensor] = end
            end += -(-tensor.size // _ALIGNMENT) * _ALIGNMENT
        if not offsets:
            return
        self.ask("mapping")
        whole = self.own_memory(f"qnn-io:{graph.name}", end)
        for tensor, offset in offsets.items():
            graph.buffers[tensor.id] = Part(whole, offset, tensor.size)


_LOOK = 0.0005
"""Seconds after which graphExecute looks at the queue again."""


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """One execution in the queue."""

    admitted: Admitted
    notify: int
    """Address of the client's Qnn_NotifyFn_t; 0: it wants no notification."""
    parameter: int | None


class Asynchronous(Execution):
    """graphExecuteAsync, taken apart into hooks: enqueue, run, notify.

    QnnGraph.h, QnnGraph_executeAsync: graphs are enqueued in the order of the calls, the notification comes
    from a thread of the backend's, and a call that fails notifies nobody. Arguments are checked by the call
    itself, as graphExecute checks them, so a refusal is never reported by a notification.

    The thread begins with the first execution in the queue and ends with the last: an idle backend has none.
    """

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.jobs: collections.deque[Job] = collections.deque()
        self.serving = False
        """The thread is there, or about to be."""
        self.under_way: Job | None = None
        """What the thread has taken out of the queue, until it is carried out."""
        self._server = 0
        """The thread's identifier."""
        super().__init__(personality)

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
        """QnnGraph_execute: it is added to the end of the queue, and waits for what is enqueued by then.

        In a notification nobody waits: the thread that it comes from would wait for itself.
        """
        last = self.jobs[-1] if self.jobs else self.under_way
        while last is not None and threading.get_ident() != self._server:
            with self.lock.without():
                time.sleep(_LOOK)
            if last is not self.under_way and last not in self.jobs:
                break
        super().graph_execute(graph, inputs, num_inputs, outputs, num_outputs, profile, signal)

    def graph_execute_async(self, *arguments: Any) -> None:
        """QnnGraph_executeAsync: the arguments of graphExecute, notifyFn and notifyParam."""
        self.require_asynchronous()
        *execution, notify, parameter = arguments
        self.enqueue(Job(self.admit(*execution), notify or 0, parameter))

    def require_asynchronous(self) -> None:
        """Hook: without property 304 the call answers 1000 to anything."""
        if not self.personality.asynchronous:
            raise QnnError(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)

    def enqueue(self, job: Job) -> None:
        """Hook: put an execution at the end of the queue, which has no limit."""
        self.jobs.append(job)
        if not self.serving:
            try:
                threading.Thread(target=self._serve, name="qnn-async", daemon=True).start()
            except RuntimeError:  # there is no thread to be had, and so nobody to carry the job out
                self.jobs.pop()
                raise QnnError(Error.COMMON_ERROR_MEM_ALLOC) from None
            self.serving = True

    def close(self) -> None:
        """What is in the queue is dropped; a notification that is under way comes to its end."""
        self.jobs.clear()
        super().close()

    def _serve(self) -> None:
        while True:
            # Looking at the queue and ending are one step under the lock: otherwise an execution that is
            # enqueued between them would find the thread there, and wait for ever.
            with self.lock:
                if not self.jobs:
                    self.serving, self._server = False, 0
                    return
                self._server = threading.get_ident()
                self.under_way = job = self.jobs.popleft()
            try:
                self.run_job(job)
            finally:
                self.under_way = None

    def run_job(self, job: Job) -> None:
        """Hook: execute, then notify."""
        # Under the lock, a client that calls the API from its notification, or waits in it for another
        # thread that does, would wait for ever.
        self.notify(job, self.status_of(job))

    def status_of(self, job: Job) -> int:
        """Hook: carry out an execution, and give its Qnn_ErrorHandle_t."""
        with self.lock:
            try:
                self.check_alive(job)
                self.carry_out(*job.admitted)
            except QnnError as error:
                return self.answer("graphExecuteAsync", error.code)
            except BaseException as error:
                self.escaped.append(("graphExecuteAsync", error))
                return int(Error.COMMON_ERROR_GENERAL)
            finally:
                self.under_way = None
            return 0

    def check_alive(self, job: Job) -> None:
        """Hook: 6039 where the context was freed meanwhile, 6004 where a handle was deregistered."""
        graph, sources, sinks = job.admitted
        if self.graphs.get(graph.handle) is not graph:
            raise QnnError(Error.GRAPH_ERROR_INVALID_CONTEXT)
        for each in (*sources, *sinks):
            if (
                each.registration
                and self.registrations.get(each.registration.handle) is not each.registration
            ):
                raise QnnError(Error.GRAPH_ERROR_INVALID_TENSOR)

    def notify(self, job: Job, status: int) -> None:
        """Hook: call the client, once, from this thread."""
        if job.notify:
            NotifyFn(job.notify)(job.parameter, NotifyStatus(status))
