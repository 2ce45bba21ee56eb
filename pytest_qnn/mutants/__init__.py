"""Targets with exactly one fault each, and the rules that must find it.

Each module but ``mutant``, ``proxies`` and ``__main__`` has a list ``MUTANTS``.
"""

from __future__ import annotations

import importlib
import pkgutil

from pytest_qnn.mutants.mutant import Mutant

__all__ = ["Mutant", "table"]


def table() -> dict[str, Mutant]:
    """Every mutant by name.

    Raises:
        ValueError: two mutants have one name.
    """
    found: dict[str, Mutant] = {}
    for entry in pkgutil.iter_modules(__path__):
        if entry.name in ("mutant", "proxies", "__main__"):
            continue
        for mutant in importlib.import_module(f"{__name__}.{entry.name}").MUTANTS:
            if mutant.name in found:
                raise ValueError(f"two mutants are called {mutant.name}")
            found[mutant.name] = mutant
    return found
