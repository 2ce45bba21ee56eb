"""The file of known failures: TOML, read as data, each entry complete or refused in one sentence."""

from __future__ import annotations

import datetime
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import tomlkit
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from tomlkit.exceptions import TOMLKitError

from pytest_qnn import rules
from pytest_qnn.core import regular_file
from pytest_qnn.core.fingerprint import SHAPE, Fingerprint
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.known_failures import Expectations, KnownFailure
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.verdict import Outcome

FLAG = "--qnn-expect"
ENTRIES = "failure"
"""The name of the array of tables."""
CLAIMS = "claims"
"""The name of the table of what targets support, by half."""
ACCEPTED = (Outcome.FAIL, Outcome.CRASH, Outcome.HANG, Outcome.CONTRADICTION, Outcome.INCONCLUSIVE)
_MOST_BYTES = 1 << 20
_RANGES = ("<", ">", "=", "!", "~")
"""What a range of versions begins with (PEP 440)."""


class Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a target of one half is declared to support."""

    operators: tuple[str, ...] = ()
    """Of delegates operator and type, and maybe rank and the rest of a kind: ``ADD int8 rank 2 RELU``; of QNN
    operator and type: ``ElementWiseAdd FLOAT_32``."""
    keys: tuple[int, ...] = ()
    """Property keys (QNN)."""
    areas: tuple[str, ...] = ()
    """Areas of which no rule may be unsupported."""


class Expected(NamedTuple):
    """The content of the file."""

    failures: tuple[KnownFailure, ...] = ()
    claims: dict[Subject, Claims] = {}  # noqa: RUF012 - nobody changes it


_WORDS = ("reason", "issue", "owner", "expires")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
"""A date in quotes is taken, too: entries are written with empty quotes, to be filled."""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rule: str
    verdict: str
    library: dict[str, str]
    reason: str
    issue: str
    owner: str
    expires: datetime.date
    fingerprint: Fingerprint = Fingerprint()
    flaky: float = 0.0


def read(path: Path) -> Expected:
    """The content of a file.

    Args:
        path: of a regular file of at most a mebibyte, UTF-8.

    Raises:
        BadOption: it cannot be read, is no TOML, or an entry is not complete.
    """
    data = parsed(path, text_of(path))
    entries = data.get(ENTRIES, [])
    failures = tuple(_checked(path, number, each) for number, each in enumerate(entries, 1))
    return Expected(failures, _claims(path, data.get(CLAIMS, {})))


def text_of(path: Path) -> str:
    """The file's text.

    Raises:
        BadOption: it cannot be read, or is too large.
    """
    try:
        data = regular_file.read(path, _MOST_BYTES)
        text = data.decode()
    except (OSError, ValueError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else "not UTF-8"
        raise BadOption(f"{FLAG}: {os.fspath(path)!r} cannot be read: {reason}") from None
    if len(data) > _MOST_BYTES:
        raise BadOption(f"{FLAG}: {os.fspath(path)!r} has more than {_MOST_BYTES} bytes")
    return text


def parsed(path: Path, text: str) -> dict[str, Any]:
    """The file as data: a list of tables for failures, a table for claims. Raises BadOption."""
    try:
        data = tomlkit.parse(text).unwrap()
    except (TOMLKitError, RecursionError) as error:
        raise BadOption(f"{FLAG}: {os.fspath(path)!r} is not TOML: {error}") from None
    others = sorted(set(data) - {ENTRIES, CLAIMS})
    if others:
        raise BadOption(f"{FLAG}: {os.fspath(path)!r} has {others[0]!r}; entries are [[{ENTRIES}]]")
    found = data.get(ENTRIES, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BadOption(f"{FLAG}: {os.fspath(path)!r}: entries are [[{ENTRIES}]]")
    return data


def _claims(path: Path, data: Any) -> dict[Subject, Claims]:
    """The claims of each half that has some. Raises BadOption."""
    try:
        made = msgspec.convert(data, dict[Subject, Claims])
    except msgspec.ValidationError as error:
        raise BadOption(f"{FLAG}: {os.fspath(path)!r}, {CLAIMS}: {error}") from None
    areas = {(rule.subject, rule.area) for rule in rules.listed().values()}
    for half, claims in made.items():
        unknown = [area for area in claims.areas if (half, area) not in areas]
        if unknown:
            raise BadOption(f"{FLAG}: {os.fspath(path)!r}, {CLAIMS}.{half}: there is no area {unknown[0]!r}")
    return made


def _checked(path: Path, number: int, data: Mapping[str, Any]) -> KnownFailure:
    named = f"{FLAG}: {os.fspath(path)!r}, entry {number} ({data.get('rule', 'of no rule')})"
    empty = [name for name in _WORDS if isinstance(data.get(name), str) and not data[name].strip()]
    if empty:  # all at once: an entry is written with four of them, to be filled
        raise BadOption(f"{named}: empty, and to be filled: {', '.join(empty)}")
    expires = data.get("expires")
    if isinstance(expires, datetime.datetime) or (isinstance(expires, str) and not _DATE.fullmatch(expires)):
        raise BadOption(f"{named}: expires is a date, such as 2027-01-31")
    try:
        entry = msgspec.convert(data, _Entry, str_keys=True)
    except msgspec.ValidationError as error:
        raise BadOption(f"{named}: {error}") from None
    problem = _problem(entry)
    if problem:
        raise BadOption(f"{named}: {problem}")
    fields = {name: getattr(entry, name) for name in _Entry.__struct_fields__ if name != "verdict"}
    return KnownFailure(number=number, verdict=Outcome(entry.verdict), **fields)


def _problem(entry: _Entry) -> str:
    """The first thing that is not right with the entry; empty: nothing."""
    return next(filter(None, _problems(entry)), "")


def _problems(entry: _Entry) -> Iterator[str]:
    listed = rules.listed()
    if entry.rule not in listed:
        near = difflib.get_close_matches(entry.rule, listed, 1)
        yield f"the catalogue has no rule {entry.rule!r}" + (f"; {near[0]}?" if near else "")
    accepted = [each.value for each in ACCEPTED]
    if entry.verdict not in accepted:
        yield f"verdict is {entry.verdict!r}, and not one of {', '.join(accepted)}"
    if not entry.library:
        yield "library names nothing; it says of which libraries the entry holds"
    if entry.fingerprint == Fingerprint() and entry.verdict != Outcome.INCONCLUSIVE.value:
        yield "fingerprint is empty, and would accept anything"
    if not SHAPE.fullmatch(entry.fingerprint.shape):
        yield f"shape is {entry.fingerprint.shape!r}, and not of the form 'from rank 3'"
    if not 0 <= entry.flaky <= 1:
        yield "flaky is a part of all runs, from 0 to 1"
    yield from map(_bad_range, entry.library.values())


def _bad_range(wanted: str) -> str:
    if wanted.startswith(_RANGES):
        try:
            SpecifierSet(wanted)
        except InvalidSpecifier:
            return f"{wanted!r} is no range of versions"
    return ""


def expectations(
    entries: tuple[KnownFailure, ...], rule_id: str, provenance: Mapping[str, str], today: datetime.date
) -> Expectations:
    """What the entries say of a rule on a target.

    Args:
        entries: of the file.
        rule_id: the rule.
        provenance: versions and digests of the target, by key.
        today: entries hold up to their last day, and that day too.
    """
    of_rule = [one for one in entries if one.rule == rule_id and holds(one.library, provenance)]
    return Expectations(
        tuple(one for one in of_rule if one.expires >= today),
        tuple(one for one in of_rule if one.expires < today),
    )


def holds(library: Mapping[str, str], provenance: Mapping[str, str]) -> bool:
    """Whether the target is one that the entry is about: each key is equal, or within the range."""
    return all(key in provenance and _is(provenance[key], wanted) for key, wanted in library.items())


def _is(value: str, wanted: str) -> bool:
    if not wanted.startswith(_RANGES):
        return value == wanted
    try:
        return SpecifierSet(wanted).contains(Version(value), prereleases=True)
    except InvalidVersion:
        return False
