"""The reference of the TensorFlow Lite QNN delegate: ``--tflite-delegate qnn-reference``.

It turns what it claims into QNN graphs and runs them on any QNN backend: the option ``backend`` takes what
``--qnn-backend`` takes. Tensors that the client has placed in custom memory are registered with the backend
and executed through memory handles; every other tensor is executed raw, where the runtime has it.

Claimed are the operators that QNN and TensorFlow Lite define alike to the bit: float32 ADD, SUB, MUL
(operands of one shape, no fused activation), RELU and RESHAPE, as far as the backend validates them and can
finalise the partitions they would make: libQnnHtp on a host takes a subtraction and a product, but not one
after the other in one graph.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_qnn.abi import peek, qnn, tflite, view
from pytest_qnn.abi.qnn_codes import (
    DataType,
    EncodingDefinition,
    HtpMemType,
    MemType,
    QuantizationEncoding,
    TensorMemType,
    TensorType,
)
from pytest_qnn.cases.graph import Node, Tensor
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.reference.plan import PlanView
from pytest_qnn.run.memory_session import Session
from pytest_qnn.run.memory_sources import MemorySource
from pytest_qnn.run.qnn_client import PACKAGE, NullFunction, QnnClient
from pytest_qnn.run.shared_memory import CUSTOM_MEMORY, Block, SharedMemory

_OPERATORS = {
    "ADD": b"ElementWiseAdd",
    "SUB": b"ElementWiseSubtract",
    "MUL": b"ElementWiseMultiply",
    "RELU": b"Relu",
    "RESHAPE": b"Reshape",
}
_MOST_DIMENSIONS = 4
Partition = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Nodes, input tensors and output tensors, as in TfLiteDelegateParams."""
_names = itertools.count()


class QnnFailed(Exception):  # noqa: N818 - becomes an error status of the delegate
    """A QNN call failed; the text names it and its code."""


@dataclasses.dataclass(eq=False)
class QnnKernel(Kernel):
    """A partition as a QNN graph in a context of its own."""

    context: int = 0
    graph: int = 0
    sources: Any = None
    """Qnn_Tensor_t array of the IO inputs; ``source_indices``: their TensorFlow Lite tensors."""
    source_indices: tuple[int, ...] = ()
    sinks: Any = None
    sink_indices: tuple[int, ...] = ()
    handles: dict[tuple[int, int], tuple[int, Block]] = dataclasses.field(default_factory=dict)
    """(address, bytes) -> memory handle, and the block in which it lies."""


