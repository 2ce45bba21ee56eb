"""The .tflite model of one node, written forwards: what a table names stands behind it."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from pytest_qnn.tflite.domain.cell import DTYPES
from pytest_qnn.tflite.domain.node import Field, OneNode, Operand, Operator, Result, Scaling

_TYPES = dict(zip(DTYPES, (0, 1, 9, 3, 7, 2, 4, 6), strict=True))
"""TensorType."""


class _Bytes(NamedTuple):
    """A vector of bytes, or a string: what stands behind the length, and on which multiple it begins."""

    count: int
    data: bytes
    alignment: int = 4


class _Table(NamedTuple):
    fields: Sequence[Field]
    """Formats: as of `struct`, ``iv``, or ``at``: another part."""


class _Tables(NamedTuple):
    parts: Sequence[Any]


def _integers(values: Sequence[int]) -> _Bytes:
    return _Bytes(len(values), struct.pack(f"<{len(values)}i", *values))


def _text(text: str) -> _Bytes:
    return _Bytes(len(text), text.encode() + b"\0")


def _written(root: _Table) -> bytes:
    data = bytearray(b"\0\0\0\0TFL3")
    waiting: deque[tuple[int, Any]] = deque([(0, root)])
    while waiting:
        field, part = waiting.popleft()
        if isinstance(part, _Table):
            position = _write_table(data, part, waiting)
        elif isinstance(part, _Tables):
            data += bytes(-len(data) % 4)
            position = len(data)
            data += struct.pack("<I", len(part.parts)) + bytes(4 * len(part.parts))
            waiting += [(position + 4 + 4 * index, each) for index, each in enumerate(part.parts)]
        else:
            data += bytes(-(len(data) + 4) % part.alignment)
            position = len(data)
            data += struct.pack("<I", part.count) + part.data
        struct.pack_into("<I", data, field, position - field)
    return bytes(data) + bytes(-len(data) % 16)


def _write_table(data: bytearray, table: _Table, waiting: deque[tuple[int, Any]]) -> int:
    """The table behind its vtable, at the end of ``data``; where it begins."""
    slots = [0] * (max((number for number, _, _ in table.fields), default=-1) + 1)
    body = bytearray()
    inner: list[tuple[int, Any]] = []
    for number, form, value in table.fields:
        size = 4 if form in ("at", "iv") else struct.calcsize(form)
        body += bytes(-len(body) % size)
        slots[number] = 4 + len(body)
        if form in ("at", "iv"):
            inner.append((len(body), _integers(value) if form == "iv" else value))
            body += bytes(4)
        else:
            body += struct.pack(f"<{form}", value)
    vtable = struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), 4 + len(body), *slots)
    data += bytes(-(len(data) + len(vtable)) % 8 + (4 if len(body) else 0))  # fields of 8 bytes are aligned
    while (len(data) + len(vtable) + 4) % 8:
        data += b"\0\0"
    position = len(data) + len(vtable)
    data += vtable + struct.pack("<i", len(vtable)) + body
    waiting += [(position + 4 + place, part) for place, part in inner]
    return position


def _scaling(scaling: Scaling) -> _Table:
    count = len(scaling.scales)
    scales = _Bytes(count, struct.pack(f"<{count}f", *scaling.scales))
    zeros = _Bytes(count, struct.pack(f"<{count}q", *scaling.zero_points), 8)
    return _Table(((2, "at", scales), (3, "at", zeros), (6, "i", scaling.axis)))


def _tensor(number: int, tensor: Operand | Result, buffer: int) -> _Table:
    dtype = tensor.values.dtype.name if isinstance(tensor, Operand) else tensor.dtype
    fields: list[Field] = [
        *((0, "iv", tensor.values.shape), (1, "b", _TYPES[dtype]), (2, "I", buffer)),
        (3, "at", _text(f"t{number}")),
    ]
    fields += [(4, "at", _scaling(tensor.scaling))] if tensor.scaling else []
    return _Table([*fields, (8, "?", not tensor.values.shape)])


def emit(operator: Operator, node: OneNode, version: int) -> bytes:
    """The model: tensors of the operands that are there, then those of the results, in order."""
    operands = [operand for operand in node.operands if operand is not None]
    constants = [operand for operand in operands if operand.constant]
    tensors: list[Operand | Result] = [*operands, *node.results]
    numbers = iter(range(len(operands)))
    inputs = [-1 if operand is None else next(numbers) for operand in node.operands]
    outputs = range(len(operands), len(tensors))
    places = {id(operand): place for place, operand in enumerate(constants, 1)}
    code = _Table(((0, "b", min(operator.code, 127)), (2, "i", version), (3, "i", operator.code)))
    fields: list[Field] = [(0, "I", 0), (1, "iv", inputs), (2, "iv", outputs)]
    fields += [(3, "B", node.tag), (4, "at", _Table(node.fields))] if node.tag else []
    graph = _Table(
        (
            (0, "at", _Tables([_tensor(at, each, places.get(id(each), 0)) for at, each in enumerate(tensors)])),
            (1, "iv", [at for at, operand in enumerate(operands) if not operand.constant]),
            *((2, "iv", outputs), (3, "at", _Tables([_Table(fields)])), (4, "at", _text("main"))),
        )
    )
    contents = (_Bytes(each.values.nbytes, each.values.tobytes(), 16) for each in constants)
    buffers = _Tables([_Table(()), *(_Table(((0, "at", each),)) for each in contents)])
    return _written(
        _Table(((0, "I", 3), (1, "at", _Tables([code])), (2, "at", _Tables([graph])), (4, "at", buffers)))
    )
