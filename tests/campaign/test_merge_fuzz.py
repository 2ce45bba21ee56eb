"""What ``python -m pytest_qnn merge`` says of reports that no run has written: one sentence, and soon."""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fake_suite
import pytest
from reports import within

from pytest_qnn.commands import USAGE_ERROR
from pytest_qnn.commands import merge as command
from pytest_qnn.report import loaded

RULES = ("REG-01", "REG-02", "REG-03", "REG-06", "REG-08", "REG-11", "PART-01", "PART-02")
MISSING = object()
NUMBERS = (-1, 0, 1, 2**31, 2**64, 10**30, -(10**30), 1.5, 1e308)
TEXTS = ("", "x", "REG-01", "crash", "9" * 5000, "[" * 2000, "{}", "null", "[1]", "1e999")
OTHERS = (MISSING, None, True, [], [1], [[]], {}, {"a": 1}, {"": []}, {"REG-01": [0]})
RAW = ("9" * 5000, "1e999", "NaN", '"\\ud800"', "[" * 200 + "]" * 200, "[" * 3000 + "]" * 3000)
"""JSON that Python does not write, or not like this."""


class Raw(NamedTuple):
    """JSON as it stands in a file."""

    text: str


HOLE = "what the JSON stands in place of"
FEW = 100
SECONDS = 10.0
"""For one merge: it takes 20 ms."""


_made: list[dict[str, Any]] = []


@pytest.fixture
def report(pytester: pytest.Pytester, fakes: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """That of the only shard of a campaign, which is run once."""
    if _made:
        return copy.deepcopy(_made[0])
    monkeypatch.setenv("FAKE_EVIDENCE", "1")
    pytester.makepyfile(test_rules=fake_suite.suite(*RULES))
    options = (f"--qnn-rule={','.join(RULES)}", "--qnn-seed=3", "--qnn-blocks=2", "--qnn-shard=1/1")
    assert pytester.runpytest_inprocess(*options, "--qnn-report=1.json").ret == 1
    _made.append(json.loads(Path("1.json").read_text()))
    return copy.deepcopy(_made[0])


def merged(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence that refuses the report; empty: it is merged, and what comes of it can be read."""
    Path("odd.json").write_text(text)
    capsys.readouterr()
    with within(SECONDS):
        status = command.main(["odd.json", "--update=all.json", "--html=all.html", "--summary=all.md"])
    if status != USAGE_ERROR:
        assert status in (0, 1)
        loaded.read(Path("all.json"))
        return ""
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("merge: ")
    assert len(line) < 700
    return line


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where each value in the data stands; of a list only the first three are gone into."""
    if place:
        yield place
    inner = (
        value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    )
    for key, part in inner:
        yield from places(part, (*place, key))


def changed(report: dict[str, Any], place: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """The report with another value there."""
    made = copy.deepcopy(report)
    at: Any = made
    for key in place[:-1]:
        at = at[key]
    if value is MISSING:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return made


def odd(report: dict[str, Any]) -> list[tuple[tuple[str | int, ...], object]]:
    """Each place with each odd value; of values that stand in several alike places the first."""
    kinds: dict[tuple[str, ...], tuple[str | int, ...]] = {}
    for place in places(report):
        kinds.setdefault(tuple("" if isinstance(key, int) else key for key in place), place)
    return list(itertools.product(kinds.values(), (*NUMBERS, *TEXTS, *OTHERS, *map(Raw, RAW))))


def text_of(report: dict[str, Any], place: tuple[str | int, ...], value: object) -> str:
    """The report with the value there, as JSON."""
    if not isinstance(value, Raw):
        return json.dumps(changed(report, place, value))
    return json.dumps(changed(report, place, HOLE)).replace(json.dumps(HOLE), value.text)


def test_a_report_with_something_odd_in_it_costs_a_sentence_or_is_merged(
    report: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert merged(json.dumps(report), capsys) == ""
    for place, value in random.Random(0).sample(odd(report), FEW):
        merged(text_of(report, place, value), capsys)


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_each_report_with_something_odd_in_it_costs_a_sentence_or_is_merged(
    report: dict[str, Any], capsys: pytest.CaptureFixture[str], part: int
) -> None:
    for place, value in odd(report)[part::10]:
        merged(text_of(report, place, value), capsys)


def finding(case: str) -> Callable[[dict[str, Any]], None]:
    """Has the case of a finding be this text."""

    def change(report: dict[str, Any]) -> None:
        found = [part["finding"] for part in report["shard"]["parts"] if part["finding"]]
        found[0]["case"] = case

    return change


def with_all_targets_of_one_half(report: dict[str, Any]) -> None:
    report["halves"] = ["memory", "memory"]
    report["targets"] = [target for target in report["targets"] if target["subject"] == "memory"]
    report["targets"].append(report["targets"][0] | {"spec": "another"})


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *(
            (finding(case), "with a case that is none")
            for case in ("x", "null", "[1]", '"x"', '{"a": 1e999}', '{"a": NaN}', "9" * 5000)
        ),
        (finding('{"a":' + "[" * 200 + "]" * 200 + "}"), "with a case that is none"),
        (finding("[" * 100_000), "with a case that is none"),
        *(
            (lambda report, blocks=blocks: report["options"].update(qnn_blocks=blocks), "of no seed blocks")
            for blocks in (2**40, 10**30, 0, -1, True, 2.0, None)
        ),
        (lambda report: report["shard"].update(of=2**40), "is shard 1 of 1099511627776"),
        (lambda report: report["shard"].update(of=10**30), "is shard 1 of a number of 100 bits"),
        (lambda report: report["shard"].update(of=-1), "is shard 1 of -1"),
        (lambda report: report["shard"].update(of=5000), "of 5000 shards these are missing: 2, 3, "),
        (lambda report: report["shard"]["parts"][0].update(seconds=-1.0), "Expected `float` >= 0.0"),
        (lambda report: report["shard"]["parts"][0].update(examples=-1), "Expected `int` >= 0"),
        (lambda report: report["extra"].update(board=deep(200)), "more than 100 levels of them"),
        (lambda report: report["options"].update(board=deep(200)), "more than 100 levels of them"),
        (with_all_targets_of_one_half, "has other targets than those of its halves"),
    ],
)
def test_what_no_run_has_written_is_refused_in_one_sentence(
    report: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    change: Callable[[dict[str, Any]], None],
    said: str,
) -> None:
    change(report)
    assert said in merged(json.dumps(report), capsys)


def test_what_is_too_much_together_is_refused(
    report: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for part in report["shard"]["parts"]:
        part["seconds"] = 1e9
    assert "what they come to is not a report of pytest-qnn: Expected `float` <= 1" in merged(
        json.dumps(report), capsys
    )
