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
