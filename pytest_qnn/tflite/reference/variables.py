"""A conforming reference delegate that holds resource variables: it takes all nodes of one, or none.

What a variable holds belongs to the interpreter, so it is kept by context. Kernels run in the order of the
side effects of their nodes; within a kernel the nodes stand in that order.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.graph.graph import Node, Op, Tensor
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.reference.plan import PlanView
from pytest_qnn.tflite.reference.reading import Unknown, read_tensor

_OPS: Final[dict[int, Op]] = {142: "VAR_HANDLE", 143: "READ_VARIABLE", 144: "ASSIGN_VARIABLE"}
_RESOURCE: Final = Tensor((1,), "resource")


class VariableDelegate(ReferenceDelegate):
    """As the reference, and it computes VAR_HANDLE, READ_VARIABLE and ASSIGN_VARIABLE."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.held: dict[tuple[int, str], Values] = {}
        """(context, variable) -> what it holds."""
        self.handles: dict[int, str] = {}
        """Tensor of the main graph -> variable."""

    def read(self, context: int) -> PlanView:
        """As the reference, and the nodes of variables."""
        view = super().read(context)
        table = layouts.Context.from_address(context)
        get_node = layouts.GetNodeAndRegistration(table.GetNodeAndRegistration)
        found = (ctypes.c_void_p * 2)()
        first = ctypes.addressof(found)
        for index in view.plan:
            if index in view.nodes or (self.claim is not None and index not in self.claim):
                continue
            if get_node(context, index, first, first + 8):
                raise RuntimeError(f"GetNodeAndRegistration failed for node {index}")
            self._add(view, index, peek.pointer(first), peek.pointer(first + 8), table.tensors)
        return view

    def _add(self, view: PlanView, index: int, node: int, registration: int, tensors: int) -> None:
        op = _OPS.get(peek.integer(registration + layouts.Registration.builtin_code.offset))
        if op is None:
            return
        fields = layouts.Node.from_address(node)
        inputs, outputs = peek.integers(fields.inputs), peek.integers(fields.outputs)
        handle = outputs[0] if op == "VAR_HANDLE" else inputs[0]
        view.tensors[handle] = _RESOURCE
        try:
            for tensor in (*inputs, *outputs):
                if tensor != handle and tensor not in view.tensors:
                    view.tensors[tensor], _ = read_tensor(tensors, tensor)
        except Unknown:
            return
        variable = str(peek.integer(fields.builtin_data)) if op == "VAR_HANDLE" else ""
        if variable:
            self.handles[handle] = variable
        view.nodes[index] = Node(op, inputs, outputs, variable=variable)

    def supports(self, node: Node, tensors: Any, constants: set[int]) -> bool:
        """As the reference, and every node of a variable: `choose` sees to it that none is missing."""
        return node.op in _OPS.values() or super().supports(node, tensors, constants)

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        """As the reference; without a claim that leaves out one node of variables it takes them all."""
        chosen = super().choose(plan)
        own = [index for index in chosen if plan.nodes[index].op in _OPS.values()]
        complete = self.claim is None and len(self.handles) == sum(
            plan.nodes[index].op == "VAR_HANDLE" for index in own
        )
        return chosen if complete else tuple(index for index in chosen if index not in own)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        """As the reference; what is assigned is copied, what is read is what was assigned last."""
        if self.heap.is_checked:
            self.use_heap(kernel)
        values: dict[int, Values] = {}
        with np.errstate(all="ignore"):
            for node in kernel.steps:
                self.run(context, kernel, node, values)
        for index in kernel.outputs:
            if index in values:
                self.write_output(context, index, values[index])
        return layouts.OK

    def run(self, context: int, kernel: Kernel, node: Node, values: dict[int, Values]) -> None:
        """Carry out one node."""
        if node.op == "VAR_HANDLE":
            return
        variable = (context, self.handles.get(node.inputs[0], ""))
        if node.op == "READ_VARIABLE":
            values[node.outputs[0]] = self.recall(kernel, node, variable)
            return
        assigns = node.op == "ASSIGN_VARIABLE"
        operands = [
            values[index] if index in values else self.read_input(context, index)
            for index in node.inputs[assigns:]
        ]
        if assigns and operands[0] is not None:
            self.held[variable] = operands[0].copy()
        else:
            values[node.outputs[0]] = self.compute_node(kernel, node, operands)

    def recall(self, kernel: Kernel, node: Node, variable: tuple[int, str]) -> Values:  # noqa: ARG002 - to override
        """What a variable holds.

        Raises:
            KeyError: nothing was assigned to it.
        """
        return self.held[variable]
