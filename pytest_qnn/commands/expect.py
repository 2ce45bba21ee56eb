"""Enter what reports found into a file of known failures (--qnn-expect).

An entry that is made has everything that a report knows, and no reason, issue, owner or date: these are for
whoever accepts the failure to write, and until then the file is refused. With --remove entries go whose rule
is broken no longer.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tomlkit

from pytest_qnn.commands import Parser, refuse, show
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.printable import counted, printable
from pytest_qnn.core.verdict import Level, Outcome, fails
from pytest_qnn.expect.file import ACCEPTED, CLAIMS, ENTRIES, FLAG, holds, parsed, text_of
from pytest_qnn.report import files, loaded

_TO_WRITE = ("reason", "issue", "owner")
_FIXED = ("rule", "verdict", "fingerprint", "library")
_ON_A_LINE = 4
"""Values of an array that stand on one line."""
_DIGEST = "_sha256"
_UNBROKEN = ("pass", "unsupported")
"""Verdicts with which no entry of the rule is found."""


def main(arguments: Sequence[str]) -> int:
    """Add an entry for each failure that the file does not have; remove, and declare claims, as is asked for.

    Returns:
        0: the file has all of them; 2: a file cannot be read or written, said in one sentence.
    """
    given = _parse(arguments)
    try:
        text = text_of(given.update) if given.update.exists() else ""
        known = parsed(given.update, text).get(ENTRIES, [])
        document = tomlkit.parse(text)
        reports = [loaded.read(path) for path in given.reports]
        added = _add_failures(document, known, reports)
        removed = _remove_gone(document, known, reports) if given.remove else []
        if given.claims:
            _declare_claims(document, reports)
        if tomlkit.dumps(document) != text:
            # What a person has written into it must not be lost where the disk is full. A link stays one.
            files.replace(given.update.resolve(), tomlkit.dumps(document).encode())
    except (BadOption, loaded.BadReport) as error:
        return refuse("expect", str(error).removeprefix(f"{FLAG}: "))
    except OSError as error:
        return refuse("expect", f"{str(given.update)!r} cannot be written: {error.strerror or error}")
    told = (
        f"; write {', '.join(_TO_WRITE)} and expires into {'it' if added == 1 else 'each'}" if added else ""
    )
    entries = counted(added, "entry", "entries")
    show([printable(text) for text in (f"{given.update}: {entries} added{told}", *removed)])
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m pytest_qnn expect", description=__doc__)
    add = parser.add_argument
    add("reports", nargs="+", type=Path, metavar="REPORT.json", help="what --qnn-report wrote")
    add("--update", type=Path, required=True, metavar="FILE.toml", help="the file, made if need be")
    add(
        "--remove",
        action="store_true",
        help="remove entries of rules that the reports find unbroken; says which",
    )
    add("--claims", action="store_true", help="declare what the targets support, in place of before")
    return parser.parse_args(arguments)


def _add_failures(
    document: tomlkit.TOMLDocument, known: Sequence[Mapping[str, Any]], reports: Sequence[loaded.Report]
) -> int:
    """Add those that are not known; gives how many."""
    keys = [[one.get(name, {}) for name in _FIXED] for one in known]
    entries = document.get(ENTRIES) or tomlkit.aot()
    for entry in _failures(reports):
        key = [entry[name] for name in _FIXED]
        if key not in keys:
            keys.append(key)
            entries.append(_table(entry))
    if len(keys) > len(known):
        document[ENTRIES] = entries
    return len(keys) - len(known)


def _remove_gone(
    document: tomlkit.TOMLDocument, known: Sequence[Mapping[str, Any]], reports: Sequence[loaded.Report]
) -> list[str]:
    """Remove entries whose rule is broken no longer; a line for each.

    Args:
        document: the file, with the entries of ``known`` first.
        known: its entries before.
        reports: all that judge a target that an entry is about must find the rule unbroken, and one at least.
    """
    told = []
    for place, entry in reversed(list(enumerate(known))):
        verdicts = set(_verdicts(entry, reports))
        if verdicts and verdicts.issubset(_UNBROKEN) and not entry.get("flaky"):
            del document[ENTRIES][place]
            issue = f", {entry['issue']}" if entry.get("issue") else ""
            told.append(f"entry {place + 1} removed: {entry.get('rule')} {entry.get('verdict')}{issue}")
    return told[::-1]


def _verdicts(entry: Mapping[str, Any], reports: Sequence[loaded.Report]) -> Iterator[str]:
    """Of the entry's rule, on each target that the entry is about and that judged it."""
    library = entry.get("library")
    if not isinstance(library, Mapping) or not all(isinstance(value, str) for value in library.values()):
        return
    for target in (target for report in reports for target in report.targets):
        if library and holds(library, {"target": target.spec, **target.provenance}):
            yield from (
                rule.verdict for rule in target.rules if rule.id == entry.get("rule") and rule.verdict
            )


