"""A pytest plugin (``-p witness``) that says what a run did to its own process, and which tests did the deed.

It writes JSON to the file that WITNESS names. A test did the deed when the file that DEEDS_NOTED names grew
meanwhile. What is found is made small with budgets of cases alone: how small must not depend on the load.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hostile
import left
import pytest

from pytest_qnn.core.profile import PROFILES


class Witness:
    """Looks before and after the tests."""

    def __init__(self) -> None:
        self.before = hostile.state()
        self.came: dict[str, int] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        noted = _noted()
        result = yield
        self.came[item.name] = _noted() - noted
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, Any, Any]:
        result = yield
        after = hostile.state()
        changed = {
            name: [str(was), str(now)]
            for name, was, now in zip(after._fields, self.before, after, strict=True)
            if was != now
        }
        said = {
            "changed": changed,
            "children": left.children(),
            "resident": hostile.resident(),
            "came": self.came,
        }
        Path(os.environ["WITNESS"]).write_text(json.dumps(said))
        return result


def _noted() -> int:
    note = Path(os.environ["DEEDS_NOTED"])
    return note.stat().st_size if note.exists() else 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin before any target is opened."""
    PROFILES.update({name: profile.without_seconds() for name, profile in PROFILES.items()})
    session.config.pluginmanager.register(Witness())
