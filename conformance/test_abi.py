"""ABI: the interface between a runtime and an external delegate library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_abi_01(judge: Judge) -> None:
    """The library exports its two functions under their C names."""
    judge("ABI-01")


def test_abi_02(judge: Judge) -> None:
    """A delegate is made without options, NULL arrays included."""
    judge("ABI-02")


def test_abi_03(judge: Judge) -> None:
    """Options are read as UTF-8 text and parsed strictly."""
    judge("ABI-03")


def test_abi_04(judge: Judge) -> None:
    """Unknown keys are refused, and refusals explained."""
    judge("ABI-04")


def test_abi_05(judge: Judge) -> None:
    """Neither the arrays nor the texts of the options are kept."""
    judge("ABI-05")


def test_abi_06(judge: Judge) -> None:
    """report_error may be NULL, and is called during create only."""
    judge("ABI-06")


def test_abi_07(judge: Judge) -> None:
    """To destroy NULL has no effect."""
    judge("ABI-07")


def test_abi_08(judge: Judge) -> None:
    """Exactly the delegate that destroy is given ends."""
    judge("ABI-08")


def test_abi_09(judge: Judge) -> None:
    """A valid TfLiteDelegate of 56 bytes is returned."""
    judge("ABI-09")


def test_abi_10(judge: Judge) -> None:
    """Callbacks and opaque builder are not mixed."""
    judge("ABI-10")


def test_abi_11(judge: Judge) -> None:
    """An opaque delegate registers operators."""
    judge("ABI-11")


def test_abi_12(judge: Judge) -> None:
    """The library loads with every symbol bound."""
    judge("ABI-12")


def test_abi_13(judge: Judge) -> None:
    """The registration is filled in to its last byte."""
    judge("ABI-13")


def test_abi_14(judge: Judge) -> None:
    """Several plugins work in one process."""
    judge("ABI-14")
