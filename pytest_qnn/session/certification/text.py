"""A certification in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_qnn.core.printable import counted, printable

if TYPE_CHECKING:
    from pytest_qnn.session.certification.statement import Statement
    from pytest_qnn.session.certification.verify import Findings

_SHOWN = 20
"""Sentences about what is false."""


def stated(said: Statement, missing: Sequence[str], violated: Sequence[str]) -> Iterator[str]:
    """What a run has shown, line by line."""
    yield from _head(said)
    yield from _end(missing, violated)


def verified(found: Findings) -> Iterator[str]:
    """What verification has shown, line by line."""
    yield from _head(found.stated)
    if found.false:
        yield from (f"false: {printable(sentence)}" for sentence in found.false[:_SHOWN])
        statements = counted(len(found.false), "statement is", "statements are")
        yield f"NOT TRUE: {statements} not what the answers show"
        return
    yield f"judged again: {counted(found.judged, 'rule')}, as stated"
    yield from (f"withdrawn: {printable(text)}" for text in found.withdrawn)
    yield from _end(found.missing, found.violated)


def _head(said: Statement) -> Iterator[str]:
    yield from (f"{key}: {printable(text)}" for key, text in said.submission.items())
    yield printable(
        f"pytest-qnn {said.release}, profile {said.profile}, seed {said.seed}, {said.answers} cases answered"
    )
    for target in said.targets:
        verdicts = ", ".join(f"{number} {verdict}" for verdict, number in target.verdicts.items())
        yield printable(f"{target.subject} target {target.spec}: {verdicts}")
        yield from (
            printable(f"  {key}: {value}")
            for key, value in target.provenance.items()
            if key.endswith("_sha256")
        )


def _end(missing: Sequence[str], violated: Sequence[str]) -> Iterator[str]:
    if violated:
        yield f"NOT KEPT: {printable(', '.join(violated))}"
    if missing:
        yield f"NOT A CERTIFICATION: {printable('; '.join(missing))}"
    if not violated and not missing:
        yield "CERTIFIED: every rule that must hold does"
