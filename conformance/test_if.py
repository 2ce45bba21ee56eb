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


def test_if_05(judge: Judge) -> None:
    """A function pointer is NULL only where its feature is not supported."""
    judge("IF-05")
