"""The option of the offline generator: seed 001, Offline Prepare, as a function on binaries of the reference.

    qnn-context-binary-generator ... --input_output_tensor_mem_type memhandle

takes graphs as they were composed and changes the memory type of their IO tensors before it writes them.
"""

from __future__ import annotations

import dataclasses

import msgspec

from pytest_qnn.abi.qnn_codes import TensorMemType, TensorType
from pytest_qnn.reference.backend_binary import decode, encode

_IO = frozenset({int(TensorType.APP_WRITE), int(TensorType.APP_READ)})


def input_output_tensor_mem_type(binary: bytes, mem_type: TensorMemType) -> bytes:
    """The binary with ``mem_type`` for every IO tensor, and for no other.

    Raises:
        ValueError: it is none of the reference's.
    """
    content = decode(binary)
    graphs = tuple(
        msgspec.structs.replace(
            graph,
            tensors=tuple(
                dataclasses.replace(tensor, mem_type=int(mem_type)) if tensor.type in _IO else tensor
                for tensor in graph.tensors
            ),
        )
        for graph in content.graphs
    )
    return encode(msgspec.structs.replace(content, graphs=graphs))
