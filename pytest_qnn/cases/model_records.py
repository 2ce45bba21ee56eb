"""The repeated records of a .tflite model: operator codes, tensors, operators, buffers.

Every function gives bytes for a place that the caller names, since flatbuffers' offsets are relative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from pytest_qnn.cases.graph import Node, Tensor
from pytest_qnn.cases.model_tables import (
    ACTIVATION,
    BUILTIN,
    NAME_FIELD,
    OPTIONS_TAG,
    QUANTISATION_FIELD,
    SIGNATURE_SIZE,
    TENSOR,
    TENSOR_SIZE,
    TENSOR_TYPE,
    VT_BUFFER,
    VT_CODE,
    VT_EMPTY,
    VT_OPERATOR,
    VT_PLAIN_OPERATOR,
    VT_QUANTISED,
    VT_SIGNED,
    VT_SIGNED_QUANTISED,
    VT_TENSOR,
    padded,
    vtable,
)

Key = tuple[str, int]
"""An operator and its version."""
_SUBGRAPH = 1 << 20
"""More than a subgraph has tensors."""


def string(text: str) -> bytes:
    """A flatbuffers string, padded to four bytes."""
    data = text.encode()
    return padded(struct.pack("<I", len(data)) + data + b"\0", 4)


def vector(values: Sequence[int]) -> bytes:
    """A vector of 32-bit integers or offsets."""
    return struct.pack(f"<{len(values) + 1}i", len(values), *values)


@lru_cache(256)
def operator_codes(keys: tuple[Key, ...], at: int) -> bytes:
    """The vector of operator codes, which begins at ``at``, and the tables behind it."""
    first = at + 4 + 4 * len(keys)
    offsets, tables = [], []
    for index, (op, version) in enumerate(keys):
        position = first + 16 * index
        offsets.append(position - at - 4 - 4 * index)
        code = BUILTIN[op]
        tables.append(struct.pack("<iiib3x", position - VT_CODE, version, code, min(code, 127)))
    return vector(offsets) + b"".join(tables)


def tensor_records(
    tensors: Iterable[Tensor], field: int, position: int, subgraph: int, buffers: int
) -> tuple[list[int], list[bytes], int, int]:
    """Offsets for the vector whose first field is at ``field``; the records; where they end; buffers so far.

    Args:
        tensors: those of one subgraph.
        field: where the offsets will lie.
        position: where the records will lie, a multiple of eight.
        subgraph: its number, for the names.
        buffers: how many buffers earlier subgraphs have, not counting the empty one.
    """
    offsets: list[int] = []
    records: list[bytes] = []
    first = subgraph * _SUBGRAPH
    for index, tensor in enumerate(tensors):
        buffer = 0
        if tensor.data is not None:
            buffers += 1
            buffer = buffers
        offsets.append(position - field - 4 * index)
        name = _tensor_name(first + index)
        tail, shape, quantisation, dtype, front = _tensor_tail(
            tensor.shape, tensor.dtype, tensor.scales, tensor.zero_points, tensor.axis, len(name)
        )
        if tensor.signature:
            parts = _signed(position, shape, buffer, quantisation, dtype, name, tail, tensor.signature)
            records += parts
            position += sum(map(len, parts))
            continue
        record = TENSOR(position - front, shape, buffer, TENSOR_SIZE - NAME_FIELD, quantisation, dtype)
        records += (record, name, tail)
        position += TENSOR_SIZE + len(name) + len(tail)
    return offsets, records, position, buffers


def _signed(
    position: int,
    shape: int,
    buffer: int,
    quantisation: int,
    dtype: int,
    name: bytes,
    tail: bytes,
    signature: tuple[int, ...],
) -> tuple[bytes, ...]:
    """A tensor with a shape_signature: one more field, and a vector behind the tail."""
    front = VT_SIGNED_QUANTISED if quantisation else VT_SIGNED
    fields = (
        *(position - front, shape + SIGNATURE_SIZE, buffer, TENSOR_SIZE + SIGNATURE_SIZE - NAME_FIELD),
        *(quantisation and quantisation + SIGNATURE_SIZE, dtype),
    )
    behind = SIGNATURE_SIZE + len(name) + len(tail)
    return TENSOR(*fields) + struct.pack("<I4x", behind), name, tail, padded(vector(signature), 8)


@lru_cache(8192)
def _tensor_name(number: int) -> bytes:
    subgraph, index = divmod(number, _SUBGRAPH)
    return padded(string(f"s{subgraph}t{index}" if subgraph else f"t{index}"), 8)


@lru_cache(8192)
def _tensor_tail(
    shape: tuple[int, ...],
    dtype: str,
    scales: tuple[float, ...],
    zero_points: tuple[int, ...],
    axis: int,
    name_size: int,
) -> tuple[bytes, int, int, int, int]:
    """What follows a tensor's name, and its table's fields: shape, quantization, type, vtable.

    Records are multiples of 8 bytes and begin on one, so that the int64 zero points are aligned; hence
    the tail depends on where it begins only through the length of the name.
    """
    start = TENSOR_SIZE + name_size
    tail = padded(vector(shape), 8)
    if not scales:
        return tail, start - 4, 0, TENSOR_TYPE[dtype], VT_TENSOR
    count = len(scales)
    # The vtable of QuantizationParameters goes with each tail: -, -, scale, zero_point, -, -, dimension.
    own_vtable = struct.pack("<9H2x", 18, 16, 0, 0, 4, 8, 0, 0, 12)
    table = len(tail) + len(own_vtable)
    scale_vector = table + 16
    zero_vector = scale_vector + 4 + 4 * count
    zero_vector += -(start + zero_vector + 4) % 8
    tail += own_vtable
    tail += struct.pack("<iIIi", len(own_vtable), scale_vector - table - 4, zero_vector - table - 8, axis)
    tail += struct.pack(f"<I{count}f", count, *scales)
    tail = tail.ljust(zero_vector, b"\0") + struct.pack(f"<I{count}q", count, *zero_points)
    quantisation = start + table - QUANTISATION_FIELD
    return padded(tail, 8), start - 4, quantisation, TENSOR_TYPE[dtype], VT_QUANTISED


def operator_records(
    nodes: Sequence[Node], keys: Sequence[Key], codes: dict[Key, int], field: int, position: int
) -> tuple[list[int], list[bytes], int]:
    """As `tensor_records`, for the operators of one subgraph."""
    offsets, records = [], []
    for index, node in enumerate(nodes):
        offsets.append(position - field - 4 * index)
        op = node.op
        options, table, tag = (
            _special(node) if op in _SPECIAL else _options(op, node.activation, node.axis, node.keep_dims)
        )
        inputs, outputs = node.inputs, node.outputs
        reads, writes = len(inputs), len(outputs)
        pack = _operator_struct(reads, writes, tag > 0)
        code = codes[keys[index]]
        head: tuple[int, ...]
        if tag:
            to_options = 16 + 4 * (reads + writes) + table
            head = (position - VT_OPERATOR, code, 16, 16 + 4 * reads, to_options, tag)
        else:
            head = (position - VT_PLAIN_OPERATOR, code, 8, 8 + 4 * reads)
        record = pack(*head, reads, *inputs, writes, *outputs) + options
        records.append(record)
        position += len(record)
    return offsets, records, position


_SPECIAL = frozenset(("CONV_2D", "IF", "WHILE", "VAR_HANDLE"))


def _special(node: Node) -> tuple[bytes, int, int]:
    """As `_options`, of an operator that has options of its own."""
    if node.op == "CONV_2D":
        return _conv_options(node.activation, node.same_padding, node.stride, node.dilation)
    return _stateful_options(node.op, node.subgraphs, node.variable)


@lru_cache(256)
def _operator_struct(inputs: int, outputs: int, options: bool) -> Callable[..., bytes]:
    table = "iIIIIB3x" if options else "iIII"
    return struct.Struct(f"<{table}I{inputs}iI{outputs}i").pack


@lru_cache(1024)
def _options(op: str, activation: str, axis: int, keep_dims: bool) -> tuple[bytes, int, int]:
    """An options table with a vtable of its own in front: (bytes, the table's place in them, union tag)."""
    tag = OPTIONS_TAG.get(op, 0)
    if not tag:
        return b"", 0, 0
    fused = ACTIVATION[activation]
    fields: tuple[int, ...] = ()
    body = b""
    if op == "CONCATENATION":
        fields, body = (4, 8), struct.pack("<ib3x", axis, fused)
    elif op == "MEAN":
        fields, body = (4,), struct.pack("<?3x", keep_dims)
    elif op in ("ADD", "SUB", "MUL", "FULLY_CONNECTED"):
        fields, body = (4,), struct.pack("<b3x", fused)
    return _table(tag, fields, body)


@lru_cache(256)
def _conv_options(
    activation: str, same_padding: bool, stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[bytes, int, int]:
    fields = (20, 4, 8, 21, 12, 16)  # padding, stride w, stride h, activation, dilation w, dilation h
    lengths = (stride[1], stride[0], dilation[1], dilation[0])
    body = struct.pack("<4i2b2x", *lengths, not same_padding, ACTIVATION[activation])
    return _table(OPTIONS_TAG["CONV_2D"], fields, body)


@lru_cache(256)
def _stateful_options(op: str, subgraphs: tuple[int, ...], variable: str) -> tuple[bytes, int, int]:
    if op == "VAR_HANDLE":
        # The container is an empty string of eight bytes, as string() makes it.
        return _table(OPTIONS_TAG[op], (4, 8), struct.pack("<2I", 8, 12), string("") + string(variable))
    return _table(OPTIONS_TAG[op], (4, 8), struct.pack("<2i", *subgraphs))


def _table(tag: int, fields: tuple[int, ...], body: bytes, behind: bytes = b"") -> tuple[bytes, int, int]:
    """A table with the fields at these places of it; what it names follows it."""
    front = vtable(4 + len(body), *fields)
    return front + struct.pack("<i", len(front)) + body + behind, len(front), tag


def buffer_records(contents: Sequence[bytes], position: int) -> list[bytes]:
    """The vector of buffers (the first one is empty, as the format demands) and the buffers."""
    field = position + 4
    position = field + 4 * (len(contents) + 1)
    offsets, records = [position - field], [struct.pack("<i", position - VT_EMPTY)]
    position += 4
    for index, data in enumerate(contents, 1):
        padding = -(position + 12) % 16
        position += padding
        offsets.append(position - field - 4 * index)
        head = struct.pack("<iII", position - VT_BUFFER, 4, len(data))
        records += (bytes(padding), head, data, bytes(-len(data) % 4))
        position += 12 + len(data) + (-len(data) % 4)
    return [vector(offsets), *records]
