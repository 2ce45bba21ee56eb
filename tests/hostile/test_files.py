"""Files of every kind where one is expected: one sentence or a run that works, no wait and no traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fake_suite
import pytest
from fast_run import alternating
from reports import refusal, within

from pytest_qnn import case_file
from pytest_qnn.core.forms import BadOption

NAME = os.fsdecode(b"l\xffb")
"""Of a file, not UTF-8."""


def library(folder: Path, name: str = NAME) -> Path:
    path = folder / f"{name}.so"
    path.touch()
    return path


SELECTING: dict[str, Callable[[Path], list[str]]] = {
    "backend": lambda path: [f"--qnn-backend={path}"],
    "proxy": lambda path: [f"--qnn-backend=proxy:{path}"],
    "rpcmem": lambda path: [f"--qnn-rpcmem={path}"],
    "delegate": lambda path: [f"--tflite-delegate={path}"],
    "option": lambda path: ["--tflite-delegate=xnnpack", f"--tflite-delegate-option=library={path}"],
    "option-of-qnn": lambda path: [
        "--tflite-delegate=qnn-reference",
        f"--tflite-delegate-option=backend={path}",
    ],
    "ini": lambda path: ["-o", f"qnn_backend={path}"],
    "ini-option": lambda path: ["-o", "tflite_delegate=xnnpack", "-o", f"tflite_delegate_option=a={path}"],
    "key": lambda path: ["--tflite-delegate=xnnpack", f"--tflite-delegate-option={path.name}=1"],
}


@pytest.mark.parametrize(("way", "workers"), alternating(SELECTING, [0, 1]))
def test_a_target_whose_path_is_not_utf8_is_refused(
    pytester: pytest.Pytester, way: str, workers: int
) -> None:
    path = library(pytester.path)
    spread = ["-n1"] * workers
    pytester.makepyfile(fake_suite.suite("REG-01", "PART-01"))
    sentence = refusal(pytester.runpytest_inprocess(*SELECTING[way](path), *spread))
    flag = {"ini": "--qnn-backend", "ini-option": "--tflite-delegate-option"}.get(way, "--")
    assert sentence.startswith(flag)
    assert r"l\udcffb" in sentence
    assert sentence.endswith("is not UTF-8, as what selects a target must be")


def test_a_link_to_a_library_whose_path_is_not_utf8_is_refused(pytester: pytest.Pytester) -> None:
    (pytester.path / "link.so").symlink_to(library(pytester.path))
    sentence = refusal(pytester.runpytest_inprocess("--qnn-backend=link.so"))
    assert sentence.endswith(r"l\udcffb.so' is not UTF-8, as the path of a library must be")


@pytest.mark.usefixtures("fakes")
def test_reports_and_findings_may_be_in_a_folder_whose_name_is_not_utf8(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir(NAME)
    pytester.makepyfile(fake_suite.suite("REG-02"))
    reports = [f"--qnn-report={folder}/out.{kind}" for kind in ("json", "html")]
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *reports)
    result.assert_outcomes(failed=1)
    assert json.loads((folder / "out.json").read_text())["targets"]
    assert (folder / "out.html").read_text().endswith("</html>\n")
    moved = next(pytester.path.glob(".pytest-qnn/*/REG-02")).rename(folder / "REG-02")
    again = pytester.runpytest_inprocess("-p", "no:cacheprovider", f"--qnn-replay={moved}")
    again.stdout.fnmatch_lines(["REG-02 on reference: STILL FAILS: *"])


@pytest.mark.parametrize("way", ["--qnn-report={}/out.json", "--qnn-replay={}"])
def test_workers_get_no_path_that_is_not_utf8(pytester: pytest.Pytester, way: str) -> None:
    folder = pytester.mkdir(NAME)
    (folder / "case.json").touch()
    sentence = refusal(pytester.runpytest_inprocess(way.format(folder), "-n1"))
    assert sentence.startswith(way.partition("=")[0])
    assert sentence.endswith("is not UTF-8, as what workers of pytest-xdist (-n) are sent must be")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 30)


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "fifo": (fifo, "not a regular file"),
    "link-to-fifo": (link_to_fifo, "not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "terminal": (lambda path: path.symlink_to("/dev/tty"), ""),
    "folder": (lambda path: path.mkdir(), "not a regular file"),
    # A regular file whose reader waits for the kernel to say something.
    "log": (lambda path: path.symlink_to("/proc/kmsg"), "cannot be read"),
    "sparse": (sparse, "has more than 2097152 bytes"),
    "loop": (lambda path: path.symlink_to(path.name), ""),
    "socket-link": (lambda path: path.symlink_to("/dev/log"), ""),
}
"""What makes it at a path, and what is said of it."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_file_of_another_kind_is_refused_at_once(pytester: pytest.Pytester, kind: str) -> None:
    make, said = KINDS[kind]
    folder = pytester.mkdir("found")
    make(folder / "case.json")
    with within(1):
        sentence = refusal(pytester.runpytest_inprocess("--qnn-replay=found"))
    assert sentence.startswith("--qnn-replay")
    assert said in sentence


