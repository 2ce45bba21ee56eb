from __future__ import annotations

import gc
import importlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import fake_suite
import kept
import left
import pytest
from fast_run import slice_of

from pytest_qnn import mutants
from pytest_qnn.isolation import namespaces
from pytest_qnn.isolation.observe.process import reuse_freed_memory
from pytest_qnn.rules import catalogue

pytest_plugins = ["pytester"]

REQUIRED = "PYTEST_QNN_TOOLS"
"""Environment variable: set, a test that is skipped for want of what Debian, PyPI or npm has is a failure."""
_WANTING = re.compile(
    r"\b(is|are) (not installed|missing)\b|there is no C(\+\+)? compiler|\bapt-get install\b"
)

# Last on the path: from there tests, and children with this path, import tests.gallery and benchmarks.
sys.path.append(str(Path(__file__).parent.parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option of this project's own tests, and of no other run."""
    parser.addoption("--slice", metavar="K/N", help="of the collected tests only each N-th: part K, from 0")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Where Python is told to write no bytecode, it is kept in pytest's cache.

    pytest rewrites the assertions of each installed plugin, Hypothesis' and ours, in every process that
    has no bytecode of them: 0.9 of the 1.8 s of processor time that a run of one rule in a process of its own
    takes. The workers of xdist and the runs inside tests inherit it.

    No target but ours is in this process: it keeps freed memory, as runs of the suite do.
    """
    reuse_freed_memory()
    # To find out whether a target is the same in namespaces takes half a second of each that is opened: tests
    # that are about them ask for them (tests/hostile/test_namespaces.py).
    os.environ.setdefault(namespaces.SWITCH, "0")
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if not sys.dont_write_bytecode or cache is None:
        return
    folder = cache.mkdir("bytecode")
    # What earlier runs left of files that tests wrote: no later one has files of the same paths.
    temporary = Path(tempfile.gettempdir())
    if not config.rootpath.is_relative_to(temporary):  # the bytecode of the project itself stays
        shutil.rmtree(folder / temporary.relative_to("/"), ignore_errors=True)
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # not there after ``python -B``


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One worker more than there are cores: some tests wait for what comes a second later, or never.

    The conformance suite waits for nothing: there a third worker on two cores costs a tenth more of processor
    and of wall time. It is run from this folder too (the README's first command), as a package.
    """
    return None if config.option.pyargs else len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """In the fast run no tests are made of parameters that are marked ``full``: three of five would be.

    Making them takes each worker 2 s of processor time. Where all values of a parameter are marked, pytest
    makes and deselects them as everywhere else.
    """
    if metafunc.config.option.markexpr != "not full":
        return
    marks = metafunc.definition.own_markers
    for place, mark in enumerate(marks):
        if mark.name == "parametrize" and not isinstance(mark.kwargs.get("ids"), list | tuple):
            names, values = mark.args
            kept = [value for value in values if not _is_full(value)]
            if kept:
                marks[place] = pytest.mark.parametrize(names, kept, **mark.kwargs).mark


def _is_full(value: Any) -> bool:
    return any(mark.name == "full" for mark in getattr(value, "marks", ()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one part of the tests; those that one function is made into are spread evenly over the parts.

    They cost alike, up to two minutes each, and by their names alone a part had four times what it should.
    """
    if not config.option.slice:
        return
    part, _, parts = config.option.slice.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise pytest.UsageError(f"--slice: {config.option.slice!r} is not K/N with K below N")
    names = slice_of([item.nodeid for item in items], int(part), int(parts))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
    items[:] = [item for item in items if item.nodeid in names]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where all tools are to be there, a skip for want of one is a failure."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and os.environ.get(REQUIRED):
        reason = report.longrepr[2]
        if _WANTING.search(reason):
            report.outcome, report.longrepr = (
                "failed",
                f"{REQUIRED} is set, and it was to be skipped: {reason}",
            )
    return report


@pytest.fixture(autouse=True, scope="module")
def _no_module_leaves_a_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """The child that one module leaves behind would be another's puzzle: it is told where it was made."""
    yield
    # A module from elsewhere is that of a run inside a test.
    if not request.path.is_relative_to(Path(__file__).parent):
        return
    kept.close_all()
    processes = left.children()
    assert not processes, f"processes {processes} are left"


@pytest.fixture(scope="session")
def _runners() -> None:
    """Both runners' modules, all rules and all mutants.

    pytester takes what a run inside a test imports out of ``sys.modules`` again: modules that are imported a
    second time would enter their handlers, or mutants, a second time in tables that were there before, and
    msgspec finds no names for a class whose module is gone.
    """
    importlib.import_module("pytest_qnn.qnn.runner.run")
    importlib.import_module("pytest_qnn.tflite.runner.script")
    importlib.import_module("pytest_qnn.report.loaded")
    catalogue()
    mutants.table()


@pytest.fixture
def pytester(_runners: None, pytester: pytest.Pytester) -> pytest.Pytester:
    """A run inside a test."""
    return pytester


@pytest.fixture
def frozen() -> Iterator[None]:
    """What pytest holds is not gone through by each collection that a case asks for: it takes 0.1 s."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up rules and targets in place of the real ones, for pytest runs in this process."""
    fake_suite.install(monkeypatch)


@pytest.fixture
def fakes_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for pytest runs in processes of their own: they also need ``-p fake_suite``."""
    monkeypatch.setenv("PYTHONPATH", str(Path(fake_suite.__file__).parent), prepend=os.pathsep)
