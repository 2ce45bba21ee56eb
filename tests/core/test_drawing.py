from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from pytest_qnn.core.drawing import decoded

CONSTANT = b"seventeen bytes !"


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's with a constant."""
    path = tmp_path / "users_own_module.py"
    path.write_text(f"CONSTANT = {CONSTANT!r}")
    spec = importlib.util.spec_from_file_location("users_own_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "users_own_module", module)


def drawn(strategy: st.SearchStrategy[bytes], seed: int = 1) -> list[bytes]:
    seen: list[bytes] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=300, database=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(strategy)
    def collect(data: bytes) -> None:
        seen.append(data)

    collect()
    return seen


@pytest.mark.usefixtures("loaded")
def test_what_is_drawn_does_not_depend_on_what_is_imported() -> None:
    assert CONSTANT in drawn(st.binary(min_size=17, max_size=17)), "the trap is not there any more"
    assert CONSTANT not in drawn(decoded(17, bytes))


@pytest.mark.parametrize("size", [1, 17, 51, 200])
def test_a_case_gets_as_many_bytes_as_it_asks_for(size: int) -> None:
    seen = drawn(decoded(size, bytes))
    assert {len(data) for data in seen} == {size}
    assert len(set(seen)) > 100
    assert bytes(size) == hypothesis.find(decoded(size, bytes), lambda _: True)
