"""Reference delegates with one fault each, for the rules of LIFE."""

from __future__ import annotations

import ctypes
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.libc import die_at_exit
from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.reference.plan import PlanView, has_node
from pytest_qnn.tflite.trace import DelegateTrace


@faulty_delegate("appends-when-redone", "Appends a partition's operators again at every Prepare.", "LIFE-02")
class _AppendsWhenRedone(ReferenceDelegate):
    """Keeps a list of each partition's operators, to which every Prepare adds."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._steps: dict[tuple[int, ...], tuple[Any, ...]] = {}

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            known = self._steps.get(nodes, ())
            again = (
                msgspec.structs.replace(step, inputs=(step.outputs[0], *step.inputs[1:]))
                for step in kernel.steps
            )
            kernel.steps = self._steps[nodes] = (*known, *again) if known else kernel.steps
        return kernel


@faulty_delegate("asks-at-invoke", "Looks a node up at invoke.", "LIFE-06")
class _AsksAtInvoke(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        has_node(context, kernel.nodes[0])
        return super().kernel_invoke(context, kernel)


@faulty_delegate("asks-again", "Asks for the plan when prepared again.", "LIFE-06")
class _AsksAgain(ReferenceDelegate):
    """Reads the plan from the second prepare on."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        if hasattr(kernel, "prepared"):
            call = layouts.GetExecutionPlan(layouts.Context.from_address(context).GetExecutionPlan)
            call(context, ctypes.addressof(ctypes.c_void_p()))
        kernel.prepared = True  # type: ignore[attr-defined] # the mutant's own memory
        return super().kernel_prepare(context, kernel)


@faulty_delegate("keeps-nodes", "Keeps TfLiteNode* from Prepare for invokes.", "LIFE-07")
class _KeepsNodes(ReferenceDelegate):
    """Keeps TfLiteNode* from Prepare, and reads operands from there at each invoke."""

    def read(self, context: int) -> PlanView:
        plan = super().read(context)
        get_node = layouts.GetNodeAndRegistration(
            layouts.Context.from_address(context).GetNodeAndRegistration
        )
        found = (ctypes.c_void_p * 2)()
        first = ctypes.addressof(found)
        self._nodes: dict[int, int] = {}
        for index in plan.nodes:
            get_node(context, index, first, first + 8)
            self._nodes[index] = peek.pointer(first)
        return plan

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        kernel.steps = tuple(
            msgspec.structs.replace(step, inputs=peek.integers(peek.pointer(self._nodes[index])))
            for index, step in zip(kernel.nodes, kernel.steps, strict=True)
        )
        return super().kernel_invoke(context, kernel)


@faulty_delegate(
    "runs-without-init", "Makes a kernel that does nothing where init fails.", "LIFE-08", "ERR-02"
)
class _RunsWithoutInit(ReferenceDelegate):
    """An init that fails leaves a kernel that does nothing."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        return kernel or Kernel(nodes, inputs, (), (), {})


@faulty_delegate("nameless", "Its kernels have no name.", "LIFE-13")
class _Nameless(ReferenceDelegate):
    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        registration = super().registration(nodes)
        registration.custom_name = None
        return registration


_named = 0


@faulty_delegate("numbers-its-name", "Its kernels' name counts delegates.", "LIFE-13")
class _NumbersItsName(ReferenceDelegate):
    """The name counts delegates."""

    def __init__(self, **arguments: Any) -> None:
        global _named  # noqa: PLW0603 - a fault as libraries have it
        _named += 1
        super().__init__(name=f"reference {_named}", **arguments)


@faulty_delegate("frees-its-name", "Its kernels' name dies with Prepare.", "LIFE-12")
class _FreesItsName(ReferenceDelegate):
    """The name lives in memory that Prepare gives back, and that who gets it next writes to."""

    _name_at = libc.malloc(32)

    def prepare(self, context: int) -> int:
        ctypes.memmove(self._name_at, b"reference\0", 10)
        status = super().prepare(context)
        ctypes.memmove(self._name_at, b"something else\0", 15)
        return status

    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        registration = super().registration(nodes)
        registration.custom_name = self._name_at
        return registration


_ARENA = (2, 3)
"""kTfLiteArenaRw, kTfLiteArenaRwPersistent."""
_LEAK = 1000


@faulty_delegate("leaks-at-prepare", "Never frees what prepare acquires.", "LIFE-05")
class _LeaksAtPrepare(ReferenceDelegate):
    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        libc.malloc(_LEAK)
        return super().kernel_prepare(context, kernel)


@faulty_delegate(
    "leaks-at-invoke", "A kernel of several nodes never frees what its second invoke acquires.", "LIFE-05"
)
class _LeaksAtInvoke(ReferenceDelegate):
    """Only kernels of more than one node, and at their second invoke."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        if len(kernel.nodes) > 1 and kernel.invokes == 2:
            libc.malloc(_LEAK)
        return status


