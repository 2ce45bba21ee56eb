"""REG: QnnMem_register."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_reg_01(judge: Judge) -> None:
    """A valid context and one valid descriptor give success and a non-NULL handle."""
    judge("REG-01")


def test_reg_02(judge: Judge) -> None:
    """A batch of n descriptors gives n distinct handles, handle[i] belonging to descriptor[i]."""
    judge("REG-02")


def test_reg_03(judge: Judge) -> None:
    """A NULL descriptor array is refused."""
    judge("REG-03")


def test_reg_04(judge: Judge) -> None:
    """A NULL handle array is refused, and nothing stays registered."""
    judge("REG-04")


def test_reg_05(judge: Judge) -> None:
    """A count of 0 succeeds without effect or is refused; no memory is touched."""
    judge("REG-05")


def test_reg_06(judge: Judge) -> None:
    """A context that is NULL, unknown or freed is refused."""
    judge("REG-06")


def test_reg_07(judge: Judge) -> None:
    """After any failure every handle of the array is NULL."""
    judge("REG-07")


def test_reg_08(judge: Judge) -> None:
    """A batch is registered as a whole or not at all: one bad descriptor registers none."""
    judge("REG-08")


def test_reg_09(judge: Judge) -> None:
    """A memory type that is UNDEFINED or not in the enumeration is refused."""
    judge("REG-09")


def test_reg_10(judge: Judge) -> None:
    """A shape with dimensions whose dimSize is NULL is refused."""
    judge("REG-10")


def test_reg_11(judge: Judge) -> None:
    """A shape of rank 0 or with a dimension of 0 is refused; a scalar is registered as one dimension of 1."""
    judge("REG-11")


def test_reg_12(judge: Judge) -> None:
    """A data type that is UNDEFINED or unknown is refused for the memory of a tensor."""
    judge("REG-12")


def test_reg_13(judge: Judge) -> None:
    """A descriptor with file descriptor -1 is refused."""
    judge("REG-13")


def test_reg_14(judge: Judge) -> None:
    """A file descriptor that is closed or cannot be mapped is refused."""
    judge("REG-14")


def test_reg_15(judge: Judge) -> None:
    """A buffer smaller than the tensor that shape and data type imply is refused."""
    judge("REG-15")


def test_reg_16(judge: Judge) -> None:
    """A buffer larger than its tensor is accepted."""
    judge("REG-16")


def test_reg_17(judge: Judge) -> None:
    """Memory can be registered at any time of a context's life."""
    judge("REG-17")


def test_reg_18(judge: Judge) -> None:
    """Descriptors, dimensions and custom structs need to live during the call only."""
    judge("REG-18")


def test_reg_19(judge: Judge) -> None:
    """Descriptors, and what they point to, are not modified."""
    judge("REG-19")


def test_reg_20(judge: Judge) -> None:
    """Registering does not change the contents of the buffer."""
    judge("REG-20")


def test_reg_21(judge: Judge) -> None:
    """Memory that is registered already is refused in the same context, and its handle stays valid."""
    judge("REG-21")


def test_reg_22(judge: Judge) -> None:
    """The same memory twice in one batch is refused, and nothing of the batch is registered."""
    judge("REG-22")


def test_reg_23(judge: Judge) -> None:
    """The same memory may be registered in several contexts, with independent handles."""
    judge("REG-23")


def test_reg_24(judge: Judge) -> None:
    """After its deregistration the same memory can be registered again."""
    judge("REG-24")


def test_reg_25(judge: Judge) -> None:
    """A dup of an fd is recognised as the same memory, or it is not; the first handle stays as it is."""
    judge("REG-25")


def test_reg_26(judge: Judge) -> None:
    """After deregistering and freeing, a new buffer with the same fd number registers, whatever its size."""
    judge("REG-26")


def test_reg_27(judge: Judge) -> None:
    """A shapeConfig of NULL is accepted, an unknown one refused."""
    judge("REG-27")


def test_reg_28(judge: Judge) -> None:
    """A registration that fails leaves no descriptor and no mapping behind."""
    judge("REG-28")
