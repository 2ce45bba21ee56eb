"""The .tflite model of one node, written forwards: what a table names stands behind it."""

from __future__ import annotations

import functools
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pytest_qnn.tflite.domain.cell import DTYPES
from pytest_qnn.tflite.domain.node import Field, OneNode, Operand, Operator, Result, Scaling

_TYPES: dict[str, int] = dict(zip(DTYPES, (0, 1, 9, 3, 7, 2, 4, 6), strict=True))
"""TensorType."""


_LENGTH = struct.Struct("<I")


class _Bytes(NamedTuple):
    """A vector of bytes, or a string: what stands behind the length, and on which multiple it begins."""

    length: int
    data: bytes
    alignment: int = 4


class _Table(NamedTuple):
    fields: Sequence[Field]
    """Formats: as of `struct`, ``iv``, or ``at``: another part."""


class _Tables(NamedTuple):
    parts: Sequence[Any]


def _integers(values: Sequence[int]) -> _Bytes:
    """A vector of int32."""
    return _Bytes(len(values), struct.pack(f"<{len(values)}i", *values))


def _text(text: str) -> _Bytes:
    return _Bytes(len(text), text.encode() + b"\0")


class _Blob(NamedTuple):
    """A table that is written already, with all that it names: it can stand at any multiple of 16."""

    data: bytes
    root: int
    """Where in it the table is."""


def _blob(table: _Table) -> _Blob:
    data = bytearray(_LENGTH.size)
    _write(data, table)
    return _Blob(bytes(data), *_LENGTH.unpack_from(data))


def _written(root: _Table) -> bytes:
    """The file whose root is this table."""
    data = bytearray(b"\0\0\0\0TFL3")
    _write(data, root)
    return bytes(data) + bytes(-len(data) % 16)


def _write(data: bytearray, root: _Table) -> None:
    """Write the table behind what there is, and where it is to the front."""
    waiting: deque[tuple[int, Any]] = deque([(0, root)])
    while waiting:
        field, part = waiting.popleft()
        if isinstance(part, _Blob):
            data += bytes(-len(data) % 16)
            position = len(data) + part.root
            data += part.data
        elif isinstance(part, _Table):
            position = _write_table(data, part, waiting)
        elif isinstance(part, _Tables):
            data += bytes(-len(data) % 4)
            position = len(data)
            data += _LENGTH.pack(len(part.parts)) + bytes(4 * len(part.parts))
            waiting += [(position + 4 + 4 * index, each) for index, each in enumerate(part.parts)]
        else:
            data += bytes(-(len(data) + 4) % part.alignment)
            position = len(data)
            data += _LENGTH.pack(part.length)
            data += part.data
        _LENGTH.pack_into(data, field, position - field)


class _Layout(NamedTuple):
    """What tables with the same fields have in common."""

    vtable: bytes
    """Padded in front, so that the table behind it begins at a multiple of four."""
    length: int
    """Of the vtable itself."""
    pack: Callable[..., bytes]
    inner: tuple[tuple[int, int], ...]
    """Of fields that name another part: which they are, and where they are in the table."""


@functools.lru_cache(256)
def _layout(fields: tuple[tuple[int, str], ...]) -> _Layout:
    """Of a table with fields of these numbers and formats."""
    slots = [0] * (max((number for number, _ in fields), default=-1) + 1)
    form, size = "<i", 4
    inner = []
    for index, (number, each) in enumerate(fields):
        is_part = each in ("at", "iv")
        width = 4 if is_part else struct.calcsize(each)
        padding = -size % width
        form += "x" * padding + ("I" if is_part else each)
        size += padding
        slots[number] = size
        if is_part:
            inner.append((index, size))
        size += width
    vtable = struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), size, *slots)
    return _Layout(bytes(-len(vtable) % 4) + vtable, len(vtable), struct.Struct(form).pack, tuple(inner))


