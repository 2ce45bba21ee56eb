"""CAP: Capability keys against behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_cap_01(judge: Judge) -> None:
    """QnnProperty_hasCapability answers supported, not supported or unknown key only, at any time."""
    judge("CAP-01")


def test_cap_02(judge: Judge) -> None:
    """Without the memory API both memory calls answer not supported to every argument and touch nothing."""
    judge("CAP-02")


def test_cap_03(judge: Judge) -> None:
    """Where the keys of the memory API and of a memory type say supported, a valid buffer registers."""
    judge("CAP-03")


def test_cap_04(judge: Judge) -> None:
    """A known memory type whose key is not supported is refused as an unsupported type."""
    judge("CAP-04")


def test_cap_05(judge: Judge) -> None:
    """Property 502 tells whether MEMHANDLE tensors execute; a graph with the hint runs raw in any case."""
    judge("CAP-05")


def test_cap_06(judge: Judge) -> None:
    """Deferred initialisation is there where keys 215 and 217 say so."""
    judge("CAP-06")


def test_cap_07(judge: Judge) -> None:
    """Execution environments that bind handles or give buffers are refused without their property keys."""
    judge("CAP-07")


def test_cap_08(judge: Judge) -> None:
    """The answer to a property key is the same throughout the life of the process."""
    judge("CAP-08")
