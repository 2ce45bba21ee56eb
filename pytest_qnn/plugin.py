"""pytest hooks and nothing else.

Every pytest run of an environment that has this plugin imports this module: it loads neither numpy nor
Hypothesis nor a runtime. The work is done by modules that are imported when they are needed.
"""

from __future__ import annotations

import resource  # noqa: F401 - before a user's folder with a module of this name comes first on the path
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_qnn import options as opts
from pytest_qnn.core import forms
from pytest_qnn.core.printable import printable
from pytest_qnn.session import node_ids
from pytest_qnn.session.gather import NOT_CARRIED, Carried, Gatherer, expect, not_carried
from pytest_qnn.state import REPLAYED, SESSION, VERDICTS, Session

if TYPE_CHECKING:
    from pytest_qnn.case_file import AnyCaseFile
    from pytest_qnn.core.rule import Demand
    from pytest_qnn.expect.file import Expected
    from pytest_qnn.report.loaded import Report

__all__ = ["Judge", "judge"]

pytest_plugins = ("pytest_qnn.fixtures.delegates", "pytest_qnn.fixtures.memory")

Judge = Callable[[str], None]
"""Judges the rule with the given id on the targets of the run, and ends the test accordingly."""

MARKERS = (
    "qnn_delegate: the test judges a rule about TensorFlow Lite delegates (set by the plugin)",
    "qnn_memory: the test judges a rule about QNN memory (set by the plugin)",
    "qnn_self_check: the test judges a rule about the runtime, and so the suite itself (set by the plugin)",
    "qnn_area_AREA: the test judges a rule of the area, such as qnn_area_reg of REG (set by the plugin)",
    "qnn_level_must: the test judges a rule of the level MUST (set by the plugin)",
    "qnn_level_should: the test judges a rule of the level SHOULD (set by the plugin)",
    "qnn_level_may: the test judges a rule of the level MAY (set by the plugin)",
)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the plugin's own hooks."""
    from pytest_qnn.session import newhooks

    pluginmanager.add_hookspecs(newhooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and the ini options of the same names."""
    opts.declare(parser.getgroup("qnn", "conformance of TensorFlow Lite delegates and QNN memory").addoption)
    for one in opts.DECLARED:
        text = f"{one.flag}: {one.help}"
        if one.kind == "list":
            parser.addini(one.ini, text, type="linelist", default=None)
        else:
            parser.addini(one.ini, text, type="string", default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Check the options' form and start the session's record."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    try:
        options, case_file = _options(config)
        expected = _expected(options)
        session = config.stash[SESSION] = Session(config, options, case_file, expected)
        before = None if _is_worker(config) else _before(options)
    except forms.BadOption as error:
        raise pytest.UsageError(printable(str(error))) from None
    node_ids.find(config)
    config.pluginmanager.register(Carried(session), "qnn-carried")
    if not _is_worker(config):
        config.pluginmanager.register(Gatherer(session, before), "qnn-gatherer")


def _options(config: pytest.Config) -> tuple[opts.Options, AnyCaseFile | None]:
    """The run's options, and the case file where one is to be replayed. Raises BadOption."""
    read = _reader(config)
    options = read()
    if options.matrix is not None and options.target is not None and options.replay is None:
        from pytest_qnn.session import matrix

        options = matrix.of_target(read, options)
    if config.getoption("dist", "no") != "no":
        _check_for_workers(options)
    if config.getoption("forked", default=False):
        raise forms.BadOption(
            "--forked: the tests' forks would share the processes of a target; leave it out"
        )
    return (options, None) if options.replay is None else _replay(config, read, options.replay)


def _reader(config: pytest.Config) -> Callable[..., opts.Options]:
    """What reads the options, given what else there is beside the command line and the ini file."""
    ini = {one.ini: _of_ini(config, one.ini, is_list=one.kind == "list") for one in opts.DECLARED}
    folder = config.inipath.parent if config.inipath else config.rootpath
    command_line = vars(config.option)
    overridden = {text.partition("=")[0].strip() for text in config.getoption("override_ini", None) or ()}

    def read(case_file: Sequence[str] = (), target: opts.Target | None = None) -> opts.Options:
        try:
            return opts.read(command_line, ini, folder, case_file, target)
        except forms.BadOption as error:
            # What a case file or a target says wins over the ini file, whose values were read before.
            name = "" if case_file or target else opts.of_ini_file(str(error), command_line, ini)
            if not name or name in overridden or config.inipath is None:
                raise
            raise forms.BadOption(f"{error} ({name} in {config.inipath})") from None

    return read


def _of_ini(config: pytest.Config, name: str, *, is_list: bool) -> Any:
    """A value of the ini file. In TOML it may be a number, a truth value or a list, where text is meant.

    Raises BadOption.
    """
    value = config.getini(name)
    if is_list or value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return str(value).lower()
    raise forms.BadOption(f"{name} in {config.inipath}: a text in quotes is wanted, not {value!r:.80}")


def _expected(options: opts.Options) -> Expected | None:
    """The content of the file of --qnn-expect, which a replay has no use for. Raises BadOption."""
    if options.expect is None or options.replay is not None:
        return None
    from pytest_qnn.expect import file

    return file.read(options.expect)


def _before(options: opts.Options) -> Report | None:
    """The report of --qnn-report-before, which a replay has no use for. Raises BadOption."""
    if options.report_before is None or options.replay is not None:
        return None
    from pytest_qnn.report.loaded import BadReport, read

    try:
        return read(options.report_before)
    except BadReport as error:
        raise forms.BadOption(f"--qnn-report-before: {error}") from None


def _check_for_workers(options: opts.Options) -> None:
    """Refuse what pytest-xdist cannot send to its workers. Raises BadOption."""
    replayed = (options.replay,) if options.replay else ()
    for flag, paths in (("--qnn-report", options.reports), ("--qnn-replay", replayed)):
        for path in paths:
            forms.utf8(flag, str(path), "what workers of pytest-xdist (-n) are sent")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """In place of pytest's tests: pages of rules, the tool of --qnn-debug, or a run for each of a matrix."""
    explained = config.option.qnn_explain or config.getini("qnn_explain")
    if explained and not _answers_otherwise(config):
        return _explain(config, explained)
    if config.option.qnn_matrix or config.getini("qnn_matrix"):
        status = _matrix(config)
        if status is not None:
            return status
    if not config.option.qnn_debug and not (config.option.qnn_replay and config.getini("qnn_debug")):
        return None
    from pytest_qnn.session import debug

    try:
        options, case_file = _options(config)
        if case_file is None:
            return None
        return debug.run(config, options, case_file)
    except forms.BadOption as error:
        raise pytest.UsageError(printable(str(error))) from None


def _explain(config: pytest.Config, texts: Sequence[str]) -> int:
    """Print pages of rules; the exit status."""
    from pytest_qnn.session import explain

    try:
        found = explain.pages(texts)
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.suspend(in_=True)
        explain.show(found)
    except forms.BadOption as error:
        raise pytest.UsageError(printable(str(error))) from None
    return pytest.ExitCode.OK


def _answers_otherwise(config: pytest.Config) -> bool:
    """Whether pytest was asked for something that runs no test: its help, its version and their like."""
    names = ("help", "version", "markers", "showfixtures", "cacheshow")
    return any(getattr(config.option, name, None) for name in names)


def _matrix(config: pytest.Config) -> int | None:
    """The worst exit status of the runs of all targets; None: this run is of one target, or of none."""
    from pytest_qnn.session import matrix

    if _answers_otherwise(config):
        return None
    try:
        return matrix.main(config, _reader(config))
    except forms.BadOption as error:
        raise pytest.UsageError(printable(str(error))) from None


def _replay(
    config: pytest.Config, read: Callable[[Sequence[str]], opts.Options], path: Path
) -> tuple[opts.Options, AnyCaseFile]:
    from pytest_qnn.session.replay import collect_suite, prepare

    collect_suite(config)
    return prepare(read, path)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Give the suite's tests ids that do not depend on where it is installed."""
    return node_ids.module(module_path, parent)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name runtime, targets, seed and submission, when the run was given any option of the plugin."""
    session = config.stash[SESSION]
    return _header(session) if session.options.given else []


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """The same lines, when no option was given but rules were collected."""
    session = config.stash[SESSION]
    return _header(session) if session.expected and not session.options.given else []


def _header(session: Session) -> list[str]:
    from pytest_qnn.report import terminal

    return [terminal.header(session), *terminal.submission(session)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that judge a rule, and keep those that the run is about.

    These are the rules of the halves that targets were named for, as far as options select them; under
    --qnn-replay the file's rule, and no other test.
    """
    session = config.stash[SESSION]
    if session.case_file is not None:  # a project's addopts may have these for its own runs
        config.option.markexpr = config.option.keyword = ""
        config.option.deselect = None
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    judged = [session.rule_of_test(item.name) if _judges(item) else None for item in items]
    if any(judged) or "qnn_area_" in config.getoption("markexpr", ""):
        _register_areas(config)
    for item, rule in zip(items, judged, strict=True):
        if rule is not None:
            _mark(item, rule)
        wanted = session.case_file is None if rule is None else session.wants(rule)
        (kept if wanted else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def _register_areas(config: pytest.Config) -> None:
    """Register a marker for each area, without which ``--strict-markers`` refuses it, in ``-m`` too.

    Only where one is used: other runs do not read the list of rules, and ``--markers`` has one line for all.
    """
    from pytest_qnn.session import selection

    for area in selection.all_areas():
        config.addinivalue_line("markers", f"qnn_area_{area.lower()}: the test judges a rule of {area}")


def _mark(item: pytest.Item, rule: Demand) -> None:
    """Mark a rule's test. No marker has an argument: ``-m`` reads those from pytest 8.3 on only."""
    item.add_marker(f"qnn_{rule.subject}")
    item.add_marker(f"qnn_area_{rule.area.lower()}")
    item.add_marker(f"qnn_level_{rule.level.value.lower()}")
    if rule.self_check:
        item.add_marker("qnn_self_check")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Open the targets that the collected tests need, before any test runs."""
    config = session.config
    # A worker of pytest-xdist cannot end the run with a usage error; the main process does that in
    # pytest_xdist_node_collection_finished, and workers open their targets when a test needs them.
    if _is_worker(config) or config.option.collectonly:
        return
    expect(config.stash[SESSION], [item.nodeid for item in session.items if _judges(item)])


def _judges(item: pytest.Item) -> bool:
    return "judge" in getattr(item, "fixturenames", ())


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """Judge a rule of the catalogue on the targets of this run: ``judge("REG-08")``.

    The test passes when the rule held in every case; it is skipped when the target does not offer what
    the rule is about, xfails when a SHOULD is violated, and fails otherwise, with a minimal case and the
    command that runs it again. A test called ``test_reg_08`` is for the rule REG-08 and can judge no
    other: so the run knows which targets it needs before it begins.
    """
    session = request.config.stash[SESSION]
    item: pytest.Item = request.node

    def judge_rule(rule_id: str) -> None:
        from pytest_qnn.session.judging import judge_or_explain

        judge_or_explain(session, item, rule_id)

    return judge_rule


def pytest_assertrepr_compare(
    config: pytest.Config, op: str, left: object, right: object
) -> list[str] | None:
    """Say how a process has died, and where, when an author's ``assert trace.death is None`` fails."""
    if right is not None or op not in ("is", "=="):
        return None
    from pytest_qnn.core.target import Death

    if not isinstance(left, Death):
        return None
    from pytest_qnn.session import deaths

    return deaths.told(config.stash[SESSION], left)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send verdicts along with the test's report, also across processes; show an author's own lines."""
    if call.excinfo is not None and not item.config.getoption("fulltrace", default=False):
        from pytest_qnn.session import tracebacks

        tracebacks.hide(item, call.excinfo)
    report = yield
    # Extra attributes of a report that are plain data are serialised by pytest.
    for name, key in (("qnn_verdicts", VERDICTS), ("qnn_replayed", REPLAYED)):
        if key in item.stash:
            vars(report)[name] = item.stash[key]
            del item.stash[key]
    if verdicts := getattr(report, "qnn_verdicts", None):
        item.config.stash[SESSION].in_reports.append(verdicts)
    # The main process of pytest-xdist knows tests by their names only.
    if not _judges(item) and item.config.stash[SESSION].rule_of_test(item.name) is not None:
        vars(report)["qnn_judges"] = False
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the main process what a worker has found and no report has carried."""
    if _is_worker(session.config):
        output: dict[str, object] = session.config.workeroutput  # type: ignore[attr-defined]
        output[NOT_CARRIED] = not_carried(session)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close what is still open."""
    session = config.stash.get(SESSION, None)
    if session is not None:
        session.close()
