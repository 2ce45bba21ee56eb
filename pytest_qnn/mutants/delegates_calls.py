"""Reference delegates that deal wrongly with what the runtime lends, refuses or forbids."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import msgspec
import numpy as np

from pytest_qnn.abi import peek, tflite, view
from pytest_qnn.isolation import libc
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.reference.delegate_personalities import Preview
from pytest_qnn.reference.plan import PlanView, has_node, read_plan

_EINVAL = 22
_CANCELLED = 8


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
            call = tflite.GetExecutionPlan(tflite.Context.from_address(context).GetExecutionPlan)
            call(context, ctypes.addressof(ctypes.c_void_p()))
        kernel.prepared = True  # type: ignore[attr-defined] # the mutant's own memory
        return super().kernel_prepare(context, kernel)


@faulty_delegate("keeps-nodes", "Keeps TfLiteNode* from Prepare for invokes.", "LIFE-07")
class _KeepsNodes(ReferenceDelegate):
    """Keeps TfLiteNode* from Prepare, and reads operands from there at each invoke."""

    def read(self, context: int) -> PlanView:
        plan = super().read(context)
        get_node = tflite.GetNodeAndRegistration(tflite.Context.from_address(context).GetNodeAndRegistration)
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


@faulty_delegate("keeps-preview", "Keeps a preview for invokes.", "PART-20")
class _KeepsPreview(Preview):
    """Keeps the previewed TfLiteDelegateParams, and looks into them at each invoke."""

    def __init__(self, *, claim: Any = None, **arguments: Any) -> None:
        super().__init__(claim=claim, **arguments)
        self._kept: list[int] = []

    def preview(self, nodes: tuple[int, ...]) -> list[tuple[int, ...]]:
        array = peek.int_array(nodes)
        found, count = ctypes.c_void_p(), ctypes.c_int()
        call = tflite.PreviewPartitioning(
            tflite.Context.from_address(self._context).PreviewDelegatePartitioning
        )
        call(self._context, *(ctypes.addressof(part) for part in (array, found, count)))
        size = ctypes.sizeof(tflite.DelegateParams)
        first = found.value or 0
        self._kept = [peek.pointer(first + size * position + 8) for position in range(count.value)]
        return [peek.integers(address) for address in self._kept]

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        partitions = [peek.integers(address) for address in self._kept]
        if kernel.nodes not in partitions:
            return tflite.ERROR
        return super().kernel_invoke(context, kernel)


@faulty_delegate("keeps-first-plan", "Asks for the plan twice, uses the first.", "PART-21")
class _KeepsFirstPlan(ReferenceDelegate):
    """Asks for the plan twice, and goes through the first one."""

    def read(self, context: int) -> PlanView:
        answer = ctypes.c_void_p()
        call = tflite.GetExecutionPlan(tflite.Context.from_address(context).GetExecutionPlan)
        call(context, ctypes.addressof(answer))
        plan = read_plan(context, self.claim)
        # As many entries as there must be: the array is the runtime's again, and its length may be gone.
        entries = peek.array((answer.value or 0) + 4, np.int32, (len(plan.plan),)).tolist()
        first = tuple(index for index in entries if has_node(context, index))
        return PlanView(first, plan.nodes, plan.tensors, plan.constants)


@faulty_delegate("ignores-replace", "Ignores that Replace failed.", "ERR-01")
class _IgnoresReplace(ReferenceDelegate):
    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        super().replace(context, nodes)
        return tflite.OK


@faulty_delegate("ignores-plan", "Succeeds where the plan cannot be read.", "ERR-01")
class _IgnoresPlan(ReferenceDelegate):
    def prepare(self, context: int) -> int:
        try:
            return super().prepare(context)
        except RuntimeError:
            return tflite.OK


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


@faulty_delegate("claims-unread", "Claims a node that it could not read.", "ERR-02")
class _ClaimsUnread(ReferenceDelegate):
    """Claims a node that it could not read too, as if it had the operator of the one before it."""

    def read(self, context: int) -> PlanView:
        self._context = context
        try:
            return super().read(context)
        except RuntimeError:
            plan = super().read(context)
            last = max(plan.nodes, default=None)
            if last is not None:
                plan.nodes[last] = msgspec.structs.replace(plan.nodes[last], op="NEG", activation="NONE")
            return plan


@faulty_delegate("aborts-on-nan", "Aborts on a NaN or an infinity.", "ERR-04", deadly=True)
class _Aborts(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        for index in kernel.inputs:
            values = self.read_input(context, index)
            if values is not None and values.dtype == np.float32 and not np.isfinite(values).all():
                os.abort()
        return super().kernel_invoke(context, kernel)


@faulty_delegate("stays-lost", "Reports success with old data after an error.", "ERR-05")
class _StaysLost(ReferenceDelegate):
    """After an error, reports success and leaves the outputs alone."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if hasattr(kernel, "lost"):
            return tflite.OK
        status = super().kernel_invoke(context, kernel)
        if status:
            kernel.lost = True  # type: ignore[attr-defined] # the mutant's own memory
        return status


@faulty_delegate("wipes-inputs", "Clears its inputs when it fails.", "ERR-06")
class _WipesInputs(ReferenceDelegate):
    """Clears its inputs when it fails."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        for index in kernel.inputs if status else ():
            tensor = view.tensor(context, index)
            if tensor.allocation_type != tflite.ALLOCATION_MMAP_RO and tensor.data:
                ctypes.memset(tensor.data, 0x5A, tensor.bytes)
        return status


@faulty_delegate("fails-silently", "Fails without a word.", "ERR-07")
class _Silent(ReferenceDelegate):
    def explain(self, context: int, text: str) -> None:
        pass


@faulty_delegate("returns-errno", "Returns an errno from invoke.", "ERR-08")
class _ReturnsErrno(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        return _EINVAL if super().kernel_invoke(context, kernel) else tflite.OK


@faulty_delegate("calls-it-cancelled", "Calls a failure a cancellation.", "ERR-08")
class _CallsItCancelled(ReferenceDelegate):
    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        return _CANCELLED if super().kernel_prepare(context, kernel) else tflite.OK


@faulty_delegate("nameless", "Its kernels have no name.", "LIFE-13")
class _Nameless(ReferenceDelegate):
    def registration(self, nodes: tuple[int, ...]) -> tflite.Registration:
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
    """The name lives in memory that Prepare gives back."""

    def prepare(self, context: int) -> int:
        self._name_at = libc.malloc(32)
        ctypes.memmove(self._name_at, b"reference\0", 10)
        status = super().prepare(context)
        ctypes.memmove(self._name_at, b"something else\0", 15)  # who gets the memory next writes to it
        return status

    def registration(self, nodes: tuple[int, ...]) -> tflite.Registration:
        registration = super().registration(nodes)
        registration.custom_name = self._name_at
        return registration
