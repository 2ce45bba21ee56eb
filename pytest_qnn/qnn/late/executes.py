"""Late faults of graphExecute: what is read and written, and which handles and tensors are taken."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np

from pytest_qnn.qnn.abi.codes import Error, TensorMemType
from pytest_qnn.qnn.late.conditions import (
    KIB64,
    MIB,
    PAGE,
    Executes,
    LastInputs,
    Place,
    Refusals,
    Turns,
    place_of,
)
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.mapping import anonymous
from pytest_qnn.qnn.reference.objects import Binding, Graph, Node, QnnError, Registration, Shared, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

_BAD_TENSOR = Error.GRAPH_ERROR_INVALID_TENSOR


@faulty_backend(
    "late-output-mebibyte", "Of an output in registered memory, only the first mebibyte is written."
)
class _OutputMebibyte(ReferenceBackend):
    """Source: seed 002, listing 1 lines 65 to 67; catalogue, ION-05 and EXE-01."""

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        if binding.registration is None or binding.tensor.size <= MIB:
            super().write_output(graph, binding, stored)
        else:
            self.registered(binding, binding.registration)[:MIB] = stored[:MIB]


@faulty_backend(
    "late-copies-mebibyte",
    "Inputs in registered memory of a mebibyte or more are copied through the graph's internal buffers.",
)
class _CopiesMebibyte(ReferenceBackend):
    """Source: seed 001, table of memory types (data copy avoided); catalogue, QMG-02 and QMG-04."""

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        stored = super().read_input(graph, binding)
        if binding.registration is None or binding.tensor.size < MIB:
            return stored
        inside = self.buffer_of(graph, binding.tensor).view(0, binding.tensor.size)
        inside[:] = stored
        return inside


@faulty_backend(
    "late-input-third-execute",
    "Every third execute of a graph reads its registered inputs as in the one before.",
)
class _InputThirdExecute(LastInputs, Executes):
    """Source: seed 002, listing 1 lines 63 to 65 (load, then execute); catalogue, ION-04."""

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        before = self.last.get((graph.handle, binding.tensor.id))
        stored = super().read_input(graph, binding)
        stale = binding.registration is not None and self.executes[graph.handle] % 3 == 0
        return before if stale and before is not None else stored


@faulty_backend(
    "late-third-turn",
    "The third time that two contexts take turns, the second one's registered outputs are not written.",
)
class _ThirdTurn(Turns):
    """Source: seed 002, step 4 (contexts in turns); catalogue, EXE-01 and EXT-26."""

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        if binding.registration is None or not self.third_time:
            super().write_output(graph, binding, stored)


@faulty_backend(
    "late-raw-after-handles",
    "The third raw execute of a graph that follows one with handles reads the inputs of the one before.",
)
class _RawAfterHandles(LastInputs):
    """Source: seed 001, table of memory types (either type at each execute); catalogue, QMG-07."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.mode: dict[int, bool] = {}
        """By graph: its last execute had handles only."""
        self.changes: Counter[int] = Counter()
        self.stale = False
        super().__init__(personality)

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        raw = all(each.registration is None for each in sources)
        changed = raw and self.mode.get(graph.handle, False)
        self.changes[graph.handle] += changed
        self.stale = changed and self.changes[graph.handle] >= 3
        self.mode[graph.handle] = all(each.registration is not None for each in sources)
        super().begin_execute(graph, sources, sinks)

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        before = self.last.get((graph.handle, binding.tensor.id))
        stored = super().read_input(graph, binding)
        return before if self.stale and before is not None else stored


@faulty_backend(
    "late-mixed-first-page",
    "Where handles and raw buffers are mixed, of a raw input only the first page is read, the rest is 0.",
)
class _MixedFirstPage(ReferenceBackend):
    """Source: seed 001 (the memory type is that of each tensor); catalogue, EXE-02."""

    mixed = False

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        self.mixed = len({each.registration is None for each in sources}) == 2
        super().begin_execute(graph, sources, sinks)

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        stored = super().read_input(graph, binding)
        if self.mixed and binding.registration is None:
            stored[PAGE:] = 0
        return stored


