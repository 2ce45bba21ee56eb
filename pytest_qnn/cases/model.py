"""Graph -> .tflite bytes, written forwards with ``struct``.

A flatbuffers builder writes backwards and costs about 1.2 ms for 50 nodes in pure Python. Here every
parent comes before its children, so that one pass suffices, and each record (a tensor, an operator) is
one ``pack`` plus cached tails: about a tenth of that. Layout and field numbers follow
tensorflow/lite/schema/schema.fbs, version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain

from pytest_qnn.cases.graph import Graph, Node, Tensor
from pytest_qnn.cases.model_records import (
    Key,
    buffer_records,
    operator_codes,
    operator_records,
    string,
    tensor_records,
    vector,
)
from pytest_qnn.cases.model_tables import (
    CODES,
    CONTROL_EDGES,
    HEAD,
    INT8_VERSION,
    METADATA_TABLE,
    MODEL_FIELDS,
    SUBGRAPH,
    SUBGRAPH_SIZE,
    VT_ANNOTATED_MODEL,
    VT_METADATA,
    VT_MODEL,
    VT_SUBGRAPH,
)


def emit(graph: Graph) -> bytes:
    """The .tflite model of ``graph``: subgraph ``main`` with tensors ``t<i>``, and those that it holds.

    Both runtimes load it; ai-edge-litert verifies the flatbuffer strictly. Every constant has a buffer
    of its own, aligned to 16 bytes.

    Raises:
        KeyError: an operator, type or activation outside `pytest_qnn.cases.graph`.
    """
    graphs = (graph, *graph.subgraphs)
    keys: list[list[Key]] = [
        [(node.op, _version(node, part.tensors)) for node in part.nodes] for part in graphs
    ]
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
