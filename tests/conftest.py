from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fake_suite
import kept
import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True, scope="module")
def _no_module_leaves_a_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """The child that one module leaves behind would be another's puzzle: it is told where it was made."""
    yield
    if request.path.parent != Path(__file__).parent:  # a run inside a test, started from the repository
        return
    kept.close_all()
    left = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    assert not any(left), f"processes {left} are left"


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up rules and targets in place of the real ones, for pytest runs in this process."""
    fake_suite.install(monkeypatch)


@pytest.fixture
def fakes_outside(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The same for pytest runs in processes of their own: they also need ``-p fake_suite``."""
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath / "tests"))
