"""Writing a model: the project's own writer against the flatbuffers builder of the schema bindings."""

from __future__ import annotations

from collections.abc import Iterator

import flatbuffers
import tflite

from benchmarks.timing import Effort, Row, each
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit

NODES = (5, 50, 500)
SHAPE = (4, 8)


def rows(effort: Effort) -> Iterator[Row]:
    """Microseconds per model."""
    for nodes in NODES:
        subject = f"chain of {nodes} ADD"
        count = max(1, 200 // nodes)
        own = each(emit, [_chain(nodes)] * count, effort)
        yield Row(subject, "own writer", "us", own.times(1e6))
        bindings = each(_with_bindings, [nodes] * count, effort)
        yield Row(subject, "schema bindings", "us", bindings.times(1e6))
        yield Row(subject, "bindings/own", "ratio", bindings.over(own))


def _chain(nodes: int) -> Graph:
    tensors = tuple(Tensor(SHAPE) for _ in range(nodes + 1))
    adds = tuple(Node("ADD", (number, 0), (number + 1,)) for number in range(nodes))
    return Graph(tensors, adds, inputs=(0,), outputs=(nodes,))


def _with_bindings(nodes: int) -> bytes:
    """The same chain through the functions of the ``tflite`` package."""
    builder = flatbuffers.Builder(1024)
    tensors = [_tensor(builder, f"t{number}") for number in range(nodes + 1)]
    operators = [_operator(builder, number) for number in range(nodes)]
    inputs, outputs = _ints(builder, (0,)), _ints(builder, (nodes,))
    tensor_vector, operator_vector = _offsets(builder, tensors), _offsets(builder, operators)
    name = builder.CreateString("main")
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, tensor_vector)
    tflite.SubGraphAddInputs(builder, inputs)
    tflite.SubGraphAddOutputs(builder, outputs)
    tflite.SubGraphAddOperators(builder, operator_vector)
    tflite.SubGraphAddName(builder, name)
    subgraphs = _offsets(builder, [tflite.SubGraphEnd(builder)])
    tflite.OperatorCodeStart(builder)
    tflite.OperatorCodeAddVersion(builder, 1)
    codes = _offsets(builder, [tflite.OperatorCodeEnd(builder)])
    tflite.BufferStart(builder)
    buffers = _offsets(builder, [tflite.BufferEnd(builder)])
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, codes)
    tflite.ModelAddSubgraphs(builder, subgraphs)
    tflite.ModelAddBuffers(builder, buffers)
    builder.Finish(tflite.ModelEnd(builder), b"TFL3")
    return bytes(builder.Output())


def _tensor(builder: flatbuffers.Builder, name: str) -> int:
    shape, text = _ints(builder, SHAPE), builder.CreateString(name)
    tflite.TensorStart(builder)
    tflite.TensorAddShape(builder, shape)
    tflite.TensorAddName(builder, text)
    return int(tflite.TensorEnd(builder))


def _operator(builder: flatbuffers.Builder, number: int) -> int:
    inputs, outputs = _ints(builder, (number, 0)), _ints(builder, (number + 1,))
    tflite.AddOptionsStart(builder)
    options = tflite.AddOptionsEnd(builder)
    tflite.OperatorStart(builder)
    tflite.OperatorAddInputs(builder, inputs)
    tflite.OperatorAddOutputs(builder, outputs)
    tflite.OperatorAddBuiltinOptionsType(builder, tflite.BuiltinOptions.AddOptions)
    tflite.OperatorAddBuiltinOptions(builder, options)
    return int(tflite.OperatorEnd(builder))


def _ints(builder: flatbuffers.Builder, values: tuple[int, ...]) -> int:
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependInt32(value)
    return int(builder.EndVector())


def _offsets(builder: flatbuffers.Builder, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
