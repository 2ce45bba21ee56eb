"""Writes of a kernel to memory that is not its own: compare tensors before and after an invoke."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.trace import Kernel, Write

_OUTPUTS: Final = layouts.Node.outputs.offset
_TEMPORARIES: Final = layouts.Node.temporaries.offset
_STRING: Final = 5
"""kTfLiteString: its memory may move, as a dynamic tensor's may."""


class _Region(NamedTuple):
    tensor: int
    address: int
    contents: bytes


class Snapshot(NamedTuple):
    """Contents of tensors before an invoke, and the ranges that the kernel may write."""

    regions: list[_Region]
    free: list[tuple[int, int]]
    """(begin, end) of the kernel's outputs and temporaries. The arena reuses the memory of dead tensors
    for them, so a change there says nothing about the dead tensor."""


def snapshot(context: int, node: int, live: Collection[int]) -> Snapshot:
    """Copy the ``live`` tensors and the inputs of ``node``, except its outputs and temporaries.

    Tensors inside a partition are not live, and must not be looked at: where one delegate was applied
    after another, they keep pointers into an arena that has been freed.
    """
    own = {
        *peek.integers(peek.pointer(node + _OUTPUTS)),
        *peek.integers(peek.pointer(node + _TEMPORARIES)),
    }
    compared = own.union(live, peek.integers(peek.pointer(node)))
    regions = []
    free = []
    for index in sorted(compared - {layouts.OPTIONAL_TENSOR}):
        tensor = view.tensor(context, index)
        if not tensor.data or not tensor.bytes:
            continue
        if index in own:
            free.append((tensor.data, tensor.data + tensor.bytes))
        elif tensor.type != _STRING and tensor.allocation_type != layouts.ALLOCATION_DYNAMIC:
            regions.append(_Region(index, tensor.data, ctypes.string_at(tensor.data, tensor.bytes)))
    return Snapshot(regions, free)


def writes_since(before: Snapshot, kernel: Kernel) -> list[Write]:
    """A Write for each changed tensor; of tensors that share memory only one, an input if there is one."""
    found: list[Write] = []
    seen: list[tuple[int, int]] = []
    inputs = set(kernel.inputs)
    for region in sorted(before.regions, key=lambda region: region.tensor not in inputs):
        after = ctypes.string_at(region.address, len(region.contents))
        if after == region.contents:
            continue
        offset = _first_change(region, after, before.free + seen)
        if offset is not None:
            is_input = region.tensor in inputs
            found.append(Write(kernel.application, kernel.kernel, region.tensor, offset, is_input))
            seen.append((region.address, region.address + len(after)))
    return found


def _first_change(region: _Region, after: bytes, excluded: list[tuple[int, int]]) -> int | None:
    """The first changed byte outside the excluded ranges."""
    changed = np.frombuffer(region.contents, np.uint8) != np.frombuffer(after, np.uint8)
    for begin, end in excluded:
        changed[max(begin - region.address, 0) : max(end - region.address, 0)] = False
    places = np.flatnonzero(changed)
    return int(places[0]) if places.size else None
