"""Graph -> .tflite bytes, written forwards with ``struct``.

The flatbuffers library builds a file backwards, object by object. Here tables have fixed sizes, so that
positions are known beforehand: tables come first, then what they point to, since offsets to vectors,
strings and tables are unsigned and lead forwards only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor

TENSOR_TYPE = {"float32": 0, "int32": 2, "bool": 6, "int8": 9, "resource": 13}
ACTIVATION = {"NONE": 0, "RELU": 1, "RELU6": 3}
BUILTIN = {
    "ADD": 0,
    "CONCATENATION": 2,
    "CONV_2D": 3,
    "FULLY_CONNECTED": 9,
    "MUL": 18,
    "RELU": 19,
    "RESHAPE": 22,
    "MEAN": 40,
    "SUB": 41,
    "PRELU": 54,
    "MAXIMUM": 55,
    "LESS": 58,
    "NEG": 59,
    "ABS": 101,
    "IF": 118,
    "WHILE": 119,
    "VAR_HANDLE": 142,
    "READ_VARIABLE": 143,
    "ASSIGN_VARIABLE": 144,
}
INT8_VERSION = {
    "ADD": 2,
    "CONCATENATION": 2,
    "CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    "MUL": 2,
    "RELU": 2,
    "MEAN": 2,
    "SUB": 2,
    "MAXIMUM": 2,
    "ABS": 2,
}
"""Operator version from which the converter (op_version.cc) lets the operator be int8; others: 1."""
OPTIONS_TAG = {
    "CONV_2D": 1,
    "FULLY_CONNECTED": 8,
    "CONCATENATION": 10,
    "ADD": 11,
    "RESHAPE": 17,
    "MUL": 21,
    "MEAN": 27,
    "SUB": 28,
    "MAXIMUM": 39,
    "LESS": 41,
    "NEG": 42,
    "ABS": 78,
    "IF": 92,
    "WHILE": 93,
    "VAR_HANDLE": 111,
    "READ_VARIABLE": 112,
    "ASSIGN_VARIABLE": 113,
}
"""Position in the union BuiltinOptions; RELU and PRELU have no options table."""


def padded(data: bytes, to: int) -> bytes:
    """``data`` with zero bytes up to a multiple of ``to``."""
    return data + bytes(-len(data) % to)


def vtable(table_size: int, *fields: int) -> bytes:
    """A flatbuffers vtable: where each field is in its table, 0 for an absent one."""
    return padded(struct.pack(f"<{2 + len(fields)}H", 4 + 2 * len(fields), table_size, *fields), 4)


def _place(*chunks: bytes, start: int) -> tuple[list[int], bytes]:
    """The positions of chunks written one after the other from ``start``, and the chunks joined."""
    positions = []
    for chunk in chunks:
        positions.append(start)
        start += len(chunk)
    return positions, b"".join(chunks)


IDENTIFIER = b"\0\0\0\0TFL3"
(
    (
        VT_MODEL,
        VT_CODE,
        VT_SUBGRAPH,
        VT_TENSOR,
        VT_QUANTISED,
        VT_OPERATOR,
        VT_PLAIN_OPERATOR,
        VT_BUFFER,
        VT_EMPTY,
        VT_ANNOTATED_MODEL,
        VT_METADATA,
        VT_SIGNED,
        VT_SIGNED_QUANTISED,
    ),
    VTABLES,
) = _place(
    # A vtable is where a table's signed offset leads, and so may stand before it: here all of them do.
    vtable(20, 4, 8, 12, 0, 16),  # Model: version, operator_codes, subgraphs, -, buffers
    vtable(16, 12, 0, 4, 8),  # OperatorCode: deprecated_builtin_code, -, version, builtin_code
    vtable(24, 4, 8, 12, 16, 20),  # SubGraph: tensors, inputs, outputs, operators, name
    vtable(24, 4, 20, 8, 12),  # Tensor: shape, type, buffer, name
    vtable(24, 4, 20, 8, 12, 16),  # Tensor: the same, and quantization
    vtable(24, 4, 8, 12, 20, 16),  # Operator: opcode_index, inputs, outputs, options_type, options
    vtable(16, 4, 8, 12),  # Operator without options
    vtable(8, 4),  # Buffer: data
    vtable(4),  # Buffer without data
    vtable(24, 4, 8, 12, 0, 16, 0, 20),  # Model: the same, and metadata
    vtable(12, 4, 8),  # Metadata: name, buffer
    vtable(28, 4, 20, 8, 12, 0, 0, 0, 24),  # Tensor: shape, type, buffer, name, shape_signature
    vtable(28, 4, 20, 8, 12, 16, 0, 0, 24),  # Tensor: the same, and quantization
    start=len(IDENTIFIER),
)
MODEL = len(IDENTIFIER) + len(VTABLES)
HEAD = struct.pack("<I", MODEL) + IDENTIFIER[4:] + VTABLES
"""What every model begins with, up to the table Model."""
MODEL_FIELDS = tuple(MODEL + field for field in (4, 8, 12, 16, 20))
"""Where in the file its version and its vectors of codes, subgraphs, buffers and metadata are."""
CODES = MODEL + 24
"""Where the vector of operator codes is."""
SUBGRAPH = struct.Struct("<iIIIII").pack
SUBGRAPH_SIZE = 24
METADATA_TABLE = struct.Struct("<iII").pack
CONTROL_EDGES = "model_control_dependencies"
TENSOR = struct.Struct("<iIIIIb3x").pack
NAME_FIELD, QUANTISATION_FIELD, TENSOR_SIZE = 12, 16, 24
SIGNATURE_SIZE = 8
"""What a tensor with a shape_signature has more."""

Key = tuple[str, int]
"""An operator and its version; a custom operator's name and `_CUSTOM`."""
CUSTOM_CODE = 32
"""BuiltinOperator_CUSTOM."""
_CUSTOM = 0
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
    position = at + 4 + 4 * len(keys)
    offsets, tables = [], []
    for index, (op, version) in enumerate(keys):
        front, table = _custom_code(op) if version == _CUSTOM else _builtin_code(op, version, position)
        offsets.append(position + len(front) - at - 4 - 4 * index)
        tables.append(front + table)
        position += len(tables[-1])
    return vector(offsets) + b"".join(tables)


