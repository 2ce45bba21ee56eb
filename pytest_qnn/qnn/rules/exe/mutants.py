"""Reference backends with one fault each, for the rules of EXE."""

from __future__ import annotations

import ctypes
import mmap
import time
from typing import Any

import numpy as np

from pytest_qnn.isolation import libc
from pytest_qnn.qnn.abi.codes import ITEM_SIZE, DataType, Error, TensorMemType, TensorType
from pytest_qnn.qnn.abi.layouts import NotifyFn, NotifyStatus
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Admitted, Job, Stored
from pytest_qnn.qnn.reference.mapping import at
from pytest_qnn.qnn.reference.objects import Binding, Context, Graph, Node, QnnError, Registration, Tensor
from pytest_qnn.qnn.reference.operators.values import Values
from pytest_qnn.qnn.reference.personalities import DEFAULT, PERSONALITIES, Personality

_SMALL = 64
"""Bytes of weights that are no burden."""
_SLOW = 0.003
"""Seconds after which an execution begins: others may be in the queue by then."""


class _Asynchronous(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["asynchronous"])


@faulty_backend("async-notifies-first", "Notifies before it reads the inputs.", "EXE-22")
class _NotifiesFirst(_Asynchronous):
    def run_job(self, job: Job) -> None:
        self.notify(job, 0)
        self.status_of(job)


@faulty_backend("async-notifies-early", "Notifies before it writes the output.", "EXE-22")
class _NotifiesBeforeItWrites(_Asynchronous):
    """Reads in time, writes too late."""

    job: Job | None = None

    def run_job(self, job: Job) -> None:
        self.job = job
        self.status_of(job)

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        job, self.job = self.job, None
        if job is not None:
            self.notify(job, 0)
        super().write_output(graph, binding, stored)


@faulty_backend("async-writes-again", "Computes again once it has notified.", "EXE-22")
class _WritesAgain(_Asynchronous):
    def run_job(self, job: Job) -> None:
        super().run_job(job)
        self.status_of(job)


@faulty_backend("async-one-slot", "Remembers the memory of the last call only.", "EXE-22")
class _OneSlot(_Asynchronous):
    """What waits is only the memory of the last call."""

    last: Job | None = None

    def enqueue(self, job: Job) -> None:
        self.last = job
        super().enqueue(job)

    def run_job(self, job: Job) -> None:
        time.sleep(_SLOW)
        super().run_job(Job(self.last.admitted if self.last else job.admitted, job.notify, job.parameter))


@faulty_backend("async-one-parameter", "Notifies with the parameter of the last call.", "EXE-18")
class _OneParameter(_OneSlot):
    """Every notification has the parameter of the last call."""

    def run_job(self, job: Job) -> None:
        time.sleep(_SLOW)
        parameter = self.last.parameter if self.last else None
        self.notify(Job(job.admitted, job.notify, parameter), self.status_of(job))


@faulty_backend("async-clears-inputs", "Clears registered inputs once it has notified.", "EXE-22")
class _ClearsInputs(_Asynchronous):
    """Once it has notified it clears what it has read from registered memory."""

    def run_job(self, job: Job) -> None:
        super().run_job(job)
        with self.lock:
            for source in job.admitted[1]:
                if source.registration is not None:
                    self.registered(source, source.registration)[:] = 0


@faulty_backend("async-never-notifies", "Notifies nobody.", "EXE-18")
class _NeverNotifies(_Asynchronous):
    def notify(self, job: Job, status: int) -> None:
        pass


@faulty_backend("async-notifies-twice", "Notifies twice.", "EXE-18")
class _NotifiesTwice(_Asynchronous):
    def notify(self, job: Job, status: int) -> None:
        super().notify(job, status)
        super().notify(job, status)


@faulty_backend("async-notifies-refusals", "Notifies of calls that it refuses.", "EXE-18")
class _NotifiesRefusals(_Asynchronous):
    def graph_execute_async(self, *arguments: Any) -> None:
        try:
            super().graph_execute_async(*arguments)
        except QnnError as error:
            if arguments[-2]:
                NotifyFn(arguments[-2])(arguments[-1], NotifyStatus(error.code))
            raise


@faulty_backend("async-own-parameter", "Notifies with NULL for a parameter.", "EXE-18")
class _OwnParameter(_Asynchronous):
    def notify(self, job: Job, status: int) -> None:
        super().notify(Job(job.admitted, job.notify, None), status)


