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


def emit(operator: Operator, node: OneNode, version: int) -> bytes:
    """The model: tensors of the operands that are there, then those of the results, in order."""
    operands = [operand for operand in node.operands if operand is not None]
    constants = [operand for operand in operands if operand.constant]
    tensors: list[Operand | Result] = [*operands, *node.results]
    numbers = iter(range(len(operands)))
    inputs = [-1 if operand is None else next(numbers) for operand in node.operands]
    outputs = range(len(operands), len(tensors))
    places = {id(operand): place for place, operand in enumerate(constants, 1)}
    code = _code(operator.code, version)
    fields: list[Field] = [(0, "I", 0), (1, "iv", inputs), (2, "iv", outputs)]
    fields += [(3, "B", node.tag), (4, "at", _options(node.fields))] if node.tag else []
    graph = _Table(
        (
            (
                0,
                "at",
                _Tables([_tensor(at, each, places.get(id(each), 0)) for at, each in enumerate(tensors)]),
            ),
            (1, "iv", [at for at, operand in enumerate(operands) if not operand.constant]),
            *((2, "iv", outputs), (3, "at", _Tables([_Table(fields)])), (4, "at", _text("main"))),
        )
    )
    contents = (_Bytes(each.values.nbytes, each.values.tobytes(), 16) for each in constants)
    buffers = _Tables([_Table(()), *(_Table(((0, "at", each),)) for each in contents)])
    return _written(
        _Table(((0, "I", 3), (1, "at", _Tables([code])), (2, "at", _Tables([graph])), (4, "at", buffers)))
    )
