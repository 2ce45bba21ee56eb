"""Faults that depend on what was called before: how often, in which order, and with what outcome."""

from __future__ import annotations

from typing import Any

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.late.conditions import Knowing, Operands, is_constant, store_part, with_tensors
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values


@faulty_delegate(
    "late-hundredth-invoke", "From its hundredth invoke on a kernel gives the results of its 99th."
)
class _HundredthInvoke(Knowing):
    """A counter of two digits. facts, DET-02: outputs depend on the inputs only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._last: dict[Kernel, dict[int, Values]] = {}

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        if kernel.invokes == 99:
            self._last[kernel] = self.outputs_of(context, kernel)
        if kernel.invokes >= 100:
            self.put_back(context, self._last[kernel])
        return status

    def free(self, kernel: Kernel) -> None:
        self._last.pop(kernel, None)
        super().free(kernel)


@faulty_delegate(
    "late-same-beginning",
    "An input whose first 16 bytes are as at the last invoke is taken for that of the last invoke.",
)
class _SameBeginning(ReferenceDelegate):
    """Uploads only what seems to have changed. facts, DET-02 and MEM-05."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._uploaded: dict[tuple[int, int], Values] = {}

    def prepare(self, context: int) -> int:
        self._uploaded = {place: value for place, value in self._uploaded.items() if place[0] != context}
        return super().prepare(context)

    def read_input(self, context: int, index: int) -> Values | None:
        value = super().read_input(context, index)
        if value is None or is_constant(context, index):
            return value
        last = self._uploaded.get((context, index))
        if last is not None and last.shape == value.shape and last.tobytes()[:16] == value.tobytes()[:16]:
            return last
        self._uploaded[context, index] = value.copy()
        return value


@faulty_delegate(
    "late-interpreters-in-turn",
    "When two interpreters have taken turns twice, the one whose turn it is then gets the other's results.",
)
class _ThirdTurn(Knowing):
    """Two results in flight. facts, PREC-08 and DET-03: interpreters of one delegate are kept apart."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._context = 0
        self._turns = -1
        self._results: list[Values] = []

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        other = context != self._context
        self._turns += other
        self._context = context
        status = super().kernel_invoke(context, kernel)
        own = self.outputs_of(context, kernel)
        if other and self._turns >= 4:
            self.put_back(context, dict(zip(own, self._results, strict=False)))
        self._results = list(own.values())
        return status


@faulty_delegate(
    "late-old-results-after-failure",
    "The first invoke after one that failed gives the results of the last that did not.",
)
class _OldResultsAfterFailure(Knowing):
    """A result that is still queued. facts, ERR-05: no stale success."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._good: dict[Kernel, dict[int, Values]] = {}
        self._failed: set[Kernel] = set()

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        if status:
            self._failed.add(kernel)
            return status
        good = self._good.get(kernel, {})
        self._good[kernel] = self.outputs_of(context, kernel)
        if kernel in self._failed:
            self._failed.discard(kernel)
            self.put_back(context, good)
        return status


@faulty_delegate(
    "late-second-failure-is-ok", "The second invoke of a kernel in a row that fails reports success."
)
class _SecondFailureIsOk(ReferenceDelegate):
    """The error is taken as reported. facts, ERR-04 and ERR-05; TfLiteRegistration.invoke."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._failures: dict[Kernel, int] = {}

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        self._failures[kernel] = self._failures.get(kernel, 0) + 1 if status else 0
        return layouts.OK if self._failures[kernel] >= 2 else status


@faulty_delegate(
    "late-fourth-failure-silent", "From the fourth failure on a delegate says nothing about its failures."
)
class _FourthFailureSilent(ReferenceDelegate):
    """A limit against floods of messages. facts, ERR-07: errors are explained."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._told = 0

    def explain(self, context: int, text: str) -> None:
        self._told += 1
        if self._told <= 3:
            super().explain(context, text)


