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
from collections.abc import Mapping
from typing import Any

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import DataType
from pytest_qnn.qnn.runner.client import NullFunction, QnnClient, Session
from pytest_qnn.qnn.runner.sources import MemorySource
from pytest_qnn.tflite.abi import layouts as tflite
from pytest_qnn.tflite.abi import peek, view
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.qnn_delegate import claims
from pytest_qnn.tflite.qnn_delegate.calls import Calls, of_backend
from pytest_qnn.tflite.qnn_delegate.custom_tensors import CustomTensors, shared_buffer
from pytest_qnn.tflite.qnn_delegate.partition import Composer, QnnFailed, QnnKernel
from pytest_qnn.tflite.qnn_delegate.report import Report
from pytest_qnn.tflite.qnn_delegate.shared_memory import CUSTOM_MEMORY, Block, SharedMemory
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView

Partition = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Nodes, input tensors and output tensors, as in TfLiteDelegateParams."""


class _Registrar:
    """QnnMem of a session."""

    def __init__(self, client: QnnClient) -> None:
        self._client = client

    def register(self, context: int, descriptor: layouts.MemDescriptor) -> int:
        try:
            code, handle = self._client.create("memRegister", context, ctypes.byref(descriptor), 1)
        except NullFunction:
            return 0
        return 0 if code else handle

    def deregister(self, handle: int) -> None:
        # Where the table lacks it, the registration goes with its context.
        with contextlib.suppress(NullFunction):
            self._client.call("memDeRegister", (ctypes.c_void_p * 1)(handle), 1)


class QnnDelegate(ReferenceDelegate):
    """One delegate with a QNN session of its own. See `ReferenceDelegate` for the other arguments.

    Args:
        source: where the QNN interface comes from.
        memory: the process's custom memory.
        tensors: what becomes of tensors in custom memory.
        report: the words in which it says what it does.

    Raises:
        QnnFailed: no session can be opened.
    """

    def __init__(
        self,
        source: MemorySource,
        memory: SharedMemory = CUSTOM_MEMORY,
        tensors: type[CustomTensors] = CustomTensors,
        report: Report | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**{"name": "TfLiteQnnDelegate", **arguments})
        self.log: list[str] = []
        """What it says of itself at the level INFO, as users know it from Qualcomm's delegate."""
        self._report = report or Report()
        self._opened = contextlib.ExitStack()
        entry, _ = self._opened.enter_context(source.open())
        self.client = QnnClient(entry)
        self.session = Session(self.client)
        self._registrar = _Registrar(self.client)
        self._composer = Composer(self.client, self.session)
        self._kernels: list[QnnKernel] = []
        self._ready: dict[Partition, QnnKernel] = {}
        """Composed while Prepare was choosing, until init asks for them."""
        self._context = 0
        self._custom = tensors(memory, self._registrar, self.log, self._report)
        self._opened.callback(self._custom.close)
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

    def watch(self) -> Calls:
        """See the calls of the backend, from now on."""
        seen = of_backend(self.client.entry)
        self.client.read_again()
        return seen

    def registers(self) -> bool:
        """Whether the backend registers shared buffers: it is tried with one float."""
        memory = SharedMemory()
        with contextlib.closing(memory.rpcmem), contextlib.suppress(NullFunction):
            block = memory.find(memory.alloc(4, 64), 4)
            return block is not None and self._registers(block)
        return False

    def _registers(self, block: Block) -> bool:
        code, context = self.client.create("contextCreate", self.session.backend, self.session.device, None)
        if code:
            return False
        shape = layouts.MemShape(numDim=1, dimSize=(ctypes.c_uint32 * 1)(1))
        descriptor, _kept = shared_buffer(shape, DataType.FLOAT_32, block, block.pointer - block.base)
        handle = self._registrar.register(context, descriptor)
        if handle:
            self._registrar.deregister(handle)
        self._free_context(context)
        return bool(handle)

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
            made = len(self._kernels) - before
            self.log.append(self._report.delegated(nodes, len(self.plan.plan), made))
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
        """The operators that both sides define alike, then the backend's own validation."""
        if not claims.known(node, tensors, constants):
            return False
        return claims.validates(self.client, self.session, node, tensors)

    # What its kernels do.

    def init(
        self,
        context: int,
        nodes: tuple[int, ...],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
    ) -> Kernel | None:
        """The partition's QNN graph, composed and finalised."""
        partition = nodes, inputs, outputs
        if self.fault == "init" or not self._composes(partition):
            return None
        kernel = self._ready.pop(partition)
        seen = (view.tensor(context, index) for _, index in kernel.io())
        self._custom.enter(kernel, tuple((tensor.data, tensor.bytes) for tensor in seen))
        return kernel

    def _composes(self, partition: Partition) -> bool:
        """Compose and finalise the graph of a partition, unless that is done; whether it can be.

        A partition without results, as a loop's body may have, or of constants alone would be a graph that
        cannot be executed: QnnGraph_execute wants at least one input and one output.
        """
        if partition in self._ready:
            return True
        nodes, inputs, outputs = partition
        if not outputs or self.plan.constants.issuperset(inputs):
            return False
        steps = tuple(self.plan.nodes[index] for index in nodes)
        kernel = QnnKernel(
            nodes=nodes, inputs=inputs, outputs=outputs, steps=steps, tensors=self.plan.tensors
        )
        self._kernels.append(kernel)
        try:
            self._composer.compose(self._context, kernel, self.plan.constants)
        except (QnnFailed, NullFunction):
            self.free(kernel)
            return False
        self._ready[partition] = kernel
        return True

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        """Execute the QNN graph on the runtime's own memory, or on handles where the client placed it.

        Raises:
            QnnFailed: the backend cannot; the runtime is told which call gave what.
        """
        assert isinstance(kernel, QnnKernel)
        kernel.invokes += 1
        if self.is_to_fail(kernel):
            return tflite.ERROR
        for v1, index in kernel.io():
            if self._custom.bind(context, kernel, v1, index):
                return tflite.ERROR
        sources = (kernel.sources, len(kernel.source_indices))
        sinks = (kernel.sinks, len(kernel.sink_indices))
        code = self.client.call("graphExecute", kernel.graph, *sources, *sinks, None, None)
        if code:
            raise QnnFailed(f"graphExecute gave {code}")
        return tflite.OK

    def free(self, kernel: Kernel) -> None:
        """Deregister, then free the context, and the graph with it."""
        if not isinstance(kernel, QnnKernel) or kernel not in self._kernels:
            return
        self._kernels.remove(kernel)
        self._custom.release(kernel)
        if kernel.context:
            self._free_context(kernel.context)

    def _free_context(self, context: int) -> None:
        """As far as the table has contextFree: without it, all else is still freed."""
        with contextlib.suppress(NullFunction):
            self.client.call("contextFree", context, None)


def _integers(slot: int) -> tuple[int, ...]:
    """The TfLiteIntArray that the pointer at ``slot`` leads to."""
    return peek.integers(peek.pointer(slot))
