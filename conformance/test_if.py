"""IF: Interface discovery and the interface table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_if_01(judge: Judge) -> None:
    """QnnInterface_getProviders succeeds as the first call of all and yields a provider that is not NULL."""
    judge("IF-01")


def test_if_02(judge: Judge) -> None:
    """A NULL provider list or a NULL count is refused."""
    judge("IF-02")


def test_if_03(judge: Judge) -> None:
    """The interface that is listed stays where it is and as it is, for the life of the library."""
    judge("IF-03")


def test_if_04(judge: Judge) -> None:
    """The interface has the version of the backend, and its table the functions in the header's order."""
    judge("IF-04")


def test_if_05(judge: Judge) -> None:
    """A function pointer is NULL only where its feature is not supported."""
    judge("IF-05")


def test_if_06(judge: Judge) -> None:
    """Success is exactly 0; of any other answer the low 16 bits are an error code."""
    judge("IF-06")


def test_if_07(judge: Judge) -> None:
    """The API version and the build id are told before any backend is created; NULL is refused."""
    judge("IF-07")


def test_if_08(judge: Judge) -> None:
    """QnnError_getMessage knows the codes of QnnMem; for an unknown code it fails and gives NULL."""
    judge("IF-08")


def test_if_09(judge: Judge) -> None:
    """A handle that comes with success is not 0."""
    judge("IF-09")


def test_if_10(judge: Judge) -> None:
    """A call on a handle that is NULL, unknown or freed fails with the code for that, without a crash."""
    judge("IF-10")