def _builtin_code(op: str, version: int, position: int) -> tuple[bytes, bytes]:
    """What stands in front of the table, and the table."""
    code = BUILTIN[op]
    return b"", struct.pack("<iiib3x", position - VT_CODE, version, code, min(code, 127))


def _custom_code(name: str) -> tuple[bytes, bytes]:
    """As `_builtin_code`: the vtable, and the table with the name behind it."""
    front = vtable(20, 16, 12, 4, 8)  # deprecated_builtin_code, custom_code, version, builtin_code
    table = struct.pack("<iiiIb3x", len(front), 1, CUSTOM_CODE, 8, CUSTOM_CODE)
    return front, table + string(name)


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
        options, table, tag = (b"", 0, 0) if keys[index][1] == _CUSTOM else _all_options(node)
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


def _all_options(node: Node) -> tuple[bytes, int, int]:
    """As `_options`, of a builtin operator."""
    if node.op in _SPECIAL:
        return _special(node)
    return _options(node.op, node.activation, node.axis, node.keep_dims)


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


def emit(graph: Graph, custom: Mapping[int, str] | None = None) -> bytes:
    """The .tflite model of ``graph``: subgraph ``main`` with tensors ``t<i>``, and those that it holds.

    Both runtimes load it; ai-edge-litert verifies the flatbuffer strictly. Every constant has a buffer
    of its own, aligned to 16 bytes.

    Args:
        graph: the graph.
        custom: by node of the main graph: the name of the custom operator that stands in its place.

    Raises:
        KeyError: an operator, type or activation outside `pytest_qnn.tflite.graph.graph`.
    """
    graphs = (graph, *graph.subgraphs)
    keys: list[list[Key]] = [
        [(node.op, _version(node, part.tensors)) for node in part.nodes] for part in graphs
    ]
    for node, name in (custom or {}).items():
        keys[0][node] = name, _CUSTOM
    codes = {key: index for index, key in enumerate(dict.fromkeys(chain.from_iterable(keys)))}
    code_records = operator_codes(tuple(codes), CODES)
    subgraph_vector = CODES + len(code_records)
    position = subgraph_vector + 4 + 4 * len(graphs)
    offsets: list[int] = []
    parts: list[bytes] = []
    buffers = 0
    for number, part in enumerate(graphs):
        offsets.append(position - subgraph_vector - 4 - 4 * number)
        records, position, buffers = _subgraph(part, number, keys[number], codes, position, buffers)
        parts += records
    contents = [tensor.data for part in graphs for tensor in part.tensors if tensor.data is not None]
    metadata = 0
    if any(part.control_edges is not None for part in graphs):
        metadata = position
        contents.append(_control_edges(graphs))
        parts.append(_metadata(position, len(contents)))
        position += len(parts[-1])
    head = _head(subgraph_vector, position, metadata)
    return b"".join((head, code_records, vector(offsets), *parts, *buffer_records(contents, position)))


