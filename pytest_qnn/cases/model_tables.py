"""Numbers of the .tflite format, and where the fixed parts of an emitted model lie.

Source: tensorflow/lite/schema/schema.fbs, version 3, and flatbuffers' binary format.
"""

from __future__ import annotations

import struct

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
"""Where in the file its version and its vectors of codes, subgraphs, buffers and metadata are told."""
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
