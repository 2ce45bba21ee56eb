"""The stored reports that pages are made of, made by runs: python -m tests.browser.make_reports.

A run on libQnnHtp.so takes over a minute. Paths of the machine are replaced by made-up ones.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.helpers.real_libraries import real_library

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).with_name("reports")
SUITE = (sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider")
OPTIONS = ("--pyargs", "pytest_qnn.conformance", "--qnn-profile=quick", "--qnn-seed=1")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "examples/delegate_repo", folder / "repo")
        subprocess.run(["sh", "build.sh"], cwd=folder / "repo", check=True)
        plugin = folder / "repo/build/libarithmetic.so"
        _judge(folder, "plugin", f"--tflite-delegate={plugin}")
        _judge(folder, "libqnnhtp", f"--qnn-backend={real_library('libQnnHtp.so')}")


def _judge(folder: Path, name: str, target: str) -> None:
    path = folder / f"{name}.json"
    subprocess.run([*SUITE, *OPTIONS, target, f"--qnn-report={path}"], cwd=folder, check=False)
    text = path.read_text()
    library = Path(target.partition("=")[2])
    for found, made_up in (
        (str(library.parent), "/opt/judged"),
        (str(folder), "/home/author/project"),
        (str(Path(sys.executable).parent), "/home/author/.venv/bin"),
        (sys.prefix, "/home/author/.venv"),
    ):
        text = text.replace(found, made_up)
    (FOLDER / f"{name}.json").write_text(_lines(json.loads(text)))


def _lines(document: dict[str, Any]) -> str:
    """JSON with a line for each rule, for whoever reads a difference."""
    marks: dict[str, str] = {}
    for number, target in enumerate(document["targets"]):
        mark = f"@rules {number}@"
        marks[json.dumps(mark)] = "[\n" + ",\n".join(map(json.dumps, target["rules"])) + "\n]"
        target["rules"] = mark
    text = json.dumps(document, indent=1)
    for mark, rules in marks.items():
        text = text.replace(mark, rules)
    return f"{text}\n"


if __name__ == "__main__":
    main()
