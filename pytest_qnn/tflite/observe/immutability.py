"""What a delegate's callback must leave as it is: the graph in Prepare, data in a kernel's prepare."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Final, NamedTuple

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.runtime.state import subgraph_of
from pytest_qnn.tflite.trace import Changed

_ARENA: Final = (2, 3)
"""kTfLiteArenaRw, kTfLiteArenaRwPersistent."""
_SHOWN: Final = 6


class Difference(NamedTuple):
    """What was changed, of which node or tensor, from what to what."""

    what: Changed
    number: int
    before: str
    after: str


class _TensorSeen(NamedTuple):
    type: int
    dims: tuple[int, ...]
    address: int
    data: bytes | None
    """None: not to be looked at."""


class GraphSeen:
    """Operands and results of a subgraph's nodes (private members); types, dims and data of its tensors.

    Args:
        context: of the subgraph.
        nodes: whose operands are looked at; all of the plan.
        arena: look at data in the arena too, and not at constants only. It must be allocated. Of what these
            nodes read and write: tensors inside the kernel of a delegate before this one have none any more,
            but keep pointers into an arena that has been freed.
    """

    def __init__(self, context: int, nodes: Collection[int], *, arena: bool) -> None:
        self._context = context
        self._nodes = {index: _operands(context, index) for index in nodes}
        placed = {tensor for sides in self._nodes.values() for side in sides for tensor in side}
        both = (layouts.ALLOCATION_MMAP_RO, *_ARENA)
        self._tensors = [
            _tensor(one, both if arena and index in placed else both[:1])
            for index, one in enumerate(view.tensors(context))
        ]

    @property
    def size(self) -> int:
        """How many nodes and tensors are compared."""
        return len(self._nodes) + len(self._tensors)

    def differences(self) -> list[Difference]:
        """What has changed since."""
        found = []
        sides: tuple[Changed, Changed] = ("inputs", "outputs")
        for index, before in self._nodes.items():
            after = _operands(self._context, index)
            for what, was, now in zip(sides, before, after, strict=True):
                if was != now:
                    found.append(Difference(what, index, f"{list(was)}", f"{list(now)}"))
        for index, seen in enumerate(self._tensors):
            found += _changed(index, seen, view.tensor(self._context, index))
        return found


class DataSeen:
    """Data of those of the ``tensors`` that live in an arena that is allocated."""

    def __init__(self, context: int, tensors: Collection[int]) -> None:
        self._before = []
        for index in sorted({*tensors} - {layouts.OPTIONAL_TENSOR}):
            tensor = view.tensor(context, index)
            if tensor.allocation_type in _ARENA and tensor.data and tensor.bytes:
                self._before.append((index, tensor.data, ctypes.string_at(tensor.data, tensor.bytes)))

    @property
    def size(self) -> int:
        """How many tensors are compared."""
        return len(self._before)

    def differences(self) -> list[Difference]:
        """What has changed since, where the data was."""
        found = []
        for index, address, before in self._before:
            after = ctypes.string_at(address, len(before))
            if after != before:
                found.append(Difference("data", index, *_bytes(before, after)))
        return found


def _operands(context: int, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    node = peek.pointer(subgraph_of(context) + layouts.SUBGRAPH_NODES) + index * layouts.NODE_STRIDE
    return peek.integers(peek.pointer(node)), peek.integers(peek.pointer(node + 8))


def _tensor(tensor: view.TensorView, kinds: Collection[int]) -> _TensorSeen:
    wanted = tensor.allocation_type in kinds and tensor.data
    data = ctypes.string_at(tensor.data, tensor.bytes) if wanted else None
    return _TensorSeen(tensor.type, peek.integers(tensor.dims), tensor.data, data)


def _changed(index: int, before: _TensorSeen, now: view.TensorView) -> list[Difference]:
    found = []
    dims = peek.integers(now.dims)
    if now.type != before.type:
        found.append(Difference("type", index, str(before.type), str(now.type)))
    if dims != before.dims:
        found.append(Difference("dims", index, f"{list(before.dims)}", f"{list(dims)}"))
    if before.data is not None:
        data = ctypes.string_at(before.address, len(before.data))
        if data != before.data:
            found.append(Difference("data", index, *_bytes(before.data, data)))
    return found


def _bytes(before: bytes, after: bytes) -> tuple[str, str]:
    """Both, from the first byte that differs."""
    first = next(place for place, (was, now) in enumerate(zip(before, after, strict=True)) if was != now)
    end = first + _SHOWN
    return f"{before[first:end].hex(' ')} at byte {first}", after[first:end].hex(" ")
