"""Reference delegates with one fault each, for the rules of ERR."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import msgspec
import numpy as np
from msgspec.structs import replace

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime, faulty_runtime_of_scripts
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView, has_node, read_plan
from pytest_qnn.tflite.reference.previewing import Preview
from pytest_qnn.tflite.trace import DELEGATE, DelegateTrace, ScriptTrace, Spied

_EINVAL = 22
_CANCELLED = 8


@faulty_delegate("ignores-replace", "Ignores that Replace failed.", "ERR-01", deadly=True)
class _IgnoresReplace(ReferenceDelegate):
    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        super().replace(context, nodes)
        return layouts.OK


@faulty_delegate("ignores-plan", "Claims nodes by their numbers where the plan cannot be read.", "ERR-01")
class _IgnoresPlan(ReferenceDelegate):
    def read(self, context: int) -> PlanView:
        try:
            return super().read(context)
        except RuntimeError:
            numbers = itertools.takewhile(functools.partial(has_node, context), itertools.count())
            return read_plan(context, self.claim, custom=self.custom, plan=tuple(numbers))


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
            return layouts.OK
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
            if tensor.allocation_type != layouts.ALLOCATION_MMAP_RO and tensor.data:
                ctypes.memset(tensor.data, 0x5A, tensor.bytes)
        return status


@faulty_delegate("fails-silently", "Fails without a word.", "ERR-07")
class _Silent(ReferenceDelegate):
    def explain(self, context: int, text: str) -> None:
        pass


@faulty_delegate("returns-errno", "Returns an errno from invoke.", "ERR-08")
class _ReturnsErrno(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        return _EINVAL if super().kernel_invoke(context, kernel) else layouts.OK


@faulty_delegate("prepare-returns-errno", "Returns an errno from Prepare.", "ERR-08")
class _PrepareReturnsErrno(ReferenceDelegate):
    def prepare(self, context: int) -> int:
        try:
            return super().prepare(context)
        except RuntimeError as error:
            self.explain(context, str(error))
            return -_EINVAL


@faulty_delegate("calls-it-cancelled", "Calls a failure a cancellation.", "ERR-08")
class _CallsItCancelled(ReferenceDelegate):
    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        return _CANCELLED if super().kernel_prepare(context, kernel) else layouts.OK


_SHAPE_NOT_KNOWN = 9


@faulty_delegate("resumes-failed", "Takes kernels that ran in a failed invoke for done.", "ERR-05", "CANC-01")
class _ResumesFailed(ReferenceDelegate):
    """Kernels that ran in an invoke which did not come to its end are not run again in the next one."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._last: Kernel | None = None
        self._done: list[Kernel] = []

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        self._last = super().init(context, nodes, inputs, outputs)
        return self._last

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if kernel in self._done:
            self._done.remove(kernel)
            return layouts.OK
        status = super().kernel_invoke(context, kernel)
        self._done.append(kernel)
        if kernel is self._last and not status:
            self._done.clear()
        return status


@faulty_delegate("loses-all", "Its failure stops all other delegates of the library.", "ERR-06")
class _LosesAll(ReferenceDelegate):
    """After a failure no kernel of any delegate computes anything, until another delegate is prepared."""

    lost: ClassVar[bool] = False

    def prepare(self, context: int) -> int:
        _LosesAll.lost = False
        return super().prepare(context)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if self.lost:
            return layouts.OK
        status = super().kernel_invoke(context, kernel)
        _LosesAll.lost = status != layouts.OK
        return status


@faulty_delegate("spoils-constants", "Leaves constants unpacked when it fails.", "ERR-06")
class _SpoilsConstants(ReferenceDelegate):
    """Unpacks constants in place, and packs them again unless it fails."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        for index in kernel.inputs if status else ():
            tensor = view.tensor(context, index)
            if tensor.allocation_type == layouts.ALLOCATION_MMAP_RO and tensor.data:
                ctypes.memset(tensor.data, 0x5A, tensor.bytes)
        return status


@faulty_delegate("says-shape-not-known", "Fails with kTfLiteOutputShapeNotKnown.", "ERR-08")
class _SaysShapeNotKnown(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        return _SHAPE_NOT_KNOWN if super().kernel_invoke(context, kernel) else layouts.OK


@faulty_delegate("ignores-preview", "Claims although a preview failed.", "ERR-01")
class _IgnoresPreview(Preview):
    """Claims as ever where a preview has failed."""

    def __init__(self, *, claim: Any = None, **arguments: Any) -> None:
        super().__init__(claim=claim, **arguments)

    def preview(self, nodes: tuple[int, ...]) -> list[tuple[int, ...]]:
        try:
            return super().preview(nodes)
        except RuntimeError:
            return [nodes]


@faulty_delegate("counts-in-short", "Aborts where 16 bits do not count the elements.", "ERR-04", deadly=True)
class _CountsInShort(ReferenceDelegate):
    """Has scratch memory for as many elements as 16 bits count, and takes more for impossible."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if any(view.tensor(context, index).bytes // 4 > 0xFFFF for index in kernel.inputs if index >= 0):
            os.abort()
        return super().kernel_invoke(context, kernel)


