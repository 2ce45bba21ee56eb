"""Reference delegates with one fault each, for the rules of PART."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.personalities import Limited
from pytest_qnn.tflite.reference.plan import PlanView, has_node, read_plan
from pytest_qnn.tflite.reference.previewing import Preview
from pytest_qnn.tflite.reference.variables import VariableDelegate
from pytest_qnn.tflite.trace import DELEGATE, Applied, DelegateTrace, Event
from pytest_qnn.tflite.trace import Kernel as SeenKernel


@faulty_delegate("previews-positions", "Previews positions in the plan.", "PART-01")
class _PreviewsPositions(Preview):
    """Previews positions in the plan; claims the right nodes."""

    def __init__(self, *, claim: Any = None, **arguments: Any) -> None:
        super().__init__(claim=claim, **arguments)

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = ReferenceDelegate.choose(self, plan)
        self.preview(tuple(position for position, index in enumerate(plan.plan) if index in chosen))
        return chosen


@faulty_delegate("forgets-when-redone", "Leaves the last node out after a resize.", "PART-17")
class _ForgetsLastWhenRedone(ReferenceDelegate):
    """Its second Prepare, and each later one, leaves the last node to the CPU."""

    prepared = 0

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        self.prepared += 1
        chosen = super().choose(plan)
        return chosen if self.prepared == 1 else chosen[:-1]


@faulty_delegate("keeps-preview", "Keeps a preview for invokes.", "PART-20", deadly=True)
class _KeepsPreview(Preview):
    """Keeps the previewed TfLiteDelegateParams, and looks into them at each invoke."""

    def __init__(self, *, claim: Any = None, **arguments: Any) -> None:
        super().__init__(claim=claim, **arguments)
        self._kept: list[int] = []

    def preview(self, nodes: tuple[int, ...]) -> list[tuple[int, ...]]:
        array = peek.int_array(nodes)
        found, count = ctypes.c_void_p(), ctypes.c_int()
        call = layouts.PreviewPartitioning(
            layouts.Context.from_address(self._context).PreviewDelegatePartitioning
        )
        call(self._context, *(ctypes.addressof(part) for part in (array, found, count)))
        size = ctypes.sizeof(layouts.DelegateParams)
        first = found.value or 0
        self._kept = [peek.pointer(first + size * position + 8) for position in range(count.value)]
        return [peek.integers(address) for address in self._kept]

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        partitions = [peek.integers(address) for address in self._kept]
        if kernel.nodes not in partitions:
            return layouts.ERROR
        return super().kernel_invoke(context, kernel)


@faulty_delegate("keeps-first-plan", "Asks for the plan twice, uses the first.", "PART-21")
class _KeepsFirstPlan(ReferenceDelegate):
    """Asks for the plan twice, and goes through the first one."""

    def read(self, context: int) -> PlanView:
        answer = ctypes.c_void_p()
        call = layouts.GetExecutionPlan(layouts.Context.from_address(context).GetExecutionPlan)
        call(context, ctypes.addressof(answer))
        plan = read_plan(context, self.claim)
        # As many entries as there must be: the array is the runtime's again, and its length may be gone.
        entries = peek.array((answer.value or 0) + 4, np.int32, (len(plan.plan),)).tolist()
        first = tuple(index for index in entries if has_node(context, index))
        return PlanView(first, plan.nodes, plan.tensors, plan.constants)


@faulty_delegate("claims-positions", "Claims positions in the plan, not node indices.", "PART-01")
class _ClaimsPositions(ReferenceDelegate):
    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        return tuple(position for position, index in enumerate(plan.plan) if index in chosen)


@faulty_delegate("claims-kernels", "Claims everything, other delegates' kernels too.", "PART-02")
class _ClaimsForeignKernels(ReferenceDelegate):
    def choose(self, plan: PlanView) -> tuple[int, ...]:
        return plan.plan


@faulty_delegate("fails-reshape", "Claims RESHAPE and fails in kernel prepare.", "PART-04")
class _FailsReshape(ReferenceDelegate):
    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        if any(step.op == "RESHAPE" for step in kernel.steps):
            return layouts.ERROR
        return super().kernel_prepare(context, kernel)


@faulty_delegate("claims-twice", "Claims its nodes a second time in one Prepare.", "PART-01")
class _ClaimsTwice(ReferenceDelegate):
    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        return status or self.replace(context, self.choose(self.plan))


@faulty_delegate("repeats-output", "Gives all outputs the first one's values.", "PART-10")
class _RepeatsFirstOutput(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        first = self.read_input(context, kernel.outputs[0])
        for index in kernel.outputs[1:]:
            other = self.read_input(context, index)
            if first is not None and other is not None and other.size == first.size:
                self.write_output(context, index, first)
        return status


@faulty_delegate("writes-last-output", "Writes the last output only.", "PART-10", "PART-11")
class _WritesLastOutput(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        return super().init(context, nodes, inputs, outputs[-1:])


@faulty_delegate("skips-last-output", "Never writes the last of several outputs.", "PART-10")
class _SkipsLastOutput(ReferenceDelegate):
    """The last of a kernel's outputs stays as it was, unless a node of the kernel reads it too."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        read = {tensor for index in nodes for tensor in self.plan.nodes[index].inputs}
        skipped = len(outputs) > 1 and outputs[-1] not in read
        return super().init(context, nodes, inputs, outputs[:-1] if skipped else outputs)


