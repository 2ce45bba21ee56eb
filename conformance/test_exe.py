"""EXE: executing with memory handles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_exe_01(judge: Judge) -> None:
    """Executing with registered handles succeeds with correct numbers."""
    judge("EXE-01")


def test_exe_02(judge: Judge) -> None:
    """Raw memory and memory handles may be mixed, tensor by tensor."""
    judge("EXE-02")


def test_exe_03(judge: Judge) -> None:
    """Memory type MEMHANDLE with a NULL handle is refused."""
    judge("EXE-03")


def test_exe_04(judge: Judge) -> None:
    """A deregistered handle is refused and outputs are not touched."""
    judge("EXE-04")


def test_exe_05(judge: Judge) -> None:
    """An unknown handle value is refused without a crash."""
    judge("EXE-05")


def test_exe_06(judge: Judge) -> None:
    """The union of a tensor is read by its memory type: with MEMHANDLE the dataSize is of no matter."""
    judge("EXE-06")


def test_exe_07(judge: Judge) -> None:
    """A handle of fewer bytes than its tensor is refused, one of as many or more is taken."""
    judge("EXE-07")


def test_exe_08(judge: Judge) -> None:
    """A handle may serve any tensor of any graph of its context, again and again."""
    judge("EXE-08")


def test_exe_09(judge: Judge) -> None:
    """The output of one graph may be the input of the next through the same handle."""
    judge("EXE-09")


def test_exe_10(judge: Judge) -> None:
    """An execute changes neither its inputs nor bytes behind its output."""
    judge("EXE-10")


def test_exe_11(judge: Judge) -> None:
    """An execute does not write to the structs of its tensors."""
    judge("EXE-11")


def test_exe_12(judge: Judge) -> None:
    """An execute that fails leaves its outputs alone."""
    judge("EXE-12")


def test_exe_13(judge: Judge) -> None:
    """A memory type that is none is refused at execute."""
    judge("EXE-13")


def test_exe_14(judge: Judge) -> None:
    """Raw memory that is smaller than its tensor is refused."""
    judge("EXE-14")


def test_exe_15(judge: Judge) -> None:
    """Tensors of an execute are told by their ids: their order in the arrays is free."""
    judge("EXE-15")


def test_exe_16(judge: Judge) -> None:
    """An execute with a tensor that is missing, there twice, foreign or too much is refused."""
    judge("EXE-16")


def test_exe_17(judge: Judge) -> None:
    """An execute before the graph is finalised is refused."""
    judge("EXE-17")


def test_exe_18(judge: Judge) -> None:
    """Asynchronous execution follows the memory rules until its notification, and then uses no memory."""
    judge("EXE-18")


def test_exe_19(judge: Judge) -> None:
    """An execute reads what the client wrote last to registered memory, and the client what it wrote."""
    judge("EXE-19")
