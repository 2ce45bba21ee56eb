"""Vendor, product, SDK and board: from the command line, the ini file and a TOML file to every report."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import fake_suite
import jsonschema
import pytest
from reports import refusal

from pytest_qnn.core.submission import KEYS, LARGEST, LONGEST

ALL = {"vendor": "Acme, Inc.", "product": 'Falcon <2> & "more"', "sdk": "2.32.0", "board": "Bench 3 äöü"}
GIVEN = [f"--qnn-{key}={text}" for key, text in ALL.items()]
REPORTS = ("--qnn-report=out.json", "--qnn-report=out.html", "--junitxml=out.xml")
HOSTILE = "a\x1b[2J\x07\x9b31m\u202eb\u2066<b>&"
"""What would do something to a terminal, a page or a file."""
ESCAPED = r"a\x1b[2J\x07\x9b31m\u202eb\u2066<b>&"

pytestmark = pytest.mark.usefixtures("fakes")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01"))
    return pytester.runpytest_inprocess(*REPORTS, *arguments)


def schema() -> Any:
    """What checks a report."""
    content = resources.files("pytest_qnn.report").joinpath("schema.json").read_text()
    return jsonschema.Draft202012Validator(json.loads(content))


def submission() -> dict[str, str] | None:
    """What the JSON report says, which is valid."""
    document: dict[str, Any] = json.loads(Path("out.json").read_text())
    schema().validate(document)
    found: dict[str, str] | None = document.get("submission")
    return found


def suite_properties() -> dict[str | None, str | None]:
    """Of the testsuite in the JUnit file, not of its tests."""
    found = ET.parse("out.xml").findall("testsuite/properties/property")
    return {one.get("name"): one.get("value") for one in found}


class Rows(HTMLParser):
    """The cells of a page's tables: heading to text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.tag = self.heading = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the method's own
        self.tag = tag

    def handle_data(self, data: str) -> None:
        if self.tag == "th":
            self.heading = data
        elif self.tag == "td":
            self.found.setdefault(self.heading, data)
        self.tag = ""


def rows() -> dict[str, str]:
    return Rows(Path("out.html").read_text()).found


def test_all_that_is_given_is_everywhere(pytester: pytest.Pytester) -> None:
    result = run(pytester, *GIVEN)
    line = 'qnn: vendor Acme, Inc., product Falcon <2> & "more", sdk 2.32.0, board Bench 3 äöü'
    assert result.outlines.count(line) == 2  # above and below
    assert result.outlines.index(line) < result.outlines.index("collected 1 item")
    assert submission() == suite_properties() == ALL
    assert {key: rows()[key] for key in KEYS} == ALL


@pytest.mark.parametrize("key", KEYS)
def test_what_is_not_given_is_nowhere(pytester: pytest.Pytester, key: str) -> None:
    result = run(pytester, f"--qnn-{key}=this")
    assert result.outlines.count(f"qnn: {key} this") == 2
    assert submission() == suite_properties() == {key: "this"}
    assert {name: text for name, text in rows().items() if name in KEYS} == {key: "this"}


def test_without_any_nothing_is_said(pytester: pytest.Pytester) -> None:
    result = run(pytester)
    assert (submission(), suite_properties()) == (None, {})
    assert not set(KEYS) & rows().keys()
    assert [line for line in result.outlines if line.startswith("qnn:") and "runtime" not in line] == []


@pytest.mark.full
@pytest.mark.usefixtures("fakes_outside")
def test_workers_change_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01", "REG-06"))
    result = pytester.runpytest_subprocess("-p", "fake_suite", "-n2", *REPORTS, *GIVEN)
    result.assert_outcomes(passed=1, skipped=1)
    assert submission() == suite_properties() == ALL
    assert len(ET.parse("out.xml").findall("testsuite/properties/property")) == len(ALL)


def test_foreign_text_is_escaped_everywhere(pytester: pytest.Pytester) -> None:
    result = run(pytester, f"--qnn-board={HOSTILE}")
    assert result.outlines.count(f"qnn: board {ESCAPED}") == 2
    assert submission() == {"board": HOSTILE}
    assert suite_properties() == {"board": ESCAPED}
    assert rows()["board"] == ESCAPED
    assert "<b>&" not in Path("out.html").read_text()
    for path in ("out.json", "out.html", "out.xml"):
        assert Path(path).read_text().replace("\n", "").isprintable()


def test_the_ini_file_names_it_and_the_command_line_wins(pytester: pytest.Pytester) -> None:
    lines = "".join(f"qnn_{key} = ini {key}\n" for key in KEYS)
    pytester.makeini(f"[pytest]\n{lines}")
    run(pytester, "--strict-config", "--qnn-sdk=this")
    assert submission() == {key: f"ini {key}" for key in KEYS} | {"sdk": "this"}


