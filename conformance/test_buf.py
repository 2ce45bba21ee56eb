"""BUF: results that a delegate keeps in buffers of its device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_buf_01(judge: Judge) -> None:
    """A stale tensor has a buffer handle and its delegate."""
    judge("BUF-01")


def test_buf_02(judge: Judge) -> None:
    """CopyFromBufferHandle is there, and fills all of the data."""
    judge("BUF-02")


def test_buf_03(judge: Judge) -> None:
    """Data that a kernel has written is not stale, and other data is."""
    judge("BUF-03")


def test_buf_04(judge: Judge) -> None:
    """CopyFromBufferHandle can be called again, and changes no other tensor."""
    judge("BUF-04")


def test_buf_05(judge: Judge) -> None:
    """CopyFromBufferHandle refuses what is no handle."""
    judge("BUF-05")


def test_buf_06(judge: Judge) -> None:
    """FreeBufferHandle frees its handle alone, once."""
    judge("BUF-06")


def test_buf_07(judge: Judge) -> None:
    """A kernel reads stale inputs of its own delegate's from their buffers."""
    judge("BUF-07")


def test_buf_08(judge: Judge) -> None:
    """The delegate does not rely on CopyToBufferHandle."""
    judge("BUF-08")


def test_buf_09(judge: Judge) -> None:
    """Buffers survive a redo, or are replaced."""
    judge("BUF-09")


def test_buf_10(judge: Judge) -> None:
    """Outputs left to the client in buffers can be copied from."""
    judge("BUF-10")
