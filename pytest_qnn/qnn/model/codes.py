"""How the memory rules read codes, and the small tables that tie memory types to property keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pytest_qnn.qnn.abi.codes import Error, MemType, Property, low

TYPE_KEYS: dict[int, int] = {
    MemType.ION: Property.MEMORY_SUPPORT_MEM_TYPE_ION,
    MemType.CUSTOM: Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM,
    MemType.DMA_BUF: Property.MEMORY_SUPPORT_MEM_TYPE_DMA_BUF,
}
"""Qnn_MemType_t -> the property key that tells whether memory of this type can be registered."""

SENTINEL = 0x5555555555555555
"""What the runner fills handle arrays with before a call."""

_NAMES = {code.value: code.name for code in Error}


def named(code: int) -> str:
    """The code with its header name, for messages."""
    number = str(low(code)) if code == low(code) else f"{low(code)} (0x{code:x})"
    name = _NAMES.get(low(code))
    return f"{number} QNN_{name}" if name else number


def denied(keys: Iterable[int], capabilities: Mapping[int, int]) -> str:
    """The first of these property keys whose answer is "not supported", with that; empty: there is none."""
    for key in keys:
        answer = capabilities.get(key, 0)
        if low(answer) == Error.COMMON_ERROR_NOT_SUPPORTED:
            return f"property key {key} ({Property(key).name}) answers {named(answer)}"
    return ""


def one_of(codes: Collection[int]) -> str:
    """A set of allowed codes in words."""
    return " or ".join(named(int(code)) for code in sorted(codes))
