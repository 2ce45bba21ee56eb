from __future__ import annotations

import json
import os
import re
import signal
import sys
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_suite
import msgspec
import pytest
from fast_run import later
from reports import judged_by_id, judged_rules

from pytest_qnn.core import engine, printable
from pytest_qnn.core.evidence import IN_HEAP, Evidence
from pytest_qnn.core.target import Death, TargetLost
from pytest_qnn.core.verdict import Finding, Level, Outcome, Verdict
from pytest_qnn.qnn.trace import MemoryTrace
from pytest_qnn.report import failure, files
from pytest_qnn.session import findings, judging

pytestmark = pytest.mark.usefixtures("fakes")


def run(pytester: pytest.Pytester, rule_ids: tuple[str, ...], *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_rules=fake_suite.suite(*rule_ids))
    return pytester.runpytest_inprocess("--qnn-seed=3", *arguments)


def report(name: str = "out.json") -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(name).read_text())
    return content


def test_a_failure_text_says_everything(pytester: pytest.Pytester) -> None:
    result = run(pytester, ("REG-02",))
    result.stdout.fnmatch_lines(
        [
            "REG-02 fail: Sentence of REG-02.",
            "  level     MUST",
            "  source    seed 000, section 0",
            "  target    memory reference",
            "  expected  0 (success)",
            "  seen      code 1000 <&>",
            "  where     step 1",
            "  picture",
            "    t0 -> [[]ABS[]]",
            "          -> t1",
            "  minimal case",
            '    {"steps": [[]{"do": "context-create", "context": "c0"}, *',
            "  examples  3 cases run, *",
            "  seed      --qnn-seed=3",
            "  explain   pytest --qnn-explain=REG-02",
            "  replay *pytest --qnn-replay=/*/.pytest-qnn/memory-reference-*/REG-02 --qnn-backend=*",
        ],
        consecutive=True,
    )


def test_a_self_check_that_fails_does_not_blame_the_delegate(pytester: pytest.Pytester) -> None:
    result = run(pytester, ("PART-02",))
    result.stdout.fnmatch_lines(
        [
            "  note      a self-check: *not the delegate",
            "PART-02 MUST fail (self-check): Sentence of PART-02. *",
        ]
    )


def test_the_table_counts_verdicts_by_area(pytester: pytest.Pytester) -> None:
    result = run(pytester, ("REG-01", "REG-02", "REG-03", "REG-06", "PART-01"), "-q")
    result.stdout.fnmatch_lines(
        [
            "delegate target: reference",
            "area    pass   fail  crash   hang  unsupported  contradiction  inconclusive",
            "PART       1      .      .      .            .              .             .",
            "total      1      .      .      .            .              .             .",
            "",
            "memory target: reference",
            "area    pass   fail  crash   hang  unsupported  contradiction  inconclusive",
            "REG        1      1      1      .            1              .             .",
            "total      1      1      1      .            1              .             .",
        ],
        consecutive=True,
    )


def test_each_rule_that_did_not_pass_has_one_line(pytester: pytest.Pytester) -> None:
    result = run(pytester, ("REG-01", "REG-03", "REG-06", "REG-07", "REG-08"))
    result.stdout.fnmatch_lines(
        [
            (
                "REG-03 MUST crash: Sentence of REG-03. | seen: SIGSEGV (step 1)"
                " | explain: pytest --qnn-explain=REG-03 | replay: *pytest *"
            ),
            (
                "REG-08 SHOULD fail: Sentence of REG-08. | seen: code 1000 <&> (step 1)"
                " | explain: pytest --qnn-explain=REG-08 | replay: *pytest *"
            ),
            "REG-07 MUST inconclusive: Sentence of REG-07. | seen: 1 case was run and did not let the rule *",
            "unsupported: REG-06: the key answers 1000",
        ],
        consecutive=True,
    )


def test_the_summary_has_no_colour_codes_when_not_on_a_terminal(pytester: pytest.Pytester) -> None:
    assert "\x1b" not in run(pytester, ("REG-01", "REG-02")).stdout.str()


