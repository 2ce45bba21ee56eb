"""The reference delegate: a TfLiteDelegate made of Python callbacks that computes with numpy.

It works on both runtimes and on any model, through the public C interface only: it claims what it is told
to (or all that it supports) and leaves the rest to the CPU. Every step is a small method, so that a mutant
is a subclass that overrides one of them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pytest_qnn.isolation.host.checked_heap import OwnHeap
from pytest_qnn.isolation.host.requests import Requests
from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.cases.delegate import Fault
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.numerics.kernels import compute
from pytest_qnn.tflite.reference.operators import supports
from pytest_qnn.tflite.reference.plan import PlanView, count_nodes, has_node, read_plan

_delegates: Final[dict[int, ReferenceDelegate]] = {}
_kernels: Final[dict[int, tuple[ReferenceDelegate, Kernel]]] = {}
_numbers: Final = itertools.count(1)

_USER_DATA: Final = layouts.Node.user_data.offset


class NoMemory(Exception):  # noqa: N818 - what the system answers, as a sentence
    """The system has refused a request."""

    def __init__(self) -> None:
        super().__init__("there is no memory")


REQUESTS: Final = Requests(NoMemory)
HEAP: Final = OwnHeap()
"""What all reference delegates of this process ask for, as one library does."""


def _make_reachable(delegate: ReferenceDelegate) -> None:
    """Let callbacks reach the delegate."""
    _delegates[delegate.address] = delegate


def _forget(delegate: ReferenceDelegate) -> None:
    """Forget the delegate, and the kernels of it that the runtime never freed."""
    if _delegates.get(delegate.address) is not delegate:
        return
    del _delegates[delegate.address]
    for number in [number for number, (owner, _) in _kernels.items() if owner is delegate]:
        del _kernels[number]


def delegate_at(address: int) -> ReferenceDelegate | None:
    """The delegate whose TfLiteDelegate is at this address; None: it is closed, or none of ours."""
    return _delegates.get(address)


def _told(delegate: ReferenceDelegate, context: int, status: int, what: str) -> int:
    """The status; of one that is no success the message is reported to the runtime."""
    if status:
        delegate.explain(context, f"reference delegate: {what} failed")
    return status


def _raised(delegate: ReferenceDelegate, context: int, what: str, error: BaseException) -> int:
    """The status of a callback that ended in an exception; the message is reported to the runtime."""
    delegate.keep(error)
    delegate.explain(context, f"reference delegate: {what} failed: {error}")
    return layouts.ERROR


def _prepare(context: int, address: int) -> int:
    delegate = _delegates.get(address)
    if delegate is None:
        return layouts.ERROR
    try:
        return _told(delegate, context, delegate.prepare(context), "Prepare")
    except BaseException as error:
        return _raised(delegate, context, "Prepare", error)


def _init(context: int, params: int, _length: int) -> int:
    address, nodes, inputs, outputs = view.params(params)
    delegate = _delegates.get(address)
    if delegate is None:
        return layouts.KERNEL_INIT_FAILED
    try:
        kernel = delegate.init(context, nodes, inputs, outputs)
    except BaseException as error:
        delegate.keep(error)
        kernel = None
    if kernel is None:
        delegate.explain(context, "reference delegate: init of a kernel failed")
        return layouts.KERNEL_INIT_FAILED
    number = next(_numbers)
    _kernels[number] = delegate, kernel
    return number


def _kernel_prepare(context: int, node: int) -> int:
    found = _kernels.get(peek.pointer(node + _USER_DATA))
    if found is None:
        return layouts.ERROR  # init failed, on a runtime that does not know KERNEL_INIT_FAILED
    delegate, kernel = found
    try:
        return _told(delegate, context, delegate.kernel_prepare(context, kernel), "prepare of a kernel")
    except BaseException as error:
        return _raised(delegate, context, "prepare of a kernel", error)


def _kernel_invoke(context: int, node: int) -> int:
    found = _kernels.get(peek.pointer(node + _USER_DATA))
    if found is None:
        return layouts.ERROR
    delegate, kernel = found
    try:
        return _told(delegate, context, delegate.kernel_invoke(context, kernel), "invoke of a kernel")
    except BaseException as error:
        return _raised(delegate, context, "invoke of a kernel", error)


def _free(_context: int, user_data: int | None) -> None:
    found = _kernels.pop(user_data or 0, None)
    if found is None:
        return
    delegate, kernel = found
    try:
        delegate.free(kernel)
    except BaseException as error:
        delegate.keep(error)


_keep: Final = (
    layouts.DelegatePrepare(_prepare),
    layouts.KernelInit(_init),
    layouts.KernelFree(_free),
    layouts.KernelCall(_kernel_prepare),
    layouts.KernelCall(_kernel_invoke),
)
PREPARE, INIT, FREE, KERNEL_PREPARE, KERNEL_INVOKE = (
    ctypes.cast(callback, ctypes.c_void_p).value for callback in _keep
)

Values = npt.NDArray[Any]

DTYPES = {layouts.TYPE_FLOAT32: "float32", layouts.TYPE_INT32: "int32", layouts.TYPE_INT8: "int8"}


@dataclasses.dataclass(eq=False)
class Kernel:
    """One partition: what init keeps for the invokes to come."""

    nodes: tuple[int, ...]
    """TfLiteDelegateParams.nodes_to_replace: an order in which they can be computed."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[Node, ...]
    """The operators of ``nodes``, in their order."""
    tensors: Mapping[int, Tensor]
    """Shape, type and quantisation of every tensor that the steps name."""
    invokes: int = 0
    """How often it was invoked."""

    @property
    def result_bytes(self) -> int:
        """Of its first result."""
        tensor = self.tensors[self.outputs[0]] if self.outputs else None
        return 0 if tensor is None else prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


