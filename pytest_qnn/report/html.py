"""The report as one self-contained HTML page: no script, no file beside it, everything escaped."""

from __future__ import annotations

from html import escape
from typing import Any

from pytest_qnn.core.printable import printable
from pytest_qnn.report import choices, claims
from pytest_qnn.report.failure import compact

OUTCOMES = ("pass", "fail", "crash", "hang", "unsupported", "contradiction", "inconclusive", "known")

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 }
th, td { border: 1px solid #ccc; padding: .2em .6em; text-align: left; vertical-align: top }
td.number { text-align: right }
td { white-space: pre-line }
pre { background: #f6f6f6; padding: .6em; overflow-x: auto; white-space: pre-wrap }
.pass { color: #176f2c } .fail, .crash, .hang { color: #b3161b } .unsupported { color: #666 }
.contradiction, .inconclusive { color: #8a5a00 }
"""

HEAD = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>pytest-qnn report</title>
<style>{STYLE}</style>
</head>
<body>
<h1>pytest-qnn report</h1>"""


def page(document: dict[str, Any]) -> str:
    """The whole page for a report of schema 2."""
    state = "complete" if document["complete"] else "incomplete"
    parts = [HEAD, _pairs({"state": state, **_run(document)})]
    if document["not_judged"]:
        parts.append(f"<p>Not judged: {escape(', '.join(document['not_judged']))}</p>")
    parts += [_target(target) for target in document["targets"]]
    # Of the page itself no character changes: what stands between its tags is from elsewhere.
    return printable("\n".join([*parts, "</body>\n</html>\n"]))


def _run(document: dict[str, Any]) -> dict[str, Any]:
    plain = ("python", "platform", "started", "finished", "seed", "profile")
    surroundings = {
        "shard": document["options"].get("qnn_shard") or "",
        "merged from": "\n".join(
            " ".join(str(each[key]) for key in each) for each in document.get("merged", ())
        ),
        "held back from child processes": ", ".join(document.get("held_back", ())),
        "host": "\n".join(document.get("host_lacks", ())),
    }
    return {
        **document.get("submission", {}),
        **{key: document[key] for key in plain},
        **{key: text for key, text in surroundings.items() if text},
        **document["tool"],
        **{key: compact(value) for key, value in document["options"].items()},
        **{key: compact(value) for key, value in document["extra"].items()},
    }


def _pairs(values: dict[str, Any]) -> str:
    rows = (f"<tr><th>{escape(key)}</th><td>{escape(str(value))}</td></tr>" for key, value in values.items())
    return "<table>\n" + "\n".join(rows) + "\n</table>"


def _target(target: dict[str, Any]) -> str:
    rules = [rule for rule in target["rules"] if rule["state"] == "judged"]
    title = f"<h2>{escape(target['subject'])} target: {escape(target['spec'])}</h2>"
    chosen = {"options": " ".join(target["options"]), **target["provenance"]}
    if "claims" in target:
        chosen["learned"] = "\n".join(claims.lines(target))
    if "partitioning" in target:
        chosen["sample graphs"] = "\n".join(claims.sample_lines(target))
    for name, kinds in target.get("declared", {}).items():
        chosen[f"beside what is declared: {name}"] = ", ".join(kinds) or "nothing"
    if "choices" in target:
        chosen["where documents are silent"] = "\n".join(choices.lines(target))
    rows = "\n".join(_rule(rule) for rule in rules)
    names = ("rule", "level", "verdict", "examples", "examined", "what was found")
    head = "<tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>"
    table = [_counts(rules), f"<table>\n{head}\n{rows}\n</table>"] if rules else []
    left = (
        _left(target, "not_selected", "not selected"),
        _left(target, "other_shard", "left to other shards"),
    )
    return "\n".join([title, _pairs(chosen), *table, *left])


def _left(target: dict[str, Any], state: str, words: str) -> str:
    """The rules of this state, which have no verdict."""
    ids = [rule["id"] for rule in target["rules"] if rule["state"] == state]
    if not ids:
        return ""
    summary = f"{len(ids)} of {len(target['rules'])} rules were {words}"
    return f"<details><summary>{summary}</summary><p>{escape(', '.join(ids))}</p></details>"


def _counts(rules: list[dict[str, Any]]) -> str:
    """The table of areas and verdict counts."""
    areas: dict[str, list[str]] = {}
    for rule in rules:
        areas.setdefault(rule["area"], []).append(rule["verdict"])
    areas["total"] = [rule["verdict"] for rule in rules]
    head = "<tr><th>area</th>" + "".join(f"<th>{name}</th>" for name in OUTCOMES) + "</tr>"
    rows = [
        f"<tr><th>{escape(area)}</th>"
        + "".join(f'<td class="number">{found.count(name)}</td>' for name in OUTCOMES)
        + "</tr>"
        for area, found in areas.items()
    ]
    return "\n".join(["<table>", head, *rows, "</table>"])


def _rule(rule: dict[str, Any]) -> str:
    verdict = escape(rule["verdict"])
    level = escape(rule["level"]) + (" (self-check)" if rule["self_check"] else "")
    return (
        f'<tr id="{escape(rule["id"])}"><td>{escape(rule["id"])}</td><td>{level}</td>'
        f'<td class="{verdict}">{verdict}</td><td class="number">{rule["examples"]}</td>'
        f'<td class="number">{rule["examined"]} {escape(rule["what"])}</td><td>{_found(rule)}</td></tr>'
    )


def _evidence(left: dict[str, Any]) -> str:
    """What a child left that died."""
    frames = (frame["at"] + (f" at {frame['line']}" if frame["line"] else "") for frame in left["backtrace"])
    calls = (
        f"{call['step']:>3}: {call['name']} "
        + ("did not return" if call["status"] is None else f"-> {call['result'] or call['status']}")
        for call in left["calls"]
    )
    parts = {
        "stderr": left["stderr"],
        "native backtrace": "\n".join(frames),
        "calls, by step": "\n".join(calls),
    }
    return "".join(
        f"<details open><summary>{name}</summary><pre>{escape(text)}</pre></details>"
        for name, text in parts.items()
        if text
    )


def _found(rule: dict[str, Any]) -> str:
    parts = [f"{escape(rule['sentence'])} <small>{escape(rule['source'])}</small>"]
    if rule["reason"]:
        parts.append(escape(rule["reason"]))
    if rule["found_by"]:
        parts.append(f"found in a control of the cases of {escape(rule['found_by'])}")
    parts += [f"known: {escape(text)}" for text in rule["known"]]
    if rule["unexpected"]:
        parts.append(f"not as expected: {escape(rule['unexpected'])}")
    if rule["blocked_by"]:
        parts.append(
            f"some cases went wrong by {escape(', '.join(rule['blocked_by']))}, and do not count here"
        )
    if rule["flaky"]:
        parts.append(f"flaky: the minimal case {escape(rule['flaky'])}")
    if rule["note"]:
        parts.append(escape(rule["note"]))
    if rule["violation"]:
        shown = {
            key: rule["violation"][key] for key in ("expected", "seen", "where") if rule["violation"][key]
        }
        parts += [f"{key}: {escape(text)}" for key, text in shown.items()]
        if rule["violation"]["picture"]:
            parts.append(f"<pre>{escape(rule['violation']['picture'])}</pre>")
        if rule["violation"]["evidence"]:
            parts.append(_evidence(rule["violation"]["evidence"]))
    if rule["case"] is not None:
        case = escape(compact(rule["case"]))
        parts.append(f"<details><summary>minimal case</summary><pre>{case}</pre></details>")
    if rule["traceback"]:
        parts.append(f"<details><summary>traceback</summary><pre>{escape(rule['traceback'])}</pre></details>")
    if rule["replay"]:
        parts.append(f"<pre>{escape(rule['replay'])}</pre>")
    return "<br>\n".join(parts)
