"""``python -m pytest_qnn campaign``: shards on Dask's workers come to what one run finds."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostile import began_with
from reports import comparable, within

from pytest_qnn import commands
from pytest_qnn.commands import USAGE_ERROR, campaign
from pytest_qnn.core.forms import BadOption

MATRIX = """\
[targets.faulty]
options = ["--qnn-backend=mutant:reg-keeps-first", "--qnn-rule=REG-0*"]
resources = { board = 1 }
"""
MORE = ("--qnn-profile=quick",)


def arguments(folder: Path, **more: object) -> argparse.Namespace:
    given = {"matrix": folder / "m.toml", "seed": 5, "blocks": 2, "shards": 2, "more": MORE}
    return argparse.Namespace(**given | more)


def test_a_task_is_one_shard_of_one_target_in_words_for_any_folder(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "m.toml").write_text(
        "[targets.a]\n"
        'options = ["--tflite-delegate", "lib/a.so", "--qnn-strict", "--tflite-delegate=xnnpack"]\n'
        '[targets.b]\noptions = ["--qnn-backend=reference"]\nresources = { board = 2 }\n'
    )
    tasks = campaign.plan(arguments(tmp_path))
    assert [(task.target, task.number, task.resources) for task in tasks] == [
        *(("a", 1, {}), ("a", 2, {})),
        *(("b", 1, {"board": 2.0}), ("b", 2, {"board": 2.0})),
    ]
    assert tasks[1].options == (
        *("--qnn-seed=5", "--qnn-blocks=2", "-p", "no:cacheprovider", "--qnn-profile=quick", "--qnn-strict"),
        *(f"--tflite-delegate={tmp_path / 'lib' / 'a.so'}", "--tflite-delegate=xnnpack", "--qnn-shard=2/2"),
    )


def test_a_target_with_a_wrong_option_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.toml").write_text('[targets.a]\noptions = ["--nothing"]\n')
    with pytest.raises(BadOption, match="'--nothing' is no option"):
        campaign.plan(arguments(tmp_path))
    assert campaign.main([str(tmp_path / "m.toml"), "--folder", str(tmp_path), "--seed", "1"]) == USAGE_ERROR
    assert capsys.readouterr().err == "campaign: --qnn-matrix, a: '--nothing' is no option of pytest-qnn\n"


def test_a_target_called_like_the_report_of_a_shard_is_refused(tmp_path: Path) -> None:
    """One of the two reports would be written over the other one."""
    options = 'options = ["--qnn-backend=reference"]\n'
    (tmp_path / "m.toml").write_text(f"[targets.a]\n{options}[targets.a-1-of-2]\n{options}")
    with pytest.raises(BadOption, match=r"a-1-of-2\.json is the report of shard 1/2 of a$"):
        campaign.plan(arguments(tmp_path))
    assert len(campaign.plan(arguments(tmp_path, shards=3))) == 6


def test_a_name_that_no_folder_can_have_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        campaign.main(["m.toml", "--folder", "a" * 256])
    assert ended.value.code == USAGE_ERROR
    assert f"--folder: there is no folder '{'a' * 256}'" in capsys.readouterr().err


def test_without_dask_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    (tmp_path / "m.toml").write_text(MATRIX)
    assert campaign.main([str(tmp_path / "m.toml"), "--folder", str(tmp_path), "--seed", "1"]) == USAGE_ERROR
    assert "pip install 'pytest-qnn[dask]'" in capsys.readouterr().err


def workers(mark: str) -> list[int]:
    """Processes of the campaign that run a shard: each is the parent of one."""
    found = []
    for pid in began_with(mark):
        words = Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}").exists() else b""
        if b"--qnn-shard=" in words:
            status = Path(f"/proc/{pid}/status").read_text()
            found.append(int(status.partition("PPid:")[2].split()[0]))
    return found


def test_ctrl_c_while_a_command_is_imported_is_its_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.importlib, "import_module", interrupted)
    assert commands.main(["verify", "folder"]) == 130


@pytest.mark.parametrize("address", ["10.0.0.1", "carrier://pigeon:1"])
def test_what_is_no_address_of_a_scheduler_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    (tmp_path / "m.toml").write_text(MATRIX)
    words = [str(tmp_path / "m.toml"), "--folder", str(tmp_path), "--seed", "1", "--scheduler", address]
    with within(20):
        assert campaign.main(words) == USAGE_ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"campaign: --scheduler: {address!r}: ")


@pytest.mark.full
def test_a_shard_that_fails_costs_its_target_only(tmp_path: Path) -> None:
    absent = '[targets.absent]\noptions = ["--qnn-backend=mutant:absent"]\n'
    (tmp_path / "m.toml").write_text(absent + MATRIX.replace("board", "bench"))
    words = ("--folder=.", "--seed=5", "--workers=1", "--", "--qnn-rule=REG-08", *MORE)
    process = subprocess.run(
        [sys.executable, "-m", "pytest_qnn", "campaign", "m.toml", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == USAGE_ERROR
    assert {"absent: shard 1/1 not judged", "faulty: shard 1/1 judged"} < {*process.stdout.splitlines()}
    assert "REG-08 fail" in process.stdout
    assert (tmp_path / "faulty.json").exists()
    assert not (tmp_path / "absent.json").exists()
    (line,) = [line for line in process.stderr.splitlines() if line.startswith("campaign: ")]
    assert line.startswith("campaign: absent: shard 1/1: RunFailed: exit status 4: ERROR: --qnn-backend: ")


@pytest.mark.full
def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    """Two workers; one is killed while it judges. Its shard runs again, and nothing of it stays behind."""
    (tmp_path / "m.toml").write_text(MATRIX)
    (tmp_path / "out").mkdir()
    mark = f"CAMPAIGN={tmp_path}"
    options = ("--qnn-blocks=2", "--qnn-seed=5", "--qnn-backend=mutant:reg-keeps-first", "--qnn-rule=REG-0*")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest_qnn", "campaign", "m.toml", "--folder=out", "--seed=5"),
            *("--shards=4", "--blocks=2", "--workers=2", "--", *MORE),
        ],
        cwd=tmp_path,
        env=os.environ | {"CAMPAIGN": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until = time.monotonic() + 120
        while not (busy := workers(mark)) and time.monotonic() < until:
            time.sleep(0.1)
        os.kill(busy[0], signal.SIGKILL)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    assert "REG-08 fail" in out
    assert out.count(" judged\n") == 4
    assert "Traceback" not in err
    command = [sys.executable, "-m", "pytest", "-q", "--pyargs", "pytest_qnn.conformance", *MORE, *options]
    subprocess.run(
        [*command, "--qnn-report=whole.json"], cwd=tmp_path, capture_output=True, timeout=300, check=False
    )
    assert comparable(tmp_path / "out" / "faulty.json") == comparable(tmp_path / "whole.json")
    merged = json.loads((tmp_path / "out" / "faulty.json").read_text())["merged"]
    assert [each["shard"] for each in merged] == ["1/4", "2/4", "3/4", "4/4"]
    assert began_with(mark) == []
