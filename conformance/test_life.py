"""LIFE: the life of a kernel. A delegate is judged; self-checks judge the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_life_01(judge: Judge) -> None:
    """init is called once for each kernel, before any prepare of it, and user_data is what init returned."""
    judge("LIFE-01")


def test_life_02(judge: Judge) -> None:
    """prepare may be called many times for one init and must be idempotent."""
    judge("LIFE-02")


def test_life_04(judge: Judge) -> None:
    """@@When the interpreter is gone, each successful init has been met by exactly one free of its user_data."""
    judge("LIFE-04")
