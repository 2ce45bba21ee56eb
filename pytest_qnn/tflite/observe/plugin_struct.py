"""A TfLiteDelegate as a plugin made it: its 56 bytes, and the last ones of a registration."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final, Literal

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.trace import FunctionKind, Pointed, StructSeen

_FUNCTIONS: Final = ("Prepare", "CopyFromBufferHandle", "CopyToBufferHandle", "FreeBufferHandle")
_TAIL: Final = ("registration_external", "async_kernel", "inplace_operator")


class _Memory:
    """Which addresses can be read, and which hold code, as of now."""

    def __init__(self) -> None:
        self._ranges = []
        for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
            span, rights = line.split(maxsplit=2)[:2]
            start, _, end = span.partition("-")
            self._ranges.append((int(start, 16), int(end, 16), rights))

    def readable(self, address: int, size: int) -> bool:
        """One mapping that can be read holds all of these bytes."""
        return any(
            start <= address and address + size <= end and rights[0] == "r"
            for start, end, rights in self._ranges
        )

    def kind(self, address: int) -> Pointed:
        """``code``, ``memory`` or ``nothing``."""
        if self.function(address) == "code":
            return "code"
        return "memory" if self.readable(address, 1) else "nothing"

    def function(self, address: int) -> FunctionKind:
        """``null``, ``code`` or ``no code``."""
        if not address:
            return "null"
        code = any(start <= address < end and rights[2] == "x" for start, end, rights in self._ranges)
        return "code" if code else "no code"


def read_struct(address: int) -> StructSeen:
    """The TfLiteDelegate at ``address``; nothing is believed of its pointers."""
    memory = _Memory()
    if not memory.readable(address, ctypes.sizeof(layouts.Delegate)):
        return StructSeen(builder="unreadable")
    delegate = layouts.Delegate.from_address(address)
    builder, flags = _builder(delegate.opaque_delegate_builder or 0, memory)
    return StructSeen(
        functions={name: memory.function(getattr(delegate, name) or 0) for name in _FUNCTIONS},
        flags=delegate.flags,
        builder=builder,
        builder_flags=flags,
    )


def _builder(address: int, memory: _Memory) -> tuple[Literal["null", "valid", "invalid"], int]:
    if not address:
        return "null", 0
    if not memory.readable(address, ctypes.sizeof(layouts.OpaqueDelegateBuilder)):
        return "invalid", 0
    builder = layouts.OpaqueDelegateBuilder.from_address(address)
    kinds = [memory.function(getattr(builder, name) or 0) for name in _FUNCTIONS]
    valid = kinds[0] == "code" and "no code" not in kinds
    return ("valid", builder.flags) if valid else ("invalid", 0)


def used_tail(registration: layouts.Registration) -> tuple[tuple[str, int, Pointed], ...]:
    """The last members of a registration that are not zero, as in `tflite.trace.Replace.tail`."""
    values = {name: getattr(registration, name) or 0 for name in _TAIL}
    if not any(values.values()):
        return ()
    memory = _Memory()
    return tuple((name, value, memory.kind(value)) for name, value in values.items() if value)
