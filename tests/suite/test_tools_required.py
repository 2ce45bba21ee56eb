"""`PYTEST_QNN_TOOLS=required`, as `.ci/run` sets it: no skip for want of what could be installed."""

from __future__ import annotations

import pytest

SUITE = """
import shutil
import pytest

@pytest.mark.skipif(True, reason="gdb is not installed")
def test_a_tool(): pass

@pytest.fixture
def browser(): pytest.skip("chromium, axe-core is missing: apt-get install chromium npm")

def test_a_page(browser): pass

def test_a_compiler(): pytest.skip("there is no C++ compiler (g++)")

@pytest.mark.skipif(True, reason="needs CAP_SYS_ADMIN: run the tests as root")
def test_a_right(): pass
"""


@pytest.mark.parametrize("value", ["", "required"])
def test_a_skip_for_want_of_a_tool_is_a_failure_there(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("PYTEST_QNN_TOOLS", value)
    pytester.makeconftest("from tests.conftest import pytest_runtest_makereport")
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    if value:
        result.assert_outcomes(failed=1, errors=2, skipped=1)
        result.stdout.fnmatch_lines(["*it was to be skipped: *there is no C++ compiler (g++)*"])
    else:
        result.assert_outcomes(skipped=4)