def test_a_file_names_it_and_the_command_line_wins(pytester: pytest.Pytester) -> None:
    Path("about.toml").write_text("".join(f"{key} = 'file {key}'\n" for key in KEYS), encoding="utf-8")
    run(pytester, "--qnn-about=about.toml", "--qnn-product=this")
    assert submission() == suite_properties() == {key: f"file {key}" for key in KEYS} | {"product": "this"}


def test_a_file_of_the_ini_file_is_beside_it_and_options_there_win(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nqnn_about = about.toml\nqnn_vendor = ini vendor\n")
    Path("about.toml").write_text("vendor = 'file vendor'\nsdk = 'file sdk'\n")
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01"))
    monkeypatch.chdir(pytester.mkdir("below"))
    pytester.runpytest_inprocess(*REPORTS, "../test_rules.py")
    assert submission() == {"vendor": "ini vendor", "sdk": "file sdk"}


def test_a_file_on_the_command_line_wins_over_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nqnn_about = gone.toml\nqnn_vendor = ini vendor\nqnn_board = ini board\n")
    Path("about.toml").write_text("vendor = 'file vendor'\n")
    run(pytester, "--qnn-about=about.toml", "--qnn-sdk=this")
    assert submission() == {"vendor": "file vendor", "sdk": "this", "board": "ini board"}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": the text is empty"),
        (" \t", ": the text is empty"),
        ("x" * (LONGEST + 1), ": the text has 201 characters, and at most 200 are shown"),
        ("a\nb", r": 'a\nb' is not one line"),
        ("a\n", r": 'a\n' is not one line"),
        ("a\rb", r": 'a\rb' is not one line"),
        ("a\u2028b", r": 'a\u2028b' is not one line"),
        ("a\udc80", r": 'a\udc80' is not UTF-8, as what names a submission must be"),
    ],
    ids=ascii,
)
def test_a_text_of_the_wrong_form_is_refused(
    pytester: pytest.Pytester, key: str, text: str, problem: str
) -> None:
    assert refusal(pytester.runpytest_inprocess("-v", f"--qnn-{key}={text}")) == f"--qnn-{key}{problem}"


def test_the_longest_text_is_taken_whole(pytester: pytest.Pytester) -> None:
    run(pytester, f"--qnn-vendor={'ä' * LONGEST}")
    assert submission() == {"vendor": "ä" * LONGEST}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"vendor = 'a'\nfirm = 'b'", ": 'firm' is not one of vendor, product, sdk, board"),
        (b"[vendor]\nname = 'a'", ": vendor is not a text"),
        (b"sdk = 2.32", ": sdk is not a text"),
        (b"sdk = ''", ": sdk: the text is empty"),
        (b'sdk = "a\\nb"', r": sdk: 'a\nb' is not one line"),
        (b"sdk = '" + b"x" * 201 + b"'", ": sdk: the text has 201 characters, and at most 200 are shown"),
        (b"sdk = '\xff'", " is not UTF-8, as TOML must be"),
        (b"sdk: 2", " is not TOML: *"),
        (b"sdk = " + b"[" * 20_000, " is not TOML: *"),
        (b"#" * (LARGEST + 1), f" has more than {LARGEST} bytes"),
    ],
    ids=range(10),
)
def test_a_file_of_the_wrong_form_is_refused(pytester: pytest.Pytester, content: bytes, problem: str) -> None:
    Path("about.toml").write_bytes(content)
    said = refusal(pytester.runpytest_inprocess("-v", "--qnn-about=about.toml"))
    begin = f"--qnn-about: 'about.toml'{problem}"
    assert said.startswith(begin[:-1]) if begin.endswith("*") else said == begin


def test_what_is_no_file_is_refused(pytester: pytest.Pytester) -> None:
    os.mkfifo("pipe")
    pytester.mkdir("folder")
    for path in ("gone.toml", "folder", "pipe", "a\0b", ""):
        said = refusal(pytester.runpytest_inprocess(f"--qnn-about={path}"))
        assert said == f"--qnn-about: there is no file {path!r}"
    said = refusal(pytester.runpytest_inprocess("--qnn-about=a\udc80"))
    assert said == r"--qnn-about: 'a\udc80' is not UTF-8, as the path of this file must be"


@pytest.mark.parametrize("wrong", [{}, {"vendor": ""}, {"vendor": "x" * 201}, {"firm": "a"}, {"sdk": 2}])
def test_the_schema_refuses_what_no_report_may_say(pytester: pytest.Pytester, wrong: dict[str, Any]) -> None:
    run(pytester, *GIVEN)
    document = json.loads(Path("out.json").read_text())
    schema().validate(document)
    with pytest.raises(jsonschema.ValidationError):
        schema().validate(document | {"submission": wrong})
