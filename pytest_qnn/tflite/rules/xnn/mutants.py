"""Reference delegates with one fault each, for the rules of XNN."""

from __future__ import annotations

import ctypes

from msgspec.structs import replace

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime_of_scripts
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView, read_plan
from pytest_qnn.tflite.trace import DELEGATE, InterpreterSeen, PlanNode, ScriptTrace


@faulty_delegate("xnn-prepares-once", "Fails when a kernel is prepared again.", "XNN-01")
class _PreparesOnce(ReferenceDelegate):
    """Fails when a kernel is prepared again, as it is when another delegate comes."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type] # handed on as they are
        self.prepared: set[int] = set()

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        if id(kernel) in self.prepared:
            return layouts.ERROR
        self.prepared.add(id(kernel))
        return super().kernel_prepare(context, kernel)


@faulty_delegate("xnn-claims-kernels", "Claims XNNPACK's kernels.", "XNN-02")
class _ClaimsKernels(ReferenceDelegate):
    def prepare(self, context: int) -> int:
        self._kernels = {index for index in read_plan(context, ()).plan if _is_of_xnnpack(context, index)}
        return super().prepare(context)

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        own = self._kernels.union(super().choose(plan))
        return tuple(index for index in plan.plan if index in own)


def _is_of_xnnpack(context: int, index: int) -> bool:
    pair = (ctypes.c_void_p * 2)()
    at = ctypes.addressof(pair)
    get_node = layouts.GetNodeAndRegistration(layouts.Context.from_address(context).GetNodeAndRegistration)
    if get_node(context, index, at, at + 8):
        return False
    name = layouts.Registration.from_address(peek.pointer(at + 8)).custom_name
    return bool(name) and ctypes.string_at(name) == b"TfLiteXNNPackDelegate"


@faulty_delegate("xnn-fails-behind", "Fails on a graph of XNNPACK's kernels alone.", "XNN-02")
class _FailsBehindKernels(ReferenceDelegate):
    """Takes a graph of such kernels for one that it cannot work with; one of others it leaves alone."""

    def prepare(self, context: int) -> int:
        plan = read_plan(context, ()).plan
        is_left_nothing = bool(plan) and all(_is_of_xnnpack(context, index) for index in plan)
        status = super().prepare(context)
        return layouts.ERROR if is_left_nothing else status


@faulty_delegate("xnn-knows-kernels", "Works only with the kernels that it saw first.", "XNN-04", deadly=True)
class _KnowsOptimisedKernels(ReferenceDelegate):
    """Needs the kernels that it saw first: it reads what these keep with their nodes."""

    known: dict[tuple[int, int], int] = {}  # noqa: RUF012 - shared on purpose: it is the fault

    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        table = layouts.Context.from_address(context)
        get_node = layouts.GetNodeAndRegistration(table.GetNodeAndRegistration)
        pair = (ctypes.c_void_p * 2)()
        at = ctypes.addressof(pair)
        for index in self.plan.plan:
            if status or get_node(context, index, at, at + 8):
                return layouts.ERROR
            registration = layouts.Registration.from_address(peek.pointer(at + 8))
            invoke = registration.invoke or 0
            runtime = table.GetNodeAndRegistration  # a process may have two, with kernels of their own
            if self.known.setdefault((runtime, registration.builtin_code), invoke) != invoke:
                return layouts.ERROR
        return status


@faulty_runtime_of_scripts(
    "runtime-applies-xnnpack", "XNNPACK is applied to a graph without a node for it.", "XNN-03"
)
def _applies_xnnpack(trace: ScriptTrace) -> ScriptTrace:
    """Every plan gets a kernel that no delegate of the case owns, once tensors are allocated."""

    def changed(seen: InterpreterSeen) -> InterpreterSeen:
        plans = tuple(
            (number + 1, (*plan, PlanNode(99, DELEGATE, (), (), -1, "TfLiteXNNPackDelegate")))
            for number, plan in seen.plans[-1:]
        )
        return replace(seen, plans=seen.plans + plans)

    return replace(trace, interpreters=tuple(map(changed, trace.interpreters)))
