"""Operators that move elements and compute nothing. Source of names and parameters: QnnOpDef.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_qnn.qnn.reference.operators.call import Call, Definition, operator
from pytest_qnn.qnn.reference.operators.values import Values, kind_of

_PAD_MODES = ("constant", "symmetric", "reflect", "edge")
"""By Pad's ``scheme``, as numpy calls them."""
_DCR, _CRD = 0, 1
_NONE, _ADD, _MULTIPLY = range(3)
"""``reduction`` of the Scatter operators."""


def _reshape(call: Call) -> Values:
    """The same elements in another shape: Reshape, Squeeze and ExpandDims."""
    return call.inputs[0].reshape(call.outputs[0].shape)


def _transpose(call: Call) -> Values:
    return np.transpose(call.inputs[0], call.integers("perm"))


def _concat(call: Call) -> Values:
    return np.concatenate(call.inputs, call.axis(0))


def _pack(call: Call) -> Values:
    return np.stack(call.inputs, call.axis(0, call.inputs[0].ndim + 1))


def _unpack(call: Call) -> list[Values]:
    axis = call.axis(0)
    return list(np.moveaxis(call.inputs[0], axis, 0))


def _split(call: Call) -> list[Values]:
    """Pieces that begin at ``split_index``; the first begins at 0, named or not."""
    begins = [each for each in call.integers("split_index", []) if each]
    return list(np.split(call.inputs[0], begins or len(call.outputs), call.axis(0)))


def _strided_slice(call: Call) -> Values:
    """(begin, end, stride) of each axis; masks, by bit, drop a begin, an end or an axis, or add one."""
    masks = {
        name: int(call.number(name, 0)) for name in ("begin_mask", "end_mask", "shrink_axes", "new_axes_mask")
    }
    index: list[Any] = []
    for at, (begin, end, stride) in enumerate(np.reshape(call.parameters["ranges"], (-1, 3)).tolist()):
        if masks["new_axes_mask"] >> at & 1:
            index.append(np.newaxis)
        elif masks["shrink_axes"] >> at & 1:
            index.append(begin)
        else:
            first = None if masks["begin_mask"] >> at & 1 else begin
            last = None if masks["end_mask"] >> at & 1 or (stride < 0 and end < 0) else end
            index.append(slice(first, last, stride))
    result: Values = call.inputs[0][tuple(index)]
    return result


def _inside(indices: Values, count: int) -> Values:
    """Indices from 0 up. Raises IndexError for one that is outside."""
    if indices.size and (indices.max() >= count or indices.min() < -count):
        raise IndexError(f"an index is outside 0..{count - 1}")
    return np.where(indices < 0, indices + count, indices).astype(np.int64)


def _gather(call: Call) -> Values:
    axis = call.axis(0)
    values, indices = call.inputs
    return np.take(values, _inside(indices, values.shape[axis]), axis)


def _gather_elements(call: Call) -> Values:
    axis = call.axis(0)
    values, indices = call.inputs
    return np.take_along_axis(values, _inside(indices, values.shape[axis]), axis)


def _gather_nd(call: Call) -> Values:
    """Slices that the last axis of the indices names, behind ``batch_dims`` axes that both have."""
    values, indices = call.inputs
    batches, depth = int(call.number("batch_dims", 0)), indices.shape[-1]
    grids = np.indices(indices.shape[:-1])[:batches]
    named = [_inside(indices[..., at], values.shape[batches + at]) for at in range(depth)]
    result: Values = values[(*grids, *named)]
    return result


def _reduced(call: Call, places: tuple[Values, ...], updates: Values) -> Values:
    result = call.inputs[0].copy()
    reduction = int(call.number("reduction", _NONE))
    if reduction == _ADD:
        np.add.at(result, places, updates)
    elif reduction == _MULTIPLY:
        np.multiply.at(result, places, updates)
    elif reduction == _NONE:
        result[places] = updates
    else:
        raise ValueError(f"there is no reduction {reduction}")
    return result


def _scatter_nd(call: Call) -> Values:
    """A copy, with updates where the last axis of the indices says."""
    values, indices, updates = call.inputs
    named = tuple(_inside(indices[..., at], values.shape[at]) for at in range(indices.shape[-1]))
    return _reduced(call, named, updates)


def _scatter_elements(call: Call) -> Values:
    """A copy, with updates at the indices along one axis and at their own places along the others."""
    axis = call.axis(0)
    values, indices, updates = call.inputs
    places = list(np.indices(indices.shape))
    places[axis] = _inside(indices, values.shape[axis])
    return _reduced(call, tuple(places), updates)


def _tile(call: Call) -> Values:
    multiples = call.integers("multiples")
    if len(multiples) != call.inputs[0].ndim:
        raise ValueError("there is a multiple for each axis")
    return np.tile(call.inputs[0], multiples)


