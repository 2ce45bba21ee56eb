"""ION: graphs whose tensors lie in ION buffers of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_ion_01(judge: Judge) -> None:
    """Of an ION descriptor only the fd says which memory it is; the other bytes of the union do not count."""
    judge("ION-01")


def test_ion_02(judge: Judge) -> None:
    """An fd of ION memory has one handle in a context: with another shape it is refused as well."""
    judge("ION-02")


def test_ion_03(judge: Judge) -> None:
    """Each tensor has an ION buffer, pointer, fd and handle of its own; all inputs and outputs can be ION."""
    judge("ION-03")


def test_ion_04(judge: Judge) -> None:
    """An input's bytes are read from its buffer at the time of execute."""
    judge("ION-04")


def test_ion_05(judge: Judge) -> None:
    """An output's bytes are visible through the client's pointer when execute returns."""
    judge("ION-05")


def test_ion_06(judge: Judge) -> None:
    """Where ION memory is not supported its registration is refused."""
    judge("ION-06")
