"""Reference backends with one fault each, for the rules of QMG."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_qnn.qnn.abi.codes import DataType, Error, TensorMemType
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference import mapping
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.mapping import Mapping
from pytest_qnn.qnn.reference.objects import Binding, Graph, QnnError, Tensor
from pytest_qnn.qnn.reference.operators.values import Values
from pytest_qnn.qnn.reference.personalities import DEFAULT, PERSONALITIES, Personality
from pytest_qnn.qnn.rules.exe.mutants import BAD_TENSOR, INVALID_HANDLE


@faulty_backend("io-lazy", "IO buffers are allocated at the first execute only", "QMG-01", "QMG-02")
class _Lazy(ReferenceBackend):
    def wants_buffer(self, graph: Graph, tensor: Tensor) -> bool:
        del graph, tensor
        return False


@faulty_backend("hint-for-all", "one tensor's hint counts for all of the graph", "QMG-08")
class _HintForAll(ReferenceBackend):
    def wants_buffer(self, graph: Graph, tensor: Tensor) -> bool:
        del tensor
        tensors = (*graph.inputs.values(), *graph.outputs.values())
        return all(each.mem_type == TensorMemType.RAW for each in tensors)


@faulty_backend("handle-scratch", "inputs through handles are copied to the IO buffers", "QMG-02")
class _Scratch(ReferenceBackend):
    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        stored = super().read_input(graph, binding)
        scratch = graph.buffers.get(binding.tensor.id)
        if binding.registration is None or scratch is None:
            return stored
        inside = scratch.view(0, binding.tensor.size)
        inside[:] = stored
        return inside


@faulty_backend("raw-copied-once", "raw inputs are copied at the first inference only", "QMG-01", "QMG-03")
class _CopiesOnce(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.copied: set[tuple[int, int]] = set()

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        key = (graph.handle, binding.tensor.id)
        if binding.registration is None and key in self.copied:
            return self.buffer_of(graph, binding.tensor).view(0, binding.tensor.size)
        if binding.registration is None:
            self.copied.add(key)
        return super().read_input(graph, binding)


@faulty_backend(
    "hinted-refuses-raw",
    "a tensor prepared memhandle cannot be executed raw",
    "QMG-03",
    "QMG-08",
)
class _RawRefused(ReferenceBackend):
    def check_client_buffer(self, tensor: Tensor, buffer: Any) -> None:
        if tensor.mem_type == TensorMemType.MEMHANDLE:
            raise QnnError(Error.GRAPH_ERROR_INVALID_TENSOR)
        super().check_client_buffer(tensor, buffer)


@faulty_backend(
    "handle-allocates", "IO buffers are allocated at the first execute with handles too", "QMG-04"
)
class _AllocatesAlways(ReferenceBackend):
    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        for each in (*sources, *sinks):
            self.buffer_of(graph, each.tensor)


@faulty_backend("hinted-rounds-down", "graphs prepared memhandle round halves down", "QMG-05")
class _RoundsDown(ReferenceBackend):
    def store(self, tensor: Tensor, real: Values) -> Stored:
        if tensor.mem_type == TensorMemType.MEMHANDLE and tensor.data_type == DataType.UFIXED_POINT_8:
            real = real - tensor.scale / 2
        return super().store(tensor, np.asarray(real))


@faulty_backend("raw-allocates-again", "each raw inference allocates IO buffers", "QMG-06")
class _AllocatesAgain(ReferenceBackend):
    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        for each in (*sources, *sinks):
            if each.registration is None and each.tensor.mem_type == TensorMemType.MEMHANDLE:
                used = graph.buffers.pop(each.tensor.id, None)
                if used is not None:
                    graph.buffers[-len(graph.buffers) - 1_000_000 * each.tensor.id] = used
        super().begin_execute(graph, sources, sinks)


@faulty_backend(
    "first-mode-only",
    "a graph executes only with the kind of memory of its first execute",
    "QMG-05",
    "QMG-07",
)
class _FirstMode(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.modes: dict[int, bool] = {}

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        raw = all(each.registration is None for each in (*sources, *sinks))
        if self.modes.setdefault(graph.handle, raw) != raw:
            raise QnnError(Error.GRAPH_ERROR_INVALID_TENSOR)
        super().begin_execute(graph, sources, sinks)


@faulty_backend("free-keeps-buffers", "contextFree leaves IO buffers behind", "QMG-09")
class _BuffersStay(ReferenceBackend):
    def release_buffers(self, graph: Graph) -> None:
        graph.buffers.clear()


@faulty_backend("hint-changes-codes", "graphs with the hint answer 6000 for 6004", "QMG-11")
class _HintedErrors(ReferenceBackend):
    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        try:
            return super().bind_all(graph, given, count, wanted)
        except QnnError:
            hinted = any(tensor.mem_type == INVALID_HANDLE for tensor in wanted.values())
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT if hinted else BAD_TENSOR) from None


class _Copying(ReferenceBackend):
    """Inputs and outputs behind handles may go through memory that is given back with the execute."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.scratch: list[Mapping] = []

    def copies(self, graph: Graph, tensor: Tensor) -> bool:
        """The tensor goes through scratch memory."""
        raise NotImplementedError

    def through(self, stored: Stored) -> Stored:
        """A copy in scratch memory."""
        memory = mapping.anonymous("scratch", len(stored), self.mappings)
        self.scratch.append(memory)
        inside = memory.view(0, len(stored))
        inside[:] = stored
        return inside

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        stored = super().read_input(graph, binding)
        if binding.registration is None or not self.copies(graph, binding.tensor):
            return stored
        return self.through(stored)

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        copied = binding.registration is not None and self.copies(graph, binding.tensor)
        super().write_output(graph, binding, self.through(stored) if copied else stored)

    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        super().carry_out(graph, sources, sinks)
        for memory in self.scratch:
            memory.release()
        self.scratch.clear()