def _declare_claims(document: tomlkit.TOMLDocument, reports: Sequence[loaded.Report]) -> None:
    """Write what each target supports, and areas of which every rule was judged and none is unsupported."""
    claims = document.get(CLAIMS) or tomlkit.table(is_super_table=True)
    for target in (target for report in reports for target in report.targets):
        table = tomlkit.table()
        for name, values in msgspec.to_builtins(target.capabilities).items():
            table[name] = tomlkit.array().multiline(len(values) > _ON_A_LINE)
            table[name].extend(values)
        verdicts: dict[str, set[str | None]] = {}
        for rule in target.rules:
            verdicts.setdefault(rule.id.partition("-")[0], set()).add(rule.verdict)
        table["areas"] = sorted(area for area, seen in verdicts.items() if not seen & {None, "unsupported"})
        claims[target.subject] = table
    document[CLAIMS] = claims


def _failures(reports: Sequence[loaded.Report]) -> Iterator[dict[str, Any]]:
    """Each failure of the reports that fails a run, as an entry."""
    accepted = {each.value: each for each in ACCEPTED}
    for report in reports:
        strict = bool(report.options.get("qnn_strict"))
        for target in report.targets:
            for rule in target.rules:
                outcome = accepted.get(rule.verdict or "")
                blocked = outcome is Outcome.INCONCLUSIVE and rule.blocked_by
                if outcome and not blocked and fails(outcome, Level(rule.level), strict=strict):
                    own = rule.violation or loaded.Violation("", "")
                    # The case of a further one is not made as small as it can be: its ranks mean nothing.
                    others = [
                        (each.verdict, each.violation.fingerprint.at_any_rank()) for each in rule.further
                    ]
                    for verdict, fingerprint in ((rule.verdict, own.fingerprint), *others):
                        yield {
                            "rule": rule.id,
                            "verdict": verdict,
                            # As TOML has it: lists, and no tuples.
                            "fingerprint": msgspec.json.decode(msgspec.json.encode(fingerprint)),
                            "library": _library(target),
                        }


def _library(target: loaded.Target) -> dict[str, str]:
    """What the entry holds for: libraries by their contents; else the target's name, and what it runs on."""
    found = target.provenance
    digests = {key: value for key, value in found.items() if key.endswith(_DIGEST)}
    versions = ("runtime", "runtime_version", "provider", "backend_api")
    return digests or {"target": target.spec, **{key: found[key] for key in versions if key in found}}


def _table(entry: Mapping[str, Any]) -> tomlkit.items.Table:
    table = tomlkit.table()
    table["rule"], table["verdict"] = entry["rule"], entry["verdict"]
    for name in ("fingerprint", "library"):
        inline = tomlkit.inline_table()
        inline.update(entry[name])
        table[name] = inline
    for name in (*_TO_WRITE, "expires"):
        table[name] = ""
    return table
