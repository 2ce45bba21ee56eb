"""How what was learned of a target differs: what a delegate claims, and what a backend chose."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.report.compare.data import (
    ChoiceDifference,
    ClaimDifference,
    CountDifference,
    KindDifference,
    LearnedKind,
)
from pytest_qnn.report.loaded import Capabilities, Claim, Partitioning, Target

_CLAIMS = "claims"
"""How the text of a claim begins where anything is claimed (`pytest_qnn.tflite.learned.WORDS`)."""


def claims(old: Target, new: Target) -> Iterator[ClaimDifference]:
    """Operators of which the delegate claims other kinds of node, those first of which it claims fewer."""
    before = {(claim.op, claim.dtype): claim for claim in old.claims}
    after = {(claim.op, claim.dtype): claim for claim in new.claims}
    unlearned = not new.claims and any(rule.state == "judged" for rule in new.rules)
    found = []
    for op, dtype in dict.fromkeys((*before, *after)):
        first = before.get((op, dtype), Claim(op, dtype, 0, 0, ""))
        second = after.get((op, dtype), Claim(op, dtype, 0, 0, ""))
        if first == second:
            continue
        kind: LearnedKind = "lost" if unlearned and first.claimed else _kind(first, second)
        found.append(
            ClaimDifference(
                kind=kind,
                op=op,
                dtype=dtype,
                old_claimed=first.claimed,
                old_asked=first.asked,
                old=first.text,
                new_claimed=second.claimed,
                new_asked=second.asked,
                new=second.text,
            )
        )
    yield from sorted(found, key=lambda each: each.kind != "lost")


def _kind(old: Claim, new: Claim) -> LearnedKind:
    if old.asked != new.asked:
        return "other"
    if old.claimed == new.claimed:
        # Of as many kinds that are not the same ones, some are claimed no longer.
        return "changed" if _claimed(old.text) == _claimed(new.text) else "lost"
    return "lost" if new.claimed < old.claimed else "gained"


def _claimed(text: str) -> str:
    """The part of the text that says which kinds are claimed; empty: none."""
    return text.partition("); ")[0].rstrip(")") if text.startswith(_CLAIMS) else ""


def kinds(old: Target, new: Target) -> Iterator[KindDifference]:
    """What is supported in one of the reports only: lost first.

    Nothing where one of them learned nothing: then nobody knows which kinds it would have been.
    """
    before, after = (_supported(target.capabilities) for target in (old, new))
    if not before or not after:
        return
    for of, which in before:
        if (of, which) not in after:
            yield KindDifference(kind="lost", of=of, which=which)
    for of, which in after:
        if (of, which) not in before:
            yield KindDifference(kind="gained", of=of, which=which)


def _supported(found: Capabilities) -> dict[tuple[str, str], None]:
    """Operator and type, and the rest of the kind; in the report's order."""
    operators = [kind.split(maxsplit=2) for kind in found.operators]
    named = {(" ".join(words[:2]), " ".join(words[2:])): None for words in operators}
    return named | {("property key", str(key)): None for key in found.keys}


def partitioning(old: Partitioning | None, new: Partitioning | None) -> Iterator[CountDifference]:
    """How the sample graphs are cut up otherwise; nothing where one report does not say."""
    if old is None or new is None:
        return
    if (old.graphs, old.nodes) != (new.graphs, new.nodes):
        yield CountDifference(kind="other", name="sample graphs", old=old.graphs, new=new.graphs)
        yield CountDifference(kind="other", name="nodes of sample graphs", old=old.nodes, new=new.nodes)
        return
    for op in dict.fromkeys((*old.left, *new.left)):
        before, after = old.left.get(op, 0), new.left.get(op, 0)
        if before != after:
            kind: LearnedKind = "lost" if after > before else "gained"
            yield CountDifference(kind=kind, name=f"{op} left to the CPU", old=before, new=after)
    if old.kernels != new.kernels:
        yield CountDifference(kind="changed", name="kernels", old=old.kernels, new=new.kernels)
    if old.switches != new.switches:
        yield CountDifference(kind="changed", name="switches", old=old.switches, new=new.switches)


def choices(old: Target, new: Target) -> Iterator[ChoiceDifference]:
    """Questions that the documents leave open and that the backend answers otherwise."""
    before = {choice.point: choice for choice in old.choices}
    after = {choice.point: choice for choice in new.choices}
    for point in dict.fromkeys((*before, *after)):
        first, second = before.get(point), after.get(point)
        answers = (first.answer if first else "", second.answer if second else "")
        told = second or first
        if told is not None and answers[0] != answers[1]:
            yield ChoiceDifference(point=point, question=told.question, old=answers[0], new=answers[1])
