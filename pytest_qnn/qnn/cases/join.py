"""Several cases as one: what one process did, for a fault that only shows after other cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pytest_qnn.core.bounds import BadCase
from pytest_qnn.qnn.cases.case import BOGUS, FREED, MAPPED, MOST_STEPS, NULL, AnyStep, MemoryCase
from pytest_qnn.qnn.cases.lives import effect_of
from pytest_qnn.qnn.cases.valid import check_memory

_RESERVED = ("", NULL, BOGUS, MAPPED, FREED)


def joined(cases: Sequence[MemoryCase]) -> MemoryCase | None:
    """The steps of all cases in order, objects under names of their own; None: it is too much for one."""
    steps = tuple(_renamed(step, f"-{at}") for at, case in enumerate(cases) for step in case.steps)
    if len(steps) > MOST_STEPS:
        return None
    case = MemoryCase(steps, ends=cases[-1].ends)
    try:
        check_memory(case)
    except BadCase:
        return None
    return case


def _renamed(step: AnyStep, suffix: str) -> AnyStep:
    effect = effect_of(step)
    for field in effect.makes + effect.uses + effect.ends:
        first, _, second = field.partition(".")
        changed = _with_suffix(getattr(step, first), second, suffix)
        step = msgspec.structs.replace(step, **{first: changed})
    return step


def _with_suffix(value: Any, second: str, suffix: str) -> Any:
    """A name, several, or structures with a name in their field ``second``, with a suffix to the names."""
    if isinstance(value, str):
        return value if value in _RESERVED else value + suffix
    if not second:
        return tuple(_with_suffix(name, "", suffix) for name in value)
    return tuple(
        msgspec.structs.replace(each, **{second: _with_suffix(getattr(each, second), "", suffix)})
        for each in value
    )
