"""LEAK: what cycles, invokes and failures leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_leak_01(judge: Judge) -> None:
    """A delegate's whole life leaves no memory in use."""
    judge("LEAK-01")


def test_leak_02(judge: Judge) -> None:
    """A delegate's whole life leaves no descriptors, threads and mappings."""
    judge("LEAK-02")


def test_leak_03(judge: Judge) -> None:
    """Invokes leave nothing behind."""
    judge("LEAK-03")


def test_leak_04(judge: Judge) -> None:
    """Failures leave nothing behind."""
    judge("LEAK-04")
