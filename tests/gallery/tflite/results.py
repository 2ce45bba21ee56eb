"""Delegates that keep results in buffers of their own, in other ways than the reference's variant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.reference.device_buffers import DeviceBuffers
from pytest_qnn.tflite.reference.dynamic import DynamicDelegate, DynamicOutputs, PropagatedDelegate
from pytest_qnn.tflite.reference.profiled import ProfiledDelegate
from tests.gallery.tflite.odd import note, oddity

BUFFERS = "common.h, TfLiteTensor.buffer_handle and data_is_stale: what a handle is, is the delegate's matter"
FLAGS = "common.h, TfLiteDelegateFlags"


@oddity(
    "two-buffers",
    "keeps two buffers for each result and uses them by turns",
    BUFFERS,
    "a result's handle changes from invoke to invoke",
)
class TwoBuffers(DeviceBuffers):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.spare: dict[int, int] = {}
        """By handle: the other one of the pair."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        handle = self.tensor(context, index).buffer_handle
        if handle in self.buffers:
            if handle not in self.spare:
                other = self.new_handle(context, index)
                self.spare[handle], self.spare[other] = other, handle
            other = self.spare[handle]
            self.buffers[other] = self.buffers[handle]
            self.tensor(context, index).buffer_handle = other
            note(self)
        super().write_output(context, index, value)

    def free_handle(self, handle: int) -> None:
        other = self.spare.pop(handle, None)
        if other is not None:
            self.spare.pop(other, None)
            super().free_handle(other)
        super().free_handle(handle)


@oddity(
    "on-demand",
    "copies its inputs in invoke, and computes when CopyFromBufferHandle asks for a result",
    BUFFERS,
    "invoke is quick, reading is slow",
)
class OnDemand(DeviceBuffers):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.pending: dict[int, Callable[[], Values]] = {}
        """By handle: how its buffer is computed."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        given = {index: self.read_input(context, index) for index in kernel.inputs}
        kept = {index: None if value is None else value.copy() for index, value in given.items()}
        values: dict[int, Values] = {}

        def result(index: int) -> Values:
            if not values:
                self._compute(kernel, kept, values)
                note(self)
            return values[index]

        for index in kernel.outputs:
            tensor = self.tensor(context, index)
            if tensor.buffer_handle not in self.pending and tensor.buffer_handle not in self.buffers:
                tensor.buffer_handle = self.new_handle(context, index)
            shape = peek.integers(tensor.dims)
            self.pending[tensor.buffer_handle] = lambda i=index, s=shape: np.array(result(i)).reshape(s)
            self.buffers.pop(tensor.buffer_handle, None)
            tensor.data_is_stale = True
        return layouts.OK

    def _compute(self, kernel: Kernel, given: dict[int, Values | None], values: dict[int, Values]) -> None:
        with np.errstate(all="ignore"):
            for node in kernel.steps:
                operands = [values[i] if i in values else given.get(i) for i in node.inputs]
                values[node.outputs[0]] = self.compute_node(kernel, node, operands)

    def _fetch(self, handle: int) -> None:
        compute = self.pending.pop(handle, None)
        if compute is not None:
            self.buffers[handle] = compute()

    def on_device(self, tensor: layouts.Tensor) -> Values:
        self._fetch(tensor.buffer_handle)
        return super().on_device(tensor)

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        self._fetch(handle)
        return super().copy_from(context, handle, tensor)

    def free_handle(self, handle: int) -> None:
        self.pending.pop(handle, None)
        super().free_handle(handle)


@oddity(
    "some-on-device",
    "keeps results of even index on the device, and writes the others to the runtime's memory",
    BUFFERS,
    "some outputs have a handle and others have none",
)
class SomeOnDevice(DeviceBuffers):
    def write_output(self, context: int, index: int, value: Values) -> None:
        if index % 2 == 0:
            super().write_output(context, index, value)
        else:
            note(self)
            ReferenceDelegate.write_output(self, context, index, value)


@oddity(
    "high-handles",
    "numbers its buffers from the greatest int downwards",
    BUFFERS,
    "strange numbers in buffer_handle",
)
class HighHandles(DeviceBuffers):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._next = (1 << 31) - 1

    def new_handle(self, context: int, index: int) -> int:
        self._next -= 1
        note(self)
        return self._next


@oddity(
    "all-dynamic",
    "marks every output as dynamic and allocates it in invoke",
    FLAGS + ": 'responsible for calling SetTensorToDynamic ... and ResizeTensor when invoking the op'",
    "outputs have no memory before the first invoke",
)
class AllDynamic(DynamicOutputs):
    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        note(self, len(kernel.outputs))
        return super().kernel_prepare(context, kernel)


@oddity(
    "all-flags",
    "sets three flags: dynamic tensors, propagated shapes, profiling with events of its own",
    FLAGS,
    "events of operators, none of the kernel",
)
class AllFlags(PropagatedDelegate, ProfiledDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._struct.flags = 7

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        note(self, bool(layouts.Context.from_address(context).profiler))
        return super().kernel_invoke(context, kernel)


@oddity(
    "operator-events",
    "reports its operators as OPERATOR_INVOKE_EVENT",
    "common.h, kTfLiteDelegateFlagsPerOperatorProfiling, which names this event",
    "its operators stand among the CPU's in a profile",
)
class OperatorEvents(ProfiledDelegate):
    EVENT = 2

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        note(self, bool(layouts.Context.from_address(context).profiler))
        return super().kernel_invoke(context, kernel)


@oddity(
    "propagated-alone",
    "sets kTfLiteDelegateFlagsRequirePropagatedShapes without kTfLiteDelegateFlagsAllowDynamicTensors",
    FLAGS + ": 'if that flag is false, this one is redundant'",
    "nothing",
)
class PropagatedAlone(ReferenceDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(flags=layouts.FLAG_REQUIRE_PROPAGATED_SHAPES, **options)

    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        note(self)
        return super().replace(context, nodes)


@oddity(
    "range-of-shapes",
    "allows dynamic tensors, but no more than four times the elements that a kernel was prepared for first",
    FLAGS + ": what a delegate allows is no promise for each size; facts RSZ-04: it may fail cleanly",
    "a kernel whose prepare fails after a resize",
)
class RangeOfShapes(DynamicDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.first: dict[int, dict[int, int]] = {}

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        tensors = [index for index in kernel.inputs if index >= 0]
        now = {index: int(np.prod(peek.integers(view.tensor(context, index).dims))) for index in tensors}
        first = self.first.setdefault(id(kernel), now)
        if any(now[index] > 4 * first[index] for index in now):
            note(self)
            self.explain(context, "an input has more elements than this kernel was made for")
            return layouts.ERROR
        return super().kernel_prepare(context, kernel)

    def free(self, kernel: Kernel) -> None:
        self.first.pop(id(kernel), None)
        super().free(kernel)


@oddity(
    "as-shapes-stand",
    "allows dynamic tensors, and leaves nodes whose result has another shape now than its operands give it",
    "seed 004, IsNodeSupportedByDelegate: what a delegate takes is its own choice; no document says which "
    "shape a tensor has that the runtime has not prepared yet",
    "it claims less when it is applied again after a resize, and others claim what it leaves",
)
class AsShapesStand(DynamicDelegate):
    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        if not super().supports(node, tensors, constants):
            return False
        operands = [tensors[index] for index in node.inputs if index >= 0]
        try:
            stands = self.shape_of(node, operands) == tensors[node.outputs[0]].shape
        except ValueError:  # operands that do not match
            stands = False
        note(self, not stands)
        return stands
