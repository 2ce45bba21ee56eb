"""The catalogue of rules. Each module enters the rules of one area (or of a few small ones)."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from pytest_qnn.core.rule import Rule, entered

__all__ = ["Rule", "catalogue"]


def catalogue() -> dict[str, Rule[Any, Any, Any]]:
    """Every rule by id, all areas loaded."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return entered()
