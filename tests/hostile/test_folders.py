"""Files and folders that several runs write at the same time, and links that somebody has planted there."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import secrets
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import fake_suite
import pytest
from fast_run import later

from pytest_qnn.report import files
from pytest_qnn.session.folders import Folders

FORK = multiprocessing.get_context("fork")
NAMES = ("case.json", "command.txt", "README.txt")


def contents(tag: object) -> dict[str, bytes]:
    """Files that all say the same."""
    return dict.fromkeys(NAMES, f"{tag}".encode() * 20)


def whole(folder: Path) -> bytes:
    """What all files of the folder say."""
    assert sorted(os.listdir(folder)) == sorted(NAMES)
    (said,) = {(folder / name).read_bytes() for name in NAMES}
    return said


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of what is written next, where an attacker could know it."""
    monkeypatch.setattr(secrets, "token_hex", lambda count: "0" * 2 * count)
    return ".pytest-qnn." + "0" * 16


def test_a_planted_link_is_not_followed(tmp_path: Path, foreseen: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (foreseen, f".out.json.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(FileExistsError):
        files.replace(tmp_path / "out.json", b"report")
    assert victim.read_text() == "precious"
    assert (tmp_path / foreseen).is_symlink()


def test_a_planted_link_to_a_folder_is_not_followed(tmp_path: Path, foreseen: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in (foreseen, f".REG-02.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(FileExistsError):
        files.replace_folder(tmp_path / "REG-02", contents("a"))
    assert os.listdir(victim) == []
    assert (tmp_path / foreseen).is_symlink()


def test_names_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: (seen.append(self.name), replace(self, to))[1])
    for _ in range(3):
        files.replace(tmp_path / "out.json", b"report")
    assert len(set(seen)) == 3
    assert not [name for name in seen if str(os.getpid()) == name.rpartition(".")[2]]
    assert os.listdir(tmp_path) == ["out.json"]


@pytest.mark.parametrize("kind", ["link", "broken-link", "file", "folder"])
def test_whatever_is_in_the_way_is_replaced_itself(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").touch()
    folder = tmp_path / "REG-02"
    make: dict[str, Callable[[], object]] = {
        "link": lambda: folder.symlink_to(victim),
        "broken-link": lambda: folder.symlink_to("gone"),
        "file": folder.touch,
        "folder": lambda: files.replace_folder(folder, {"old": b""}),
    }
    make[kind]()
    files.replace_folder(folder, contents("a"))
    assert not folder.is_symlink()
    assert whole(folder)
    assert (victim / "precious").exists()
    assert sorted(os.listdir(tmp_path)) == ["REG-02", "victim"]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.replace(tmp_path / "out.json", b"")
        files.replace_folder(tmp_path / "REG-02", contents("a"))
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"out.json": 0o640, "REG-02": 0o750} | dict.fromkeys(NAMES, 0o640)


@contextlib.contextmanager
def processes(work: Callable[[int], None], count: int) -> Iterator[list[BaseProcess]]:
    """So many processes that do this, each with its number; they end well, or the test fails."""
    made = [FORK.Process(target=work, args=(number,)) for number in range(count)]
    for one in made:
        one.start()
    try:
        yield made
        for one in made:
            one.join(20)
            assert one.exitcode == 0
    finally:
        for one in made:
            one.kill()
            one.join()


@pytest.mark.parametrize("writes", [50, later(200)])
def test_four_processes_write_at_the_same_time(tmp_path: Path, writes: int) -> None:
    """None raises, no reader sees half a folder or half a file, and a whole one stays."""
    folder, path = tmp_path / "REG-02", tmp_path / "out.json"

    def write(number: int) -> None:
        for _ in range(writes):
            files.replace(path, f"{number}".encode() * 10_000)
            files.replace_folder(folder, contents(number))

    seen = set()
    with processes(write, 4) as writers:
        while any(one.is_alive() for one in writers):
            with contextlib.suppress(FileNotFoundError):
                seen.add(path.read_bytes())
            # By one descriptor: the folder that the path is of changes.
            with contextlib.suppress(FileNotFoundError):
                opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                found = os.listdir(opened)
                # One that was replaced in the meantime is being removed.
                there = os.path.samestat(os.fstat(opened), os.stat(folder))
                os.close(opened)
                assert not there or sorted(found) == sorted(NAMES)
    assert seen
    assert all(len(text) == 10_000 and len(set(text)) == 1 for text in seen)
    assert whole(folder)
    assert sorted(os.listdir(tmp_path)) == ["REG-02", "out.json"]


def put(home: Path, tag: object) -> Folders:
    """Keep a finding as a run does; its folder is the first that is free."""
    folders = Folders(home)
    assert any(folders.put(name, contents(tag)) for name in ("REG-02", "REG-02-2", "REG-02-3", "REG-02-4"))
    return folders


def test_runs_at_the_same_time_keep_what_each_found(tmp_path: Path) -> None:
    ready, end = FORK.Semaphore(0), FORK.Event()

    def judge(number: int) -> None:
        folders = Folders(tmp_path)
        for again in range(50):  # what is found again replaces what the same run found before
            names = ["REG-02", "REG-02-2", "REG-02-3"]
            name = next(name for name in names if folders.put(name, contents((number, again))))
        (tmp_path / f"said-{number}").write_text(name)
        ready.release()
        assert end.wait(20)

    with processes(judge, 3):
        assert all(ready.acquire(timeout=20) for _ in range(3))
        names = [(tmp_path / f"said-{number}").read_text() for number in range(3)]
        assert sorted(names) == ["REG-02", "REG-02-2", "REG-02-3"]
        for number, name in enumerate(names):
            assert whole(tmp_path / name) == contents((number, 49))["case.json"]
        put(tmp_path, "fourth").close()
        assert (tmp_path / "REG-02-4").exists()
        end.set()
    put(tmp_path, "later").close()
    assert whole(tmp_path / "REG-02") == contents("later")["case.json"]
    assert not (tmp_path / "REG-02-5").exists()


def test_runs_with_the_same_finding_share_a_folder(tmp_path: Path) -> None:
    first = put(tmp_path, "same")

    def judge(number: int) -> None:
        folders = Folders(tmp_path)
        assert folders.put("REG-02", contents("same"))
        assert not folders.put("REG-02", contents("other"))

    with processes(judge, 2):
        pass
    assert whole(tmp_path / "REG-02") == contents("same")["case.json"]
    first.close()


@pytest.mark.parametrize("way", ["killed", "shared"])
def test_a_folder_is_free_when_the_last_run_that_names_it_has_ended(tmp_path: Path, way: str) -> None:
    ready = FORK.Event()

    def judge(number: int) -> None:
        folders = Folders(tmp_path)
        assert folders.put("REG-02", contents("theirs"))
        ready.set()
        time.sleep(60)

    run = FORK.Process(target=judge, args=(0,))
    run.start()
    try:
        assert ready.wait(20)
        ours = Folders(tmp_path)
        assert not ours.put("REG-02", contents("ours"))
        if way == "shared":
            assert ours.put("REG-02", contents("theirs"))
            assert not ours.put("REG-02", contents("ours"))
    finally:
        run.kill()
        run.join()
    assert ours.put("REG-02", contents("ours"))
    ours.close()


def test_without_locks_the_last_one_stays(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "victim")
    one, two = put(tmp_path, 1), put(tmp_path, 2)
    assert whole(tmp_path / "REG-02") == contents(2)["case.json"]
    assert not (tmp_path / "victim").exists()
    one.close()
    two.close()


WAIT = """
import pathlib, time
def test_wait():
    pathlib.Path("waiting").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
"""
CONFTEST = """
import pathlib
def pytest_unconfigure(config):
    if hasattr(config, "workerinput"):
        pathlib.Path("ended-" + config.workerinput["workerid"]).touch()
"""


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(fake_suite.__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "fake_suite", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def found(run: subprocess.Popen[str]) -> tuple[Path, int]:
    """The folder that a run's replay command names, and the seed of its case."""
    output = run.communicate(timeout=60)[0]
    (command,) = {line.split(maxsplit=1)[1] for line in output.splitlines() if line.startswith("  replay ")}
    option = "--qnn-replay="
    (folder,) = (Path(word[len(option) :]) for word in shlex.split(command) if word.startswith(option))
    assert (folder / "command.txt").read_text() == f"{command}\n"
    return folder, json.loads((folder / "case.json").read_text())["seed"]


def wait_for(folder: Path, *names: str) -> None:
    deadline = time.monotonic() + 60
    while not any((folder / name).exists() for name in names):
        assert time.monotonic() < deadline, names
        time.sleep(0.02)


@pytest.mark.parametrize("spread", [later((), name="one-process"), later(("-n2",), name="workers")])
def test_the_command_of_each_of_two_runs_leads_to_its_own_case(
    tmp_path: Path, spread: tuple[str, ...]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_both.py").write_text(f"{fake_suite.suite('REG-02')}\n{WAIT}")
    (tmp_path / "test_one.py").write_text(fake_suite.suite("REG-02"))
    first = started(tmp_path, "test_both.py", "--qnn-seed=1", *spread)
    try:
        wait_for(tmp_path, "waiting")
        if spread:  # the worker that has found it is gone, and its run is not
            wait_for(tmp_path, "ended-gw0", "ended-gw1")
        second = found(started(tmp_path, "test_one.py", "--qnn-seed=2"))
        (tmp_path / "go").touch()
        named = found(first)
    finally:
        first.kill()
        first.communicate()
    assert (named[0].name, named[1]) == ("REG-02", 1)
    assert (second[0].name, second[1]) == ("REG-02-2", 2)
    later = found(started(tmp_path, "test_one.py", "--qnn-seed=3"))
    assert later == (named[0], 3)
    assert sorted(os.listdir(named[0].parent)) == ["REG-02", "REG-02-2"]