@faulty_delegate("zero-is-absent", "Takes a result of number 0 for an absent one.", "PART-10")
class _ZeroIsAbsent(ReferenceDelegate):
    """A kernel's output that is tensor 0 of the model is never written."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        return super().init(context, nodes, inputs, tuple(index for index in outputs if index > 0))


@faulty_delegate("ascends-by-result", "Carries out nodes in the order of their results' numbers.", "PART-10")
class _AscendsByResult(ReferenceDelegate):
    """It takes a tensor's number for the time at which it is computed."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        ascending = sorted(nodes, key=lambda index: self.plan.nodes[index].outputs)
        return super().init(context, tuple(ascending), inputs, outputs)


@faulty_delegate(
    "cannot-divide", "Claims more than eight nodes at once, and fails in kernel prepare.", "PART-04"
)
class _CannotDivide(ReferenceDelegate):
    """A program has at most eight operators. A partition of more is not divided, and not left out."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        return layouts.ERROR if len(kernel.nodes) > 8 else super().kernel_prepare(context, kernel)


@faulty_delegate(
    "fails-at-tensor-zero", "Kernel prepare fails where a kernel's result is tensor 0.", "PART-04"
)
class _FailsAtTensorZero(ReferenceDelegate):
    """Its tables begin at 1: number 0 is for an operand that is absent, and a kernel must write something."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        return super().kernel_prepare(context, kernel) if all(kernel.outputs) else layouts.ERROR


@faulty_delegate(
    "context-for-each-kernel", "Takes one of 36 contexts for each kernel, and fails without one.", "PART-22"
)
class _ContextForEachKernel(ReferenceDelegate):
    """Claims whatever it supports, although the process has no more contexts than these."""

    _taken: ClassVar[set[int]] = set()

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        if len(self._taken) >= 36:
            return None
        kernel = super().init(context, nodes, inputs, outputs)
        self._taken.add(id(kernel))
        return kernel

    def free(self, kernel: Kernel) -> None:
        self._taken.discard(id(kernel))
        super().free(kernel)

    def close(self) -> None:
        self._taken.clear()
        super().close()


@faulty_delegate("counts-kernels-in-four-bits", "Its 17th kernel takes the place of the first.", "PART-22")
class _CountsKernelsInFourBits(ReferenceDelegate):
    """A kernel whose place another one has taken does nothing."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        self._made = getattr(self, "_made", -1) + 1
        self._places = {**getattr(self, "_places", {}), self._made % 16: kernel}
        return kernel

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        known = any(kernel is each for each in self._places.values())
        return super().kernel_invoke(context, kernel) if known else layouts.OK


@faulty_delegate(
    "writes-terminal-outputs", "Writes only outputs that none of its own nodes reads.", "PART-11"
)
class _WritesTerminalOutputs(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        read = {tensor for index in nodes for tensor in self.plan.nodes[index].inputs}
        terminal = tuple(tensor for tensor in outputs if tensor not in read)
        return super().init(context, nodes, inputs, terminal)


@faulty_delegate("splits-claim", "Calls Replace once for each node.", "PART-15")
class _ReplacesEachNode(ReferenceDelegate):
    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        return max((super(_ReplacesEachNode, self).replace(context, (index,)) for index in nodes), default=0)


@faulty_delegate("fails-on-nothing", "Reports an error when it supports no node.", "PART-16")
class _FailsOnNothing(ReferenceDelegate):
    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        return super().replace(context, nodes) if nodes else layouts.ERROR


@faulty_delegate("refuses-variables", "Prepare fails where a node reads a variable.", "PART-18")
class _RefusesVariables(VariableDelegate):
    """Knows the operator, and takes it for an error that it cannot compute it."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        if any(node.op == "READ_VARIABLE" for node in plan.nodes.values()):
            raise ValueError("READ_VARIABLE is not supported")
        return super().choose(plan)