def junit(rule_id: str) -> dict[str | None, str | None]:
    tests = {case.get("name"): case for case in ET.parse("out.xml").iter("testcase")}
    test = tests[f"test_{rule_id.lower().replace('-', '_')}"]
    return {one.get("name"): one.get("value") for one in test.iter("property")}


def test_junit_properties_carry_the_verdict(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-01", "REG-02", "REG-06"), "--junitxml=out.xml", "--qnn-report=out.json")
    always = {"level": "MUST", "target": "reference", "examined": "0"}
    rules = judged_by_id(report())
    assert junit("REG-01") == always | {
        "rule": "REG-01",
        "verdict": "pass",
        "examples": "1",
        "examined": "1",
    }
    assert junit("REG-02") == always | {
        "rule": "REG-02",
        "verdict": "fail",
        "examples": "3",
        "examined": "1",
        "replay": rules["REG-02"]["replay"],
    }
    assert junit("REG-06") == always | {
        "rule": "REG-06",
        "verdict": "unsupported",
        "examples": str(rules["REG-06"]["examples"]),
        "reason": "the key answers 1000",
    }


class EveryOther(fake_suite.FakeTarget):
    """Dies in every second case."""

    runs = 0

    def run(self, case: Any) -> MemoryTrace:  # noqa: ARG002 - it dies whatever the case
        self.runs += 1
        return MemoryTrace(death=Death("signal", "SIGSEGV") if self.runs % 2 else None)


def test_a_flake_is_called_one_everywhere(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    flaky = EveryOther("memory", "reference", ())
    monkeypatch.setattr(sys.modules["pytest_qnn.targets"], "open_target", lambda *_: flaky)
    result = run(
        pytester, ("REG-01",), "--junitxml=out.xml", "--qnn-report=out.json", "--qnn-report=out.html"
    )
    (rule,) = judged_rules(report())
    assert rule["verdict"] == "crash"
    assert re.fullmatch("failed [1-5] of 6 runs", rule["flaky"])
    assert junit("REG-01")["flaky"] == rule["flaky"]
    result.stdout.fnmatch_lines(
        [
            f"  flaky     the minimal case {rule['flaky']}",
            f"REG-01 MUST crash (flaky: {rule['flaky']}): *",
        ]
    )
    assert f"<dt>Flaky</dt><dd>the minimal case {rule['flaky']}</dd>" in Path("out.html").read_text()


class Breaks(fake_suite.FakeTarget):
    """The first case dies; then the suite's own code fails in every case."""

    runs = 0

    def run(self, case: Any) -> Any:  # noqa: ARG002 - whatever the case
        self.runs += 1
        if self.runs > 1:
            raise RuntimeError("a mistake of the runner\nwith a second line")
        return MemoryTrace(death=Death("signal", "SIGSEGV"))


def test_a_runner_that_fails_is_no_flake_of_the_target(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Breaks("memory", "reference", ())
    monkeypatch.setattr(sys.modules["pytest_qnn.targets"], "open_target", lambda *_: broken)
    result = run(pytester, ("REG-01",), "--qnn-report=out.json", "--qnn-report=out.html")
    result.assert_outcomes(failed=1)
    (rule,) = judged_rules(report())
    assert (rule["verdict"], rule["flaky"]) == ("inconclusive", "")
    assert rule["reason"].startswith(
        "internal error: RuntimeError: a mistake of the runner; the suite itself "
    )
    assert rule["traceback"].endswith("RuntimeError: a mistake of the runner\nwith a second line\n")
    assert rule["case"]["steps"][0] == {"do": "context-create", "context": "c0"}
    result.stdout.fnmatch_lines(["*nothing is known of the target*", "RuntimeError: a mistake of the runner"])
    assert "with a second line" in Path("out.html").read_text()
    assert "flaky" not in result.stdout.str()


def test_an_interrupted_run_leaves_an_incomplete_report(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_rules=fake_suite.suite("REG-01") + "\ndef test_stop(): raise KeyboardInterrupt\n\n"
        'def test_reg_06(judge): judge("REG-06")\n'
    )
    pytester.runpytest_inprocess("--qnn-report=out.json", "--no-summary", no_reraise_ctrlc=True)
    assert report()["complete"] is False
    assert report()["not_judged"] == ["REG-06"]
    assert list(judged_by_id(report())) == ["REG-01"]


@pytest.mark.usefixtures("fakes_outside")
@pytest.mark.parametrize(
    ("spread", "main", "number"),
    [
        later((), "os.getpid()", "SIGTERM"),
        later((), "os.getpid()", "SIGHUP"),
        (("-n1",), "os.getppid()", "SIGTERM"),
        later(("-n1",), "os.getppid()", "SIGHUP"),
    ],
)
def test_a_terminated_run_leaves_an_incomplete_report(
    pytester: pytest.Pytester, spread: tuple[str, ...], main: str, number: str
) -> None:
    # As from a terminal: whoever runs these tests may ignore the signal (nohup does).
    pytester.makeconftest(f"import signal\nsignal.signal(signal.{number}, signal.SIG_DFL)")
    # The pause lets the main process receive the first verdict of its worker.
    pause = int(bool(spread))
    stop = f"def test_stop(): time.sleep({pause}); os.kill({main}, signal.{number}); time.sleep(90)\n"
    parts = ("import os, signal, time", fake_suite.suite("REG-01"), stop, fake_suite.suite("REG-06"))
    pytester.makepyfile(test_rules="\n".join(parts))
    options = ("-p", "fake_suite", "--qnn-report=out.json", *spread)
    result = pytester.runpytest_subprocess(*options, timeout=60)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert (report()["complete"], report()["not_judged"]) == (False, ["REG-06"])
    assert list(judged_by_id(report())) == ["REG-01"]


@pytest.mark.usefixtures("fakes_outside")
def test_a_termination_that_a_c_callback_swallows_ends_the_run_after_all(pytester: pytest.Pytester) -> None:
    stop = """
        def test_stop():
            @ctypes.CFUNCTYPE(None)
            def callback():
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.1)
            callback()
    """
    head = "import ctypes, os, signal, time"
    pytester.makepyfile(test_rules="\n".join((head, textwrap.dedent(stop), fake_suite.suite("REG-06"))))
    result = pytester.runpytest_subprocess("-p", "fake_suite", "--qnn-report=out.json", timeout=60)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert (report()["complete"], report()["not_judged"]) == (False, ["REG-06"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_without_a_report_the_plugin_leaves_signals_alone(
    pytester: pytest.Pytester, number: signal.Signals, request: pytest.FixtureRequest
) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    request.addfinalizer(lambda: signal.signal(number, before))
    pytester.makepyfile(
        f"import signal\ndef test_default(): assert signal.getsignal({number:d}) is signal.SIG_DFL"
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_sigterm_is_as_it_was_after_a_run_with_a_report(pytester: pytest.Pytester) -> None:
    before = signal.getsignal(signal.SIGTERM)
    pytester.makepyfile(
        f"import signal\n{fake_suite.suite('REG-01')}\n"
        "def test_other(): assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL"
    )
    pytester.runpytest_inprocess("--qnn-report=out.json").assert_outcomes(passed=2)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_rule_whose_test_never_came_to_judge_makes_the_report_incomplete(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_reg_01(judge): assert False")
    pytester.runpytest_inprocess("--qnn-report=out.json")
    assert (report()["complete"], report()["not_judged"]) == (False, ["REG-01"])


def test_a_mistake_of_the_suite_is_in_the_report_as_inconclusive(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-11",), "--qnn-report=out.json")
    (rule,) = judged_rules(report())
    assert (rule["verdict"], rule["reason"]) == (
        "inconclusive",
        (
            "internal error: ZeroDivisionError: a mistake of ours; "
            "the suite itself failed, and nothing is known of the target"
        ),
    )
    assert rule["traceback"].splitlines()[-1] == "ZeroDivisionError: a mistake of ours"


def test_of_two_verdicts_on_a_rule_the_worse_is_kept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_rules="""
        def test_a(judge): judge("REG-02")
        def test_b(judge): judge("REG-02")
        """
    )
    pytester.makeconftest(
        """
        import msgspec
        from pytest_qnn.core import engine
        from pytest_qnn.core.verdict import Outcome

        judge, calls = engine.judge_with_owners, []

        def second_time_lucky(*arguments):
            calls.append(1)
            judged = judge(*arguments)
            if len(calls) == 1:
                return judged
            passed = msgspec.structs.replace(judged.verdict, outcome=Outcome.PASS, finding=None)
            return judged._replace(verdict=passed)

        def pytest_configure(config):
            engine.judge_with_owners = second_time_lucky

        def pytest_unconfigure(config):
            engine.judge_with_owners = judge
        """
    )
    pytester.runpytest_inprocess("--qnn-report=out.json").assert_outcomes(passed=1, failed=1)
    assert [rule["verdict"] for rule in judged_rules(report())] == ["fail"]


def test_hooks_are_called_with_each_verdict_and_with_the_report(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        def pytest_qnn_verdict(config, verdict):
            print("HOOK", verdict.rule, verdict.outcome.value)

        def pytest_qnn_report(config, document):
            document["extra"]["board"] = "bench 3"
        """
    )
    result = run(pytester, ("REG-01", "REG-06"), "--qnn-report=out.json", "-s")
    result.stdout.fnmatch_lines(["*HOOK REG-01 pass", "*HOOK REG-06 unsupported"])
    assert report()["extra"] == {"board": "bench 3"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("document['extra']['sdk'] = config.rootpath", "TypeError: Object of type *Path is not JSON seri*"),
        ("document.clear(); raise KeyError('board')", "KeyError: 'board'"),
    ],
)
def test_a_hook_that_fails_costs_what_it_would_have_added(
    pytester: pytest.Pytester, body: str, said: str
) -> None:
    pytester.makeconftest(f"def pytest_qnn_report(config, document):\n    {body}")
    result = run(pytester, ("REG-02",), "--qnn-report=out.json", "--qnn-report=out.html")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines([f"--qnn-report: an implementation of pytest_qnn_report failed, *: {said}"])
    assert "Traceback" not in result.stderr.str()
    assert (judged_by_id(report())["REG-02"]["verdict"], report()["extra"]) == ("fail", {})
    assert "REG-02" in Path("out.html").read_text()


def test_a_report_that_cannot_be_written_is_said_and_fails_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(files, "replace", full)
    result = run(pytester, ("REG-01",), "--qnn-report=out.json")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["--qnn-report: *out.json could not be written: no space left"])


def test_an_unwritable_case_file_does_not_hide_the_verdict(pytester: pytest.Pytester) -> None:
    (pytester.path / ".pytest-qnn").write_text("in the way")
    result = run(pytester, ("REG-02",))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  replay    # the case could not be written: *"])


def test_a_file_is_replaced_at_once_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    files.replace(path, b"old")

    def torn(self: Path, target: Path) -> Path:
        raise OSError("gone")

    monkeypatch.setattr(Path, "replace", torn)
    with pytest.raises(OSError, match="gone"):
        files.replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.json"]


class Page(HTMLParser):
    VOID = frozenset(("meta", "input"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.names: set[str] = set()
        self.links: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}
        self.links |= {value or "" for name, value in attrs if name == "href"}
        if tag not in self.VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_html_page_is_balanced_self_contained_and_escaped(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-01", "REG-02", "REG-06"), "--qnn-report=out.html", "--qnn-report=out.json")
    text = Path("out.html").read_text()
    page = Page(text)
    assert page.opened == []
    assert not page.names & {"src", "style", "onclick", "onload"}
    assert page.links
    assert {link[0] for link in page.links} == {"#"}
    assert "code 1000 <&>" in "".join(page.texts)
    assert "code 1000 <&>" not in text
    for rule in judged_rules(report()):
        assert rule["sentence"] in text
        assert rule["explain"] in text
        assert all(file["name"] in page.texts for file in rule["files"])


def test_the_page_has_the_commands_of_a_rule_that_could_not_be_decided(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-01", "REG-07"), "--qnn-report=out.html", "--qnn-report=out.json")
    rule = judged_by_id(report())["REG-07"]
    assert rule["verdict"] == "inconclusive"
    texts = Page(Path("out.html").read_text()).texts
    assert texts.count(rule["replay"]) == 1
    assert texts.count(rule["explain"]) == 1


def test_compact_json_is_the_same_value_in_short_lines() -> None:
    value = {
        "steps": [{"do": "alloc", "buffer": f"b{k}", "size": k} for k in range(12)],
        "empty": [],
        "n": 1.5,
    }
    text = failure.compact(value)
    assert json.loads(text) == value
    assert 1 < len(text.splitlines()) <= 14
    assert max(map(len, text.splitlines())) <= failure.WIDTH + 2


def test_a_line_is_one_line_and_not_endless() -> None:
    assert printable.one_line("a\n  b") == "a b"
    assert len(printable.one_line("x" * 1000)) == printable.LONGEST_LINE


def test_what_a_process_left_is_everywhere(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_EVIDENCE", "1")
    result = run(
        pytester, ("REG-03",), "--qnn-report=out.json", "--qnn-report=out.html", "--junitxml=out.xml"
    )
    (rule,) = judged_rules(report())
    left = rule["violation"]["evidence"]
    assert rule["violation"]["where"] == "in QnnMem_register, step 1"
    assert left["during"] == "QnnMem_register"
    assert [frame["at"] for frame in left["backtrace"]] == ["libfoo.so+0x1234", "0x7f0000000000, in no file"]
    assert left["calls"][1] == {"name": "QnnMem_register", "step": 1, "status": None, "result": ""}
    result.stdout.fnmatch_lines(
        [
            "  seen      SIGSEGV, SEGV_MAPERR at 0x8, near NULL; stderr: foo.c:12: register: Assertion *",
            "  where     in QnnMem_register, step 1",
            "  stderr",
            "    foo.c:12: register: Assertion `handle <&>' failed.",
            "  native backtrace",
            "    #0  libfoo.so+0x1234",
            "  calls, by step",
            "      0: QnnContext_create -> 0 QNN_SUCCESS",
            "      1: QnnMem_register did not return",
            "  debug     the same with --qnn-debug=gdb (docs/how-to/debugging.md)",
        ]
    )
    page = Path("out.html").read_text()
    assert "register: Assertion `handle &lt;&amp;&gt;&#39; failed." in page
    assert "<code>QnnMem_register</code> did not return" in page
    properties = junit("REG-03")
    assert properties["where"] == "in QnnMem_register, step 1"
    assert properties["backtrace"].startswith("libfoo.so+0x1234; ")
    text = next(pytester.path.glob(".pytest-qnn/*/REG-03/crash.txt")).read_text()
    assert "loaded\n" in text
    assert "QnnMem_register did not return" in text


@pytest.mark.parametrize(
    ("steps", "shown"), [('{"do": "refuse", "what": "new"}', False), ('{"do": "apply"}', True)]
)
def test_a_case_that_refuses_requests_has_no_debugger(steps: str, shown: bool) -> None:
    """It is carried out in a process of its own only."""
    finding = Finding(
        expected="an error",
        seen="SIGABRT",
        case=f'{{"steps": [{steps}]}}',
        evidence=Evidence("invoke of kernel 0"),
    )
    verdict = Verdict(
        rule="NOM-02",
        area="NOM",
        level=Level.MUST,
        sentence="it obeys",
        source="its header",
        subject="delegate",
        self_check=False,
        target="libmine.so",
        outcome=Outcome.CRASH,
        examples=1,
        examined=0,
        what="calls",
        seconds=0.1,
        seed=1,
        finding=finding,
        replay="pytest --qnn-replay=FOLDER",
    )
    assert ("--qnn-debug=gdb" in failure.text(verdict, 1)) is shown


@pytest.mark.parametrize(
    ("seen", "said", "tool"),
    [
        ("SIGSEGV, SEGV_MAPERR at 0x8, near NULL", "", "gdb"),
        (f"SIGSEGV at 0x7f00{IN_HEAP}", "", "asan or valgrind: the heap was damaged before"),
        ("SIGABRT", "free(): invalid pointer", "asan or valgrind: the heap was damaged before"),
    ],
)
def test_what_damages_a_heap_is_for_tools_that_look_at_each_access(seen: str, said: str, tool: str) -> None:
    """A debugger has no checked heap, so that the case ends well there."""
    finding: Any = SimpleNamespace(seen=seen, evidence=SimpleNamespace(said=said))
    assert failure._tool(finding) == tool


@pytest.mark.parametrize(
    ("error", "verdict", "said"),
    [
        (TargetLost("it cannot be loaded any more"), None, "REG-01 not judged: it cannot be loaded any more"),
        (RuntimeError("a mistake"), "inconclusive", "*internal error: RuntimeError: a mistake*"),
    ],
)
def test_what_other_rules_own_is_reported_whatever_ended_the_search(
    error: Exception,
    verdict: str | None,
    said: str,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge_with_owners = engine.judge_with_owners

    def interrupted(rule: Any, *rest: Any) -> engine.Judged:
        assert rule.id == "REG-01"
        owners = judge_with_owners(fake_suite.CATALOGUE["REG-02"], *rest).verdict
        raise engine.Interrupted(error, (msgspec.structs.replace(owners, found_by=rule.id),))

    monkeypatch.setattr(engine, "judge_with_owners", interrupted)
    result = run(pytester, ("REG-01",), "--qnn-report=out.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=2)  # its own, and what was handed over
    found = {rule["id"]: rule["verdict"] for rule in judged_rules(report())}
    assert found == {"REG-02": "fail", **({"REG-01": verdict} if verdict else {})}
    assert ("REG-01" in report()["not_judged"]) is (verdict is None)
    result.stdout.fnmatch_lines([said])


RUNS_AGAIN = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and report.failed:
        report.outcome = "rerun"  # as a plugin has it that runs a test again, which then passes
    return report
"""


def test_a_finding_fails_the_run_however_its_test_is_reported(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(RUNS_AGAIN)
    result = run(pytester, ("REG-01", "REG-02"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["REG-02 MUST fail: *"])


def raises_for(rule_id: str, usual: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """The same, with an error of the suite where it is about the rule."""

    def raising(*given: Any) -> Verdict:
        (verdict,) = (each for each in given if isinstance(each, Verdict))
        if verdict.rule == rule_id:
            raise RuntimeError("a mistake")
        return usual(*given)

    return raising


@pytest.mark.parametrize(
    ("what", "about", "own"),
    [
        ((findings, "keep"), "REG-05", "contradiction"),
        ((findings, "keep"), "REG-02", "contradiction"),
        ((judging, "_as_claimed"), "REG-05", "contradiction"),
        ((judging, "with_coverage"), "REG-05", "inconclusive"),
    ],
)
def test_an_error_where_a_verdict_is_completed_loses_no_other_one(
    what: tuple[Any, str], about: str, own: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_with_owners = engine.judge_with_owners

    def judge(rule: Any, *rest: Any) -> engine.Judged:
        verdict, _ = judge_with_owners(rule, *rest)
        owners = judge_with_owners(fake_suite.CATALOGUE["REG-02"], *rest).verdict
        return engine.Judged(verdict, (msgspec.structs.replace(owners, found_by=rule.id),))

    monkeypatch.setattr(engine, "judge_with_owners", judge)
    monkeypatch.setattr(*what, raises_for(about, getattr(*what)))
    result = run(pytester, ("REG-05",), "--qnn-report=out.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=2)  # its own, and what was handed over
    found = judged_by_id(report())
    assert {name: rule["verdict"] for name, rule in found.items()} == {"REG-02": "fail", "REG-05": own}
    assert found["REG-02"]["found_by"] == "REG-05"
    assert "RuntimeError: a mistake" in found[about]["traceback"]
    result.stdout.fnmatch_lines(["*internal error: RuntimeError: a mistake; the suite itself failed*"])
