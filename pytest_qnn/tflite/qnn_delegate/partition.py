"""A partition of a TensorFlow Lite graph as a QNN graph in a context of its own."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import DataType, EncodingDefinition, QuantizationEncoding, TensorType
from pytest_qnn.qnn.runner.client import PACKAGE, QnnClient, Session
from pytest_qnn.tflite.abi import view
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.qnn_delegate.custom_tensors import Bound
from pytest_qnn.tflite.reference.delegate import Kernel

OPERATORS = {
    "ADD": b"ElementWiseAdd",
    "SUB": b"ElementWiseSubtract",
    "MUL": b"ElementWiseMultiply",
    "RELU": b"Relu",
    "RESHAPE": b"Reshape",
}
_names = itertools.count()


class QnnFailed(Exception):  # noqa: N818 - becomes an error status of the delegate
    """A QNN call failed; the text names it and its code."""


@dataclasses.dataclass(eq=False)
class QnnKernel(Kernel, Bound):
    """A partition as a QNN graph in a context of its own."""

    nodes: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    steps: tuple[Node, ...] = ()
    tensors: Mapping[int, Tensor] = dataclasses.field(default_factory=dict)
    graph: int = 0
    sources: Any = None
    """Qnn_Tensor_t array of the IO inputs; ``source_indices``: their TensorFlow Lite tensors."""
    source_indices: tuple[int, ...] = ()
    sinks: Any = None
    sink_indices: tuple[int, ...] = ()

    def io(self) -> Iterator[tuple[Any, int]]:
        """Each IO tensor, inputs first: Qnn_TensorV1_t, and TensorFlow Lite tensor."""
        for structs, indices in ((self.sources, self.source_indices), (self.sinks, self.sink_indices)):
            for struct, index in zip(structs, indices, strict=True):
                yield struct.v1, index


class Composer:
    """Composes and finalises QNN graphs with one session."""

    def __init__(self, client: QnnClient, session: Session) -> None:
        self._client = client
        self._session = session

    def compose(self, context: int, kernel: QnnKernel, constants: set[int]) -> None:
        """The context and the finalised graph of a kernel's steps.

        ``context`` is the TfLiteContext, ``constants`` are the tensors with contents.

        Raises:
            NullFunction: the interface table lacks a function.
            QnnFailed: a call failed; what was made before it is in the kernel.
        """
        kernel.context = self._made("contextCreate", self._session.backend, self._session.device, None)
        kernel.graph = self._made("graphCreate", kernel.context, b"partition%d" % next(_names), None)
        kept: list[Any] = []
        made: dict[int, Any] = {}
        for index, kind in _tensors(kernel, constants):
            struct = made[index] = describe(kept, index, kernel.tensors[index], kind)
            if kind == TensorType.STATIC:
                tensor = view.tensor(context, index)
                struct.v1.clientBuf.data, struct.v1.clientBuf.dataSize = tensor.data, tensor.bytes
            self._call("tensorCreateGraphTensor", kernel.graph, ctypes.byref(struct))
        for node in kernel.steps:
            inputs, outputs = [made[index] for index in operands(node)], [made[i] for i in node.outputs]
            self._call("graphAddNode", kernel.graph, config(kept, node, inputs, outputs))
        self._call("graphFinalize", kernel.graph, None, None)
        kernel.source_indices = tuple(i for i in made if made[i].v1.type == TensorType.APP_WRITE)
        kernel.sink_indices = tuple(i for i in made if made[i].v1.type == TensorType.APP_READ)
        kernel.sources = _array(made[index] for index in kernel.source_indices)
        kernel.sinks = _array(made[index] for index in kernel.sink_indices)
        for struct in (*kernel.sources, *kernel.sinks):
            struct.v1.name = None  # the backend has it; what it points to goes with `made`
        kernel.sources.kept = kernel.sinks.kept = kept

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._client.call(name, *arguments)
        if code:
            raise QnnFailed(f"{name} gave {code}")

    def _made(self, name: str, *arguments: Any) -> int:
        code, handle = self._client.create(name, *arguments)
        if code:
            raise QnnFailed(f"{name} gave {code}")
        return handle


def operands(node: Node) -> tuple[int, ...]:
    """The operands that are tensors of the QNN operator: the shape of a RESHAPE is told by its result."""
    return node.inputs[:1] if node.op == "RESHAPE" else node.inputs


def describe(kept: list[Any], index: int, tensor: Tensor, kind: TensorType) -> Any:
    """The Qnn_Tensor_t of a float32 tensor; ``kept`` gets what must live as long as it."""
    shape = tensor.shape or (1,)
    dimensions = (ctypes.c_uint32 * len(shape))(*shape)
    struct = layouts.Tensor(version=1)
    v1 = struct.v1
    v1.name, v1.type, v1.dataType = b"t%d" % index, kind, DataType.FLOAT_32
    v1.quantizeParams.encodingDefinition = EncodingDefinition.UNDEFINED
    v1.quantizeParams.quantizationEncoding = QuantizationEncoding.UNDEFINED
    v1.rank, v1.dimensions = len(shape), ctypes.cast(dimensions, ctypes.POINTER(ctypes.c_uint32))
    kept += dimensions, struct
    return struct


def config(kept: list[Any], node: Node, inputs: list[Any], outputs: list[Any]) -> layouts.OpConfig:
    """The Qnn_OpConfig_t of an operator; ``kept`` gets what must live as long as it."""
    arrays = _array(inputs), _array(outputs)
    kept += arrays
    content = layouts.OpConfigV1(
        name=b"n%d" % node.outputs[0],
        packageName=PACKAGE,
        typeName=OPERATORS[node.op],
        numOfInputs=len(inputs),
        inputTensors=ctypes.cast(arrays[0], layouts.TensorP),
        numOfOutputs=len(outputs),
        outputTensors=ctypes.cast(arrays[1], layouts.TensorP),
    )
    return layouts.OpConfig(version=1, v1=content)


def _tensors(kernel: QnnKernel, constants: set[int]) -> Iterator[tuple[int, TensorType]]:
    """Every tensor of the partition's operators once, with what it is to the QNN graph."""
    seen = set[int]()
    for node in kernel.steps:
        for index in (*operands(node), *node.outputs):
            if index in seen:
                continue
            seen.add(index)
            if index in constants:
                yield index, TensorType.STATIC
            elif index in kernel.outputs:
                yield index, TensorType.APP_READ
            else:
                yield index, TensorType.APP_WRITE if index in kernel.inputs else TensorType.NATIVE


def _array(structs: Iterable[Any]) -> Any:
    listed = list(structs)
    return (layouts.Tensor * len(listed))(*listed)
