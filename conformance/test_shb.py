"""SHB: several tensors in one shared buffer, each at an offset of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_shb_03(judge: Judge) -> None:
    """The size is the buffer's total size in all registrations of its fd; another size is refused."""
    judge("SHB-03")


def test_shb_04(judge: Judge) -> None:
    """A tensor lies inside its buffer: offset + bytes <= size."""
    judge("SHB-04")


def test_shb_06(judge: Judge) -> None:
    """Huge offsets, and those that wrap around, are refused."""
    judge("SHB-06")


def test_shb_07(judge: Judge) -> None:
    """Each offset in one buffer gives a handle of its own."""
    judge("SHB-07")


def test_shb_08(judge: Judge) -> None:
    """A tensor is read and written exactly in [offset, offset + bytes)."""
    judge("SHB-08")


def test_shb_09(judge: Judge) -> None:
    """Tensors may lie in one buffer in any order, registered one by one or in one batch."""
    judge("SHB-09")


def test_shb_13(judge: Judge) -> None:
    """Deregistering one handle leaves the others usable; the mapping goes with the last one."""
    judge("SHB-13")