@faulty_delegate("reads-at-init", "Reads variables when kernels are made.", "PART-18")
class _ReadsAtInit(VariableDelegate):
    """A variable is what it was when the kernel was made: nothing yet."""

    def recall(self, kernel: Kernel, node: Any, variable: tuple[int, str]) -> Values:
        return np.zeros_like(super().recall(kernel, node, variable))


@faulty_delegate("reads-first", "Reads variables before it assigns them.", "PART-18")
class _ReadsFirst(VariableDelegate):
    """Reads all variables before it assigns any."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self._before = dict(self.held)
        return super().kernel_invoke(context, kernel)

    def recall(self, kernel: Kernel, node: Any, variable: tuple[int, str]) -> Values:
        return self._before.get(variable, super().recall(kernel, node, variable))


@faulty_delegate("one-value-for-all", "Keeps one value for all variables.", "PART-18")
class _OneValueForAll(VariableDelegate):
    """What was assigned last is what every variable holds."""

    def read(self, context: int) -> PlanView:
        view = super().read(context)
        self.handles = dict.fromkeys(self.handles, "any")
        return view


@faulty_delegate("fails-late", "Claims SUB and fails in invoke.", "PART-04")
class _FailsLate(ReferenceDelegate):
    """Claims SUB, and finds at invoke that it cannot compute it."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if any(step.op == "SUB" for step in kernel.steps):
            return layouts.ERROR
        return super().kernel_invoke(context, kernel)


Values = npt.NDArray[Any]
_BINARY = ("ADD", "SUB", "MUL", "MAXIMUM")


@faulty_delegate("knows-two-dimensions", "Claims any rank, and goes over two dimensions.", "PART-03")
class _KnowsTwoDimensions(ReferenceDelegate):
    """Goes over the first two dimensions of a result, and leaves the others at their first index."""

    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        value = super().compute_node(kernel, node, operands)
        if value.ndim <= 2 or not value.size:
            return value
        known = value.reshape(*value.shape[:2], -1).copy()
        known[..., 1:] = 0
        return known.reshape(value.shape)


@faulty_delegate("knows-no-broadcast", "Claims operands of two shapes, and broadcasts none.", "PART-03")
class _KnowsNoBroadcast(ReferenceDelegate):
    """Reads the operands element by element, and zeros where one has come to its end."""

    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        if node.op in _BINARY:
            shape = kernel.tensors[node.outputs[0]].shape
            operands = [None if one is None else _lengthened(one, shape) for one in operands]
        return super().compute_node(kernel, node, operands)


def _lengthened(value: Values, shape: tuple[int, ...]) -> Values:
    flat = np.zeros(int(np.prod(shape)), value.dtype)
    flat[: value.size] = value.ravel()
    return flat.reshape(shape)


@faulty_delegate(
    "works-in-pairs", "Leaves out the last element of rows of odd length.", "NUM-02", "NUM-03", "NUM-10"
)
class _WorksInPairs(ReferenceDelegate):
    """Computes two elements at a time, and not the last one of a row of odd length."""

    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        value = super().compute_node(kernel, node, operands)
        if value.ndim and value.shape[-1] % 2:
            value = value.copy()
            value[..., -1] = 0
        return value


Operands = list[Values | None]


