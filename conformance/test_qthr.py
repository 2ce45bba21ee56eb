"""QTHR: calls from several threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_qthr_01(judge: Judge) -> None:
    """QnnBackend_create may be called from several threads at once."""
    judge("QTHR-01")


def test_qthr_03(judge: Judge) -> None:
    """Registering, executing and deregistering in sibling contexts is safe in parallel."""
    judge("QTHR-03")


def test_qthr_04(judge: Judge) -> None:
    """A log's callback may be called from any thread, as loudly and as long as is wanted."""
    judge("QTHR-04")


def test_qthr_05(judge: Judge) -> None:
    """An execute whose context is freed meanwhile fails cleanly."""
    judge("QTHR-05")
