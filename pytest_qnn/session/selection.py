"""Which rules ``--qnn-rule``, ``--qnn-area`` and ``--qnn-level`` select, out of the list of rules.

No rule is imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from pytest_qnn import rules
from pytest_qnn.core.forms import BadOption
from pytest_qnn.options import Selection

_ABOUT = {
    "delegate": "delegates (a delegate is named, and no backend)",
    "memory": "QNN memory (a backend is named, and no delegate)",
}
"""What a run of one half judges, and why."""


def selected(selection: Selection, halves: Collection[str]) -> frozenset[str]:
    """Ids of the rules that satisfy every option of the selection that was given.

    Args:
        selection: what was given.
        halves: those of the catalogue that the run is about (`pytest_qnn.options.Options.halves`).

    Raises:
        BadOption: a pattern, an area or a level is that of no rule, or no rule satisfies all options, or
            none that does is about what the run judges.
    """
    ids = set(rules.listed())
    if selection.rules:
        ids &= matched(selection.rules)
    if selection.areas:
        ids &= _of_areas(selection.areas)
    if selection.levels:
        ids &= _of_levels(selection.levels)
    given = " ".join(f"{flag}={','.join(names)}" for flag, names in selection.given().items())
    if not ids:
        raise BadOption(f"{given}: no rule satisfies all of them")
    if all(rules.listed()[each].subject not in halves for each in ids):
        (half,) = halves
        raise BadOption(f"{given}: no rule about {_ABOUT[half]}, and the run judges nothing else")
    return frozenset(ids)


def matched(patterns: Iterable[str], flag: str = "--qnn-rule") -> set[str]:
    """Ids that one of the patterns matches, which are in capital letters.

    Raises:
        BadOption: a pattern matches no rule; ``flag`` is the option that it came from.
    """
    found: set[str] = set()
    for pattern in patterns:
        ids = {rule_id for rule_id in rules.listed() if fnmatchcase(rule_id, pattern)}
        if not ids:
            raise BadOption(f"{flag}: {pattern!r} matches no rule{instead(pattern)}")
        found |= ids
    return found


def _of_areas(areas: Iterable[str]) -> set[str]:
    """Ids of the rules in these areas. Raises BadOption."""
    known = all_areas()
    for area in areas:
        if area not in known:
            raise BadOption(f"--qnn-area: {area!r} is no area{_nearest('; the nearest is {}', area, known)}")
    return {rule.id for rule in rules.listed().values() if rule.area in areas}


def _of_levels(levels: Iterable[str]) -> set[str]:
    """Ids of the rules of these levels. Raises BadOption."""
    found = {level: {rule.id for rule in rules.listed().values() if rule.level == level} for level in levels}
    for level, ids in found.items():
        if not ids:
            raise BadOption(f"--qnn-level: no rule is a {level}")
    return set().union(*found.values())


def all_areas() -> list[str]:
    """The areas of the rules, sorted."""
    return sorted({rule.area for rule in rules.listed().values()})


def instead(pattern: str) -> str:
    """What is near to a pattern that matches nothing, to end the sentence with; empty: nothing is."""
    areas = all_areas()
    if pattern in areas:
        return f"; {pattern}-* matches those of the area"
    near = "" if set(pattern) & set("*?[") else _nearest("; the nearest is {}", pattern, rules.listed())
    return near or _nearest("; the nearest area is {}", pattern.partition("-")[0], areas)


def _nearest(sentence: str, text: str, known: Iterable[str]) -> str:
    """The sentence, with the known text that is the nearest; empty: none is near."""
    near = difflib.get_close_matches(text, list(known), 1)
    return sentence.format(near[0]) if near else ""
