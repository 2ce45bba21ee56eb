"""Reference backends with one fault each, for the rules of OFF."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import signal
import threading
import time
import zlib
from typing import Any, ClassVar

from pytest_qnn.qnn.abi.codes import DataType, Error, TensorMemType, TensorType
from pytest_qnn.qnn.abi.layouts import ContextNotifyType, ContextParamsV1
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.binaries import HEADER_SIZE, MAGIC, Binary, decode
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.lists import Made, notify
from pytest_qnn.qnn.reference.objects import Binding, Context, Graph, QnnError, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT, PERSONALITIES, Personality

_IO = frozenset({int(TensorType.APP_WRITE), int(TensorType.APP_READ)})


@faulty_backend("binary-drops-type", "binaries record every tensor as RAW", "OFF-01", "OFF-02")
class _TypeDropped(ReferenceBackend):
    def stored_tensor(self, tensor: Tensor) -> Tensor:
        return dataclasses.replace(tensor, mem_type=TensorMemType.RAW)


@faulty_backend("binary-one-type", "binaries record one memory type per graph", "OFF-01")
class _TypeOfFirst(ReferenceBackend):
    """The writer keeps one memory type for a whole graph: that of its last tensor."""

    def stored_tensor(self, tensor: Tensor) -> Tensor:
        owner = next(graph for graph in self.graphs.values() if tensor in graph.tensors.values())
        last = [each for each in owner.tensors.values() if each.type in _IO][-1]
        return dataclasses.replace(tensor, mem_type=last.mem_type)


@faulty_backend("load-allocates", "loading allocates every IO buffer", "OFF-02")
class _LoadAllocates(ReferenceBackend):
    def wants_buffer(self, graph: Graph, tensor: Tensor) -> bool:
        return graph.context.deserialised or super().wants_buffer(graph, tensor)


@faulty_backend("loaded-allocates", "loaded graphs have IO buffers for handles too", "OFF-02")
class _LoadedAllocates(ReferenceBackend):
    """Every execute of a loaded graph has IO buffers, whatever memory it is given."""

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        super().begin_execute(graph, sources, sinks)
        for each in (*sources, *sinks) if graph.context.deserialised else ():
            self.buffer_of(graph, each.tensor)


@faulty_backend("loaded-copies", "loaded graphs copy inputs behind handles", "OFF-02")
class _LoadedCopies(ReferenceBackend):
    """Inputs of loaded graphs behind handles are copied to the IO buffers that are there."""

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        data = super().read_input(graph, binding)
        inside = graph.buffers.get(binding.tensor.id)
        if inside is None or binding.registration is None or not graph.context.deserialised:
            return data
        copy = inside.view(0, binding.tensor.size)
        copy[:] = data
        return copy


@faulty_backend("hint-of-process", "the hint is lost in another process", "OFF-02")
class _HintOfProcess(ReferenceBackend):
    """A loaded graph has its memory types from the process that wrote it; elsewhere all are RAW."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.written = False

    def serialise(self, context: Context) -> bytes:
        self.written = True
        return super().serialise(context)

    def loaded_tensor(self, tensor: Tensor) -> Tensor:
        return tensor if self.written else dataclasses.replace(tensor, mem_type=TensorMemType.RAW)


@faulty_backend("load-loses-scale", "the output's scale is lost in a binary", "OFF-03")
class _ScaleLost(ReferenceBackend):
    def loaded_tensor(self, tensor: Tensor) -> Tensor:
        if tensor.data_type == DataType.UFIXED_POINT_8 and tensor.type == TensorType.APP_READ:
            return dataclasses.replace(tensor, scale=1.0)
        return tensor


@faulty_backend("retrieves-by-beginning", "names are compared by their beginning in graphRetrieve", "OFF-03")
class _ComparesBeginnings(ReferenceBackend):
    def graph_retrieve(self, context: int | None, name: bytes | None, out: Any) -> None:
        there = self.require("context", context, Error.GRAPH_ERROR_INVALID_HANDLE).graphs
        alike = (each.encode() for each in there if name and each.encode()[:16] == name[:16])
        super().graph_retrieve(context, next(alike, name), out)


