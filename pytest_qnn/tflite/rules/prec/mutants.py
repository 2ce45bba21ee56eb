"""Reference delegates with one fault each, for the rules of PREC."""

from __future__ import annotations

import ctypes
from typing import Any

from msgspec.structs import replace

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime
from pytest_qnn.tflite.reference.delegate import DTYPES, Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.reference.plan import PlanView, read_plan
from pytest_qnn.tflite.trace import DelegateTrace


@faulty_delegate(
    "starts-over", "Its second Prepare for an interpreter empties the kernels of the first.", "PREC-08"
)
class _StartsOver(ReferenceDelegate):
    """Each Prepare gives up the steps of the kernels that an earlier one has made."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._made: dict[int, list[Kernel]] = {}

    def prepare(self, context: int) -> int:
        for kernel in self._made.pop(context, []):
            kernel.outputs = ()
        return super().prepare(context)

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        self._made.setdefault(context, []).extend([kernel] if kernel else [])
        return kernel


@faulty_delegate("assumes-dense-nodes", "Takes node indices for positions in the plan.", "PREC-03")
class _AssumesDenseNodes(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            kernel.steps = tuple(self.plan.nodes[self.plan.plan[index]] for index in nodes)
        return kernel


@faulty_delegate("initialises-once", "Stays initialised when it is undone.", "PREC-07")
class _InitialisesOnce(ReferenceDelegate):
    """Claims nothing while it is initialised; only kernels that were invoked end that when they are freed."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._initialised = False

    def prepare(self, context: int) -> int:
        if self._initialised:
            return layouts.OK
        self._initialised = True
        return super().prepare(context)

    def free(self, kernel: Kernel) -> None:
        self._initialised = self._initialised and not kernel.invokes
        super().free(kernel)


@faulty_delegate("has-one-kernel", "Runs the kernel made last for a first node of this index.", "PREC-08")
class _HasOneKernel(ReferenceDelegate):
    """Knows its kernels by their first node's index, which those of two interpreters have in common."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._last: dict[int, tuple[Kernel, int]] = {}

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            self._last[nodes[0]] = kernel, layouts.Context.from_address(context).tensors_size
        return kernel

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        last, tensors = self._last[kernel.nodes[0]]
        # Of a larger graph its kernel would read behind the tensors, and end the process that judges it.
        fits = tensors == layouts.Context.from_address(context).tensors_size
        return super().kernel_invoke(context, last) if fits else layouts.ERROR


@faulty_delegate(
    "stops-at-foreign-kernels", "Looks at the plan up to the first foreign kernel only.", "PREC-04"
)
class _StopsAtForeignKernels(ReferenceDelegate):
    def read(self, context: int) -> PlanView:
        view = super().read(context)
        known = read_plan(context).nodes
        foreign = next((place for place, index in enumerate(view.plan) if index not in known), len(view.plan))
        return PlanView(view.plan[:foreign], view.nodes, view.tensors, view.constants)


class _KeepsTensors(ReferenceDelegate):
    """Keeps the address of the table of tensors from the init of each kernel, and never looks it up again."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._tables: dict[tuple[int, tuple[int, ...]], int] = {}
        """By context and nodes of a kernel."""
        self.table = 0
        """That of the kernel that is at work."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        self._tables[context, nodes] = layouts.Context.from_address(context).tensors or 0
        return super().init(context, nodes, inputs, outputs)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self.table = self._tables[context, kernel.nodes]
        return super().kernel_invoke(context, kernel)


@faulty_delegate(
    "keeps-tensor-table", "Reads its inputs by the table of tensors of init.", "PREC-09", deadly=True
)
class _KeepsTensorTable(_KeepsTensors):
    def read_input(self, context: int, index: int) -> Values | None:
        if index == layouts.OPTIONAL_TENSOR:
            return super().read_input(context, index)
        tensor = layouts.Tensor.from_address(self.table + index * _TENSOR_SIZE)
        return peek.array(tensor.data or 0, DTYPES[tensor.type], peek.integers(tensor.dims or 0))


@faulty_delegate(
    "keeps-output-tensors",
    "Writes its outputs to the TfLiteTensors that it was given in init.",
    "PREC-09",
    deadly=True,
)
class _KeepsOutputTensors(_KeepsTensors):
    def write_output(self, context: int, index: int, value: Values) -> None:  # noqa: ARG002 - that is the fault
        data = layouts.Tensor.from_address(self.table + index * _TENSOR_SIZE).data
        peek.array(data or 0, value.dtype, value.shape)[...] = value


_TENSOR_SIZE = ctypes.sizeof(layouts.Tensor)


@faulty_runtime("runtime-steals", "A later delegate's kernel takes a claimed node.", "PREC-01")
def _steals(trace: DelegateTrace) -> DelegateTrace:
    """The first kernel of each later application runs a node of the very first kernel too."""
    first = trace.kernels[:1]
    kernels = tuple(
        replace(k, nodes=k.nodes + f.nodes[:1]) if k.application > f.application else k
        for f in first
        for k in trace.kernels
    )
    return replace(trace, kernels=kernels)


@faulty_runtime("runtime-stays-delegated", "A failure undoes nothing.", "PREC-06", "ERR-03")
def _stays_delegated(trace: DelegateTrace) -> DelegateTrace:
    """The plan of the first delegate stands although a later one failed."""
    failed = any(not applied.ok for applied in trace.applied)
    return replace(trace, plan=trace.applied[0].plan_after) if failed else trace