@faulty_backend(
    "late-after-refusal", "The first good execute after a refused one succeeds without writing its outputs."
)
class _AfterRefusal(Refusals):
    """Source: QnnGraph.h, QnnGraph_execute; catalogue, EXE-01."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.known = 0
        self.skipping = False
        super().__init__(personality)

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        self.skipping = self.refused["graphExecute"] > self.known
        self.known = self.refused["graphExecute"]
        super().begin_execute(graph, sources, sinks)

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        if not self.skipping:
            super().write_output(graph, binding, stored)


@faulty_backend(
    "late-duplicate-input-fourth",
    "From a graph's fourth execute on, an input may be missing if another is there twice.",
)
class _DuplicateInputFourth(Executes):
    """Source: QnnGraph.h, QNN_GRAPH_ERROR_INVALID_TENSOR; catalogue, EXE-16."""

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        found = {given[i].v1.id: given[i].v1 for i in range(count)}
        lacking = [each for each in wanted.values() if each.id not in found]
        late = self.executes[graph.handle] >= 3 and count == len(wanted) and found.keys() <= wanted.keys()
        if not late or not lacking:
            return super().bind_all(graph, given, count, wanted)
        bound = [self.bind(graph, wanted[each], tensor) for each, tensor in found.items()]
        return bound + [Binding(each, self.buffer_of(graph, each).address) for each in lacking]


@faulty_backend(
    "late-short-by-less-than-a-page",
    "A raw buffer above a page may be short of its tensor by less than a page: all of the tensor is used.",
    deadly=True,
)
class _ShortByLess(ReferenceBackend):
    """Source: QnnGraph.h, QNN_GRAPH_ERROR_INVALID_TENSOR; catalogue, EXE-14."""

    def check_client_buffer(self, tensor: Tensor, buffer: Any) -> None:
        short = tensor.size - buffer.dataSize
        if not (buffer.data and tensor.size > PAGE and 0 < short < PAGE):
            super().check_client_buffer(tensor, buffer)


@faulty_backend(
    "late-short-handle-64k",
    "A handle of 64 KiB or more that is smaller than its tensor is taken where its buffer is large enough.",
)
class _ShortHandle64K(ReferenceBackend):
    """Source: known facts, section 7.6; catalogue, EXE-07."""

    def check_registration(self, registration: Registration, tensor: Tensor) -> None:
        request = registration.request
        if request.size < KIB64 or request.offset + tensor.size > request.length:
            super().check_registration(registration, tensor)


@faulty_backend(
    "late-foreign-handle",
    "A handle of another context is taken where this context has registered the same memory.",
)
class _ForeignHandle(ReferenceBackend):
    """Source: known facts, section 7.5 (a handle of its own context); catalogue, CTX-05."""

    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        found = self.registrations.get(handle or 0)
        if found is not None and found.context is not graph.context:
            for mine in graph.context.registrations.values():
                if place_of(mine) == place_of(found):
                    return mine
        return super().find_registration(graph, handle)


@faulty_backend(
    "late-stale-in-used-graph",
    "A graph that has executed three times with a handle still takes it when it is deregistered.",
)
class _StaleInUsedGraph(ReferenceBackend):
    """Source: QnnGraph.h, QNN_GRAPH_ERROR_INVALID_TENSOR; catalogue, EXE-04."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.uses: Counter[tuple[int, int]] = Counter()
        self.kept: dict[int, Registration] = {}
        super().__init__(personality)

    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        if handle in self.kept and self.uses[graph.handle, handle or 0] >= 3:
            return self.kept[handle or 0]
        found = super().find_registration(graph, handle)
        self.uses[graph.handle, found.handle] += 1
        return found

    def forget(self, registration: Registration) -> None:
        if any(handle == registration.handle and used >= 3 for (_, handle), used in self.uses.items()):
            size = max(1, registration.request.size)
            copy = anonymous("bound", size, self.mappings)
            copy.view(0, size)[:] = registration.shared.mapping.view(registration.request.offset, size)
            request = dataclasses.replace(registration.request, offset=0)
            self.kept[registration.handle] = dataclasses.replace(
                registration, request=request, shared=Shared(copy, None)
            )
        super().forget(registration)


@faulty_backend(
    "late-positional-from-five", "A graph with five inputs or more takes them by position, not by id."
)
class _PositionalFromFive(ReferenceBackend):
    """Source: QnnGraph.h, note of QnnGraph_execute (tensors are known by their ids); catalogue, EXE-15."""

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        bound = super().bind_all(graph, given, count, wanted)
        if count < 5:
            return bound
        pairs = zip(bound, wanted.values(), strict=True)
        return [
            dataclasses.replace(each, tensor=tensor) if tensor.size == each.tensor.size else each
            for each, tensor in pairs
        ]


@faulty_backend(
    "late-pads-output",
    "An output that lies behind a page of its buffer is written in multiples of 64 bytes, zeros at the end.",
)
class _PadsOutput(ReferenceBackend):
    """Source: seed 002, listing 2 line 76 (the next tensor begins where one ends); SHB-08 and EXE-10."""

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        super().write_output(graph, binding, stored)
        held = binding.registration
        if held is not None and held.request.offset >= PAGE:
            end = self.locate(held) + binding.tensor.size
            padding = min(-binding.tensor.size % 64, held.shared.mapping.length - end)
            held.shared.mapping.view(end, padding)[:] = 0