@faulty_backend("binary-of-process", "a binary is good for one process only", "OFF-03")
class _OwnOnly(ReferenceBackend):
    """A binary leads to what this process remembers of it."""

    made: ClassVar[set[bytes]] = set()

    def serialise(self, context: Context) -> bytes:
        data = super().serialise(context)
        self.made.add(data)
        return data

    def read_binary(self, data: bytes) -> Binary:
        if data not in self.made:
            raise ValueError("nothing is remembered of it")
        return super().read_binary(data)


@faulty_backend("hinted-binary-shifts", "hinted inputs are off by one once loaded", "OFF-03", "OFF-05")
class _HintShifts(ReferenceBackend):
    def loaded_tensor(self, tensor: Tensor) -> Tensor:
        hinted = tensor.mem_type == TensorMemType.MEMHANDLE and tensor.type == TensorType.APP_WRITE
        return dataclasses.replace(tensor, offset=tensor.offset + 1) if hinted else tensor


@faulty_backend(
    "binary-weights-once", "Weights of one name and size are kept once for all graphs of a binary.", "OFF-03"
)
class _WeightsOnce(ReferenceBackend):
    def context_create_from_binary(self, *arguments: Any) -> None:
        before = set(self.contexts)
        super().context_create_from_binary(*arguments)
        for handle in set(self.contexts) - before:
            known: dict[tuple[str, int], bytes] = {}
            for graph in self.contexts[handle].graphs.values():
                for tensor in graph.tensors.values():
                    if tensor.data is not None:
                        key = tensor.name, len(tensor.data)
                        tensor.data = known.setdefault(key, tensor.data)


@faulty_backend("binary-leaks-data", "IO tensors in a binary carry data", "OFF-06")
class _DataLeaks(ReferenceBackend):
    def stored_tensor(self, tensor: Tensor) -> Tensor:
        return dataclasses.replace(tensor, data=b"\1") if tensor.type in _IO else tensor

    def loaded_tensor(self, tensor: Tensor) -> Tensor:
        return dataclasses.replace(tensor, data=None) if tensor.type in _IO else tensor


@faulty_backend("binary-partial", "a buffer that is too small gets what fits", "OFF-07")
class _Partial(ReferenceBackend):
    def context_get_binary(self, context: int | None, buffer: int | None, size: int, written: Any) -> None:
        owner: Context = self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if buffer and size and written:
            data = self.serialise(owner)[:size]
            ctypes.memmove(buffer, data, len(data))
        super().context_get_binary(context, buffer, size, written)


@faulty_backend("binary-overrun", "bytes are written behind the binary", "OFF-07")
class _Overrun(ReferenceBackend):
    def context_get_binary(self, context: int | None, buffer: int | None, size: int, written: Any) -> None:
        super().context_get_binary(context, buffer, size, written)
        ctypes.memset((buffer or 0) + written[0], 0, 8)


@faulty_backend("binary-unfinished", "graphs that are not finalised are left out", "OFF-07")
class _Unfinished(ReferenceBackend):
    def serialise(self, context: Context) -> bytes:
        begun = {name: graph for name, graph in context.graphs.items() if not graph.finalised}
        context.graphs = {name: graph for name, graph in context.graphs.items() if graph.finalised}
        try:
            return super().serialise(context)
        finally:
            context.graphs |= begun


@faulty_backend("binary-finalises", "graphs that are composed whole are taken for finalised", "OFF-07")
class _Finalises(ReferenceBackend):
    """Only a graph that lacks something keeps a context from its binary."""

    def serialise(self, context: Context) -> bytes:
        whole = [graph for graph in context.graphs.values() if not graph.finalised and graph.nodes]
        for graph in whole:
            graph.finalised = True
        try:
            return super().serialise(context)
        finally:
            for graph in whole:
                graph.finalised = False


@faulty_backend("binary-of-binary", "a context from a binary gives a binary", "OFF-07")
class _BinaryOfBinary(ReferenceBackend):
    def serialise(self, context: Context) -> bytes:
        was, context.deserialised = context.deserialised, False
        try:
            return super().serialise(context)
        finally:
            context.deserialised = was