@faulty_delegate(
    "counts-in-twenty-bits", "Aborts where 20 bits do not count the elements.", "ERR-04", deadly=True
)
class _CountsInTwentyBits(ReferenceDelegate):
    """Its descriptors have 20 bits for the number of elements, and it takes more for impossible."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        shapes = (peek.integers(view.tensor(context, index).dims) for index in kernel.inputs if index >= 0)
        if any(prod(shape) >> 20 for shape in shapes):
            os.abort()
        return super().kernel_invoke(context, kernel)


@faulty_delegate("exits-without-preview", "Ends the process where a preview fails.", "ERR-04", deadly=True)
class _ExitsWithoutPreview(Preview):
    def preview(self, nodes: tuple[int, ...]) -> list[tuple[int, ...]]:
        try:
            return super().preview(nodes)
        except RuntimeError:
            os._exit(1)


@faulty_delegate("swaps-operands", "Leaves the operands of SUB swapped in the graph.", "ERR-03", "LIFE-10")
class _SwapsOperands(ReferenceDelegate):
    """Rewrites the graph in Prepare and never puts it back."""

    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        found = (ctypes.c_void_p * 2)()
        at = ctypes.addressof(found)
        call = layouts.GetNodeAndRegistration(layouts.Context.from_address(context).GetNodeAndRegistration)
        for index, node in self.plan.nodes.items():
            if node.op == "SUB" and call(context, index, at, at + 8) == layouts.OK:
                inputs = peek.pointer(peek.pointer(at)) + ctypes.sizeof(ctypes.c_int)
                peek.array(inputs, np.int32, (2,))[:] = node.inputs[::-1]
        return status


Distort = Callable[[DelegateTrace], DelegateTrace]


def _spied(change: Callable[[Spied], Spied]) -> Distort:
    return lambda trace: replace(trace, spied=change(trace.spied))


def _previews_too_little(spied: Spied) -> Spied:
    return replace(spied, previews=tuple(replace(p, partitions=p.partitions[:-1]) for p in spied.previews))


def _previews_in_reverse(spied: Spied) -> Spied:
    previews = (
        replace(p, partitions=tuple((n[::-1], i, o) for n, i, o in p.partitions)) for p in spied.previews
    )
    return replace(spied, previews=tuple(previews))


def _redoes_in_reverse(spied: Spied) -> Spied:
    return replace(spied, order=spied.order[:2] + tuple(order[::-1] for order in spied.order[2:]))


@faulty_runtime("runtime-bars-others", "A failed delegate bars all others.", "ERR-09")
def _bars_others(trace: DelegateTrace) -> DelegateTrace:
    """A failed delegate bars every later one."""
    first, *later = trace.applied
    if first.ok or not later:
        return trace
    kernels = tuple(kernel for kernel in trace.kernels if not kernel.application)
    return replace(trace, kernels=kernels, applied=(first, *(replace(a, ok=False) for a in later)))


@faulty_runtime_of_scripts(
    "runtime-keeps-kernels", "Kernels stay in the plan when delegates are removed.", "ERR-10"
)
def _keeps_kernels(trace: ScriptTrace) -> ScriptTrace:
    """The plan keeps its kernels whatever is removed."""
    interpreters = tuple(
        replace(seen, plans=tuple((at, p) for at, p in seen.plans if any(n.op == DELEGATE for n in p)))
        for seen in trace.interpreters
    )
    return replace(trace, interpreters=interpreters)


faulty_runtime("runtime-previews-less", "A preview lacks the last partition.", "PART-19")(
    _spied(_previews_too_little)
)
faulty_runtime("runtime-previews-reversed", "A preview gives nodes in reverse.", "PART-19")(
    _spied(_previews_in_reverse)
)
faulty_runtime("runtime-redoes-reversed", "A redo applies delegates in reverse.", "PREC-05")(
    _spied(_redoes_in_reverse)
)
