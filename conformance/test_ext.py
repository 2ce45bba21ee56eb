"""EXT: deferred initialisation, with external weights and spill-fill memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_ext_01(judge: Judge) -> None:
    """A deferred context has no graphs yet."""
    judge("EXT-01")


def test_ext_02(judge: Judge) -> None:
    """Initialisation can be deferred for contexts from binaries only."""
    judge("EXT-02")


def test_ext_03(judge: Judge) -> None:
    """A deferred context says its alignment and what it needs."""
    judge("EXT-03")


def test_ext_04(judge: Judge) -> None:
    """A wrong question for properties is refused."""
    judge("EXT-04")


def test_ext_05(judge: Judge) -> None:
    """Properties stay what they are."""
    judge("EXT-05")


def test_ext_06(judge: Judge) -> None:
    """Spill-fill memory as for the neediest graph, weights for all."""
    judge("EXT-06")


def test_ext_07(judge: Judge) -> None:
    """External memory is large enough."""
    judge("EXT-07")


def test_ext_08(judge: Judge) -> None:
    """External memory is aligned, offset included."""
    judge("EXT-08")


def test_ext_09(judge: Judge) -> None:
    """External memory is a DMA buffer."""
    judge("EXT-09")


def test_ext_11(judge: Judge) -> None:
    """Shape and data type of external memory mean nothing."""
    judge("EXT-11")


def test_ext_12(judge: Judge) -> None:
    """Weights, spill-fill, both or neither may be registered."""
    judge("EXT-12")


def test_ext_13(judge: Judge) -> None:
    """Memory for weights belongs to one context."""
    judge("EXT-13")


def test_ext_14(judge: Judge) -> None:
    """A context takes one buffer of each kind."""
    judge("EXT-14")


def test_ext_15(judge: Judge) -> None:
    """Several contexts may share spill-fill memory."""
    judge("EXT-15")


def test_ext_16(judge: Judge) -> None:
    """External memory has no other use."""
    judge("EXT-16")


def test_ext_17(judge: Judge) -> None:
    """Finalising puts the weights into their external memory."""
    judge("EXT-17")


def test_ext_19(judge: Judge) -> None:
    """The binary may go once contextFinalize has returned."""
    judge("EXT-19")


def test_ext_20(judge: Judge) -> None:
    """Finalising makes graphs that compute as on the ordinary way."""
    judge("EXT-20")


def test_ext_21(judge: Judge) -> None:
    """External memory cannot be deregistered once its context is finalised."""
    judge("EXT-21")


def test_ext_22(judge: Judge) -> None:
    """Freeing the context deregisters external memory."""
    judge("EXT-22")


def test_ext_23(judge: Judge) -> None:
    """Before contextFinalize external memory can be taken back."""
    judge("EXT-23")


def test_ext_24(judge: Judge) -> None:
    """External memory is registered between deferred creation and contextFinalize."""
    judge("EXT-24")


def test_ext_25(judge: Judge) -> None:
    """Finalising a second time, or of an ordinary context, is refused."""
    judge("EXT-25")


def test_ext_26(judge: Judge) -> None:
    """Graphs that share spill-fill memory may be executed in turns."""
    judge("EXT-26")


def test_ext_28(judge: Judge) -> None:
    """Deferring beside an option that excludes it is refused before anything executes."""
    judge("EXT-28")


def test_ext_29(judge: Judge) -> None:
    """A target without external buffers refuses to defer."""
    judge("EXT-29")


def test_ext_30(judge: Judge) -> None:
    """A context that cannot be finalised can be freed, and its buffers used again."""
    judge("EXT-30")


def test_ext_31(judge: Judge) -> None:
    """DEFER_GRAPH_INIT given as no is the same as not given."""
    judge("EXT-31")


def test_ext_32(judge: Judge) -> None:
    """A binary comes piece by piece, and each piece is given back once."""
    judge("EXT-32")