@faulty_backend("any-binary", "any bytes make a context", "OFF-08")
class _AnythingGoes(ReferenceBackend):
    def read_binary(self, data: bytes) -> Binary:
        try:
            return super().read_binary(data)
        except ValueError:
            return Binary(self.build_id, ())


@faulty_backend("binary-cut-taken", "a binary that lacks its end makes a context without graphs", "OFF-08")
class _CutTaken(ReferenceBackend):
    def read_binary(self, data: bytes) -> Binary:
        try:
            return super().read_binary(data)
        except ValueError:
            if data[: len(MAGIC)] != MAGIC or int.from_bytes(data[8:16], "little") <= len(data) - HEADER_SIZE:
                raise
            return Binary(self.build_id, ())


def _has_header(data: bytes) -> bool:
    """The bytes begin as a whole binary does."""
    return data[: len(MAGIC)] == MAGIC and int.from_bytes(data[8:16], "little") == len(data) - HEADER_SIZE


@faulty_backend(
    "binary-table-kills",
    "a binary has no checksum, and a tensor in it that is not as it should be ends the process",
    "OFF-08",
    deadly=True,
)
class _TableKills(ReferenceBackend):
    def read_binary(self, data: bytes) -> Binary:
        if not _has_header(data):
            return super().read_binary(data)
        body = data[HEADER_SIZE:]
        try:
            return decode(data[: HEADER_SIZE - 4] + zlib.crc32(body).to_bytes(4, "little") + body)
        except ValueError as error:
            if ".tensors" in str(error):  # where in the binary the decoder has met it
                os.kill(os.getpid(), signal.SIGSEGV)
            raise


@faulty_backend("binary-changed-no-context", "a changed byte gives success and no context", "OFF-08")
class _NoContext(ReferenceBackend):
    def context_create_from_binary(self, *arguments: Any) -> None:
        try:
            super().context_create_from_binary(*arguments)
        except QnnError as error:
            buffer, size = arguments[3:5]
            is_malformed = error.code == Error.CONTEXT_ERROR_CREATE_FROM_BINARY
            if not (is_malformed and _has_header(ctypes.string_at(buffer, size))):
                raise


@faulty_backend("refused-binary-context", "a refused binary leaves a context handle", "OFF-08")
class _HalfMade(ReferenceBackend):
    def context_create_from_binary(self, *arguments: Any) -> None:
        out = arguments[5]
        try:
            super().context_create_from_binary(*arguments)
        except QnnError:
            if out:
                out[0] = handle = self.mint("context")
                self.contexts[handle] = Context(handle, arguments[0] or 0, arguments[1] or 0)
            raise


@faulty_backend("system-code-leaks", "a malformed binary answers a System code", "OFF-08")
class _OtherCode(ReferenceBackend):
    def read_binary(self, data: bytes) -> Binary:
        try:
            return super().read_binary(data)
        except ValueError:
            raise QnnError(Error.SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY) from None


