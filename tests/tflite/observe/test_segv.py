"""What a signal frame says of an access, on both processors: frames in memory, not real ones."""

from __future__ import annotations

import ctypes
import struct

import pytest

from pytest_qnn.tflite.abi import peek
from pytest_qnn.tflite.observe.segv import access_of

FPSIMD, ESR, EXTRA = 0x46508001, 0x45535201, 0x45585401
AT = 464


def frame(*records: tuple[int, int, int]) -> bytes:
    """A ucontext_t of AArch64 with records (magic, size, first value), filled with what is no record."""
    made = bytearray(b"\xff" * AT)
    for magic, size, value in records:
        made += struct.pack("<IIQ", magic, size, value) + bytes(max(0, size - 16))
    return bytes(made) + bytes(AT + 4096 - len(made))


@pytest.mark.parametrize(
    ("records", "access"),
    [
        ([(FPSIMD, 528, 1 << 6), (ESR, 16, 0x92000046)], "write"),
        ([(FPSIMD, 528, 1 << 6), (ESR, 16, 0x92000006)], "read"),
        ([(ESR, 16, 0x92000046), (FPSIMD, 528, 0)], "write"),
        ([(FPSIMD, 528, 1 << 6)], "access"),
        ([(FPSIMD, 0, 1 << 6), (ESR, 16, 0x92000046)], "access"),
        ([(FPSIMD, 4096, 0)], "access"),
        ([], "access"),
    ],
)
def test_on_aarch64_the_syndrome_says_what_the_access_was(
    records: list[tuple[int, int, int]], access: str
) -> None:
    content = frame(*records)
    memory = ctypes.create_string_buffer(content, len(content))
    assert access_of(ctypes.addressof(memory), "aarch64") == access


@pytest.mark.parametrize(("code", "access"), [(7, "write"), (5, "read")])
def test_on_x86_64_the_error_code_says_it(code: int, access: str) -> None:
    content = bytes(40 + 19 * 8) + struct.pack("<Q", code)
    memory = ctypes.create_string_buffer(content, len(content))
    assert access_of(ctypes.addressof(memory), "x86_64") == access
    assert access_of(ctypes.addressof(memory), "riscv64") == "access"


def test_addresses_of_aarch64_can_be_read() -> None:
    """There mappings are below 1 << 48, from 0xffff00000000 on down, and 1 << 52 with large addresses."""
    assert len(peek.MEMORY) >= 1 << 52
