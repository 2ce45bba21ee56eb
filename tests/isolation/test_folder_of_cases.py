"""The folder of cases is emptied, whatever a case has left in it, and within a time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fast_run import later
from native import qnn_library
from sandboxed import CASE, HARMLESS

from pytest_qnn.isolation.start import interpreter
from pytest_qnn.isolation.working_directory import WorkingDirectory, remove
from pytest_qnn.qnn.target import open_memory_target


@contextlib.contextmanager
def as_nobody() -> Iterator[Path]:
    """A folder of a user without privileges, and that user."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        remove(folder)


def test_what_a_case_locked_up_is_removed() -> None:
    with as_nobody() as folder:
        room = WorkingDirectory(folder / "root")
        inner = room.prepare() / "a" / "b"
        inner.mkdir(parents=True)
        (inner / "file").write_text("")
        for path in (inner, inner.parent, room.path):
            path.chmod(0)
        assert list(room.prepare().iterdir()) == []
        room.close()
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("depth", [600, later(3000)])
def test_a_folder_deeper_than_a_path_is_removed_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """Each level has a file, a link and a folder that nobody may enter."""
    kept = tmp_path / "kept"
    kept.mkdir()
    room = WorkingDirectory(tmp_path / "root")
    monkeypatch.chdir(room.prepare())
    for _ in range(depth):
        for name in ("d", "closed"):
            os.mkdir(name, 0o700)
        os.close(os.open("closed/file", os.O_CREAT))
        os.chmod("closed", 0)
        os.symlink(kept, "link")
        os.chdir("d")
    os.chdir(tmp_path)
    asked = 0

    def enough() -> bool:
        nonlocal asked
        asked += 1
        return False

    assert remove(tmp_path / "root", enough)
    assert not (tmp_path / "root").exists()
    assert kept.exists()
    assert asked <= 6 * depth + 10  # two folders and two files, and each folder is left once more


def test_what_nobody_may_change_is_removed(tmp_path: Path) -> None:
    room = WorkingDirectory(tmp_path / "root")
    file = room.prepare() / "folder" / "file"
    file.parent.mkdir()
    file.touch()
    if subprocess.run(["chattr", "+i", str(file)], capture_output=True, check=False).returncode:
        pytest.skip("needs CAP_LINUX_IMMUTABLE, and a file system with this attribute")
    room.close()
    assert not (tmp_path / "root").exists()


def test_what_a_link_leads_to_is_not_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("")
    room = WorkingDirectory(tmp_path / "root")
    room.prepare().rmdir()
    room.path.symlink_to(kept)
    assert room.prepare().is_symlink() is False
    (room.path / "link").symlink_to(kept)
    room.close()
    assert (kept / "file").exists()
    assert not (tmp_path / "root").exists()


def test_what_takes_too_long_to_remove_is_moved_aside(tmp_path: Path) -> None:
    room = WorkingDirectory(tmp_path / "root")
    for number in range(2):
        (room.prepare() / f"folder {number}").mkdir()
        assert not room.emptied(lambda: True)
        assert list(room.path.iterdir()) == []
    assert len(list(room.path.parent.iterdir())) == 3
    room.close()
    assert not (tmp_path / "root").exists()


_WITHOUT_PATIENCE = """
import os
from pytest_qnn.isolation import supervisor
supervisor._REMOVING = -1.0
supervisor.main()
os._exit(0)
"""


def test_a_case_that_leaves_more_than_can_be_removed_in_time_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no other one: the folder of the next one is empty. In the end nothing is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(
        interpreter, "command", lambda _, *arguments: [sys.executable, "-c", _WITHOUT_PATIENCE, *arguments]
    )
    library = qnn_library(tmp_path, 'close(creat("file",0600))', before="#include <fcntl.h>")
    before = set(tmp_path.iterdir())
    target = open_memory_target(str(library), "emulated", "fork", 5.0)
    with contextlib.closing(target):
        for case in (CASE, HARMLESS, CASE):
            death = target.run(case).death
            assert (death.kind if death else "") == ("hang" if case is CASE else "")
            assert death is None or "too long to remove" in death.detail
        traces = [trace for trace, _ in target.run_all([HARMLESS, CASE, HARMLESS])]
        assert [trace.death is not None for trace in traces] == [False, True, False]
    assert set(tmp_path.iterdir()) == before


def test_each_of_several_cases_in_a_process_begins_in_the_folder(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    library = qnn_library(
        tmp_path, f'close(creat("file",0600));chdir("{elsewhere}")', before="#include <fcntl.h>"
    )
    with contextlib.closing(open_memory_target(str(library), "emulated", "fork", 5.0)) as target:
        answers = list(target.run_all([CASE, CASE]))
    assert [(trace.death, first) for trace, first in answers] == [(None, True), (None, False)]
    assert list(elsewhere.iterdir()) == []
