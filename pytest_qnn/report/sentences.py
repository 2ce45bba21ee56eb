"""With ``-v``: the sentence of each rule, below the line of its test."""

from __future__ import annotations

import pytest

from pytest_qnn.state import Session


class Sentences:
    """Writes on, where pytest has written how a test ended. The test's id stays as it is, to be pasted back.

    Args:
        session: the run.
        reporter: writes to pytest's terminal.
    """

    def __init__(self, session: Session, reporter: pytest.TerminalReporter) -> None:
        self._session = session
        self._reporter = reporter

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """After the line that says how the test ended."""
        if report.when != "call" and not (report.when == "setup" and not report.passed):
            return
        rule = self._session.rule_of_test(report.nodeid)
        if rule is not None and rule.id in self._session.expected:
            self._reporter.ensure_newline()
            self._reporter.write_line(f"    {rule.id} {rule.level.value}: {rule.sentence}")


def begin(session: Session) -> None:
    """Write sentences from now on, if the user asked for as much text as there is."""
    config = session.config
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES) > 0:
        config.pluginmanager.register(Sentences(session, reporter), "qnn-sentences")
