"""The whole suite on real libraries: Qualcomm's own QNN backends and the XNNPACK of both runtimes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from real_libraries import real_library
from reports import judged_by_id

RUNTIMES = ["tflite_runtime", "ai_edge_litert"]


def judged(folder: Path, marker: str, *options: str) -> dict[str, dict[str, Any]]:
    """The report's rules by id, after a run of one half of the suite in a process of its own."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [
        "--pyargs",
        "pytest_qnn.conformance",
        "-m",
        marker,
        "--qnn-profile=quick",
        "--qnn-seed=1",
        f"--qnn-report={report}",
        *options,
    ]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert report.exists(), ended.stdout + ended.stderr
    return judged_by_id(json.loads(report.read_text()))


def verdicts(rules: dict[str, dict[str, Any]], *but: str) -> dict[str, str]:
    """Rules with another verdict than those named in ``but``."""
    return {name: rule["verdict"] for name, rule in rules.items() if rule["verdict"] not in but}


BINARIES = "test_off.py or test_ext.py or cap_06 or reg_17"
BINARY_FINDINGS = {
    "CAP-06": "contradiction",
    "EXT-04": "fail",
    "EXT-29": "fail",
    "EXT-31": "hang",
    "OFF-08": "fail",
    "OFF-09": "fail",
}
"""What libQnnHtp.so does with context binaries and deferred initialisation."""


def test_context_binaries_of_libqnnhtp(tmp_path: Path) -> None:
    backend = f"--qnn-backend={real_library('libQnnHtp.so')}"
    rules = judged(tmp_path, "qnn_memory", backend, "--qnn-timeout=3", "-k", BINARIES)
    assert verdicts(rules, "pass", "unsupported") == BINARY_FINDINGS
    seen = {name: rules[name]["violation"]["seen"] for name in BINARY_FINDINGS}
    assert {name: text.split()[0] for name, text in seen.items() if text[0].isdigit()} == {
        "CAP-06": "0",
        "EXT-04": "6000",
        "OFF-08": "30010",
        "OFF-09": "1100",
    }
    assert "finalising gives 1000" in seen["EXT-29"]
    assert rules["EXT-31"]["case"]["steps"][-1]["defer"] is False
    for name in ("OFF-01", "OFF-03", "OFF-05", "OFF-06", "OFF-07", "OFF-10", "EXT-01", "EXT-03", "EXT-06"):
        assert rules[name]["verdict"] == "pass", name
        assert rules[name]["examined"] > 0, name


def test_context_binaries_of_libqnnhtp_with_memory_handles(tmp_path: Path) -> None:
    backend = f"--qnn-backend=proxy:{real_library('libQnnHtp.so')}"
    only = "off_03 or off_05 or off_10 or reg_17 or ext_03 or ext_07"
    rules = judged(tmp_path, "qnn_memory", backend, "-k", only)
    assert {name: rule["verdict"] for name, rule in rules.items()} == {
        **dict.fromkeys(("OFF-03", "OFF-05", "OFF-10", "REG-17", "EXT-03"), "pass"),
        "EXT-07": "unsupported",
    }


def test_libqnnhtp(tmp_path: Path) -> None:
    backend = f"--qnn-backend={real_library('libQnnHtp.so')}"
    rules = judged(tmp_path, "qnn_memory", backend, "-k", f"not ({BINARIES})")
    assert verdicts(rules, "pass", "unsupported") == {
        "CAP-03": "contradiction",
        "EXE-05": "crash",
        "EXE-13": "fail",
        "EXE-14": "crash",
        "IF-10": "fail",
        "PRE-06": "fail",
        "QTHR-04": "fail",
    }
    assert "3 (INFO)" in rules["QTHR-04"]["violation"]["seen"]
    assert "1000" in rules["CAP-03"]["violation"]["seen"]
    for name in ("PRE-01", "PRE-02", "PRE-04", "QMG-05", "EXE-03", "CTX-06"):
        assert rules[name]["verdict"] == "pass", name
        assert rules[name]["examined"] > 0, name
    assert "raw columns" in rules["QMG-05"]["what"]
    crash = rules["EXE-05"]
    assert "SIGSEGV" in crash["violation"]["seen"]
    assert [step["do"] for step in crash["case"]["steps"]] == ["context-create", "prepare", "execute"]


def test_libqnngpu(tmp_path: Path) -> None:
    rules = judged(tmp_path, "qnn_memory", f"--qnn-backend={real_library('libQnnGpu.so')}")
    assert verdicts(rules, "pass", "unsupported") == {"REG-07": "fail", "IF-10": "crash"}
    assert "backendCreate answers 4000" in rules["REG-01"]["reason"]
    for name in ("IF-01", "IF-02", "CAP-01", "REG-03", "REG-04", "REG-06", "DRG-02", "DRG-03"):
        assert rules[name]["verdict"] == "pass", name


def test_libqnnsaver(tmp_path: Path) -> None:
    rules = judged(tmp_path, "qnn_memory", f"--qnn-backend={real_library('libQnnSaver.so')}")
    assert verdicts(rules, "pass", "unsupported") == {
        "CAP-01": "fail",
        "PRE-02": "fail",
        "IF-10": "fail",
        "PRE-03": "fail",
        "PRE-06": "fail",
        "CTX-07": "fail",
    }
    assert "4950" in rules["CAP-01"]["violation"]["seen"]
    assert list(tmp_path.glob("saver_output*")) == []


def test_libqnnir(tmp_path: Path) -> None:
    rules = judged(tmp_path, "qnn_memory", f"--qnn-backend={real_library('libQnnIr.so')}")
    assert verdicts(rules, "pass", "unsupported") == {"IF-10": "crash", "PRE-06": "fail", "PRE-07": "fail"}
    assert rules["CAP-02"]["verdict"] == "pass"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_xnnpack(tmp_path: Path, runtime: str) -> None:
    rules = judged(tmp_path, "qnn_delegate", "--tflite-delegate=xnnpack", f"--tflite-runtime={runtime}")
    assert verdicts(rules, "pass", "unsupported") == {}
    assert rules["PART-10"]["examined"] > 0


@pytest.mark.parametrize(
    ("runtime", "sandbox"),
    [
        ("tflite_runtime", "spawn"),
        ("ai_edge_litert", "fork"),
        pytest.param("ai_edge_litert", "spawn", marks=pytest.mark.full),
        pytest.param("tflite_runtime", "fork", marks=pytest.mark.full),
    ],
)
def test_the_reference_in_children_is_judged_as_in_this_process(
    tmp_path: Path, runtime: str, sandbox: str
) -> None:
    only = "part_05 or part_11 or prec_03 or mem_01"
    options = (f"--qnn-sandbox={sandbox}", f"--tflite-runtime={runtime}", "-k", only)
    rules = judged(tmp_path, "qnn_delegate", *options)
    assert {name: rule["verdict"] for name, rule in rules.items()} == dict.fromkeys(
        ("PART-05", "PART-11", "PREC-03", "MEM-01"), "pass"
    )
