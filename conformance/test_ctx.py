"""CTX: Registrations and the life of contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_ctx_01(judge: Judge) -> None:
    """QnnContext_free releases every registration of that context."""
    judge("CTX-01")


def test_ctx_02(judge: Judge) -> None:
    """A handle of a freed context is invalid, and its memory can be registered elsewhere."""
    judge("CTX-02")


def test_ctx_03(judge: Judge) -> None:
    """Freeing one context leaves another context's registrations of the same memory intact."""
    judge("CTX-03")


def test_ctx_04(judge: Judge) -> None:
    """Registering with a freed context is refused."""
    judge("CTX-04")


def test_ctx_05(judge: Judge) -> None:
    """A handle of one context is refused when a graph of another context executes."""
    judge("CTX-05")


def test_ctx_06(judge: Judge) -> None:
    """Freeing a context that is NULL, unknown or freed already is refused."""
    judge("CTX-06")


def test_ctx_07(judge: Judge) -> None:
    """Freeing a device or a backend under live contexts is refused, or it takes them along."""
    judge("CTX-07")


def test_ctx_08(judge: Judge) -> None:
    """Deregister, free the memory, contextFree, deviceFree, backendFree, logFree succeed in this order."""
    judge("CTX-08")
