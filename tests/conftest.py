from __future__ import annotations

import fake_suite
import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up rules and targets in place of the real ones, for pytest runs in this process."""
    fake_suite.install(monkeypatch)


@pytest.fixture
def fakes_outside(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The same for pytest runs in processes of their own: they also need ``-p fake_suite``."""
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath / "tests"))
