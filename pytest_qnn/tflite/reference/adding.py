"""A conforming reference delegate that adds tensors in its Prepare, until the table of tensors has moved.

Source: common.h, TfLiteContext.AddTensors; subgraph.h, Subgraph::tensors: AddTensors may invalidate the
address of the table, whose memory the runtime frees. What it holds then is anybody's: this delegate requests
memory of that size, as any code of the process may, and fills it.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate

_MOST_CALLS: Final = 16
"""Of AddTensors: the table has room for twice what was needed last."""
_MOST_BLOCKS: Final = 32
_MOST_BYTES: Final = 1 << 24
"""Of a table that is filled."""
_FILL: Final = 0xEE
"""Of it as an address is none that a process can have."""


class AddsTensors(ReferenceDelegate):
    """As the reference; every Prepare of it moves the table of tensors.

    Args:
        added: tensors of one call of AddTensors.
        options: those of the reference.
    """

    def __init__(self, *, added: int, **options: Any) -> None:
        super().__init__(**options)
        self._added = added
        self._blocks: list[int] = []
        """What it holds of malloc's memory."""

    def prepare(self, context: int) -> int:
        """Add tensors first, then claim nodes."""
        return self._add(context) or super().prepare(context)

    def close(self) -> None:
        """Give the memory back, too."""
        super().close()
        self._give_back()

    def _add(self, context: int) -> int:
        table = layouts.Context.from_address(context)
        add = layouts.AddTensors(table.AddTensors)
        old = table.tensors or 0
        size = libc.usable_size(old)
        for _ in range(_MOST_CALLS):
            status: int = add(context, self._added, None)
            if status or table.tensors != old:
                break
        if not status and table.tensors != old and size <= _MOST_BYTES:
            self._fill(old, size)
        return status

    def _fill(self, old: int, size: int) -> None:
        """Request memory until all that the old table was in has been given out, and fill it."""
        self._give_back()
        left = range(old, old + size)
        for _ in range(_MOST_BLOCKS if size else 0):
            block = libc.malloc(size)
            if not block:
                break
            self._blocks.append(block)
            ctypes.memset(block, _FILL, size)
            if block <= left.start < block + size:
                left = range(block + size, left.stop)
            if not left:
                break

    def _give_back(self) -> None:
        while self._blocks:
            libc.free(self._blocks.pop())