@faulty_backend("handle-copied-in", "inputs behind handles are copied, and the copies given back", "QMG-12")
class _CopiedIn(_Copying):
    def copies(self, graph: Graph, tensor: Tensor) -> bool:
        return tensor.id in graph.inputs


@faulty_backend("handle-copied-out", "outputs behind handles are copied from scratch memory", "QMG-12")
class _CopiedOut(_Copying):
    def copies(self, graph: Graph, tensor: Tensor) -> bool:
        return tensor.id in graph.outputs


@faulty_backend("handle-copied-once", "the first input through a handle is copied, later ones not", "QMG-12")
class _CopiedOnce(_Copying):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.seen: set[tuple[int, int]] = set()

    def copies(self, graph: Graph, tensor: Tensor) -> bool:
        first = tensor.id in graph.inputs and (graph.handle, tensor.id) not in self.seen
        self.seen.add((graph.handle, tensor.id))
        return first


_ARENA = 8 << 20
"""Bytes, which hold every tensor of the suite's."""


@faulty_backend(
    "handle-copied-in-arena", "inputs behind handles are copied to memory kept for that", "QMG-12"
)
class _CopiedInArena(_Copying):
    """The memory is made and filled with the backend, so no execute is seen to take any."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.arena = mapping.anonymous("arena", _ARENA, self.mappings)
        self.arena.view(0, _ARENA)[:] = 1
        self.end = 0

    def copies(self, graph: Graph, tensor: Tensor) -> bool:
        return tensor.id in graph.inputs and tensor.size <= _ARENA

    def through(self, stored: Stored) -> Stored:
        self.end = (self.end + len(stored)) % _ARENA if self.end + 2 * len(stored) <= _ARENA else 0
        inside = self.arena.view(self.end, len(stored))
        inside[:] = stored
        return inside


@faulty_backend(
    "block-copied-beside", "with one block for all IO buffers, inputs are copied beside it", "QMG-12"
)
class _CopiedBesideBlock(_CopiedIn):
    """No IO buffer has a mapping of its own: QMG-02 and QMG-04 see none, and leave it."""

    def __init__(self) -> None:
        super().__init__(PERSONALITIES["io-in-one-piece"])


class _InOneBlock(ReferenceBackend):
    """One mapping holds a graph's IO buffers."""

    def __init__(self) -> None:
        super().__init__(PERSONALITIES["io-in-one-piece"])


@faulty_backend(
    "block-for-hinted", "one block is reserved for all tensors, with and without the hint", "QMG-13"
)
class _BlockForAll(_InOneBlock):
    def wants_buffer(self, graph: Graph, tensor: Tensor) -> bool:
        del graph, tensor
        return True


@faulty_backend("block-filled-by-handles", "inputs through handles are copied into the block", "QMG-13")
class _BlockFilled(_InOneBlock, _Scratch):
    pass


@faulty_backend(
    "block-at-execute", "the block of a graph prepared RAW comes with its first raw execute", "QMG-13"
)
class _BlockLate(_InOneBlock, _Lazy):
    pass


@faulty_backend("block-each-time", "with the hint each raw inference allocates a block anew", "QMG-13")
class _BlockAgain(_InOneBlock, _AllocatesAgain):
    pass


@faulty_backend("block-by-handles", "an execute with handles brings the block, too", "QMG-13")
class _BlockAlways(_InOneBlock):
    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        tensors = [each.tensor for each in (*sources, *sinks)]
        self.allocate_piece(graph, [each for each in tensors if each.id not in graph.buffers])
        super().begin_execute(graph, sources, sinks)


@faulty_backend("block-for-loaded", "graphs out of a binary reserve one block for all tensors", "QMG-13")
class _BlockForLoaded(_InOneBlock):
    def wants_buffer(self, graph: Graph, tensor: Tensor) -> bool:
        return graph.context.deserialised or super().wants_buffer(graph, tensor)