@faulty_backend("async-dead-handles", "Takes deregistered handles asynchronously.", "EXE-18")
class _DeadHandles(_Asynchronous):
    """Asynchronously, a handle that was deregistered stands for the memory that it stood for."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: dict[int, Registration] = {}
        self.admitting = False

    def forget(self, registration: Registration) -> None:
        self.dead[registration.handle] = registration
        del self.registrations[registration.handle]
        del registration.context.registrations[registration.handle]

    def graph_execute_async(self, *arguments: Any) -> None:
        self.admitting = True
        try:
            super().graph_execute_async(*arguments)
        finally:
            self.admitting = False

    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        if self.admitting and handle in self.dead:
            return self.dead[handle]
        return super().find_registration(graph, handle)

    def check_alive(self, job: Job) -> None:
        pass


def _wipe(outputs: Any, count: int) -> None:
    """Clear raw memory of tensors."""
    for v1 in (outputs[i].v1 for i in range(count if outputs else 0)):
        if v1.memType == TensorMemType.RAW:
            at(v1.clientBuf.data, v1.clientBuf.dataSize)[:] = 0


@faulty_backend(
    "async-wipes-output", "Clears raw outputs before it checks handles, asynchronously.", "EXE-18"
)
class _WipesAsynchronously(_Asynchronous):
    def graph_execute_async(self, *arguments: Any) -> None:
        _wipe(*arguments[3:5])
        super().graph_execute_async(*arguments)


@faulty_backend("async-forgets-freed", "Forgets what waits when its context is freed.", "EXE-18")
class _ForgetsFreed(_Asynchronous):
    """With a context the executions of its graphs leave the queue, and nobody is told."""

    def release_graphs(self, context: Context) -> None:
        waiting = [job for job in self.jobs if job.admitted[0].context is not context]
        self.jobs.clear()
        self.jobs.extend(waiting)
        super().release_graphs(context)


@faulty_backend("async-freed-internal", "Of a freed context it notifies an internal error.", "EXE-18")
class _InternalError(_Asynchronous):
    """The graph is looked up when its turn comes, and that it is gone was not foreseen."""

    def check_alive(self, job: Job) -> None:
        if job.admitted[0].handle not in self.graphs:
            raise QnnError(Error.COMMON_ERROR_GENERAL)
        super().check_alive(job)


@faulty_backend("async-says-only", "Answers 1000, and property 304 says supported.", "EXE-22")
class _SaysOnly(_Asynchronous):
    def require_asynchronous(self) -> None:
        raise QnnError(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)


@faulty_backend("input-stale-line", "an input begins with bytes of before", "EXE-19", "ION-04")
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


@faulty_backend("handle-output-off", "outputs through handles have bit 6 flipped", "EXE-01")
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


@faulty_backend("null-handle-zeros", "a NULL handle is read as zeros", "EXE-03")
class _NullIsZeros(_Zeros):
    def good(self, handle: int | None) -> bool:
        return bool(handle)


@faulty_backend("unknown-handle-zeros", "an unknown handle is read as zeros", "EXE-04", "EXE-05")
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


@faulty_backend("null-handle-newest", "a NULL handle is taken for the newest one", "EXE-03")
class _NullIsNewest(_NewestFor):
    def newest_stands_for(self, handle: int | None) -> bool:
        return not handle


@faulty_backend("unknown-handle-newest", "an unknown handle is taken for the newest", "EXE-05")
class _UnknownIsNewest(_NewestFor):
    """What was never a handle; one that has ended is refused."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.given: set[int] = set()

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self.given.add(registration.handle)

    def newest_stands_for(self, handle: int | None) -> bool:
        return bool(handle) and handle not in self.given


