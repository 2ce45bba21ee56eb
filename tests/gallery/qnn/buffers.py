"""The buffers that a graph has inside for tensors that are executed raw."""

from __future__ import annotations

import dataclasses
import itertools
import mmap
from collections.abc import Iterable
from typing import Any

from pytest_qnn.isolation import libc
from pytest_qnn.qnn.reference import mapping
from pytest_qnn.qnn.reference.execute import Part
from pytest_qnn.qnn.reference.mapping import Mapping
from pytest_qnn.qnn.reference.objects import Context, Graph, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT
from tests.gallery.qnn.oddity import Odd, odd

_LARGE = 2 << 20
_ARENA = 256 << 20
_KEPT, _KEPT_BYTES = 8, 64 << 20
_SPARE = 4
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_LINE = 64


@odd(
    "io-in-large-pages",
    "an IO buffer is a multiple of 2 MiB",
    source="seed 001: extra buffers are reserved, of no size that is said",
    seen="a mapping of 2 MiB for a tensor of 12 bytes",
    tried_by="QMG-01 QMG-03 QMG-09",
)
class InLargePages(Odd):
    def allocate_buffer(self, graph: Graph, tensor: Tensor) -> Mapping:
        self.meet()
        size = -(-tensor.size // _LARGE) * _LARGE
        return mapping.anonymous(f"large:{next(self._names)}", size, self.mappings)

    _names = itertools.count()


class _Private(Mapping):
    """Memory that no file is behind."""

    __slots__ = ()

    def __init__(self, length: int, live: set[Mapping]) -> None:
        protection = libc.PROT_READ | libc.PROT_WRITE
        address = libc.mmap(None, length, protection, _PRIVATE, -1, 0)
        if address in (None, libc.MAP_FAILED):
            raise OSError("mmap")
        self.address, self.length, self._live = address, length, live
        live.add(self)


@odd(
    "io-in-private-memory",
    "IO buffers are private memory without a name",
    source="seed 001: where the memory comes from is left to the backend",
    seen="an anonymous mapping, which the system may merge with its neighbours",
    tried_by="QMG-01 QMG-02 QMG-03 QMG-06 QMG-13",
)
class InPrivateMemory(Odd):
    def allocate_buffer(self, graph: Graph, tensor: Tensor) -> Mapping:
        self.meet()
        return _Private(tensor.size, self.mappings)


@odd(
    "io-twice",
    "each IO tensor has two buffers, which are used by turns",
    source="seed 001: the number of buffers is not said",
    seen="six mappings for three tensors; two of them not touched by the first execute",
    tried_by="QMG-01 QMG-06 QMG-07",
)
class Twice(Odd):
    def __init__(self) -> None:
        self._second: dict[Mapping, Mapping] = {}
        super().__init__()

    def allocate_buffer(self, graph: Graph, tensor: Tensor) -> Mapping:
        first = super().allocate_buffer(graph, tensor)
        try:
            self._second[first] = super().allocate_buffer(graph, tensor)
        except BaseException:
            first.release()
            raise
        return first

    def begin_execute(self, graph: Graph, sources: Any, sinks: Any) -> None:
        for number, buffer in list(graph.buffers.items()):
            other = self._second.pop(buffer)
            graph.buffers[number], self._second[other] = other, buffer
            self.meet()
        super().begin_execute(graph, sources, sinks)

    def release_buffers(self, graph: Graph) -> None:
        for buffer in graph.buffers.values():
            self._second.pop(buffer).release()
        super().release_buffers(graph)


@odd(
    "io-filled-at-once",
    "an IO buffer is filled with a pattern as soon as it is allocated",
    source="seed 001, row raw / memhandle: no copy is made; nothing forbids to touch the buffers",
    seen="the pages of IO buffers are resident though no data was copied",
    tried_by="QMG-02 QMG-01 OFF-02",
)
class FilledAtOnce(Odd):
    def allocate_buffer(self, graph: Graph, tensor: Tensor) -> Mapping:
        self.meet()
        buffer = super().allocate_buffer(graph, tensor)
        buffer.view(0, tensor.size)[:] = 0xCC
        return buffer


@odd(
    "io-shared-by-graphs",
    "graphs of one context take turns in one set of IO buffers, which grows with the largest",
    source="seed 001: buffers are reserved; facts 7.9: calls within a context are not parallel",
    seen="the second graph of a context allocates nothing if it is no larger than the first",
    tried_by="QMG-01 QMG-06 QMG-08 EXE-09",
)
class SharedByGraphs(Odd):
    def __init__(self) -> None:
        self._sets: dict[Context, list[Mapping]] = {}
        super().__init__()

    def allocate_buffer(self, graph: Graph, tensor: Tensor) -> Mapping:
        own = self._sets.setdefault(graph.context, [])
        taken = set(graph.buffers.values())
        for each in own:
            if each not in taken and each.length >= tensor.size:
                self.meet()
                return each
        own.append(super().allocate_buffer(graph, tensor))
        return own[-1]

    def release_buffers(self, graph: Graph) -> None:
        graph.buffers.clear()
        super().release_buffers(graph)

    def release_graphs(self, context: Context) -> None:
        super().release_graphs(context)
        for each in self._sets.pop(context, []):
            each.release()


@odd(
    "io-kept-for-the-next",
    "up to eight IO buffers of graphs that are gone are kept for the next graph",
    source="legal-choices.md: a bounded pool that is kept is no leak; seed 001 does not say when they go",
    seen="mappings stay after contextFree, never more than eight",
    tried_by="QMG-09 QMG-01",
)
class KeptForTheNext(Odd):
    def __init__(self) -> None:
        self._kept: list[Mapping] = []
        super().__init__()

    def allocate_buffer(self, graph: Graph, tensor: Tensor) -> Mapping:
        for each in self._kept:
            if each.length == tensor.size:
                self.meet()
                self._kept.remove(each)
                return each
        return super().allocate_buffer(graph, tensor)

    def release_buffers(self, graph: Graph) -> None:
        for number, buffer in list(graph.buffers.items()):
            left = _KEPT_BYTES - sum(each.length for each in self._kept)
            if len(self._kept) < _KEPT and buffer.length <= left:
                self._kept.append(graph.buffers.pop(number))
        super().release_buffers(graph)

    def backend_free(self, backend: int | None) -> None:
        super().backend_free(backend)
        if not self.backends:
            for each in self._kept:
                each.release()
            self._kept.clear()


class _Held(Part):
    """A part of a block that stays when this part goes."""

    def release(self) -> None:
        """The block goes with its context, or with the backend."""


@odd(
    "io-block-per-context",
    "graphs of a context take turns in one block, and up to four blocks are kept for the next contexts",
    source="seed 001: buffers are reserved, however many; legal-choices.md: a bounded pool that is kept",
    seen="one mapping for all IO tensors of a context, or none where an earlier context's is large enough",
    tried_by="QMG-01 QMG-02 QMG-03 QMG-04 QMG-09 QMG-12 QMG-13",
)
class BlockPerContext(Odd):
    chosen = dataclasses.replace(DEFAULT, one_piece=True)

    def __init__(self) -> None:
        self._blocks: dict[Context, list[Mapping]] = {}
        self._spare: list[Mapping] = []
        super().__init__()

    def allocate_piece(self, graph: Graph, tensors: Iterable[Tensor]) -> None:
        """The last block of the context is the largest; those before it hold what is in use already."""
        wanted = list(tensors)
        if not wanted:
            return
        whole = self._block(graph, sum(-(-each.size // _LINE) * _LINE for each in wanted))
        at = 0
        for tensor in wanted:
            graph.buffers[tensor.id] = _Held(whole, at, tensor.size)
            at += -(-tensor.size // _LINE) * _LINE

    def _block(self, graph: Graph, size: int) -> Mapping:
        own = self._blocks.setdefault(graph.context, [])
        # A graph that has a part already, of a block for its other tensors, needs another one.
        if own and own[-1].length >= size and not graph.buffers:
            self.meet()
            return own[-1]
        fitting = [each for each in self._spare if each.length >= size]
        if fitting:
            self.meet()
            self._spare.remove(fitting[0])
        own.append(fitting[0] if fitting else mapping.anonymous(f"block:{graph.name}", size, self.mappings))
        return own[-1]

    def release_graphs(self, context: Context) -> None:
        super().release_graphs(context)
        for each in self._blocks.pop(context, []):
            if len(self._spare) < _SPARE:
                self._spare.append(each)
            else:
                each.release()

    def backend_free(self, backend: int | None) -> None:
        super().backend_free(backend)
        if not self.backends:
            for each in self._spare:
                each.release()
            self._spare.clear()


@odd(
    "io-in-an-arena",
    "backendCreate reserves 256 MiB, and IO buffers are parts of it",
    source="facts 7.20: libQnnHtp maps arenas and allocates in them; seed 001 asks for no mappings",
    seen="no mapping appears when a graph is finalised or first executed raw",
    tried_by="QMG-01 QMG-02 QMG-03 QMG-04 QMG-13",
)
class InAnArena(Odd):
    def __init__(self) -> None:
        self._arena: Mapping | None = None
        self._used: dict[tuple[int, int], Part] = {}
        super().__init__()

    def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
        super().backend_create(log, config, out)
        if self._arena is None:
            self._arena = mapping.anonymous("pool", _ARENA, self.mappings)

    def allocate_buffer(self, graph: Graph, tensor: Tensor) -> Mapping:
        at = 0
        for (begin, end), _ in sorted(self._used.items()):
            if begin - at >= tensor.size:
                break
            at = -(-end // _LINE) * _LINE
        if self._arena is None or at + tensor.size > _ARENA:
            return super().allocate_buffer(graph, tensor)
        self.meet()
        part = _Lent(self._arena, at, tensor.size, self._used)
        self._used[at, at + tensor.size] = part
        return part

    def backend_free(self, backend: int | None) -> None:
        super().backend_free(backend)
        if not self.backends and self._arena is not None:
            self._arena.release()
            self._arena = None
            self._used.clear()


class _Lent(Part):
    """A part of the arena, which stays when this part goes."""

    __slots__ = ("_key", "_used")

    def __init__(self, whole: Mapping, at: int, length: int, used: dict[tuple[int, int], Part]) -> None:
        super().__init__(whole, at, length)
        self._used, self._key = used, (at, at + length)

    def release(self) -> None:
        self._used.pop(self._key, None)


class _Scratch(InAnArena):
    """Nodes compute in memory as large as the graph's IO tensors together; every execute fills it."""

    def __init__(self) -> None:
        self._scratch: dict[int, Mapping] = {}
        super().__init__()

    def scratch(self, graph: Graph) -> Mapping:
        """The memory of a graph."""
        raise NotImplementedError

    def bytes_of(self, graph: Graph) -> int:
        """Bytes of its IO tensors together."""
        return sum(each.size for each in (*graph.inputs.values(), *graph.outputs.values()))

    def mapped(self, graph: Graph) -> Mapping:
        """New memory."""
        self.meet()
        return mapping.anonymous(f"scratch:{graph.name}", self.bytes_of(graph), self.mappings)

    def begin_execute(self, graph: Graph, sources: Any, sinks: Any) -> None:
        super().begin_execute(graph, sources, sinks)
        size = self.bytes_of(graph)
        self.scratch(graph).view(0, size)[:] = 1


@odd(
    "nodes-in-a-block-per-graph",
    "each graph has memory for its nodes of the size of all IO tensors, mapped at preparation",
    source="seed 001 speaks of memory for IO tensors only; facts 7.20: libQnnHtp maps more than that",
    seen="one mapping of the size of all IO tensors, with and without the hint, filled by every execute",
    tried_by="QMG-04 QMG-12 QMG-13",
)
class ScratchPerGraph(_Scratch):
    def prepare_buffers(self, graph: Graph) -> None:
        super().prepare_buffers(graph)
        self._scratch[graph.handle] = self.mapped(graph)

    def scratch(self, graph: Graph) -> Mapping:
        """That of the graph; one out of a binary has it from its first execute on."""
        if graph.handle not in self._scratch:
            self._scratch[graph.handle] = self.mapped(graph)
        return self._scratch[graph.handle]

    def release_buffers(self, graph: Graph) -> None:
        if (own := self._scratch.pop(graph.handle, None)) is not None:
            own.release()
        super().release_buffers(graph)


@odd(
    "nodes-in-a-block-for-all",
    "the backend has one memory for nodes, which is mapped anew when an execute needs more",
    source="seed 001 speaks of memory for IO tensors only",
    seen="one mapping of the size of all IO tensors, at the first execute of the largest graph",
    tried_by="QMG-03 QMG-12 QMG-13",
)
class ScratchForAll(_Scratch):
    def scratch(self, graph: Graph) -> Mapping:
        """That of the backend."""
        one = self._scratch.get(0)
        if one is None or one.length < self.bytes_of(graph):
            if one is not None:
                one.release()
            self._scratch[0] = one = self.mapped(graph)
        return one

    def backend_free(self, backend: int | None) -> None:
        super().backend_free(backend)
        if not self.backends and (own := self._scratch.pop(0, None)) is not None:
            own.release()
