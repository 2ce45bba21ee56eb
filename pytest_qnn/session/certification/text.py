"""A certification in words. No text of a folder, which may be forged, begins a line of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_qnn.core.printable import FLOOD, counted, one_line

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
        yield from (_line(f"false: {sentence}") for sentence in found.false[:_SHOWN])
        statements = counted(len(found.false), "statement is", "statements are")
        yield f"NOT TRUE: {statements} not what the answers show"
        return
    yield f"judged again: {counted(found.judged, 'rule')}, as stated"
    yield from (_line(f"withdrawn: {text}") for text in found.withdrawn)
    yield from _end(found.missing, found.violated)


def _head(said: Statement) -> Iterator[str]:
    yield from (_line(f"{key}: {text}") for key, text in said.submission.items())
    yield _line(
        f"pytest-qnn {said.release}, profile {said.profile}, seed {said.seed}, {said.answers} cases answered"
    )
    for target in said.targets:
        verdicts = ", ".join(f"{number} {verdict}" for verdict, number in target.verdicts.items())
        yield _line(f"{target.subject} target {target.spec}: {verdicts}")
        yield from (
            f"  {_line(f'{key}: {value}')}"
            for key, value in target.provenance.items()
            if key.endswith("_sha256")
        )


def _end(missing: Sequence[str], violated: Sequence[str]) -> Iterator[str]:
    if violated:
        yield _line(f"NOT KEPT: {', '.join(violated)}")
    if missing:
        yield _line(f"NOT A CERTIFICATION: {'; '.join(missing)}")
    if not violated and not missing:
        yield "CERTIFIED: every rule that must hold does"


def _line(text: str) -> str:
    return one_line(text, FLOOD)
