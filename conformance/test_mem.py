"""MEM: the memory that a kernel may touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_mem_01(judge: Judge) -> None:
    """A kernel's invoke writes only its kernel's output tensors and memory of the delegate's own."""
    judge("MEM-01")


def test_mem_02(judge: Judge) -> None:
    """A kernel's invoke does not modify its kernel's inputs."""
    judge("MEM-02")


def test_mem_03(judge: Judge) -> None:
    """A kernel writes no byte outside its tensors' data, and reads none far from it."""
    judge("MEM-03")


def test_mem_04(judge: Judge) -> None:
    """Results are right with tensors in custom allocations."""
    judge("MEM-04")


def test_mem_05(judge: Judge) -> None:
    """After a tensor was assigned another buffer, the delegate uses that one."""
    judge("MEM-05")


def test_mem_06(judge: Judge) -> None:
    """With misaligned buffers, results are right or there is an error."""
    judge("MEM-06")


def test_mem_07(judge: Judge) -> None:
    """Constant tensors are never written."""
    judge("MEM-07")


def test_mem_08(judge: Judge) -> None:
    """An optional operand that is absent is not looked up."""
    judge("MEM-08")


def test_mem_09(judge: Judge) -> None:
    """Tensors without elements give results without elements, or an error."""
    judge("MEM-09")


def test_mem_10(judge: Judge) -> None:
    """The kernel does not touch tensors inside its partition."""
    judge("MEM-10")


def test_mem_11(judge: Judge) -> None:
    """A kernel that declares that input and output may share memory is right when they do."""
    judge("MEM-11")


def test_mem_12(judge: Judge) -> None:
    """A buffer that is too small is reported by allocate_tensors."""
    judge("MEM-12")


def test_mem_13(judge: Judge) -> None:
    """A buffer assigned between invokes is used without allocate_tensors too."""
    judge("MEM-13")


def test_mem_14(judge: Judge) -> None:
    """The delegate leaves memory alone that was given back after its interpreter."""
    judge("MEM-14")
