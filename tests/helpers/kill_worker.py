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


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", {}).get("workerid")
    rule = config.getoption("kill_always")
    if worker is None or (not rule and worker != "gw0"):
        return
    run, cases = MemoryTarget.run, []
    always = f"test_{rule.lower().replace('-', '_')} " if rule else ""

    def dying(self: MemoryTarget, case: Any) -> Any:
        cases.append(case)
        if always in os.environ["PYTEST_CURRENT_TEST"] if always else len(cases) == IN_THE_MIDDLE:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(self, case)

    pytest.MonkeyPatch().setattr(MemoryTarget, "run", dying)
