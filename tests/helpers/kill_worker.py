"""A pytest plugin (``-p kill_worker``): pytest-xdist's first worker is killed in the middle of a rule.

With ``--kill-always=RULE``, every worker is that judges this rule.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from pytest_qnn.qnn.target import MemoryTarget

IN_THE_MIDDLE = 20
"""The case that the worker does not come back from: beyond a rule's first, whichever rule it is."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kill-always", default="")


def pytest_runtest_call(item: pytest.Item) -> None:
    rule = item.config.getoption("kill_always")
    if rule and item.name == f"test_{rule.lower().replace('-', '_')}" and hasattr(item.config, "workerinput"):
        os.kill(os.getpid(), signal.SIGKILL)


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config, "workerinput", {}).get("workerid") != "gw0" or config.getoption("kill_always"):
        return
    run, cases = MemoryTarget.run, []

    def dying(self: MemoryTarget, case: Any) -> Any:
        cases.append(case)
        if len(cases) == IN_THE_MIDDLE:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(self, case)

    pytest.MonkeyPatch().setattr(MemoryTarget, "run", dying)