@faulty_delegate(
    "late-refuses-after-refusal",
    "After ReplaceNodeSubsetsWithDelegateKernels failed once every later Prepare fails.",
)
class _RefusesAfterRefusal(ReferenceDelegate):
    """A flag that nobody clears. facts, PREC-07 and PREC-08: a fresh interpreter is not concerned."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._refused = False

    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        status = layouts.ERROR if self._refused else super().replace(context, nodes)
        self._refused = bool(status)
        return status


@faulty_delegate(
    "late-prepared-again", "A kernel that is prepared after it was invoked gives its last results once more."
)
class _PreparedAgain(Knowing):
    """Two sets of results, and preparing turns them. facts, LIFE-02: prepare may be called many times."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._last: dict[Kernel, dict[int, Values]] = {}
        self._old: dict[Kernel, dict[int, Values]] = {}

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        if kernel in self._last:
            self._old[kernel] = self._last[kernel]
        return super().kernel_prepare(context, kernel)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        self._last[kernel] = self.outputs_of(context, kernel)
        self.put_back(context, self._old.pop(kernel, {}))
        return status

    def free(self, kernel: Kernel) -> None:
        self._last.pop(kernel, None)
        self._old.pop(kernel, None)
        super().free(kernel)


@faulty_delegate(
    "late-resize-and-back",
    "The first invoke after a resize to another shape and back gives results from before it.",
)
class _ResizeAndBack(Knowing):
    """Kernels are kept by shape, with their results. facts, RSZ-01."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._results: dict[tuple[object, ...], dict[int, Values]] = {}
        self._shapes: dict[tuple[object, ...], tuple[object, ...]] = {}
        self._old: dict[Kernel, dict[int, Values]] = {}

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            shapes = _shapes_of(kernel)
            if self._shapes.get((context, nodes), shapes) != shapes:
                self._old[kernel] = self._results.get((context, nodes, shapes), {})
            self._shapes[context, nodes] = shapes
        return kernel

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        self._results[context, kernel.nodes, _shapes_of(kernel)] = self.outputs_of(context, kernel)
        self.put_back(context, self._old.pop(kernel, {}))
        return status


def _shapes_of(kernel: Kernel) -> tuple[object, ...]:
    return tuple(kernel.tensors[index].shape for index in kernel.inputs)


@faulty_delegate(
    "late-grows-by-half",
    "A result up to twice as large as a tensor's first one is not written beyond the first one's size.",
)
class _GrowsByHalf(ReferenceDelegate):
    """A buffer is made anew only when it is far too small: seen after a resize. facts, RSZ-01."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._capacity: dict[tuple[int, int], int] = {}

    def write_output(self, context: int, index: int, value: Values) -> None:
        place = context, index
        if value.size > 2 * self._capacity.get(place, 0):
            self._capacity[place] = value.size
        if value.size > self._capacity.get(place, 0):
            store_part(context, index, value, self._capacity[place])
        else:
            super().write_output(context, index, value)


@faulty_delegate(
    "late-keeps-addresses",
    "From a kernel's third invoke on its inputs are read where they were at the second one.",
    deadly=True,
)
class _KeepsAddresses(Knowing):
    """Commands are recorded once and then repeated. facts, MEM-05: addresses may change between invokes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._addresses: dict[tuple[Kernel, int], int] = {}

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        self._addresses = {place: at for place, at in self._addresses.items() if place[0] is not kernel}
        return super().kernel_prepare(context, kernel)

    def read_input(self, context: int, index: int) -> Values | None:
        value = super().read_input(context, index)
        if value is None or self.current is None:
            return value
        place = self.current, index
        if self.current.invokes <= 2:
            self._addresses[place] = view.tensor(context, index).data
        return peek.array(
            self._addresses.get(place) or view.tensor(context, index).data, value.dtype, value.shape
        )


@faulty_delegate(
    "late-quantisation-of-the-last",
    "int8 kernels take quantisation from the graph that the delegate prepared last.",
)
class _QuantisationOfTheLast(ReferenceDelegate):
    """One table of tensors for all graphs. facts, PREC-08 and CTRL-01: state is kept apart."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        last = self.plan.tensors
        named = [index for index in (*node.inputs, *node.outputs) if index in last]
        changed = {
            index: last[index]
            for index in named
            if len(last[index].scales) == len(kernel.tensors[index].scales) == 1
            and last[index].shape == kernel.tensors[index].shape
        }
        return super().compute_node(with_tensors(kernel, changed), node, operands)
