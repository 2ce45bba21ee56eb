"""DMA: memory of type QNN_MEM_TYPE_DMA_BUF."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_dma_01(judge: Judge) -> None:
    """A DMA_BUF descriptor carries the fd and the client's pointer: without either it is refused."""
    judge("DMA-01")


def test_dma_02(judge: Judge) -> None:
    """A pointer that is no mapping of the fd is refused, or it does no harm."""
    judge("DMA-02")


def test_dma_03(judge: Judge) -> None:
    """A backend with DMA_BUF memory and without ION takes the one and refuses the other."""
    judge("DMA-03")


def test_dma_04(judge: Judge) -> None:
    """DMA_BUF memory is registered, executed with and deregistered by the same rules as any other."""
    judge("DMA-04")