@faulty_delegate("leaks-at-init", "Never frees what init acquires.", "LIFE-05")
class _LeaksAtInit(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        libc.malloc(_LEAK)
        return super().init(context, nodes, inputs, outputs)


@faulty_delegate("folds-data", "Takes data at the time of prepare for constant.", "LIFE-09")
class _FoldsData(ReferenceDelegate):
    """Takes an operand that has data at the time of prepare for a constant."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        folded: dict[int, Values] = {}
        for index in kernel.inputs[:1]:
            if view.tensor(context, index).data:
                values = self.read_input(context, index)
                folded[index] = np.array(values)
        kernel.folded = folded  # type: ignore[attr-defined] # the mutant's own memory
        self._folded = folded
        return super().kernel_prepare(context, kernel)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self._folded = getattr(kernel, "folded", {})
        return super().kernel_invoke(context, kernel)

    def read_input(self, context: int, index: int) -> Values | None:
        folded: dict[int, Values] = getattr(self, "_folded", {})
        return folded[index] if index in folded else super().read_input(context, index)


@faulty_delegate("clears-outputs", "Clears its outputs in prepare.", "LIFE-09")
class _ClearsOutputs(ReferenceDelegate):
    """Clears its outputs in prepare, if they have memory."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        for index in kernel.outputs:
            tensor = view.tensor(context, index)
            if tensor.data and tensor.allocation_type in _ARENA:
                ctypes.memset(tensor.data, 0, tensor.bytes)
        return super().kernel_prepare(context, kernel)


@faulty_delegate("packs-weights", "Rearranges constants in place in Prepare.", "LIFE-10")
class _PacksWeights(ReferenceDelegate):
    """Rearranges constants where they are."""

    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        for index in sorted(self.plan.constants):
            tensor = view.tensor(context, index)
            if tensor.data and tensor.bytes:
                peek.array(tensor.data, np.uint8, (tensor.bytes,))[0] ^= 0x01
        return status


@faulty_delegate("flattens-results", "Changes dimensions in Prepare.", "LIFE-10")
class _FlattensResults(ReferenceDelegate):
    """Turns the dimensions of a result round."""

    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        for node in self.plan.nodes.values():
            dims = view.tensor(context, node.outputs[0]).dims
            shape = peek.integers(dims)
            if shape[::-1] != shape:
                peek.array(dims + ctypes.sizeof(ctypes.c_int), np.int32, (len(shape),))[:] = shape[::-1]
                break
        return status


@faulty_delegate("adds-tensors", "Adds a tensor at each prepare.", "LIFE-11")
class _AddsTensors(ReferenceDelegate):
    """Adds a tensor of its own at each prepare."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        first = ctypes.c_int()
        add = layouts.AddTensors(layouts.Context.from_address(context).AddTensors)
        add(context, 1, ctypes.addressof(first))
        return super().kernel_prepare(context, kernel)


@faulty_delegate("appends-steps", "Appends its operators again at every prepare.", "LIFE-02")
class _AppendsSteps(ReferenceDelegate):
    """The copy of a step works on the step's own result."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        first = not hasattr(kernel, "own")
        if first:
            kernel.own = kernel.steps  # type: ignore[attr-defined] # the mutant's own memory
        else:
            again = (
                msgspec.structs.replace(step, inputs=(step.outputs[0], *step.inputs[1:]))
                for step in kernel.own  # type: ignore[attr-defined] # as above
            )
            kernel.steps += tuple(again)
        return super().kernel_prepare(context, kernel)


@faulty_runtime("runtime-never-prepares", "Kernels are invoked unprepared.", "LIFE-03")
def _never_prepares(trace: DelegateTrace) -> DelegateTrace:
    return replace(trace, events=tuple(e for e in trace.events if e.kind != "prepare"))


@faulty_delegate("breaks-the-end", "A process in which a kernel ran dies of its end.", "LIFE-14", deadly=True)
class _CorruptsItsHeap(ReferenceDelegate):
    """What its kernels broke is noticed when the process ends, with or without them."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if not kernel.invokes:
            die_at_exit(lambda: True)
        return super().kernel_invoke(context, kernel)


@faulty_delegate("exit-with-kernels", "A process that ends with a kernel alive dies.", "LIFE-14", deadly=True)
class _NeedsNoKernels(ReferenceDelegate):
    """Kernels that are alive at the end refer to a device that is gone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.alive = 0
        die_at_exit(lambda: bool(self.alive))

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        self.alive += kernel is not None
        return kernel

    def free(self, kernel: Kernel) -> None:
        self.alive -= 1
        super().free(kernel)
