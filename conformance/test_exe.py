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