class QnnDelegate(ReferenceDelegate):
    """One delegate with a QNN session of its own. See `ReferenceDelegate` for the other arguments.

    Args:
        source: where the QNN interface comes from.
        memory: the process's custom memory.

    Raises:
        QnnFailed: no session can be opened.
    """

    def __init__(self, source: MemorySource, memory: SharedMemory = CUSTOM_MEMORY, **arguments: Any) -> None:
        super().__init__(**{"name": "TfLiteQnnDelegate", **arguments})
        self.log: list[str] = []
        """What it says of itself at the level INFO, as users know it from Qualcomm's delegate."""
        self.memory = memory
        self._opened = contextlib.ExitStack()
        entry, _ = self._opened.enter_context(source.open())
        self.client = QnnClient(entry)
        self.session = Session(self.client)
        self._kernels: list[QnnKernel] = []
        self._ready: dict[Partition, QnnKernel] = {}
        """Composed while Prepare was choosing, until init asks for them."""
        self._context = 0
        memory.leaving.append(self._block_leaves)
        self._opened.callback(memory.leaving.remove, self._block_leaves)
        if not self.session.open():
            failure = self.session.failure
            self.close()
            raise QnnFailed(failure)

    def close(self) -> None:
        """End what is left of the kernels, then the session."""
        for kernel in list(self._kernels):
            self.free(kernel)
        self.session.close()
        self._opened.close()
        super().close()

    # What it claims.

    def prepare(self, context: int) -> int:
        """Claim, and say how much."""
        before = len(self._kernels)
        self._context = context
        try:
            status = super().prepare(context)
        finally:
            for unused in self._ready.values():
                self.free(unused)
            self._ready.clear()
        nodes = sum(len(kernel.nodes) for kernel in self._kernels[before:])
        if not status:
            self.log.append(
                f"TfLiteQnnDelegate delegate: {nodes} nodes delegated out of {len(self.plan.plan)} nodes "
                f"with {len(self._kernels) - before} partitions."
            )
        return status

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        """Of what it supports, the nodes whose partitions the backend can finalise."""
        chosen = super().choose(plan)
        while chosen:
            refused = next((part for part in self.partitions(chosen) if not self._composes(part)), None)
            if refused is None:
                break
            # The last node of a partition has the most before it that it may not get along with.
            chosen = tuple(index for index in chosen if index != refused[0][-1])
        return chosen

    def partitions(self, nodes: tuple[int, ...]) -> list[Partition]:
        """The partitions that Replace would make of the nodes.

        Raises:
            RuntimeError: the runtime answers with an error.
        """
        table = tflite.Context.from_address(self._context)
        array = peek.int_array(nodes)
        found, count = ctypes.c_void_p(), ctypes.c_int()
        call = tflite.PreviewPartitioning(table.PreviewDelegatePartitioning)
        if call(self._context, *map(ctypes.addressof, (array, found, count))):
            raise RuntimeError("PreviewDelegatePartitioning failed")
        first = found.value or 0
        bases = [first + ctypes.sizeof(tflite.DelegateParams) * position for position in range(count.value)]
        return [(_integers(base + 8), _integers(base + 16), _integers(base + 24)) for base in bases]

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        """The table above, then the backend's own validation."""
        if node.op not in _OPERATORS or node.activation != "NONE":
            return False
        if node.op == "RESHAPE" and any(index not in constants for index in node.inputs[1:]):
            return False
        operands = _operands(node)
        shapes = [tensors[index].shape for index in (*operands, *node.outputs)]
        plain = all(
            tensors[index].dtype == "float32" and len(tensors[index].shape) <= _MOST_DIMENSIONS
            for index in (*operands, *node.outputs)
        )
        if not plain or not all(map(all, shapes)) or (node.op != "RESHAPE" and len(set(shapes)) > 1):
            return False
        return self.validates(node, tensors)

    def validates(self, node: Node, tensors: Mapping[int, Tensor]) -> bool:
        """QnnBackend_validateOpConfig accepts the operator with these tensors."""
        kept: list[Any] = []
        inputs = [_describe(kept, index, tensors[index], TensorType.APP_WRITE) for index in _operands(node)]
        outputs = [_describe(kept, index, tensors[index], TensorType.APP_READ) for index in node.outputs]
        with contextlib.suppress(NullFunction):
            backend = self.session.backend
            return not self.client.call(
                "backendValidateOpConfig", backend, _config(kept, node, inputs, outputs)
            )
        return False

    # What its kernels do.

    def init(
        self,
        context: int,  # noqa: ARG002 - that of Prepare, which is under way
        nodes: tuple[int, ...],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
    ) -> Kernel | None:
        """The partition's QNN graph, composed and finalised."""
        partition = nodes, inputs, outputs
        if self.fault == "init" or not self._composes(partition):
            return None
        return self._ready.pop(partition)

    def _composes(self, partition: Partition) -> bool:
        """Compose and finalise the graph of a partition, unless that is done; whether it can be."""
        if partition in self._ready:
            return True
        steps = tuple(self.plan.nodes[index] for index in partition[0])
        kernel = QnnKernel(*partition, steps, self.plan.tensors)
        self._kernels.append(kernel)
        try:
            self._compose(self._context, kernel)
        except (QnnFailed, NullFunction):
            self.free(kernel)
            return False
        self._ready[partition] = kernel
        return True

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        """Execute the QNN graph on the runtime's own memory, or on handles where the client placed it."""
        assert isinstance(kernel, QnnKernel)
        if self.fault == "kernel-invoke":
            return tflite.ERROR
        for structs, indices in (
            (kernel.sources, kernel.source_indices),
            (kernel.sinks, kernel.sink_indices),
        ):
            for struct, index in zip(structs, indices, strict=True):
                self.bind(context, kernel, struct.v1, index)
        sources = (kernel.sources, len(kernel.source_indices))
        sinks = (kernel.sinks, len(kernel.sink_indices))
        code = self.client.call("graphExecute", kernel.graph, *sources, *sinks, None, None)
        return tflite.ERROR if code else tflite.OK

    def bind(self, context: int, kernel: QnnKernel, v1: Any, index: int) -> None:
        """The memory of one IO tensor, as the runtime has it at this very invoke."""
        tensor = view.tensor(context, index)
        handle = self.handle_of(kernel, index, v1, tensor.data, tensor.bytes)
        v1.memType = TensorMemType.MEMHANDLE if handle else TensorMemType.RAW
        v1.clientBuf.data, v1.clientBuf.dataSize = tensor.data, tensor.bytes
        if handle:
            v1.memHandle = handle

    def handle_of(self, kernel: QnnKernel, index: int, v1: Any, address: int, size: int) -> int:
        """The handle of a tensor in custom memory, registered at its first use; 0 for any other memory."""
        block = self.memory.find(address, size)
        if block is None:
            return 0
        known = kernel.handles.get((address, size))
        if known is not None:
            return known[0]
        handle = self.register(kernel, v1, block, address - block.base)
        if handle:
            kernel.handles[address, size] = handle, block
            self.log.append(f"Tensor {index} is successfully registered to shared memory.")
        return handle

    def register(self, kernel: QnnKernel, v1: Any, block: Block, offset: int) -> int:
        """QnnMem_register of a tensor in a shared buffer; 0 where the backend refuses."""
        custom = qnn.HtpMemDescriptor(type=HtpMemType.SHARED_BUFFER, size=block.total)
        custom.sharedBufferConfig.fd, custom.sharedBufferConfig.offset = block.fd, offset
        descriptor = qnn.MemDescriptor(dataType=v1.dataType, memType=MemType.CUSTOM)
        descriptor.memShape.numDim, descriptor.memShape.dimSize = v1.rank, v1.dimensions
        descriptor.customInfo = ctypes.addressof(custom)
        try:
            code, handle = self.client.create("memRegister", kernel.context, ctypes.byref(descriptor), 1)
        except NullFunction:
            return 0
        return 0 if code else handle

    def free(self, kernel: Kernel) -> None:
        """Deregister, then free the context, and the graph with it."""
        if not isinstance(kernel, QnnKernel) or kernel not in self._kernels:
            return
        self._kernels.remove(kernel)
        for handle, _ in kernel.handles.values():
            self.client.call("memDeRegister", (ctypes.c_void_p * 1)(handle), 1)
        kernel.handles.clear()
        if kernel.context:
            self.client.call("contextFree", kernel.context, None)

    def _block_leaves(self, block: Block) -> None:
        for kernel in self._kernels:
            for key in [key for key, (_, inside) in kernel.handles.items() if inside is block]:
                handle, _ = kernel.handles.pop(key)
                self.client.call("memDeRegister", (ctypes.c_void_p * 1)(handle), 1)

    def _compose(self, context: int, kernel: QnnKernel) -> None:
        kernel.context = self._made("contextCreate", self.session.backend, self.session.device, None)
        kernel.graph = self._made("graphCreate", kernel.context, b"partition%d" % next(_names), None)
        kept: list[Any] = []
        made: dict[int, Any] = {}
        for index, kind in self._tensors(kernel):
            struct = made[index] = _describe(kept, index, kernel.tensors[index], kind)
            if kind == TensorType.STATIC:
                tensor = view.tensor(context, index)
                struct.v1.clientBuf.data, struct.v1.clientBuf.dataSize = tensor.data, tensor.bytes
            self._call("tensorCreateGraphTensor", kernel.graph, ctypes.byref(struct))
        for node in kernel.steps:
            inputs, outputs = [made[index] for index in _operands(node)], [made[i] for i in node.outputs]
            self._call("graphAddNode", kernel.graph, _config(kept, node, inputs, outputs))
        self._call("graphFinalize", kernel.graph, None, None)
        kernel.source_indices = tuple(i for i in made if made[i].v1.type == TensorType.APP_WRITE)
        kernel.sink_indices = tuple(i for i in made if made[i].v1.type == TensorType.APP_READ)
        kernel.sources = _array(made[index] for index in kernel.source_indices)
        kernel.sinks = _array(made[index] for index in kernel.sink_indices)
        for struct in (*kernel.sources, *kernel.sinks):
            struct.v1.name = None  # the backend has it; what it points to goes with `made`
        kernel.sources.kept = kernel.sinks.kept = kept

    def _tensors(self, kernel: QnnKernel) -> Iterator[tuple[int, TensorType]]:
        """Every tensor of the partition's operators once, with what it is to the QNN graph."""
        seen = set[int]()
        for node in kernel.steps:
            for index in (*_operands(node), *node.outputs):
                if index in seen:
                    continue
                seen.add(index)
                if index in self.plan.constants:
                    yield index, TensorType.STATIC
                elif index in kernel.outputs:
                    yield index, TensorType.APP_READ
                else:
                    yield index, TensorType.APP_WRITE if index in kernel.inputs else TensorType.NATIVE

    def _call(self, name: str, *arguments: Any) -> None:
        code = self.client.call(name, *arguments)
        if code:
            raise QnnFailed(f"{name} gave {code}")

    def _made(self, name: str, *arguments: Any) -> int:
        code, handle = self.client.create(name, *arguments)
        if code:
            raise QnnFailed(f"{name} gave {code}")
        return handle


