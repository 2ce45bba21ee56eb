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
