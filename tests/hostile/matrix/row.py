"""One row of the matrix: build the library, judge it in namespaces of the row's own, and say what is wrong.

Linux as root, with gcc and unshare(1).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from pytest_qnn.core.rule import Subject
from tests.hostile.matrix.action import OWNERS, RULES, Action, build
from tests.hostile.matrix.actions import ACTIONS

_ROOT = Path(__file__).parents[3]
_HERE = Path(__file__).parent
_LIMIT = 300.0
"""Seconds until a row is ended, as a hang of the suite's own."""
PEAK = 400 << 20
"""Bytes that pytest's process may take; 150 MiB of it are taken when nothing is wrong."""
_SECONDS, _FEW_SECONDS = 10, 1
"""For a case: the default, where nothing is to hang, since an action may take its time and does so at each of
many invokes; else less, since each hang takes all of it."""
_QUIET = {"pass", "unsupported"}
_SAID = re.compile(rb"INTERNALERROR|Traceback \(most recent call last\)")
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


class Row(msgspec.Struct, frozen=True):
    """What was seen of an action in a library of one half."""

    action: str
    side: Subject
    status: int | None
    """Of pytest; None if it did not end in time."""
    verdicts: dict[str, str]
    """Of each rule that was selected, or has a verdict nevertheless."""
    wrong: list[str]
    """What is not as it must be, as sentences; empty where all is."""
    wall: float
    cpu: float
    """Seconds, of all processes."""
    peak: int
    """Bytes of pytest's process."""
    on: str = ""
    """Day on which it was judged."""


def is_possible() -> str:
    """Why no row can be judged here; empty if they can be."""
    for program in ("gcc", "unshare"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    tried = subprocess.run([*_APART, "true"], capture_output=True, check=False)
    return "" if not tried.returncode else "needs namespaces of its own: run it as root"


_APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--ipc")


def judge(name: str, side: Subject) -> Row:
    """Judge one row in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="row-", dir="/tmp") as work:
        action = ACTIONS[name].on(side)
        seen = _run(action, build(action, side, Path(work)), side, Path(work))
        return _judged(action, side, seen, Path(work))


def _run(action: Action, library: Path, side: Subject, work: Path) -> dict[str, Any]:
    specification = {
        "command": _command(library, side, work, _SECONDS if action.expected == "pass" else _FEW_SECONDS),
        "environment": {"PYTHONPATH": str(_HERE), "COUNTED": str(work / "counted.json"), "NO_COLOR": "1"},
        "kept": [str(_ROOT), str(work)],
        "limit": _LIMIT,
    }
    (work / "specification.json").write_text(json.dumps(specification))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [*_APART, sys.executable, str(_HERE / "inside.py"), str(work / "specification.json")]
    done = subprocess.run(
        command, env=environment, capture_output=True, check=False, timeout=_LIMIT + 60, text=True
    )
    if done.returncode or not (work / "seen.json").exists():
        raise RuntimeError(f"process 1 of the row ended with {done.returncode}: {done.stderr}")
    seen: dict[str, Any] = json.loads((work / "seen.json").read_text())
    return seen


def _command(library: Path, side: Subject, work: Path, timeout: int) -> list[str]:
    half, option = ("qnn", "--qnn-backend") if side == "memory" else ("tflite", "--tflite-delegate")
    return [
        *(sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", "-p", "counted"),
        *("--pyargs", f"pytest_qnn.conformance.{half}", "--qnn-profile=quick", "--qnn-seed=1"),
        *(f"--qnn-timeout={timeout}", f"--qnn-rule={','.join(RULES[side])}", f"{option}={library}"),
        f"--qnn-report={work / 'run' / 'report.json'}",
    ]


def _verdicts(side: Subject, report: Path) -> tuple[dict[str, str], list[str]]:
    """The verdict of each rule, and the rules that are named as not judged."""
    if not report.exists():
        return {}, []
    document = json.loads(report.read_text())
    found: dict[str, str] = {}
    for target in document["targets"]:
        for rule in target["rules"]:
            if target["subject"] == side and rule["verdict"]:
                if rule["id"] in found:
                    raise ValueError(f"{rule['id']} stands in the report twice")
                found[rule["id"]] = rule["verdict"]
    return found, list(document["not_judged"])


def _judged(action: Action, side: Subject, seen: dict[str, Any], work: Path) -> Row:
    output = (work / "output").read_bytes()
    verdicts, not_judged = _verdicts(side, work / "run" / "report.json")
    counted_path = work / "counted.json"
    counted = json.loads(counted_path.read_text()) if counted_path.exists() else {}
    wrong = [
        *_wrong_run(action, seen["status"], output),
        *_wrong_verdicts(action, side, seen["status"], verdicts, output),
        *(f"{rule} has no verdict" for rule in _unjudged(action, side, verdicts, not_judged, seen["status"])),
        *_wrong_left(action, seen["left"], counted),
    ]
    if wrong and "KEEP_OUTPUT" in os.environ:
        Path(os.environ["KEEP_OUTPUT"], f"{action.name}-{side}.txt").write_bytes(output)
    peak = counted.get("peak", 0)
    return Row(action.name, side, seen["status"], verdicts, wrong, seen["wall"], seen["cpu"], peak)


def _wrong_run(action: Action, status: int | None, output: bytes) -> list[str]:
    wrong = []
    if status not in {0, 1, 4}:
        wrong.append(f"pytest ended with {status}")
    said = _SAID.search(output)
    if said and (action.expected in {"pass", "crash", "hang", "unloadable"} or said[0] == b"INTERNALERROR"):
        wrong.append(f"the output has {said[0].decode()}")
    control = _CONTROL.search(output)
    if control:
        wrong.append(f"the output has the control character {control[0]!r}")
    return wrong


def _wrong_verdicts(
    action: Action, side: Subject, status: int | None, verdicts: dict[str, str], output: bytes
) -> list[str]:
    if action.expected == "any":
        return []
    if action.expected == "unloadable":
        passed = [rule for rule, verdict in verdicts.items() if verdict == "pass"]
        told = b"load" in output
        return [f"{rule} passes" for rule in passed] + ([] if told and status else ["it is not said"])
    owner = OWNERS[side].get(action.moment) if action.expected != "pass" else None
    wrong = []
    if owner and action.expected != "owner" and verdicts.get(owner) != action.expected:
        wrong.append(f"{owner} says {verdicts.get(owner)}, not {action.expected}")
    quiet = _QUIET | {"inconclusive"} if owner else _QUIET
    wrong += [f"{rule} says {said}" for rule, said in verdicts.items() if rule != owner and said not in quiet]
    return wrong


def _unjudged(
    action: Action, side: Subject, verdicts: dict[str, str], not_judged: list[str], status: int | None
) -> list[str]:
    if action.expected == "unloadable" or (action.expected == "any" and status == 4):
        return []
    named = not_judged if action.expected == "any" else []
    return [rule for rule in RULES[side] if rule not in verdicts and rule not in named]


def _wrong_left(action: Action, left: dict[str, list[str]], counted: dict[str, Any]) -> list[str]:
    wrong = []
    for kind, names in left.items():
        others = [name for name in names if name not in action.leaves]
        if others:
            wrong.append(f"{kind}: {len(others)} left: {', '.join(map(repr, others[:3]))}")
    if not counted:
        wrong.append("pytest did not end by itself")
    if counted.get("descriptors"):
        wrong.append(f"pytest kept descriptors: {counted['descriptors'][:3]}")
    if counted.get("peak", 0) > PEAK:
        wrong.append(f"pytest took {counted['peak'] >> 20} MiB")
    return wrong