@faulty_backend(
    "late-chain-64k",
    "Memory of 64 KiB or more that another graph has written since is read by a graph as it read it before.",
)
class _Chain64K(ReferenceBackend):
    """Source: seed 002, listing 1 (execute sees what the memory holds); catalogue, EXE-09 and EXE-19."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.writers: dict[Place, int] = {}
        self.seen: dict[tuple[int, Place], Stored] = {}
        super().__init__(personality)

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        stored = super().read_input(graph, binding)
        if binding.registration is None or binding.tensor.size < KIB64:
            return stored
        place = place_of(binding.registration)
        before = self.seen.get((graph.handle, place))
        if before is not None and self.writers.get(place, graph.handle) != graph.handle:
            return before
        self.seen[graph.handle, place] = stored.copy()
        return stored

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        super().write_output(graph, binding, stored)
        if binding.registration is not None:
            self.writers[place_of(binding.registration)] = graph.handle


@faulty_backend(
    "late-versions-mixed", "graphExecute with tensors of both struct versions in one array answers 6004."
)
class _VersionsMixed(ReferenceBackend):
    """Source: QnnTypes.h, Qnn_Tensor_t (each has its version); catalogue, PRE-08 and EXE-15."""

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        bound = super().bind_all(graph, given, count, wanted)
        if {1, 2} <= {given[i].version for i in range(count)}:
            raise QnnError(_BAD_TENSOR)
        return bound


@faulty_backend(
    "late-allocates-from-eighth",
    "From its eighth raw execute on, a graph prepared for handles allocates new buffers each time.",
)
class _AllocatesFromEighth(Executes):
    """Source: seed 001, table of memory types (allocation at the first inference); catalogue, QMG-06."""

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        super().begin_execute(graph, sources, sinks)
        if self.executes[graph.handle] >= 8:
            for each in (*sources, *sinks):
                if each.registration is None and each.tensor.mem_type == TensorMemType.MEMHANDLE:
                    graph.buffers[each.tensor.id] = self.allocate_buffer(graph, each.tensor)


@faulty_backend("late-execute-129", "From the 129th execute of a graph on, its outputs are not written.")
class _Execute129(Executes):
    """Source: QnnGraph.h, QnnGraph_execute; catalogue, EXE-01."""

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        if self.executes[graph.handle] < 129:
            super().write_output(graph, binding, stored)


@faulty_backend(
    "late-third-graph-handle",
    "A handle that two graphs of its context have used is invalid in a third (6004).",
)
class _ThirdGraphHandle(ReferenceBackend):
    """Source: known facts, section 8 EXE-08 (one memory for several graphs, executorch 13421)."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.users: dict[int, list[int]] = {}
        super().__init__(personality)

    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        found = super().find_registration(graph, handle)
        users = self.users.setdefault(found.handle, [])
        if graph.handle not in users:
            if len(users) >= 2:
                raise QnnError(_BAD_TENSOR)
            users.append(graph.handle)
        return found


@faulty_backend(
    "late-native-ring",
    "Results between nodes are kept in eight places: the ninth of a size takes the place of the first.",
)
class _NativeRing(ReferenceBackend):
    """Source: QnnGraph.h, QnnGraph_addNode (a tensor connects nodes); catalogue, EXE-01."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.ring: list[Stored] = []
        super().__init__(personality)

    def compute(self, graph: Graph, values: dict[int, Stored]) -> None:
        self.ring = []
        super().compute(graph, values)

    def keep(self, graph: Graph, tensor: Tensor, stored: Stored) -> Stored:
        kept = super().keep(graph, tensor, stored)
        if tensor.id in graph.outputs or len(kept) < 8:
            return kept
        if len(self.ring) < 8:
            self.ring.append(np.array(kept))
            return self.ring[-1]
        slot = self.ring.pop(0)
        if len(slot) != len(kept):
            return kept
        slot[:] = kept
        self.ring.append(slot)
        return slot


@faulty_backend(
    "late-rank-5-broadcast",
    "At rank 5 an operand that is broadcast along the last dimension counts once only.",
)
class _Rank5Broadcast(ReferenceBackend):
    """Source: operator definitions, ElementWiseAdd (broadcast); seed 001 (same results); QMG-05."""

    def compute_node(self, graph: Graph, node: Node, values: dict[int, Stored]) -> None:
        super().compute_node(graph, node, values)
        tensors = [graph.tensors[each] for each in node.inputs]
        (output,) = node.outputs
        shape = graph.tensors[output].shape
        if len(shape) != 5 or shape[-1] < 2 or not any(each.shape[-1:] == (1,) for each in tensors):
            return
        wide = next((each for each in tensors if each.shape == shape), None)
        if wide is None:
            return
        item = wide.size // int(np.prod(shape))
        stored = values[output].copy().reshape(-1, shape[-1] * item)
        stored[:, item:] = values[wide.id].reshape(-1, shape[-1] * item)[:, item:]
        values[output] = stored.reshape(-1)