@faulty_backend("binary-alterable", "graphs can be added to a context from a binary", "OFF-09")
class _Alterable(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        owner: Context | None = self.contexts.get(context or 0)
        was = owner.deserialised if owner else False
        if owner:
            owner.deserialised = False
        try:
            super().graph_create(context, name, config, out)
        finally:
            if owner:
                owner.deserialised = was


@faulty_backend("binary-tensors-added", "tensors can be added to a loaded graph", "OFF-09")
class _TensorsAdded(ReferenceBackend):
    """A graph is open again for as long as a tensor is created in it."""

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        found = self.graphs.get(graph or 0)
        if found is None or not found.context.deserialised:
            super().tensor_create_graph_tensor(graph, tensor)
            return
        found.finalised = False
        try:
            super().tensor_create_graph_tensor(graph, tensor)
        finally:
            found.finalised = True


@faulty_backend(
    "binary-keeps-refused-name", "a loaded graph keeps the names of tensors that it refuses", "OFF-09"
)
class _KeepsRefusedName(ReferenceBackend):
    """Names are noted before it is known whether the graph takes a tensor, as libQnnHtp does it."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.noted: set[tuple[int, bytes]] = set()

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        found = self.graphs.get(graph or 0)
        if found is not None and found.context.deserialised and tensor:
            key = (found.handle, tensor[0].v1.name)
            if key in self.noted:
                raise QnnError(Error.TENSOR_ERROR_ALREADY_EXISTS)
            self.noted.add(key)
        super().tensor_create_graph_tensor(graph, tensor)


@faulty_backend("binary-read-late", "graphs are looked up in the client's bytes", "OFF-10", "EXT-19")
class _ReadLate(ReferenceBackend):
    """Graphs are looked up in the client's bytes, at each retrieve."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.client: dict[int, tuple[int, int]] = {}

    def context_create_from_binary(self, *arguments: Any) -> None:
        super().context_create_from_binary(*arguments)
        self.client[arguments[5][0]] = (arguments[3] or 0, arguments[4])

    def graph_retrieve(self, context: int | None, name: bytes | None, out: Any) -> None:
        if context in self.client:
            try:
                decode(ctypes.string_at(*self.client[context]))
            except ValueError:
                raise QnnError(Error.GRAPH_ERROR_GRAPH_DOES_NOT_EXIST) from None
        super().graph_retrieve(context, name, out)


@faulty_backend("binary-size-untold", "getBinarySize succeeds and gives no size.", "OFF-11")
class _SizeUntold(ReferenceBackend):
    def context_get_binary_size(self, context: int | None, out: Any) -> None:
        super().context_get_binary_size(context, out and (ctypes.c_uint64 * 1)())


@faulty_backend("binary-written-untold", "getBinary does not say how much it has written.", "OFF-11")
class _WrittenUntold(ReferenceBackend):
    def context_get_binary(self, context: int | None, buffer: int | None, size: int, written: Any) -> None:
        super().context_get_binary(context, buffer, size, written and (ctypes.c_uint64 * 1)())


class _Listing(ReferenceBackend):
    """Makes contexts out of lists."""

    def __init__(self) -> None:
        super().__init__(PERSONALITIES["lists-of-binaries"])


@faulty_backend(
    "list-notifies-as-made", "Notifies of each context of a list when it is made, refused or not.", "OFF-12"
)
class _NotifiesAsMade(_Listing):
    """As in onnxruntime-qnn#839: where one binary of a list cannot be read, the others have been told of."""

    def make_listed(
        self, backend: int | None, device: int | None, entry: ContextParamsV1, of_list: int | None
    ) -> Made:
        made = super().make_listed(backend, device, entry, of_list)
        threading.Thread(target=_notify_late, args=(made,), daemon=True).start()
        return made

    def start_notifying(self, made: list[Made]) -> None:
        """Each was told already."""


def _notify_late(made: Made) -> None:
    """After the call has returned, as far as that can be arranged."""
    time.sleep(0.005)
    notify([made])


@faulty_backend("list-notifies-failure", "Notifies of the context that a list was refused for.", "OFF-12")
class _NotifiesFailure(_Listing):
    def make_listed(
        self, backend: int | None, device: int | None, entry: ContextParamsV1, of_list: int | None
    ) -> Made:
        try:
            return super().make_listed(backend, device, entry, of_list)
        except QnnError as error:
            kind = ContextNotifyType.CONTEXT_INIT
            entry.notifyFunc(None, None, None, kind, entry.notifyParam, error.code)
            raise


@faulty_backend("list-own-parameter", "Notifies of contexts of a list with NULL for a parameter.", "OFF-12")
class _OwnListParameter(_Listing):
    def start_notifying(self, made: list[Made]) -> None:
        super().start_notifying([dataclasses.replace(each, parameter=None) for each in made])


@faulty_backend("list-notifies-twice", "Notifies twice of the last context of a list.", "OFF-12")
class _NotifiesTwice(_Listing):
    def start_notifying(self, made: list[Made]) -> None:
        super().start_notifying([*made, made[-1]])


@faulty_backend("list-forgets-last", "Notifies of the first two contexts of a list.", "OFF-12")
class _ForgetsLast(_Listing):
    def start_notifying(self, made: list[Made]) -> None:
        super().start_notifying(made[:2])