def is_mapped(address: int, size: int) -> bool:
    """Every page of [address, address + size) is mapped into this process."""
    start = address - address % mmap.PAGESIZE
    length = address + size - start
    pages = ctypes.create_string_buffer(length // mmap.PAGESIZE + 1)
    return int(libc.mincore(start, length, pages)) == 0


@faulty_backend("mapped-address-executes", "an address for a handle is used as raw memory", "EXE-05")
class _MappedIsRaw(ReferenceBackend):
    """An address at which no memory is mapped is refused."""

    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        value = given.memHandle or 0
        is_handle = given.memType != TensorMemType.MEMHANDLE or value in self.registrations
        if is_handle or not is_mapped(value, tensor.size):
            return super().bind(graph, tensor, given)
        return Binding(tensor, address=value)


@faulty_backend("context-as-handle", "a context's handle is taken for the newest memory handle", "EXE-05")
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


@faulty_backend("refused-execute-wipes", "raw outputs are cleared before handles are checked", "EXE-12")
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
        _wipe(outputs, num_outputs)
        super().graph_execute(graph, inputs, num_inputs, outputs, num_outputs, profile, signal)


BAD_TENSOR = Error.GRAPH_ERROR_INVALID_TENSOR
INVALID_HANDLE = TensorMemType.MEMHANDLE


class KeepsExecuting(ReferenceBackend):
    """Has memory of its own to give to tensors."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.kept: list[Any] = []

    def own(self, size: int) -> int:
        """The address of so many bytes."""
        self.kept.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.kept[-1])


@faulty_backend("execute-data-size", "a handle's dataSize must be the tensor's", "EXE-06")
class _DataSizeCounts(ReferenceBackend):
    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        size = given.clientBuf.dataSize
        if given.memType == INVALID_HANDLE and size and size != tensor.size:
            raise QnnError(BAD_TENSOR)
        return super().bind(graph, tensor, given)


@faulty_backend("execute-any-registration", "a registration may be too small", "EXE-07")
class _AnyRegistration(KeepsExecuting):
    def check_registration(self, registration: Registration, tensor: Tensor) -> None:
        pass

    def registered(self, binding: Binding, registration: Registration) -> Stored:
        if registration.request.size < binding.tensor.size:
            return at(self.own(binding.tensor.size), binding.tensor.size)
        return super().registered(binding, registration)


@faulty_backend("execute-exact-registration", "a registration must not be larger", "EXE-07")
class _ExactRegistration(ReferenceBackend):
    def check_registration(self, registration: Registration, tensor: Tensor) -> None:
        if registration.request.size != tensor.size:
            raise QnnError(BAD_TENSOR)


@faulty_backend("execute-bound-for-ever", "a handle serves its first tensor only", "EXE-08")
class _BoundForEver(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.of: dict[int, str] = {}

    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        binding = super().bind(graph, tensor, given)
        if binding.registration is not None:
            first = self.of.setdefault(binding.registration.handle, tensor.name)
            if first != tensor.name:
                raise QnnError(BAD_TENSOR)
        return binding


@faulty_backend("execute-one-tensor-each", "a handle serves one tensor of an execute", "EXE-08")
class _OneTensorEach(ReferenceBackend):
    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        found = super().bind_all(graph, given, count, wanted)
        handles = [each.registration.handle for each in found if each.registration is not None]
        if len(set(handles)) < len(handles):
            raise QnnError(BAD_TENSOR)
        return found


@faulty_backend("execute-outputs-stay", "an output's handle is no input later", "EXE-09")
class _OutputsStay(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.outputs: set[int] = set()

    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        binding = super().bind(graph, tensor, given)
        if binding.registration is not None:
            handle = binding.registration.handle
            if tensor.type == TensorType.APP_READ:
                self.outputs.add(handle)
            elif handle in self.outputs:
                raise QnnError(BAD_TENSOR)
        return binding


@faulty_backend("execute-scrubs-inputs", "raw inputs are zeroed once they are read", "EXE-10")
class _ScrubsInputs(ReferenceBackend):
    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        stored = super().read_input(graph, binding).copy()
        if binding.registration is None:
            at(binding.address, binding.tensor.size)[:] = 0
        return stored


@faulty_backend("execute-over-inputs", "a node that reads a raw input puts what it gives there", "EXE-10")
class _OverInputs(ReferenceBackend):
    """A planner that takes the place of what is read for the last time, whoever's it is."""

    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        binding = super().bind(graph, tensor, given)
        if tensor.type == TensorType.APP_WRITE and binding.registration is None:
            self._input_places[tensor.id] = binding.address
        return binding

    def admit(self, *arguments: Any) -> Admitted:
        self._input_places: dict[int, int] = {}
        return super().admit(*arguments)

    def compute_node(self, graph: Graph, node: Node, values: dict[int, Stored]) -> None:
        super().compute_node(graph, node, values)
        source, result = node.inputs[0], node.outputs[0]
        if graph.tensors[result].type == TensorType.NATIVE and source in self._input_places:
            at(self._input_places[source], len(values[result]))[:] = values[result]


@faulty_backend("execute-writes-behind", "a byte behind raw outputs is written", "EXE-10")
class _WritesBehind(ReferenceBackend):
    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        super().write_output(graph, binding, stored)
        if binding.registration is None:
            at(binding.address, binding.tensor.size + 1)[-1] = 0


@faulty_backend("execute-rewrites-structs", "the tensors' structs are written to", "EXE-11")
class _RewritesStructs(ReferenceBackend):
    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        binding = super().bind(graph, tensor, given)
        given.dataFormat = 7
        return binding


@faulty_backend("execute-clears-first", "a refused execute changes raw outputs", "EXE-12")
class _ClearsFirst(ReferenceBackend):
    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        try:
            return super().bind_all(graph, given, count, wanted)
        except QnnError:
            for address in self.outputs:
                at(address, 1)[:] = 0
            raise

    outputs: tuple[int, ...] = ()

    def graph_execute(self, graph: int | None, *arguments: Any) -> None:
        outputs, count = arguments[2:4]
        given = [outputs[i].v1 for i in range(count)] if outputs else []
        self.outputs = tuple(each.clientBuf.data for each in given if each.memType == TensorMemType.RAW)
        super().graph_execute(graph, *arguments)


@faulty_backend("execute-any-type-raw", "an unknown memory type is taken for RAW", "EXE-13")
class _AnyTypeIsRaw(ReferenceBackend):
    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        if given.memType in (TensorMemType.RAW, INVALID_HANDLE):
            return super().bind(graph, tensor, given)
        self.check_client_buffer(tensor, given.clientBuf)
        return Binding(tensor, address=given.clientBuf.data)


@faulty_backend("execute-any-data-size", "raw memory may be too small", "EXE-14")
class _AnyDataSize(KeepsExecuting):
    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        if given.memType == TensorMemType.RAW and given.clientBuf.dataSize < tensor.size:
            return Binding(tensor, address=self.own(tensor.size))
        return super().bind(graph, tensor, given)


@faulty_backend("execute-by-position", "tensors are identified by their positions", "EXE-15")
class _ByPosition(ReferenceBackend):
    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        super().bind_all(graph, given, count, wanted)
        return [
            self.bind(graph, tensor, given[position].v1) for position, tensor in enumerate(wanted.values())
        ]


@faulty_backend(
    "execute-handles-by-position", "tensors with memory handles are identified by their positions", "EXE-15"
)
class _HandlesByPosition(ReferenceBackend):
    """Memory handles are kept by position, as they were bound; raw memory is looked up by the tensor's id."""

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        found = super().bind_all(graph, given, count, wanted)
        tensors = [given[position].v1 for position in range(count)]
        return [
            self.bind(graph, tensor, tensors[position])
            if tensors[position].memType == TensorMemType.MEMHANDLE
            else bound
            for position, (tensor, bound) in enumerate(zip(wanted.values(), found, strict=True))
        ]


@faulty_backend("execute-any-arrays", "missing and foreign tensors go unnoticed", "EXE-16")
class _AnyArrays(KeepsExecuting):
    """What is missing is full of zeros, what is there twice or unknown is overlooked."""

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        by_id = {given[position].v1.id: given[position].v1 for position in range(count)}
        return [
            self.bind(graph, tensor, by_id[number])
            if number in by_id
            else Binding(tensor, address=self.own(tensor.size))
            for number, tensor in wanted.items()
        ]


@faulty_backend("execute-previous-data", "a missing input is that of before", "EXE-16")
class _PreviousData(KeepsExecuting):
    """An input that is missing has the bytes of the execute before."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.last: dict[int, int] = {}

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        there = {given[position].v1.id for position in range(count)}
        if wanted is not graph.inputs or len(there) < count or not there < wanted.keys():
            return super().bind_all(graph, given, count, wanted)
        missing = wanted.keys() - there
        if not missing <= self.last.keys():
            raise QnnError(BAD_TENSOR)
        some = {number: tensor for number, tensor in wanted.items() if number in there}
        found = super().bind_all(graph, given, count, some)
        return found + [Binding(wanted[number], address=self.last[number]) for number in missing]

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        data = super().read_input(graph, binding)
        self.last[binding.tensor.id] = address = self.own(len(data))
        ctypes.memmove(address, data.tobytes(), len(data))
        return data


@faulty_backend("execute-twice-is-once", "a tensor may be there twice", "EXE-16")
class _TwiceIsOnce(ReferenceBackend):
    """Of a tensor that is there twice the first counts."""

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        first = {given[position].v1.id: position for position in reversed(range(count))}
        if first.keys() != wanted.keys():
            raise QnnError(BAD_TENSOR)
        return [self.bind(graph, wanted[number], given[at].v1) for number, at in first.items()]


@faulty_backend("execute-finalises", "an execute finalises the graph", "EXE-17")
class _FinalisesItself(ReferenceBackend):
    def graph_execute(self, graph: int | None, *arguments: Any) -> None:
        if graph in self.graphs and not self.graphs[graph].finalised:
            self.graph_finalize(graph, None, None)
        super().graph_execute(graph, *arguments)


class _Arena(ReferenceBackend):
    """What nodes give to each other lies in one piece of memory."""

    def arena_place(self, graph: Graph, tensor: Tensor) -> int:
        """The first byte of an inner result."""
        inner = self.inner_results(graph)
        return sum(each.size for each in inner[: inner.index(tensor)])

    def inner_results(self, graph: Graph) -> list[Tensor]:
        """The inner results of a graph, in the order of their creation."""
        return [each for each in graph.tensors.values() if each.type == TensorType.NATIVE]

    def compute(self, graph: Graph, values: dict[int, Stored]) -> None:
        places = [self.arena_place(graph, each) + each.size for each in self.inner_results(graph)]
        self._arena = np.zeros(max(places, default=0), np.uint8)
        super().compute(graph, values)

    def compute_node(self, graph: Graph, node: Node, values: dict[int, Stored]) -> None:
        super().compute_node(graph, node, values)
        tensor = graph.tensors[node.outputs[0]]
        if tensor.type == TensorType.NATIVE:
            start = self.arena_place(graph, tensor)
            held = self._arena[start : start + tensor.size]
            held[:] = values[tensor.id]
            values[tensor.id] = held


@faulty_backend(
    "inner-by-elements", "Inner results are placed by their elements, as if these had a byte each.", "EXE-21"
)
class _InnerByElements(_Arena):
    def arena_place(self, graph: Graph, tensor: Tensor) -> int:
        inner = self.inner_results(graph)
        return sum(each.size // ITEM_SIZE[each.data_type] for each in inner[: inner.index(tensor)])


@faulty_backend(
    "inner-of-the-last-graph", "All graphs of a context have the plan of the one finalised last.", "EXE-21"
)
class _InnerOfTheLastGraph(_Arena):
    """A plan says where inner results are; those that it does not know begin at its start."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._arena_plans: dict[int, list[int]] = {}
        """By context; a context that came out of a binary has none."""

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        super().graph_finalize(graph, profile, signal)
        owner = self.graphs[graph or 0]
        plan = [_Arena.arena_place(self, owner, each) for each in self.inner_results(owner)]
        self._arena_plans[owner.context.handle] = plan

    def arena_place(self, graph: Graph, tensor: Tensor) -> int:
        plan = self._arena_plans.get(graph.context.handle)
        if plan is None:
            return super().arena_place(graph, tensor)
        position = self.inner_results(graph).index(tensor)
        return plan[position] if position < len(plan) else 0


@faulty_backend(
    "weights-for-one-execute",
    "Weights of more than 64 bytes are freed with the first execute of their graph.",
    "EXE-21",
    deadly=True,
)
class _WeightsForOneExecute(ReferenceBackend):
    """They were packed for the processor by then; the second execute looks for them where they were."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._packed: set[int] = set()

    def compute(self, graph: Graph, values: dict[int, Stored]) -> None:
        super().compute(graph, values)
        if any(each.data is not None and len(each.data) > _SMALL for each in graph.tensors.values()):
            if graph.handle in self._packed:
                ctypes.string_at(0)
            self._packed.add(graph.handle)


@faulty_backend("operands-swapped", "a - b is computed as b - a.", "EXE-21")
class _OperandsSwapped(ReferenceBackend):
    def compute_node(self, graph: Graph, node: Node, values: dict[int, Stored]) -> None:
        swapped = node.operator == "ElementWiseSubtract"
        super().compute_node(
            graph, Node(node.operator, node.inputs[::-1], node.outputs) if swapped else node, values
        )


@faulty_backend("two-steps-off", "Quantised results are two steps too large.", "EXE-21")
class _TwoStepsOff(ReferenceBackend):
    def store(self, tensor: Tensor, real: Values) -> Stored:
        stored = super().store(tensor, real)
        return stored if tensor.data_type == DataType.FLOAT_32 else np.minimum(stored, 253) + np.uint8(2)


@faulty_backend("float-off", "FLOAT_32 results are off by half a percent.", "EXE-21")
class _FloatOff(ReferenceBackend):
    def store(self, tensor: Tensor, real: Values) -> Stored:
        return super().store(tensor, real * 1.005 if tensor.data_type == DataType.FLOAT_32 else real)
