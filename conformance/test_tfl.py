"""TFL: custom memory of a QNN delegate, and tensors in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_tfl_01(judge: Judge) -> None:
    """The delegate's custom memory is shared memory of the wanted size, or NULL."""
    judge("TFL-01")


def test_tfl_02(judge: Judge) -> None:
    """The pointer to custom memory is a multiple of the wanted alignment."""
    judge("TFL-02")


def test_tfl_03(judge: Judge) -> None:
    """Custom memory stays until it is freed, and is released then."""
    judge("TFL-03")


def test_tfl_04(judge: Judge) -> None:
    """On a backend that registers no shared memory, custom memory works unregistered."""
    judge("TFL-04")


def test_tfl_06(judge: Judge) -> None:
    """Custom memory may be requested, assigned and freed in every order that the workflow allows."""
    judge("TFL-06")


def test_tfl_09(judge: Judge) -> None:
    """Each tensor of a partition in custom memory is reported as registered."""
    judge("TFL-09")


def test_tfl_10(judge: Judge) -> None:
    """Results are those of a run without custom memory."""
    judge("TFL-10")


def test_tfl_11(judge: Judge) -> None:
    """The memory of a tensor may be larger than the tensor."""
    judge("TFL-11")


def test_tfl_12(judge: Judge) -> None:
    """A tensor that is assigned other memory is used there."""
    judge("TFL-12")


def test_tfl_13(judge: Judge) -> None:
    """Tensors without custom memory keep working beside others."""
    judge("TFL-13")
