"""--qnn-report-before: what the page says has changed since an earlier report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fake_suite
import pytest
from reports import refusal

from pytest_qnn.report.html.changes import changes

pytestmark = pytest.mark.usefixtures("fakes")
PAGE = "--qnn-report=out.html"


def run(pytester: pytest.Pytester, rule_ids: tuple[str, ...], *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_rules=fake_suite.suite(*rule_ids))
    return pytester.runpytest_inprocess("--qnn-seed=3", *arguments)


def earlier(pytester: pytest.Pytester) -> dict[str, Any]:
    """A report of another state of the target: REG-01 failed, REG-02 passed, REG-08 failed in another way."""
    run(pytester, ("REG-01", "REG-02", "REG-08"), "--qnn-report=old.json")
    content: dict[str, Any] = json.loads(Path("old.json").read_text())
    rules = {rule["id"]: rule for target in content["targets"] for rule in target["rules"]}
    failed = {key: rules["REG-02"][key] for key in ("verdict", "violation", "case", "replay")}
    passed = {key: rules["REG-01"][key] for key in ("verdict", "violation", "case", "replay")}
    rules["REG-01"] |= failed
    rules["REG-02"] |= passed
    rules["REG-08"]["violation"]["seen"] = "something else"
    Path("old.json").write_text(json.dumps(content))
    return content


def text_of(name: str = "out.html") -> str:
    return " ".join(Path(name).read_text().split())


def test_the_page_says_what_is_new_gone_and_changed(pytester: pytest.Pytester) -> None:
    started = earlier(pytester)["started"]
    run(pytester, ("REG-01", "REG-02", "REG-08"), PAGE, "--qnn-report-before=old.json")
    page = text_of()
    moment = f"{started[:10]} {started[11:16]} UTC"
    assert f">Since the report of {moment}</a>: 1 new finding, 1 gone, 1 changed." in page
    table = page[page.index('<table class="changes stacked">') :]
    table = table[: table.index("</table>")]
    rows = [row for row in table.split("<tr>")[2:] if row]
    assert [row[4 : row.index("</td>")] for row in rows] == ["new", "gone", "changed"]
    assert [name in row for name, row in zip(("REG-02", "REG-01", "REG-08"), rows, strict=True)] == [True] * 3
    assert 'href="#REG-02"' in rows[0]
    assert 'href="#rule-REG-01"' in rows[1]
    assert "something else" in rows[2]
    assert page.count('<span class="verdict new">new</span>') == 1


def test_nothing_has_changed(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-01", "REG-02"), "--qnn-report=old.json")
    run(pytester, ("REG-01", "REG-02"), PAGE, "--qnn-report-before=old.json")
    assert "No verdict and no finding has changed." in text_of()
    assert "0 new findings, 0 gone, 0 changed" in text_of()


def test_a_target_that_the_earlier_report_lacks(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-01",), "--qnn-report=old.json", "--qnn-backend=reference")
    content = json.loads(Path("old.json").read_text())
    content["targets"] = []
    Path("old.json").write_text(json.dumps(content))
    run(pytester, ("REG-01",), PAGE, "--qnn-report-before=old.json")
    assert "it has no such target" in text_of()


def test_the_ini_file_names_it_and_no_page_is_no_mistake(pytester: pytest.Pytester) -> None:
    earlier(pytester)
    pytester.makeini("[pytest]\nqnn_report_before = old.json")
    run(pytester, ("REG-01", "REG-02"), PAGE)
    assert "Since the report of" in text_of()
    assert run(pytester, ("REG-01",)).ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ("", (PAGE,), "--qnn-report-before: old.json is not a report of pytest-qnn: "),
        ("{}", (PAGE,), "--qnn-report-before: old.json is not a report of pytest-qnn: "),
        ('{"schema": 1}', (PAGE,), "--qnn-report-before: old.json is a report of schema 1, and "),
        (None, (PAGE,), "--qnn-report-before: there is no file 'old.json'"),
        ("{}", (), "--qnn-report-before: needs --qnn-report=PATH.html, the page "),
        ("{}", ("--qnn-report=out.json",), "--qnn-report-before: needs --qnn-report=PATH.html, the page "),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(
    pytester: pytest.Pytester, content: str | None, arguments: tuple[str, ...], said: str
) -> None:
    if content is not None:
        Path("old.json").write_text(content)
    sentence = refusal(run(pytester, ("REG-01",), *arguments, "--qnn-report-before=old.json"))
    assert sentence.startswith(said)
    assert not Path("out.html").exists()


def test_without_an_earlier_report_nothing_is_said(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-02",), PAGE)
    assert "Since the report of" not in text_of()
    assert changes(None, {}, {}) is None