def _write_table(data: bytearray, table: _Table, waiting: deque[tuple[int, Any]]) -> int:
    """The table behind its vtable, at the end of ``data``; where it begins."""
    layout = _layout(tuple([(number, form) for number, form, _ in table.fields]))
    data += bytes(-len(data) % 4) + layout.vtable
    position = len(data)
    values = [value for _, _, value in table.fields]
    for index, place in layout.inner:
        part = values[index]
        waiting.append((position + place, part if table.fields[index][1] == "at" else _integers(part)))
        values[index] = 0
    data += layout.pack(layout.length, *values)
    return position


def _scaling(scaling: Scaling) -> _Table:
    count = len(scaling.scales)
    scales = _Bytes(count, struct.pack(f"<{count}f", *scaling.scales))
    zeros = _Bytes(count, struct.pack(f"<{count}q", *scaling.zero_points), 8)
    return _Table(((2, "at", scales), (3, "at", zeros), (6, "i", scaling.axis)))


def _tensor(number: int, tensor: Operand | Result, buffer: int) -> _Blob:
    dtype = tensor.values.dtype.name if isinstance(tensor, Operand) else tensor.dtype
    return _tensor_blob(number, dtype, tensor.values.shape, tensor.scaling, buffer)


@functools.lru_cache(4096)
def _tensor_blob(
    number: int, dtype: str, shape: tuple[int, ...], scaling: Scaling | None, buffer: int
) -> _Blob:
    """Tables of tensors recur: of an operator's name nothing is in them."""
    fields: list[Field] = [
        *((0, "iv", shape), (1, "b", _TYPES[dtype]), (2, "I", buffer)),
        (3, "at", _text(f"t{number}")),
    ]
    fields += [(4, "at", _scaling(scaling))] if scaling else []
    return _blob(_Table([*fields, (8, "?", not shape)]))


@functools.lru_cache(256)
def _code(code: int, version: int) -> _Blob:
    return _blob(_Table(((0, "b", min(code, 127)), (2, "i", version), (3, "i", code))))


@functools.lru_cache(4096)
def _options(fields: tuple[Field, ...]) -> _Blob:
    return _blob(_Table(fields))


def emit(nodes: Sequence[tuple[Operator, OneNode, int]]) -> bytes:
    """The model of nodes that share nothing, each with its operator's version.

    Tensors, node by node: the operands that are there, then the results, in order.
    """
    codes: dict[tuple[int, int], int] = {}
    tensors: list[_Blob] = []
    written: list[_Table] = []
    inputs: list[int] = []
    outputs: list[int] = []
    contents: list[_Bytes] = []
    for operator, node, version in nodes:
        reads: list[int] = []
        for operand in node.operands:
            if operand is None:
                reads.append(-1)
                continue
            reads.append(len(tensors))
            if operand.constant:
                contents.append(_Bytes(operand.values.nbytes, operand.values.tobytes(), 16))
            else:
                inputs.append(len(tensors))
            tensors.append(_tensor(len(tensors), operand, len(contents) if operand.constant else 0))
        writes = range(len(tensors), len(tensors) + len(node.results))
        tensors += map(_tensor, writes, node.results, [0] * len(node.results))
        outputs += writes
        code = codes.setdefault((operator.code, version), len(codes))
        fields: list[Field] = [(0, "I", code), (1, "iv", reads), (2, "iv", writes)]
        fields += [(3, "B", node.tag), (4, "at", _options(node.fields))] if node.tag else []
        written.append(_Table(fields))
    graph = _Table(
        (
            *((0, "at", _Tables(tensors)), (1, "iv", inputs), (2, "iv", outputs)),
            *((3, "at", _Tables(written)), (4, "at", _text("main"))),
        )
    )
    buffers = _Tables([_Table(()), *(_Table(((0, "at", each),)) for each in contents)])
    operators = _Tables([_code(*each) for each in codes])
    return _written(
        _Table(((0, "I", 3), (1, "at", operators), (2, "at", _Tables([graph])), (4, "at", buffers)))
    )
