"""LIFE: the life of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_life_01(judge: Judge) -> None:
    """A kernel has one init, before any prepare, and its user_data is what init returned."""
    judge("LIFE-01")


def test_life_02(judge: Judge) -> None:
    """A kernel's prepare may be called many times for one init and must be idempotent."""
    judge("LIFE-02")


def test_life_04(judge: Judge) -> None:
    """Each successful init is met by exactly one free when the interpreter is gone."""
    judge("LIFE-04")
