"""ION: graphs whose tensors lie in ION buffers of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_ion_03(judge: Judge) -> None:
    """Each tensor has an ION buffer, pointer, fd and handle of its own; all inputs and outputs can be ION."""
    judge("ION-03")


def test_ion_04(judge: Judge) -> None:
    """An input's bytes are read from its buffer at the time of execute."""
    judge("ION-04")


def test_ion_05(judge: Judge) -> None:
    """An output's bytes are visible through the client's pointer when execute returns."""
    judge("ION-05")