@pytest.mark.parametrize("kind", KINDS)
def test_what_counts_is_what_was_opened(tmp_path: Path, kind: str) -> None:
    """Between a look at the path and opening it the file may have become another one."""
    make, said = KINDS[kind]
    make(tmp_path / "case.json")
    for path in (tmp_path, tmp_path / "case.json")[: 1 if kind == "folder" else 2]:
        before = len(os.listdir("/proc/self/fd"))
        with within(1), pytest.raises(BadOption, match=f"--qnn-replay: .*{said}"):
            case_file.read(path)
        assert len(os.listdir("/proc/self/fd")) == before


# What can be written no more

SHOULD = ("REG-01", "REG-08")
"""A pass and an expected failure with a finding: by itself the run ends with 0."""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


def assert_said(text: str, *problems: str) -> None:
    """The verdicts are on the terminal, and what could not be written in a sentence each."""
    assert "REG-08 SHOULD fail: Sentence of REG-08." in text
    assert "total      1      1 " in text
    lines = text.splitlines()
    for problem in problems:
        assert [line for line in lines if problem in line], problem
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text


@pytest.mark.usefixtures("fakes")
def test_a_finding_that_cannot_be_kept_fails_a_run_that_nothing_else_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(fake_suite.suite(*SHOULD))
    assert run(pytester).ret is pytest.ExitCode.OK
    home = pytester.path / ".pytest-qnn"
    shutil.rmtree(home)
    home.write_text("in the way")
    result = run(pytester)
    assert result.ret is pytest.ExitCode.INTERNAL_ERROR
    assert_said(result.stdout.str(), f"# the case could not be written: {home}/memory-reference-")


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("kind", ["json", "html"])
def test_a_report_folder_that_goes_away_during_the_run(pytester: pytest.Pytester, kind: str) -> None:
    folder = pytester.mkdir("reports")
    pytester.makepyfile(
        f"import shutil\n{fake_suite.suite(*SHOULD)}\ndef test_last(): shutil.rmtree({str(folder)!r})\n"
    )
    result = run(pytester, f"--qnn-report=reports/out.{kind}")
    assert result.ret is pytest.ExitCode.INTERNAL_ERROR
    assert_said(result.stdout.str(), f"--qnn-report: {folder}/out.{kind} could not be written: ")


def in_tmpfs(folder: Path, prepared: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run in a small file system of its own, mounted for it alone, after a shell has prepared that."""
    mount = ["unshare", "--mount", "--propagation=private"]
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], check=False).returncode:
        pytest.skip("nothing can be mounted here (unshare)")
    (folder / "rules.py").write_text(fake_suite.suite(*SHOULD))
    pytest_run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "fake_suite", *arguments]
    script = (
        f"set -e; cd {folder}; mount -t tmpfs -o size=256k none full; cp rules.py full/test_rules.py;"
        f' cd full; {prepared}; exec "$@"'
    )
    environment = os.environ | {
        "PYTHONPATH": str(Path(fake_suite.__file__).parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [*mount, "sh", "-c", script, "sh", *pytest_run],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


FILES = ("--qnn-report=out.json", "--qnn-report=out.html")


def test_a_full_disk_hides_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    ended = in_tmpfs(tmp_path, "cat /dev/zero > filler 2>/dev/null || true", *FILES)
    assert ended.returncode == pytest.ExitCode.INTERNAL_ERROR, ended.stderr
    problems = [
        f"--qnn-report: {tmp_path}/full/out.{kind} could not be written: " for kind in ("json", "html")
    ]
    assert_said(ended.stdout, *problems, f"# the case could not be written: {tmp_path}/full/.pytest-qnn/")
    assert ended.stdout.count("No space left on device") >= 3


@pytest.mark.full
def test_a_read_only_folder_hides_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    ended = in_tmpfs(tmp_path, "mount -o remount,ro none .")
    assert ended.returncode == pytest.ExitCode.INTERNAL_ERROR, ended.stderr
    assert_said(ended.stdout, f"# the case could not be written: {tmp_path}/full/.pytest-qnn/")
    refused = in_tmpfs(tmp_path, "mount -o remount,ro none .", *FILES)
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert refused.stderr.strip().endswith(f"the folder '{tmp_path}/full' cannot be written to")
