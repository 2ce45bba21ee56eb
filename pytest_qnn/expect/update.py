"""``python -m pytest_qnn expect``: enter what reports found into the file of known failures.

An entry that is made has everything that a report knows, and no reason, issue, owner or date: these are for
whoever accepts the failure to write, and until then the file is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tomlkit

from pytest_qnn.core.fingerprint import Fingerprint
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.printable import printable
from pytest_qnn.expect.file import ACCEPTED, CLAIMS, ENTRIES, FLAG, parsed, text_of

HELP = "write what reports found into a file of known failures (--qnn-expect)"
_TO_WRITE = ("reason", "issue", "owner")
_FIXED = ("rule", "verdict", "fingerprint", "library")
_ON_A_LINE = 4
"""Values of an array that stand on one line."""
_DIGEST = "_sha256"
SCHEMA = 2
"""Of reports."""


def declare(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="JSON of --qnn-report")
    parser.add_argument(
        "--update", type=Path, required=True, metavar="FILE", help="the file, made if need be"
    )
    parser.add_argument(
        "--claims",
        action="store_true",
        help="declare what the reports' targets support, in place of before",
    )


def main(options: argparse.Namespace) -> int:
    """Add an entry for each failure that the file does not have; with ``--claims`` also what was learned.

    Returns:
        0: the file has all of them; 2: a file cannot be read or written, said in one sentence.
    """
    try:
        text = text_of(options.update) if options.update.exists() else ""
        known = parsed(options.update, text).get(ENTRIES, [])
        document = tomlkit.parse(text)
        reports = [_report(path) for path in options.reports]
        added = _add_failures(document, known, reports)
        if options.claims:
            _declare_claims(document, reports)
        if tomlkit.dumps(document) != text:
            options.update.write_text(tomlkit.dumps(document))
    except BadOption as error:
        sys.stderr.write(printable(str(error).removeprefix(f"{FLAG}: ")) + "\n")
        return 2
    except OSError as error:
        sys.stderr.write(printable(f"{str(options.update)!r} cannot be written: {error.strerror}") + "\n")
        return 2
    told = f"; write {', '.join(_TO_WRITE)} and expires into each" if added else ""
    sys.stdout.write(printable(f"{options.update}: {added} entries added{told}") + "\n")
    return 0


def _add_failures(
    document: tomlkit.TOMLDocument, known: Sequence[Mapping[str, Any]], reports: Sequence[Mapping[str, Any]]
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


def _declare_claims(document: tomlkit.TOMLDocument, reports: Sequence[Mapping[str, Any]]) -> None:
    """Write what each target supports, and areas of which every rule was judged and none is unsupported."""
    claims = document.get(CLAIMS) or tomlkit.table(is_super_table=True)
    for target in (target for report in reports for target in report["targets"]):
        table = tomlkit.table()
        for name, values in target.get("capabilities", {"operators": [], "keys": []}).items():
            table[name] = tomlkit.array().multiline(len(values) > _ON_A_LINE)
            table[name].extend(values)
        verdicts: dict[str, set[str | None]] = {}
        for rule in target["rules"]:
            verdicts.setdefault(rule["area"], set()).add(rule["verdict"])
        table["areas"] = sorted(area for area, seen in verdicts.items() if not seen & {None, "unsupported"})
        claims[target["subject"]] = table
    document[CLAIMS] = claims


def _failures(reports: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each failure of the reports that fails a run, as an entry."""
    accepted = {each.value for each in ACCEPTED}
    for report in reports:
        strict = bool(report["options"].get("qnn_strict"))
        for target in report["targets"]:
            library = _library(target["spec"], target["provenance"])
            for rule in target["rules"]:
                if rule["verdict"] in accepted and not rule["blocked_by"] and _is_red(rule, strict=strict):
                    violation = rule["violation"] or {}
                    yield {
                        "rule": rule["id"],
                        "verdict": rule["verdict"],
                        "fingerprint": violation.get("fingerprint", {}),
                        "library": library,
                    }


def _is_red(rule: Mapping[str, Any], *, strict: bool) -> bool:
    """As `pytest_qnn.core.verdict.Verdict.is_red` has it."""
    if rule["verdict"] in ("crash", "hang"):
        return True
    if rule["level"] == "MAY":
        return False
    return strict or rule["level"] == "MUST" or rule["verdict"] != "fail"


def _report(path: Path) -> dict[str, Any]:
    """A report of the suite. Raises BadOption."""
    try:
        data = json.loads(path.read_bytes())
        if data["schema"] != SCHEMA:
            raise ValueError
        for target in data["targets"]:
            target["spec"], target["provenance"].items()
            for rule in target["rules"]:
                violation = rule["violation"] if rule["verdict"] else None
                msgspec.convert((violation or {}).get("fingerprint", {}), Fingerprint)
    except OSError as error:
        raise BadOption(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, msgspec.ValidationError):
        raise BadOption(f"{str(path)!r} is no report of this suite (--qnn-report=FILE.json)") from None
    return dict(data)


def _library(spec: str, provenance: Mapping[str, str]) -> dict[str, str]:
    """What the entry holds for: libraries by their contents; else the target's name, and what it runs on."""
    digests = {key: value for key, value in provenance.items() if key.endswith(_DIGEST)}
    versions = ("runtime", "runtime_version", "provider", "backend_api")
    return digests or {"target": spec, **{key: provenance[key] for key in versions if key in provenance}}


def _table(entry: Mapping[str, Any]) -> tomlkit.items.Table:
    table = tomlkit.table()
    table["rule"], table["verdict"] = entry["rule"], entry["verdict"]
    for name in ("fingerprint", "library"):
        inline = tomlkit.inline_table()
        inline.update(entry[name])
        table[name] = inline
    for name in _TO_WRITE:
        table[name] = ""
    table["expires"] = ""
    return table