def _version(node: Node, tensors: Sequence[Tensor]) -> int:
    if not node.inputs or tensors[node.inputs[0]].dtype != "int8":
        return 1
    return INT8_VERSION.get(node.op, 1)


def _head(subgraphs: int, buffers: int, metadata: int) -> bytes:
    """Identifier, vtables and the table Model (the arguments are the vectors' positions; 0: none)."""
    front = VT_ANNOTATED_MODEL if metadata else VT_MODEL
    version, codes, subgraph_field, buffer_field, metadata_field = MODEL_FIELDS
    model = struct.pack(
        "<iIIIII",
        *(version - 4 - front, 3, CODES - codes, subgraphs - subgraph_field, buffers - buffer_field),
        metadata and metadata - metadata_field,
    )
    return HEAD + model


def _subgraph(
    graph: Graph, number: int, keys: Sequence[Key], codes: dict[Key, int], position: int, buffers: int
) -> tuple[list[bytes], int, int]:
    """The table SubGraph at ``position`` with all that it names; where that ends, and buffers so far."""
    nodes, tensors = graph.nodes, graph.tensors
    name = string(_name(graph, number))
    tensor_vector = position + SUBGRAPH_SIZE + len(name)
    operator_vector = tensor_vector + 4 + 4 * len(tensors)
    input_vector = operator_vector + 4 + 4 * len(nodes)
    output_vector = input_vector + 4 + 4 * len(graph.inputs)
    end = output_vector + 4 + 4 * len(graph.outputs)
    padding = bytes(-end % 8)
    tensor_offsets, tensor_tables, end, buffers = tensor_records(
        tensors, tensor_vector + 4, end + len(padding), number, buffers
    )
    operator_offsets, operator_tables, end = operator_records(nodes, keys, codes, operator_vector + 4, end)
    table = SUBGRAPH(
        *(position - VT_SUBGRAPH, tensor_vector - position - 4, input_vector - position - 8),
        *(output_vector - position - 12, operator_vector - position - 16, SUBGRAPH_SIZE - 20),
    )
    vectors = map(vector, (tensor_offsets, operator_offsets, graph.inputs, graph.outputs))
    return [table, name, *vectors, padding, *tensor_tables, *operator_tables], end, buffers


def _name(graph: Graph, number: int) -> str:
    if not number:
        return "main"
    return f"VALIDATION:sub{number}" if graph.validation else f"sub{number}"


def _metadata(position: int, buffer: int) -> bytes:
    """The vector ``metadata`` at ``position``, with its one entry."""
    table = position + 8
    name = string(CONTROL_EDGES)
    return struct.pack("<II", 1, 4) + METADATA_TABLE(table - VT_METADATA, 8, buffer) + name


def _control_edges(graphs: Sequence[Graph]) -> bytes:
    """The contents of ``model_control_dependencies``: version 1, and each subgraph's pairs of nodes.

    Source: tensorflow/compiler/mlir/lite/experimental/remat/metadata_util.cc; all numbers are varints,
    those that may be negative in zigzag order.
    """
    packed = _varint(1) + _varint(len(graphs))
    for graph in graphs:
        edges = graph.control_edges or ()
        packed += _varint(len(edges)) + b"".join(_varint(2 * node) for edge in edges for node in edge)
    return packed


def _varint(value: int) -> bytes:
    packed = bytearray()
    while value >= 128:
        packed.append(value % 128 + 128)
        value //= 128
    return bytes((*packed, value))