@faulty_delegate("ignores-dilation", "Claims dilated CONV_2D and leaves dilation out.", "PART-03")
class _IgnoresDilation(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if node.same_padding:
            node = msgspec.structs.replace(node, dilation=(1, 1))
        return super().compute_node(kernel, node, operands)


@faulty_delegate("takes-raw-integers", "Checks operators only: computes int8 without scales.", "NUM-03")
class _TakesRawIntegers(ReferenceDelegate):
    """As one that checks the operator and not the type of its operands."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        tensors = {index: _unscaled(kernel.tensors[index]) for index in (*node.inputs, *node.outputs)}
        seen = Kernel(kernel.nodes, kernel.inputs, kernel.outputs, kernel.steps, tensors)
        return super().compute_node(seen, node, operands)


def _unscaled(tensor: Tensor) -> Tensor:
    if tensor.dtype != "int8":
        return tensor
    return msgspec.structs.replace(tensor, scales=(1.0,), zero_points=(0,))


@faulty_delegate("one-partition-more", "Makes a kernel more than the option allows.", "PART-12")
class _OneMore(Limited):
    def largest(self, partitions: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        self.most += self.most > 0
        return super().largest(partitions)


@faulty_delegate("nought-partitions", "Takes a limit of 0 for no partition at all.", "PART-12")
class _ZeroIsNone(Limited):
    def __init__(self, *, options: Mapping[str, str] | None = None, **arguments: Any) -> None:
        super().__init__(options=options, **arguments)
        self.none = bool(options) and self.OPTIONS[0] in (options or {}) and self.most <= 0

    def largest(self, partitions: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [] if self.none else super().largest(partitions)


@faulty_delegate("compares-totals", "Compares the nodes of all partitions with the least of one.", "PART-13")
class _ComparesTotals(Limited):
    def largest(self, partitions: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return partitions if sum(map(len, partitions)) >= self.least else []


@faulty_delegate("takes-the-first", "Keeps the first partitions, not the largest.", "PART-14")
class _TakesTheFirst(Limited):
    def largest(self, partitions: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return partitions[: self.most] if self.most > 0 else super().largest(partitions)


@faulty_delegate("claims-in-turns", "Leaves the last node out every second time.", "PART-17")
class _ClaimsInTurns(ReferenceDelegate):
    """A counter that outlives the delegate decides on the last node."""

    prepared = 0

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        _ClaimsInTurns.prepared += 1
        chosen = super().choose(plan)
        return chosen if self.prepared % 2 else chosen[:-1]


Distort = Callable[[DelegateTrace], DelegateTrace]


def _kernels(change: Callable[[SeenKernel], SeenKernel]) -> Distort:
    def distort(trace: DelegateTrace) -> DelegateTrace:
        return replace(trace, kernels=tuple(map(change, trace.kernels)))

    return distort


def _applied(change: Callable[[Applied], Applied]) -> Distort:
    def distort(trace: DelegateTrace) -> DelegateTrace:
        return replace(trace, applied=tuple(map(change, trace.applied)))

    return distort


def _events(change: Callable[[tuple[Event, ...]], tuple[Event, ...]]) -> Distort:
    def distort(trace: DelegateTrace) -> DelegateTrace:
        return replace(trace, events=change(trace.events))

    return distort


@faulty_runtime("runtime-runs-twice", "A CPU node is in a kernel too.", "PART-05")
def _runs_twice(trace: DelegateTrace) -> DelegateTrace:
    """A kernel also runs a node that stayed with the CPU."""
    on_cpu = tuple(node.index for node in trace.plan if node.op != DELEGATE)[:1]
    return replace(trace, kernels=tuple(replace(k, nodes=k.nodes + on_cpu) for k in trace.kernels))


def _hides_kernels(applied: Applied) -> Applied:
    seen = tuple(replace(node, op=0) if node.op == DELEGATE else node for node in applied.plan_seen)
    return replace(applied, plan_seen=seen)


def _forgets_frees(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return tuple(event for event in events if event.kind != "free")


def _frees_twice(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return events + tuple(event for event in events if event.kind == "free")


def _initialises_late(events: tuple[Event, ...]) -> tuple[Event, ...]:
    late = tuple(event for event in events if event.kind == "init")
    return tuple(event for event in events if event.kind != "init") + late


faulty_runtime("runtime-loses-node", "The last node of each partition is carried out by nobody.", "PART-05")(
    _kernels(lambda k: replace(k, nodes=k.nodes[:-1]))
)
faulty_runtime("runtime-reverses-plan", "The plan runs backwards.", "PART-06")(
    _applied(lambda a: replace(a, plan_after=a.plan_after[::-1]))
)
faulty_runtime("runtime-drops-input", "A kernel's first input is not reported.", "PART-07")(
    _kernels(lambda k: replace(k, inputs=k.inputs[1:]))
)
faulty_runtime("runtime-drops-output", "A kernel's last output is not reported.", "PART-08")(
    _kernels(lambda k: replace(k, outputs=k.outputs[:-1]))
)
faulty_runtime("runtime-reverses-partition", "A kernel's nodes are in reverse.", "PART-09")(
    _kernels(lambda k: replace(k, nodes=k.nodes[::-1]))
)
faulty_runtime("runtime-hides-kernels", "A later delegate sees kernels as builtin operators.", "PREC-02")(
    _applied(_hides_kernels)
)
faulty_runtime("runtime-inits-late", "init comes after prepare.", "LIFE-01")(_events(_initialises_late))
faulty_runtime("runtime-never-frees", "free is never called.", "LIFE-04", "ERR-03")(_events(_forgets_frees))
faulty_runtime("runtime-frees-twice", "free is called twice.", "LIFE-04", "ERR-03")(_events(_frees_twice))
