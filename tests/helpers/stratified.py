"""Cases of a rule as one search draws them: each leading byte, alone, is spread evenly over its values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pytest_qnn.core import drawing
from pytest_qnn.core.rule import Rule
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.strategies import scene, sequences

STRATIFIED = 16
"""Bytes at the beginning of every string."""
Decode = Callable[[bytes], MemoryCase]


def stratified(length: int, examples: int, seed: int) -> list[bytes]:
    """Strings of which the first is zero; the others meet every sixteenth of each leading byte's values."""
    rng = random.Random(seed)
    made = [bytearray(rng.randbytes(length)) for _ in range(examples - 1)]
    for at in range(min(STRATIFIED, length)):
        strata = [*range(16), *rng.sample(range(16), examples - 17)]
        rng.shuffle(strata)
        for data, stratum in zip(made, strata, strict=True):
            data[at] = stratum << 4 | data[at] & 15
    return [bytes(length), *map(bytes, made)]


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
