"""A delegate that asks the runtime for the partitions of its claim before it claims."""

from __future__ import annotations

import ctypes

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView

_NODES = layouts.DelegateParams.nodes_to_replace.offset
_SIZE = ctypes.sizeof(layouts.DelegateParams)


class Preview(ReferenceDelegate):
    """Asks the runtime for the partitions of its claim before it claims."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        """As the reference, in the order of the previewed partitions."""
        chosen = super().choose(plan)
        return tuple(index for nodes in self.preview(chosen) for index in nodes)

    def prepare(self, context: int) -> int:
        """As the reference; a preview needs the context."""
        self._context = context
        return super().prepare(context)

    def preview(self, nodes: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The nodes of each partition that Replace would make of the claim.

        Raises:
            RuntimeError: the runtime answers with an error.
        """
        table = layouts.Context.from_address(self._context)
        array = peek.int_array(nodes)
        found, count = ctypes.c_void_p(), ctypes.c_int()
        call = layouts.PreviewPartitioning(table.PreviewDelegatePartitioning)
        places = (ctypes.addressof(part) for part in (array, found, count))
        if call(self._context, *places):
            raise RuntimeError("PreviewDelegatePartitioning failed")
        first = found.value or 0
        return [peek.integers(peek.pointer(first + _SIZE * i + _NODES)) for i in range(count.value)]
