from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import relatives


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files of this test's own, in which nothing is left, and of which no process.

    Nobody else's are counted.
    """
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    assert relatives(str(folder)) == []
