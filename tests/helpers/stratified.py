"""Cases of a rule as one search draws them: each leading byte, alone, is spread evenly over its values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from pytest_qnn.core import drawing
from pytest_qnn.core.rule import Rule
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.strategies import scene, sequences

Decode = Callable[[bytes], MemoryCase]


def stratified(length: int, examples: int, seed: int) -> list[bytes]:
    """The first strings of a search."""
    return list(itertools.islice(drawing.strings(length, seed), examples))


def decoders(rule: Rule[Any, Any, Any], facts: Any, patch: pytest.MonkeyPatch) -> list[tuple[int, Decode]]:
    """What the rule's strategy makes of bytes, and of how many: empty where it draws in another way."""
    found: list[tuple[int, Decode]] = []

    def kept(size: int, decode: Decode) -> Any:
        found.append((size, decode))
        return drawing.decoded(size, decode)

    for module in (scene, sequences):
        patch.setattr(module, "decoded", kept)
    rule.cases(facts)
    return found
