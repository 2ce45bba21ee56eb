"""The tables of what was judged, in docs/measured/gallery.md and gallery-delegates.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.gallery.results import Judged, Key, Rules, Standing, rules_of, standing


def document(
    gallery: Any, half: str, results: Iterable[Judged], before: Mapping[str, Rules], known: str
) -> str:
    """The document with the tables of one half made again, between its two marks.

    Args:
        gallery: of that half.
        half: folder.
        results: of both.
        before: the rules that they name.
        known: the document so far.
    """
    begin, end = f"<!-- begin {half} -->\n", f"<!-- end {half} -->\n"
    head, _, rest = known.partition(begin)
    _, _, after = rest.partition(end)
    mine = [each for each in results if each.half == half]
    return head + begin + _tables(gallery, mine, standing(mine, before), rules_of(half)) + end + after


def _tables(gallery: Any, results: list[Judged], stand: Mapping[Key, Standing], now: Rules) -> str:
    """One row for each target: what was judged in ``default``, or, without that, another; then the others."""
    last = {each.key: each for each in results if not each.rules}
    whole_now = {key: each for key, each in stand.items() if each.said.keys() >= now.digests.keys()}
    last |= {key: each.judged(key, now) for key, each in whole_now.items()}
    alone = [each for each in last.values() if not each.load]
    usual = {each.target: each for each in sorted(alone, key=lambda each: each.profile == "default")}
    others = [each for each in last.values() if each is not usual.get(each.target)]
    rows = [
        f"| `{name}` | {' | '.join(map(_cell, about))} | {_profile_of(usual.get(name))} "
        f"| {_summary(usual.get(name))} |\n"
        for name, about in gallery.FREEDOMS.items()
    ]
    further = [
        f"| `{each.target}` | {each.profile} | {each.seed} | {each.load} | {_summary(each)} |\n"
        for each in sorted(others, key=lambda each: (each.profile, each.load, each.seed))
    ]
    seconds = sum(each.seconds for each in usual.values())
    whole = sum(each.profile == "default" for each in usual.values())
    days = sorted({each.day for each in results})
    head = f"\n{len(usual)} of {len(rows)} judged, {whole} of them in profile `default`; "
    head += f"{seconds:.0f} s of processor time, {' to '.join(sorted({*days[:1], *days[-1:]}))}.\n\n"
    found = head + _of_these_rules(stand, now, len(rows)) + _ROWS + "".join(rows)
    return found + ("\nOther runs:\n\n" + _FURTHER + "".join(further) if further else "") + "\n"


def _of_these_rules(stand: Mapping[Key, Standing], now: Rules, targets: int) -> str:
    """How much was judged since each rule's cases and check last changed; ``targets``: of the gallery."""
    groups: dict[tuple[str, int], list[Standing]] = {}
    for (_, _, profile, _, load), each in stand.items():
        groups.setdefault((profile, load), []).append(each)
    found = ""
    for (profile, load), some in sorted(groups.items()):
        stale = [len(each.stale(now)) for each in some]
        left = sum(stale) + (targets - len(some)) * len(now.digests)
        beside = f" beside {load} busy loops" * bool(load)
        found += f"In `{profile}`{beside} by the rules as they are now (their cases, checks and what these "
        found += f"use): {stale.count(0)} of {targets} targets by all {len(now.digests)}, "
        found += f"{left} pairs of a target and a rule are left.\n"
    return found + "\n" * bool(found)


_ROWS = (
    "| target | freedom | source | a client sees | profile | times met | result | s |\n"
    "|---|---|---|---|---|---:|---|---:|\n"
)
_FURTHER = (
    "| target | profile | seed | loops beside | times met | result | s |\n|---|---|---:|---:|---:|---|---:|\n"
)


def _profile_of(found: Judged | None) -> str:
    return found.profile if found else "-"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _summary(found: Judged | None) -> str:
    """Three cells: times met, what the rules say, seconds."""
    if found is None:
        return "- | not judged yet | -"
    counts = f"{found.outcomes.get('pass', 0)} pass, {found.outcomes.get('unsupported', 0)} unsupported"
    red = "".join(f"; **{each.rule} {each.outcome}**" for each in found.red)
    meant = "".join(f"; {each.rule} is meant" for each in found.meant)
    return f"{found.met} | {counts}{red}{meant} | {found.seconds:.0f}"