def _integers(slot: int) -> tuple[int, ...]:
    """The TfLiteIntArray that the pointer at ``slot`` leads to."""
    return peek.integers(peek.pointer(slot))


def _operands(node: Node) -> tuple[int, ...]:
    """The operands that are tensors of the QNN operator: the shape of a RESHAPE is told by its result."""
    return node.inputs[:1] if node.op == "RESHAPE" else node.inputs


def _describe(kept: list[Any], index: int, tensor: Tensor, kind: TensorType) -> Any:
    shape = tensor.shape or (1,)
    dimensions = (ctypes.c_uint32 * len(shape))(*shape)
    struct = qnn.Tensor(version=1)
    v1 = struct.v1
    v1.name, v1.type, v1.dataType = b"t%d" % index, kind, DataType.FLOAT_32
    v1.quantizeParams.encodingDefinition = EncodingDefinition.UNDEFINED
    v1.quantizeParams.quantizationEncoding = QuantizationEncoding.UNDEFINED
    v1.rank, v1.dimensions = len(shape), ctypes.cast(dimensions, ctypes.POINTER(ctypes.c_uint32))
    kept += dimensions, struct
    return struct


def _config(kept: list[Any], node: Node, inputs: list[Any], outputs: list[Any]) -> qnn.OpConfig:
    arrays = _array(inputs), _array(outputs)
    kept += arrays
    content = qnn.OpConfigV1(
        name=b"n%d" % node.outputs[0],
        packageName=PACKAGE,
        typeName=_OPERATORS[node.op],
        numOfInputs=len(inputs),
        inputTensors=ctypes.cast(arrays[0], qnn.TensorP),
        numOfOutputs=len(outputs),
        outputTensors=ctypes.cast(arrays[1], qnn.TensorP),
    )
    return qnn.OpConfig(version=1, v1=content)


def _array(structs: Any) -> Any:
    listed = list(structs)
    return (qnn.Tensor * len(listed))(*listed)
