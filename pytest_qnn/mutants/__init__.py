"""Targets with exactly one fault each, and the rules that must find it."""

from __future__ import annotations

import importlib
import pkgutil

from pytest_qnn.core.mutant import Mutant, entered

__all__ = ["table"]


def table() -> dict[str, Mutant]:
    """Every mutant by name.

    Raises:
        ValueError: two mutants have one name.
    """
    for module in pkgutil.iter_modules(__path__):
        if module.name != "__main__":
            importlib.import_module(f"{__name__}.{module.name}")
    return entered()
