"""IO buffers of a graph in one piece of memory: one mapping where the reference has one per tensor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.reference import mapping
from pytest_qnn.reference.backend_execute import Execution
from pytest_qnn.reference.backend_objects import Binding, Graph, Tensor

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
        whole = mapping.anonymous(f"qnn-io:{graph.name}", end, self.mappings)
        for tensor, offset in offsets.items():
            graph.buffers[tensor.id] = Part(whole, offset, tensor.size)
