"""What a run with --qnn-certify must be: all of its rules, and no plugin but pytest's and the suite's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_qnn import rules
from pytest_qnn.core.printable import printable

if TYPE_CHECKING:
    from pytest_qnn.state import Session

_OURS = ("_pytest", "pytest", "pytest_qnn", "xdist")
"""Packages whose plugins may take part; pytest-xdist's do nothing without ``-n``."""
_COMMAND = "`python -m pytest_qnn certify` makes the arguments of such a run"


def check(session: Session, tests: Sequence[str]) -> None:
    """Refuse a run that is another one.

    Args:
        session: the run.
        tests: node ids of those that are about to run.

    Raises:
        pytest.UsageError: with one sentence.
    """
    config = session.config
    if config.getoption("dist", "no") != "no":
        raise pytest.UsageError(f"--qnn-certify: tests run in one process, without -n; {_COMMAND}")
    for plugin in config.pluginmanager.get_plugins():
        module = getattr(plugin, "__name__", None) or type(plugin).__module__
        if module.partition(".")[0] not in _OURS:
            raise pytest.UsageError(printable(f"--qnn-certify: the plugin {module} takes part; {_COMMAND}"))
    judged = {rule.id for test in tests if (rule := session.rule_of_test(test)) is not None}
    left = {rule.id for rule in rules.listed().values() if session.wants(rule)} - judged
    if left:
        named = ", ".join(sorted(left)[:3])
        raise pytest.UsageError(
            f"--qnn-certify: {len(left)} rules are not collected, {named} among them; {_COMMAND}"
        )