class ReferenceDelegate:
    """One TfLiteDelegate. Keep it until every interpreter it was applied to is gone, then close it.

    Args:
        claim: original node indices to claim, as far as they are still in the plan and supported; None:
            everything that is supported.
        name: the custom_name of its kernels.
        fault: the callback that reports failure; ``prepare`` does so after it has claimed its nodes.
        flags: TfLiteDelegateFlags.
    """

    custom = False
    """It knows the custom operators of the suite's own."""
    requests = REQUESTS
    """A probe has its own, of which none is refused."""
    heap = HEAP

    def __init__(
        self,
        *,
        claim: Sequence[int] | None = None,
        name: str = "reference",
        fault: Fault = "",
        flags: int = 0,
    ) -> None:
        self.ask("memory")
        self.claim = None if claim is None else frozenset(claim)
        self.fault = fault
        self.errors: list[BaseException] = []
        """What was raised inside a callback; C has seen an error status instead."""
        self.plan = PlanView((), {}, {}, set())
        """The plan as last read by prepare."""
        encoded = name.encode()
        self._name = peek.array_type(ctypes.c_char, len(encoded) + 1)(*encoded)
        self._struct = layouts.Delegate(Prepare=PREPARE, flags=flags)
        self.address = ctypes.addressof(self._struct)
        _make_reachable(self)

    def close(self) -> None:
        """Forget the delegate; C must not call it any more. May be called twice."""
        _forget(self)

    def keep(self, error: BaseException) -> None:
        """Remember what was raised inside a callback, unless the system had no memory."""
        if not isinstance(error, NoMemory):
            self.errors.append(error.with_traceback(None))

    def ask(self, wanted: str) -> None:
        """Ask the system for something, as a library does that allocates.

        Raises:
            NoMemory: it is refused.
        """
        self.requests.ask(wanted)

    # What the delegate does with a graph.

    def prepare(self, context: int) -> int:
        """Choose nodes and claim them; the status for ModifyGraphWithDelegate."""
        self.ask("memory")
        self.plan = self.read(context)
        for subgraph in self.plan.called:
            self.look_into(context, subgraph)
        chosen = self.choose(self.plan)
        self.ask("memory")
        status = self.replace(context, chosen)
        return status or (layouts.ERROR if self.fault == "prepare" else layouts.OK)

    def read(self, context: int) -> PlanView:
        """The plan and the nodes that may be claimed."""
        return read_plan(context, self.claim, custom=self.custom)

    def look_into(self, context: int, subgraph: int) -> int:
        """How large a subgraph is that a node of this one calls: a call as such is left to the runtime."""
        return count_nodes(context, subgraph)

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        """Indices of the nodes to claim, in the order of the plan."""
        return tuple(
            index
            for index in plan.plan
            if index in plan.nodes and self.supports(plan.nodes[index], plan.tensors, plan.constants)
        )

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        """Whether this delegate computes the node."""
        return supports(node, tensors, constants)

    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        """Call ReplaceNodeSubsetsWithDelegateKernels; its status."""
        table = layouts.Context.from_address(context)
        call = layouts.ReplaceNodeSubsets(table.ReplaceNodeSubsetsWithDelegateKernels)
        array = peek.int_array(nodes)
        status: int = call(context, self.registration(nodes), ctypes.addressof(array), self.address)
        return status

    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:  # noqa: ARG002 - for overriding steps
        """What its kernels are made from."""
        return layouts.Registration(
            init=INIT,
            free=FREE,
            prepare=KERNEL_PREPARE,
            invoke=KERNEL_INVOKE,
            custom_name=ctypes.addressof(self._name),
            version=1,
        )

    def explain(self, context: int, text: str) -> None:
        """Tell the runtime, in words, why a callback fails: the application's exception says it."""
        report = layouts.Context.from_address(context).ReportError
        layouts.ReportError(report)(context, b"%s", text.encode(errors="replace"))

    # What a kernel does.

    def init(
        self,
        context: int,
        nodes: tuple[int, ...],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
    ) -> Kernel | None:
        """Make the kernel of one partition; None reports failure."""
        self.ask("memory")
        if self.fault == "init" or not has_node(context, nodes[0]):
            return None
        steps = tuple(self.plan.nodes[index] for index in nodes)
        return Kernel(nodes, inputs, outputs, steps, self.plan.tensors)

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:  # noqa: ARG002 - for overriding steps
        """Get ready for invokes; may be called many times."""
        self.ask("memory")
        return layouts.ERROR if self.fault == "kernel-prepare" else layouts.OK

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        """Compute the partition. Tensors inside it have no memory: their values are kept here."""
        self.ask("memory")
        kernel.invokes += 1
        if self.heap.is_checked:
            self.use_heap(kernel)
        if self.is_to_fail(kernel):
            return layouts.ERROR
        values: dict[int, Values] = {}
        with np.errstate(all="ignore"):
            for node in kernel.steps:
                operands = [
                    values[index] if index in values else self.read_input(context, index)
                    for index in node.inputs
                ]
                values[node.outputs[0]] = self.compute_node(kernel, node, operands)
        for index in kernel.outputs:
            self.write_output(context, index, values[index])
        return layouts.OK

    def is_to_fail(self, kernel: Kernel) -> bool:
        """The fault is that this invoke of the kernel fails, which is counted already."""
        return self.fault == "kernel-invoke" or (self.fault == "second-invoke" and kernel.invokes == 2)

    def use_heap(self, kernel: Kernel) -> None:
        """Request work memory of the size of the kernel's first result, write it, and free it."""
        size = kernel.result_bytes
        block = self.heap.request(size)
        ctypes.memset(block, 0, size)
        self.heap.give_back(block)

    def read_input(self, context: int, index: int) -> Values | None:
        """A view of a tensor that the runtime holds; None for an absent optional one."""
        if index == layouts.OPTIONAL_TENSOR:
            return None
        tensor = view.tensor(context, index)
        return peek.array(tensor.data, DTYPES[tensor.type], peek.integers(tensor.dims))

    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        """The result of one operator."""
        return compute(node, kernel.tensors, [operand for operand in operands if operand is not None])

    def write_output(self, context: int, index: int, value: Values) -> None:
        """Store a result in the runtime's tensor.

        Raises:
            ValueError: the tensor has another number of elements.
        """
        tensor = view.tensor(context, index)
        target = peek.array(tensor.data, DTYPES[tensor.type], peek.integers(tensor.dims))
        target[...] = value.reshape(target.shape)

    def free(self, kernel: Kernel) -> None:
        """Release what the kernel holds."""
