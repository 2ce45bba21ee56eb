"""Write the pages of all rules, docs/rules/: ``python -m tools.explain.pages``.

A page for each area, with a heading for each rule, as ``pytest --qnn-explain`` prints it; and
docs/rules/README.md, which says which rules are written out and why, which have no smallest violation, and
which libraries were judged.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from pytest_qnn import rules
from pytest_qnn.core.rule import Demand
from pytest_qnn.report.explain import known, page, stored, written
from tools.explain.areas import ABOUT

DOCS = Path(__file__).parents[2] / "docs" / "rules"
MANY = 4
"""Mutants of a rule that is written out for their number alone."""
BROKEN = ("fail", "crash", "hang", "contradiction")
_PUBLIC = re.compile(r"device log|\bRT-[0-9]+\b")
"""In the source of a rule: what was seen in public."""
_TITLES = {"memory": "QNN memory", "delegate": "TensorFlow Lite delegates"}
_HEAD = """\
# Pages of the rules

Written by `python -m tools.explain.pages`; a test keeps them so. `pytest --qnn-explain=REG-21` prints the
same page of a rule on the terminal, and takes several ids and shell patterns (`--qnn-explain=REG-21,CTX-*`).
The flat list of all rules is [rules.md](../reference/rules.md).

A page says what the rule demands, the smallest case that breaks it, with each call of it explained, the
mutants that it must find, the conforming targets on which it is unsupported, and what public libraries do.
The smallest case was found on the mutant that the page names, with a fixed seed
(`python -m tools.explain.cases`). A test runs each of them again: it breaks its rule on that mutant (of
rules about threads and measurements in one of twenty runs), and no rule of its area on the conforming target
that the page names, as far as the checks of these can judge a case that was drawn for another rule. On some
of these targets the rule itself has nothing to examine in the case. What the mutants and the targets are is
written by `python -m tools.explain.facts`, what libraries do by `python -m tools.explain.libraries` from
reports.
"""
_WHY = """
## Rules that are written out

A rule is written out (what its source says, why it matters, how implementations go wrong, how to fix it)
where a public library breaks it in the runs below, where a public bug report, a published log of a device or
a known defect of a runtime concerns it, or where at least {many} mutants break it. These are {count}.

| rule | a public library breaks it | in public | mutants |
|---|---|---|---|
"""
_LIBRARIES = """
## Libraries that were judged

| library | date | profile | seed | SHA-256 |
|---|---|---|---|---|
"""
_WITHOUT = """
## Rules without a smallest violation

None was found on their mutants that shows the violation each time and that a conforming target obeys: {ids}.
"""
_AREAS = """
## Areas
"""


def path_of(rule: Demand) -> Path:
    """The document that has the page of a rule."""
    return DOCS / written.HALVES[rule.subject] / f"{rule.area.lower()}.md"


def reasons(rule: Demand) -> tuple[str, str, str]:
    """Why a rule is written out: libraries that break it, what is public of it, and its mutants if many."""
    found = known.of(rule.id)
    libraries = [name for name, (verdict, _) in found.libraries.items() if verdict in BROKEN]
    by_hand = written.of(rule.id, rule.subject)
    public = [*_PUBLIC.findall(rule.source), *(("bug reports",) if by_hand and by_hand.bugs else ())]
    many = str(len(found.mutants)) if len(found.mutants) >= MANY else ""
    return "; ".join(libraries), ", ".join(dict.fromkeys(public)), many


def documents() -> dict[Path, str]:
    """Every document with its content."""
    ordered = sorted(rules.listed().values(), key=lambda rule: (rule.subject, rule.area, rule.id))
    made = {DOCS / "README.md": _index(ordered)}
    for path, group in itertools.groupby(ordered, key=path_of):
        listed = list(group)
        area, subject = listed[0].area, _TITLES[listed[0].subject]
        head = f"# {area}: {ABOUT[area]}\n\n{subject}. Written by `python -m tools.explain.pages`.\n"
        made[path] = "\n".join([head, *map(page.markdown, listed)])
    return made


def _index(ordered: list[Demand]) -> str:
    by_hand = [rule for rule in ordered if rule.id in written.everything()]
    cases = stored.examples()
    without = ", ".join(rule.id for rule in ordered if rule.id not in cases)
    return "".join(
        [
            _HEAD,
            _AREAS,
            *_area_lines(ordered),
            _WHY.format(many=MANY, count=len(by_hand)),
            *(f"| {_link(rule)} | {' | '.join(reasons(rule))} |\n" for rule in by_hand),
            _WITHOUT.format(ids=without) if without else "",
            _LIBRARIES,
            *(f"| {name} | {' | '.join(map(str, each))} |\n" for name, each in known.libraries().items()),
        ]
    )


def _area_lines(ordered: list[Demand]) -> Iterator[str]:
    for subject, group in itertools.groupby(ordered, key=lambda rule: rule.subject):
        folder = written.HALVES[subject]
        yield f"\n| {_TITLES[subject]} | rules about |\n|---|---|\n"
        for area in dict.fromkeys(rule.area for rule in group):
            yield f"| [{area}]({folder}/{area.lower()}.md) | {ABOUT[area]} |\n"


def _link(rule: Demand) -> str:
    path = path_of(rule).relative_to(DOCS).as_posix()
    return f"[{rule.id}]({path}#{rule.id.lower()})"


def main() -> None:
    """Write the documents, and remove pages of areas that there are no more."""
    made = documents()
    for old in {*DOCS.rglob("*.md")} - made.keys():
        old.unlink()
    for path, content in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
