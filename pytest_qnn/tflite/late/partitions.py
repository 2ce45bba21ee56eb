"""Faults that depend on how many kernels there are, and on what lies between them."""

from __future__ import annotations

from typing import Any

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.late.conditions import Knowing, Operands
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.reference.device_buffers import DeviceBuffers
from pytest_qnn.tflite.reference.dynamic import address_of
from pytest_qnn.tflite.reference.plan import has_node
from pytest_qnn.tflite.reference.profiled import ProfiledDelegate


@faulty_delegate(
    "late-outputs-of-the-first",
    "No kernel writes more outputs than the graph's first kernel of this delegate has.",
)
class _OutputsOfTheFirst(ReferenceDelegate):
    """The array of outputs is sized once. facts, PART-10 and PART-11: every output is written."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._most: dict[int, int] = {}

    def prepare(self, context: int) -> int:
        self._most.pop(context, None)
        return super().prepare(context)

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        most = self._most.setdefault(context, len(outputs))
        return super().init(context, nodes, inputs, outputs[:most])


@faulty_delegate(
    "late-fifth-kernel",
    "The fifth kernel of a graph takes the place of its first, which then writes nothing.",
)
class _FifthKernel(Knowing):
    """A table of four kernels. facts, PREC-08: state is kept for each kernel; TfLiteRegistration.init."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        mine = [one for owner, one in self.kernels if owner == context]
        later = mine[mine.index(kernel) + 4 :: 4]
        return super().kernel_invoke(context, later[-1] if later else kernel)


@faulty_delegate(
    "late-output-kept",
    "From a kernel's second invoke on it does not write an output that a later kernel of the delegate reads.",
)
class _OutputKept(Knowing):
    """What the next kernel needs stays on the device. facts, PART-11: it is written all the same."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._kept: dict[tuple[int, int], Values] = {}

    def prepare(self, context: int) -> int:
        self._kept = {place: value for place, value in self._kept.items() if place[0] != context}
        return super().prepare(context)

    def read_input(self, context: int, index: int) -> Values | None:
        kept = self._kept.get((context, index))
        return super().read_input(context, index) if kept is None else kept

    def write_output(self, context: int, index: int, value: Values) -> None:
        needed = any(owner == context and index in one.inputs for owner, one in self.kernels)
        if needed and self.current is not None and self.current.invokes >= 2:
            self._kept[context, index] = value.copy()
        else:
            super().write_output(context, index, value)


@faulty_delegate(
    "late-foreign-operand",
    "From a kernel's third invoke on an operand that another delegate computes is that of the second one.",
)
class _ForeignOperand(Knowing):
    """Waits for its own writes only. facts, BUF-07 and PREC-03: any other delegate may be before it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._seen: dict[tuple[Kernel, int], Values] = {}

    def read_input(self, context: int, index: int) -> Values | None:
        value = super().read_input(context, index)
        kernel = self.current
        if value is None or kernel is None:
            return value
        owner = layouts.Tensor.from_address(address_of(context, index)).delegate
        if not owner or owner == self.address:
            return value
        if kernel.invokes <= 2:
            self._seen[kernel, index] = value.copy()
        return self._seen.get((kernel, index), value)

    def free(self, kernel: Kernel) -> None:
        self._seen = {place: value for place, value in self._seen.items() if place[0] is not kernel}
        super().free(kernel)


@faulty_delegate(
    "late-asks-at-invoke", "A kernel of more than eight nodes asks for its nodes at invoke, and fails."
)
class _AsksAtInvoke(ReferenceDelegate):
    """Options of eight nodes are kept. facts, LIFE-06: these functions are forbidden to kernels."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if not all(has_node(context, index) for index in kernel.nodes[8:]):
            return layouts.ERROR
        return super().kernel_invoke(context, kernel)


@faulty_delegate(
    "late-profiled-outputs", "With a profiler attached a kernel of several outputs writes the last one only."
)
class _ProfiledOutputs(ReferenceDelegate):
    """Profiled kernels take another way. TfLiteContext.profiler is for events; facts, PART-10."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        outputs = kernel.outputs
        if layouts.Context.from_address(context).profiler:
            kernel.outputs = outputs[-1:]
        try:
            return super().kernel_invoke(context, kernel)
        finally:
            kernel.outputs = outputs


@faulty_delegate(
    "late-profiled-events", "The profiler is given no events of a kernel's nodes beyond the fifth."
)
class _ProfiledEvents(ProfiledDelegate):
    """A list of five events. facts, PROF-01: with the flag the delegate makes its own events."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        nodes, steps = kernel.nodes, kernel.steps
        try:
            return super().kernel_invoke(context, kernel)
        finally:
            kernel.nodes, kernel.steps = nodes, steps

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        # Events are made of what the kernel says of itself once all is computed.
        if node is kernel.steps[-1]:
            kernel.nodes, kernel.steps = kernel.nodes[:5], kernel.steps[:5]
        return super().compute_node(kernel, node, operands)


@faulty_delegate(
    "late-own-stale-operand",
    "A kernel that reads several buffers of its own delegate reads the first one for all of the same shape.",
)
class _OwnStaleOperand(DeviceBuffers):
    """One descriptor for buffers. facts, BUF-07: its own handles are its own to read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._first: Values | None = None

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self._first = None
        return super().kernel_invoke(context, kernel)

    def on_device(self, tensor: layouts.Tensor) -> Values:
        value = super().on_device(tensor)
        if self._first is None:
            self._first = value
        return self._first if self._first.shape == value.shape else value