def _pad(call: Call) -> Values:
    """Elements before and after each axis; a constant of a quantised tensor is given as it is stored."""
    values, scheme = call.inputs[0], _PAD_MODES[int(call.number("scheme"))]
    amounts = np.reshape(call.integers("pad_amount"), (values.ndim, 2)).tolist()
    if scheme != "constant":
        mode: Any = scheme
        return np.pad(values, amounts, mode)
    constant, tensor = call.number("pad_constant_value", 0), call.outputs[0]
    if kind_of(tensor.data_type) == "fixed" and isinstance(constant, int):
        constant = (constant + tensor.offset) * tensor.scale
    return np.pad(values, amounts, constant_values=constant)


def _block(call: Call) -> tuple[int, int]:
    height, width = call.integers("block_size")
    return height, width


def _depth_to_space(call: Call) -> Values:
    """Channels become blocks of (height, width); DCR: the block's place varies slowest, CRD: fastest."""
    batch, height, width, depth = call.inputs[0].shape
    (rows, columns), mode = _block(call), int(call.number("mode", _DCR))
    channels = depth // (rows * columns)
    if mode == _DCR:
        parts = call.inputs[0].reshape(batch, height, width, rows, columns, channels)
        moved = parts.transpose(0, 1, 3, 2, 4, 5)
    elif mode == _CRD:
        parts = call.inputs[0].reshape(batch, height, width, channels, rows, columns)
        moved = parts.transpose(0, 1, 4, 2, 5, 3)
    else:
        raise ValueError(f"there is no mode {mode}")
    return moved.reshape(batch, height * rows, width * columns, channels)


def _space_to_depth(call: Call) -> Values:
    """The inverse of DepthToSpace in the same mode."""
    batch, height, width, channels = call.inputs[0].shape
    (rows, columns), mode = _block(call), int(call.number("mode", _DCR))
    parts = call.inputs[0].reshape(batch, height // rows, rows, width // columns, columns, channels)
    order = (0, 1, 3, 2, 4, 5) if mode == _DCR else (0, 1, 3, 5, 2, 4)
    return parts.transpose(order).reshape(batch, height // rows, width // columns, rows * columns * channels)


def _channel_shuffle(call: Call) -> Values:
    axis, groups = call.axis(call.inputs[0].ndim - 1), int(call.number("num_groups"))
    shape = call.inputs[0].shape
    parts = call.inputs[0].reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    return np.swapaxes(parts, axis, axis + 1).reshape(shape)


def _one_hot(call: Call) -> Values:
    indices, depth = call.inputs[0], int(call.number("depth"))
    axis = call.axis(indices.ndim, indices.ndim + 1)
    hot = np.expand_dims(np.where(indices < 0, indices + depth, indices), axis)
    places: Sequence[int] = [1] * hot.ndim
    steps = np.arange(depth).reshape([depth if at == axis else one for at, one in enumerate(places)])
    return np.where(hot == steps, call.number("on_value", 1), call.number("off_value", 0))


_AXIS = ("axis",)
DEFINITIONS: dict[str, Definition] = {
    "Reshape": operator("A>A", _reshape, "shape"),
    "Squeeze": operator("A>A", _reshape, "axes"),
    "ExpandDims": operator("A>A", _reshape, "axis", "axes"),
    "Transpose": operator("A>A", _transpose, "perm"),
    "Concat": operator("A*>A", _concat, *_AXIS),
    "Pack": operator("A*>A", _pack, *_AXIS),
    "UnPack": operator("A>A*", _unpack, *_AXIS),
    "Split": operator("A>A*", _split, "axis", "split_index"),
    "StridedSlice": operator(
        "A>A", _strided_slice, "ranges", "begin_mask", "end_mask", "shrink_axes", "new_axes_mask"
    ),
    "Gather": operator("AI>A", _gather, *_AXIS),
    "GatherElements": operator("AI>A", _gather_elements, *_AXIS),
    "GatherNd": operator("AI>A", _gather_nd, "batch_dims"),
    "ScatterNd": operator("TIT>T", _scatter_nd, "reduction"),
    "ScatterElements": operator("TIT>T", _scatter_elements, "axis", "reduction"),
    "Tile": operator("A>A", _tile, "multiples"),
    "Pad": operator("T>T", _pad, "scheme", "pad_amount", "pad_constant_value"),
    "DepthToSpace": operator("T>T", _depth_to_space, "block_size", "mode"),
    "SpaceToDepth": operator("T>T", _space_to_depth, "block_size", "mode"),
    "ChannelShuffle": operator("T>T", _channel_shuffle, "num_groups", "axis"),
    "OneHot": operator("I>A", _one_hot, "depth", "axis", "on_value", "off_value"),
}
