"""What every case file says, whatever its case; each half adds its kinds of case."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pytest_qnn.core.bounds import need, shown
from pytest_qnn.core.rule import Subject

WORD = re.compile(r"[A-Za-z0-9_-]{0,100}|[A-Za-z]{1,20}(?:\[0\])?(?:\.[A-Za-z]{1,20}){0,2}")
"""A symbolic name of an object, or one of the words that an enumeration allows (``minus-one``)."""
RuleId = Annotated[str, Meta(pattern="^[A-Z]{1,12}-[0-9]{2,4}$")]
TargetOption = Annotated[str, Meta(pattern="^--[a-z-]+=")]


class CaseFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="subject"):
    """What every case file says; ``subject`` tells the kinds apart."""

    schema: Literal[2]
    rule: RuleId
    verdict: str = ""
    """The verdict when the case was found."""
    flaky: str = ""
    """How often the case failed then, if not in every run."""
    target: str
    """Specification string of the target that broke the rule."""
    options: Annotated[tuple[TargetOption, ...], Meta(max_length=100)]
    """Command-line options that select that target."""
    provenance: dict[str, str] = {}
    """Versions and digests of that target."""
    tool: dict[str, str] = {}
    """Versions of pytest-qnn and of what it stands on."""
    seed: int
    """Seed of the run that found the case."""
    expected: str
    seen: str
    where: str = ""
    picture: str = ""

    @property
    def subject(self) -> Subject:
        """Which half of the catalogue the case belongs to."""
        return "memory" if self.__struct_config__.tag == "memory" else "delegate"


def check_names(case: msgspec.Struct) -> None:
    """Check every text in a case, however deep.

    Raises:
        pytest_qnn.core.bounds.BadCase: one of them is no name.
    """
    for text in _texts(case):
        need(WORD.fullmatch(text), f"{shown(text)} is no name")


def _texts(value: Any) -> Iterator[str]:
    """Every text in a structure, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _texts(getattr(value, field))
