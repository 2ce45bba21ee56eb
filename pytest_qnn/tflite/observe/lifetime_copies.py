"""Copies of what a delegate's Prepare may use for a limited time; they can be made invalid without harm.

The runtime owns execution plans, nodes and previewed partitions, and frees or moves them when their time is
over. Memory that is freed cannot be overwritten safely. So a delegate is given copies of ours, which live
until the case is over, and which say nothing any more once the runtime's own would be gone:

* an execution plan at the next GetExecutionPlan on the same context (common.h, note on GetExecutionPlan);
* a TfLiteNode and TfLiteRegistration at the end of Prepare: they are elements of a std::vector that grows
  with each kernel (subgraph.cc, AddNodeWithParameters);
* previewed partitions at the end of Prepare (subgraph.cc, FreeDelegatePartitioningData).
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from pytest_qnn.tflite.abi import layouts, peek

# Not -1 and not 0: a delegate that skips absent or first nodes would seem to work.
STALE: Final = 0x7EADBEEF
"""What the entries of a plan become that is no longer valid: no graph has so many nodes."""

_EMPTY: Final = peek.int_array(())
_NOTHING: Final = ctypes.addressof(_EMPTY)
_ZEROS: Final = (ctypes.c_char * 256)()


class LifetimeCopies:
    """Copies given to the delegates of one context."""

    def __init__(self) -> None:
        self.plans: list[int] = []
        """Who asked for each plan: the application."""
        self.plans_invalidated: list[int] = []
        """Who had asked for each plan that is not valid any more."""
        self.nodes_invalidated: list[int] = []
        self.previews_invalidated: list[int] = []
        self._plan: tuple[Any, int] | None = None
        self._nodes: list[tuple[layouts.Node, layouts.Registration, int]] = []
        self._partitions: list[tuple[Any, list[Any], int]] = []
        self._keep: list[Any] = []

    def plan(self, answer: int, application: int) -> None:
        """Put a copy in the place of the TfLiteIntArray* at ``answer``; the last one becomes invalid."""
        if self._plan is not None:
            array, owner = self._plan
            array[1:] = [STALE] * (len(array) - 1)
            self.plans_invalidated.append(owner)
        copy = peek.int_array(peek.integers(peek.pointer(answer)))
        self._keep.append(copy)
        self.plans.append(application)
        self._plan = copy, application
        peek.set_pointer(answer, ctypes.addressof(copy))

    def node(self, node: int, registration: int, application: int) -> None:
        """Put copies in the place of the TfLiteNode* and TfLiteRegistration* at these addresses."""
        copy = layouts.Node.from_buffer_copy(
            ctypes.string_at(peek.pointer(node), ctypes.sizeof(layouts.Node))
        )
        kind = layouts.Registration.from_buffer_copy(
            ctypes.string_at(peek.pointer(registration), ctypes.sizeof(layouts.Registration))
        )
        self._nodes.append((copy, kind, application))
        peek.set_pointer(node, ctypes.addressof(copy))
        peek.set_pointer(registration, ctypes.addressof(kind))

    def partitions(self, answer: int, count: int, application: int) -> None:
        """Put copies in the place of the ``count`` TfLiteDelegateParams at the pointer at ``answer``."""
        params = (layouts.DelegateParams * count)()
        own = peek.pointer(answer)
        arrays = []
        for position in range(count):
            source = layouts.DelegateParams.from_address(
                own + position * ctypes.sizeof(layouts.DelegateParams)
            )
            copies = [
                peek.int_array(peek.integers(address or 0))
                for address in (source.nodes_to_replace, source.input_tensors, source.output_tensors)
            ]
            params[position] = layouts.DelegateParams(source.delegate, *map(ctypes.addressof, copies))
            arrays += copies
        self._partitions.append((params, arrays, application))
        peek.set_pointer(answer, ctypes.addressof(params))

    def prepared(self) -> None:
        """Prepare is over: nodes and previewed partitions are not valid any more."""
        for node, registration, application in self._nodes:
            node.inputs = node.outputs = node.intermediates = node.temporaries = _NOTHING
            node.builtin_data = ctypes.addressof(_ZEROS)
            registration.builtin_code = STALE
            self.nodes_invalidated.append(application)
        for _, arrays, application in self._partitions:
            for array in arrays:
                array[0] = 0
            self.previews_invalidated.append(application)
        self._keep += self._nodes
        self._keep += self._partitions
        self._nodes, self._partitions = [], []
