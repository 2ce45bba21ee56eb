"""The main process: gathers verdicts, from workers of pytest-xdist too, and hands them to the reports."""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import signal
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_qnn.core.printable import printable
from pytest_qnn.session import node_ids
from pytest_qnn.state import SESSION, VERDICTS, Session

if TYPE_CHECKING:
    from pytest_qnn.core.rule import Subject
    from pytest_qnn.core.verdict import Verdict
    from pytest_qnn.report.loaded import Report

Key = tuple[str, str, str]
"""Subject, target and rule of a verdict."""


class Gatherer:
    """The hooks of the process that the user started; workers of pytest-xdist have none.

    Args:
        session: the run.
        before: the report of --qnn-report-before, if there is one.
    """

    def __init__(self, session: Session, before: Report | None = None) -> None:
        self.session = session
        self.before = before
        self._checked = False
        self._killed: Counter[str] = Counter()
        """By test, how often its worker was killed."""
        self._given_up: dict[str, str] = {}
        """By test that is not to be tried again, why; for workers that begin later."""
        self._interrupted: set[str] = set()
        """Ids of workers that were interrupted, not killed."""
        self._usual: dict[signal.Signals, Any] = {}
        """Who handles the signals that interrupt this run, when there is none."""
        self._nodes: list[Any] = []
        """Workers, for what they have sent last."""
        self._problems: list[str] = []
        self._judging: set[str] = set()
        """Node ids of tests that came to judge a rule."""
        self._others: set[str] = set()
        """Node ids of tests that are called like a rule's and judge none: they do not use the fixture."""
        self._unjudged = False
        """The run has failed for this alone: a rule was not judged."""
        self._swallowed = False
        """A test was reported otherwise than its rule's verdict demands, as where a plugin runs it again."""
        self._failed = False
        """A test has failed as its rule's verdict demands: ``pytest.exit`` with status 0 does not hide it."""
        self._telling: pytest.TestReport | None = None
        """What is being reported at the run's end (`_tell`)."""
        self._told: set[Key] = set()
        """Findings of which that is done."""

    def pytest_sessionstart(self) -> None:
        """Name the submission in a JUnit file, and prepare for a run that is ended from outside."""
        if self.session.options.submission:
            from pytest_qnn.report import junit

            junit.name_submission(self.session.config, self.session)
        self._interrupt_when_ended()

    def _interrupt_when_ended(self) -> None:
        """Let what ends a run interrupt it as Ctrl-C does, where a report is to be written nonetheless."""
        for number in _ENDING if self.session.options.reports else ():
            self._take_signal(number, signal.SIG_DFL)
        if self.session.options.given:  # before anything of a target is there to be looked at
            self._take_signal(signal.SIGINT, signal.default_int_handler)

    def _take_signal(self, number: signal.Signals, usual: Any) -> None:
        """Have a signal interrupt the run, until its end.

        Not where somebody else handles it, nor outside the main thread, where Python cannot.
        """
        here = threading.current_thread() is threading.main_thread()
        if here and signal.getsignal(number) is usual:
            self._usual[number] = usual
            signal.signal(number, _interrupt)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Let Ctrl-C end a run about a target, also inside a C callback, and take no report from it.

        Whether rules are judged where no target is named is known only when the tests were collected.
        """
        if self.session.expected:
            self._take_signal(signal.SIGINT, signal.default_int_handler)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """The run ends: nothing interrupts it once more until its report is written."""
        _Termination.ending = True

    def pytest_unconfigure(self) -> None:
        """Leave the signals as they were."""
        _Termination.requested, _Termination.ending, _Termination.reported = "", False, False
        for number, usual in self._usual.items():
            if signal.getsignal(number) is _interrupt:
                signal.signal(number, usual)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        """Interrupt the run after all where the signal came inside a C callback, which dropped the exception.

        What the test in question would report may be wrong: its rule counts as not judged. An author's own
        test may have been about Ctrl-C, and has dealt with it.
        """
        if _Termination.requested == signal.SIGINT.name and item.nodeid not in self.session.collected:
            _Termination.requested = ""
        if _Termination.requested:
            _Termination.ending = True
            _taken(item)
            raise KeyboardInterrupt(_Termination.requested)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give every worker the run's seed, and one that replaces another the tests that are given up."""
        self._nodes.append(node)
        node.workerinput["qnn_seed"] = self.session.seed
        node.workerinput["qnn_given_up"] = dict(self._given_up)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Check the targets that the tests need before the first test is sent to a worker."""
        if self._checked:
            return
        self._checked = True
        expect(self.session, ids)
        self.session.close()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Remember which workers end because the user wants them to."""
        if error == "keyboard-interrupt":
            self._interrupted.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        """Enter the verdict on a rule whose worker died, which cannot send one itself.

        A worker that was interrupted has not judged its rule, and nobody is to blame for that. One whose
        target is in processes of its own was hardly killed by the target: the test is tried again.

        Where files of tests stay together (``--dist=loadscope``, ``loadfile``, ``loadgroup``), pytest-xdist
        sends all that is left of one to the next worker, with the test that ended the last. There the worker
        that replaces this one enters the verdict, without judging.
        """
        rule = self.session.rule_of_test(crashitem)
        if rule is None or crashitem in self._others or report.node.gateway.id in self._interrupted:
            return
        self._killed[crashitem] += 1
        again = self.session.isolated(rule.subject) and self._killed[crashitem] <= _KILLED_AGAIN
        why = self._why_died(rule.subject, self._killed[crashitem])
        if self.session.config.option.dist in _IN_FILES:
            report.outcome = "rerun"
            if not again:
                self._given_up[crashitem] = why
            return
        if again and _sent_again(crashitem, sched):
            report.outcome = "rerun"
            return
        from pytest_qnn.core.verdict import Outcome
        from pytest_qnn.report import failure
        from pytest_qnn.session.judging import broken
        from pytest_qnn.session.shards import block_seed

        blocks = self.session.blocks(rule.id)
        verdicts = [broken(self.session, rule, Outcome.CRASH, why, block) for block in blocks]
        seed = block_seed(self.session.seed, verdicts[0].block)
        report.longrepr = f"{report.longrepr}\n{failure.text(verdicts[0], seed)}"
        for verdict in verdicts:
            self.session.take(verdict)

    def _why_died(self, subject: Subject, times: int) -> str:
        if self.session.isolated(subject):
            return "the worker process was killed while it judged the rule" + _often(times)
        return "the target ended the test process; --qnn-sandbox=fork or spawn finds the case"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the verdicts out of a test's report."""
        self._note_skip(report)
        verdicts = getattr(report, "qnn_verdicts", [])
        replayed = getattr(report, "qnn_replayed", [])
        if not (verdicts or replayed):
            return
        import msgspec

        from pytest_qnn.core.verdict import Replayed

        reported = report.outcome == "failed" or hasattr(report, "wasxfail")
        strict = self.session.options.strict
        for verdict in self._take(verdicts):
            own = not verdict.found_by and verdict.is_red(strict=strict)
            self._swallowed |= own and not reported
            self._failed |= own and report.outcome == "failed"
        self.session.replayed += msgspec.convert(replayed, list[Replayed])

    def _take(self, verdicts: list[dict[str, Any]]) -> list[Verdict]:
        """Enter verdicts that are plain data; returns them."""
        import msgspec

        from pytest_qnn.core.verdict import Verdict
        from pytest_qnn.session import findings

        taken = msgspec.convert(verdicts, list[Verdict])
        for verdict in taken:
            findings.hold(self.session, verdict)
            self.session.take(verdict)
        return taken

    def _take_not_carried(self, session: pytest.Session) -> bool:
        """Enter the verdicts of tests that an interruption has ended; whether there are any."""
        left = not_carried(session)
        for node in self._nodes:
            left += getattr(node, "workeroutput", {}).pop(NOT_CARRIED, ())
        if not left:
            return False
        taken = self._take(left)
        strict = self.session.options.strict
        self._swallowed |= any(not each.found_by and each.is_red(strict=strict) for each in taken)
        return True

    def _note_skip(self, report: pytest.TestReport) -> None:
        """Remember a test that judges nothing because its author or the user wants it so.

        One whose rule is unsupported, or fails as expected (``xfail``), is skipped too, and came to judge.
        """
        if hasattr(report, "qnn_verdicts"):
            self._judging.add(report.nodeid)
            return
        # One that is marked ``xfail`` may have been ended before it judged: that is nobody's wish.
        ended = report.when == "call" and hasattr(report, "wasxfail")
        if not getattr(report, "qnn_judges", True):
            self._others.add(report.nodeid)
        judges_nothing = (report.skipped and not ended) or report.nodeid in self._others
        if judges_nothing and report.nodeid not in self._judging:
            self.session.skipped.add(report.nodeid)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None]:
        """Close the targets and write the reports; of an interrupted run too, as incomplete.

        Before all other plugins: pytest-xdist waits for its workers here, and after SIGTERM time is short.
        Behind them once more, if a worker has sent what it had found when Ctrl-C ended it.
        """
        _Termination.ending = True
        self.session.close()
        self._take_not_carried(session)
        status = self._status(session, exitstatus)
        self._report(session, status)
        self._tell(session)
        _Termination.reported = True
        yield
        _Termination.reported = False
        if self._take_not_carried(session):
            self._report(session, exitstatus)
            self._tell(session)
        _Termination.reported = True

    def _status(self, session: pytest.Session, exitstatus: int) -> int:
        """The exit status for what was found, which is then the run's."""
        lacks = any(each.claimed and each.claimed.missing for each in self.session.described.values())
        told = any(report.failed for _, report in self._of_others())
        red = bool(lacks or self._swallowed or self._failed or told)
        if exitstatus == pytest.ExitCode.OK and not red:
            self._unjudged = self._lacks_verdicts()
            if self._lacks_replay():
                self._problems = ["--qnn-replay: no test has judged the case"]
            red = self._unjudged or bool(self._problems)
        if exitstatus == pytest.ExitCode.OK and red:
            session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
        elif exitstatus == pytest.ExitCode.OK and self._not_kept():
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        if self._unrecorded():
            self._problems += self._unrecorded()
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        return exitstatus

    def _unrecorded(self) -> list[str]:
        """Sentences about answers that --qnn-certify was to keep and could not."""
        recordings = self.session.recordings
        return [f"--qnn-certify: {each}" for each in recordings.unwritten] if recordings else []

    def _report(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the reports that were asked for; ``exitstatus``: before any of them could not be written."""
        options = self.session.options
        refused = exitstatus == pytest.ExitCode.USAGE_ERROR
        if not options.reports or refused or options.replay or session.config.option.collectonly:
            return
        from pytest_qnn.report import document

        ended = exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        )
        finished = datetime.datetime.now(datetime.timezone.utc)
        make = functools.partial(
            document.make, self.session, finished, ended=ended, status=int(session.exitstatus)
        )
        report = make()
        problems = self._extend(report)
        if problems:
            report = make()
        self._problems = [*self._unrecorded(), *problems, *self._write(report)]
        if self._problems:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
            if shard := report.get("shard"):  # what `merge` goes by
                shard["exit_status"] = int(session.exitstatus)
                self._write(report)

    def _extend(self, report: dict[str, Any]) -> list[str]:
        """Let plugins add to the report; a sentence where one fails, or adds what JSON cannot have."""
        from pytest_qnn.core.printable import encodable

        config = self.session.config
        try:
            config.hook.pytest_qnn_report(config=config, document=report)
            json.dumps(encodable(report))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            said = "an implementation of pytest_qnn_report failed, and what all of them add is left out"
            return [f"--qnn-report: {said}: {why}"]
        return []

    def _write(self, report: dict[str, Any]) -> list[str]:
        """Write the report in all its formats; a sentence for each problem."""
        from pytest_qnn.report import files

        paths = self.session.options.reports
        if self.before is None:
            return files.write_all(paths, report)
        import msgspec

        from pytest_qnn.core.printable import encodable
        from pytest_qnn.report import loaded
        from pytest_qnn.report.compare.differences import compare

        try:
            now = loaded.decode(json.dumps(encodable(report)).encode())
        except loaded.BadReport as error:
            problem = f"--qnn-report-before: the report of this run {error}; no page has changes"
            return [*files.write_all(paths, report), problem]
        return files.write_all(paths, report, msgspec.to_builtins(compare(self.before, now)))

    def _tell(self, session: pytest.Session) -> None:
        """Report what no test has ended for as the rule's own test would: to the terminal, JUnit files, ...

        It comes at the end of the run, when it is known what the rules' own tests have found; it stops
        nothing then, and so is not for those who would (``-x``, ``--stepwise``).
        """
        manager = session.config.pluginmanager
        stopping = [plugin for plugin in (session, manager.get_plugin("stepwiseplugin")) if plugin]
        logreport = manager.subset_hook_caller("pytest_runtest_logreport", stopping)
        for key, report in self._of_others():
            if key in self._told:
                continue
            self._telling = report
            session.testsfailed += report.failed
            logreport(report=report)
            if report.when == "teardown":
                self._told.add(key)
        self._telling = None

    def _of_others(self) -> Iterator[tuple[Key, pytest.TestReport]]:
        """Reports of what was found in cases of other rules, and not, or worse than, by the rules' tests."""
        found = [key for key, verdict in sorted(self.session.verdicts.items()) if verdict.found_by]
        if not found:
            return
        from pytest_qnn import rules
        from pytest_qnn.core.verdict import worst
        from pytest_qnn.report import handed_over
        from pytest_qnn.session.judging import end_with, properties

        tests = {rule: test for test, rule in self.session.collected.items()}
        for key in found:
            verdict = worst(each for each in self.session.parts[key] if each.found_by)
            test = tests.get(verdict.rule) or node_ids.of_rule(rules.listed()[verdict.rule])
            end = functools.partial(end_with, self.session, verdict)
            for report in handed_over.reports(test, verdict, properties(verdict), end):
                yield key, report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Count what is reported at the end, without a letter: all tests have had theirs."""
        if report is not self._telling or report.when != "call":
            return None
        return ("failed" if report.failed else "xfailed"), "", ""

    def _lacks_verdicts(self) -> bool:
        """Whether a rule was to be judged and was not, though no test failed.

        So it is where pytest-xdist does not replace a worker that died (``--max-worker-restart``), where a
        test does not call its fixture, and behind ``pytest.exit`` with status 0.
        """
        return self.session.case_file is None and bool(self.session.not_judged) and not self._only_looks()

    def _lacks_replay(self) -> bool:
        """Whether a case was to be replayed and was not, though no test failed: its test was skipped, say."""
        return self.session.case_file is not None and not self.session.replayed and not self._only_looks()

    def _only_looks(self) -> bool:
        """No test is to be run."""
        option = self.session.config.option
        return bool(option.collectonly or option.setuponly)

    def _not_kept(self) -> bool:
        """Whether a finding that fails no test could not be written: the run has lost what it was for."""
        return any(each.finding and not each.folder for each in self.session.verdicts.values())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table of verdicts and a line for each rule that did not pass."""
        for problem in self._problems:
            terminalreporter.write_line(printable(problem), red=True)
        if not (self.session.verdicts or self.session.replayed or self._unjudged):
            return
        from pytest_qnn.report import terminal

        terminal.summary(terminalreporter, self.session)


class Carried:
    """The hook of every process that knows which reports are on their way.

    Args:
        session: the run.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of its verdicts nothing is to be done any more; in a worker it goes to the main process."""
        verdicts = getattr(report, "qnn_verdicts", None)
        self.session.in_reports = [each for each in self.session.in_reports if each is not verdicts]


NOT_CARRIED = "qnn_not_carried"
"""In what a worker of pytest-xdist sends at its end (``workeroutput``): `not_carried`."""


def not_carried(session: pytest.Session) -> list[dict[str, Any]]:
    """Verdicts that no test's report has carried, as plain data.

    pytest makes no report of an interrupted test; a plugin that runs failed tests again may drop one.
    """
    left = [verdict for item in getattr(session, "items", ()) for verdict in _taken(item)]
    dropped, session.config.stash[SESSION].in_reports = session.config.stash[SESSION].in_reports, []
    return [*left, *itertools.chain.from_iterable(dropped)]


def _taken(item: pytest.Item) -> list[dict[str, Any]]:
    """The same of one test, which has them no longer."""
    verdicts = item.stash.get(VERDICTS, [])
    if verdicts:
        del item.stash[VERDICTS]
    return verdicts


def expect(session: Session, tests: Iterable[str]) -> None:
    """Tests with these node ids are about to run: open their targets, and read what they read.

    Raises:
        pytest.UsageError: a target or a file cannot be used.
    """
    collected = list(tests)
    if session.options.certify is not None:
        from pytest_qnn.session import certifying

        certifying.check(session, collected)
    if any(map(session.rule_of_test, collected)):
        from pytest_qnn.report import progress, sentences

        progress.begin(session)
        sentences.begin(session)
    session.expect(collected)
    if session.options.corpus is not None:  # what it imports takes long
        from pytest_qnn.session import corpus

        corpus.check(session)


_IN_FILES = ("loadscope", "loadfile", "loadgroup")
"""Values of ``--dist`` with which pytest-xdist itself sends a test again whose worker died."""
_KILLED_AGAIN = 2
"""Times that a test is tried again in another worker before its worker's death counts."""


def _often(times: int) -> str:
    return f", {times} times, each in another worker" if times > 1 else ", from outside or by the target"


def _sent_again(test: str, sched: Any) -> bool:
    """Have the test run once more, where the way in which pytest-xdist distributes tests allows it."""
    try:
        sched.mark_test_pending(test)
    except NotImplementedError:
        return False
    return True


_ENDING = (signal.SIGTERM, signal.SIGHUP)
"""What a service manager and a closed terminal send."""


class _Termination:
    """Which signal has come, and how far the run's end is.

    A flag beside the KeyboardInterrupt, because ctypes prints an exception that a callback raises and goes on
    (https://docs.python.org/3/library/ctypes.html#callback-functions): while a runtime calls a delegate that
    is written in Python, most signals arrive inside one.
    """

    requested = ""
    ending = False
    """The run was interrupted, or is over: another signal would take its report from it, and a service
    manager's or a terminal's is nothing new."""
    reported = False
    """The report is written. What plugins still wait for, Ctrl-C ends."""


def _interrupt(number: int, _frame: FrameType | None) -> None:
    __tracebackhide__ = True  # pytest says where the run was
    if _Termination.ending and not (_Termination.reported and number == signal.SIGINT):
        return
    _Termination.requested = signal.Signals(number).name
    raise KeyboardInterrupt(_Termination.requested)
