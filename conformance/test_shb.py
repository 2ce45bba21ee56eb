"""SHB: several tensors in one shared buffer, each at an offset of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_shb_01(judge: Judge) -> None:
    """A CUSTOM descriptor whose customInfo is NULL is refused."""
    judge("SHB-01")


def test_shb_02(judge: Judge) -> None:
    """A custom HTP memory type that is QURT, UNDEFINED or unknown is refused."""
    judge("SHB-02")


def test_shb_03(judge: Judge) -> None:
    """The size is the buffer's total size in all registrations of its fd; another size is refused."""
    judge("SHB-03")


def test_shb_04(judge: Judge) -> None:
    """A tensor lies inside its buffer: offset + bytes <= size."""
    judge("SHB-04")


def test_shb_05(judge: Judge) -> None:
    """A size that is larger than the buffer is refused."""
    judge("SHB-05")


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


def test_shb_10(judge: Judge) -> None:
    """Offsets need no alignment beyond that of their elements."""
    judge("SHB-10")


def test_shb_11(judge: Judge) -> None:
    """The same fd and the same offset are registered already, whatever the shape."""
    judge("SHB-11")


def test_shb_12(judge: Judge) -> None:
    """Overlapping ranges in one buffer are accepted or refused, always alike, and others stay as they are."""
    judge("SHB-12")


def test_shb_13(judge: Judge) -> None:
    """Deregistering one handle leaves the others usable; the mapping goes with the last one."""
    judge("SHB-13")


def test_shb_14(judge: Judge) -> None:
    """Memory registered as ION is refused as a shared buffer in the same context, and the other way round."""
    judge("SHB-14")


def test_shb_15(judge: Judge) -> None:
    """After a failed registration in a group the handles made before are still valid."""
    judge("SHB-15")


def test_shb_16(judge: Judge) -> None:
    """Memory of the right kind works whoever allocated it, rpcmem or the client itself."""
    judge("SHB-16")
