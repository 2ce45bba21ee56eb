"""Who may import what: the table of ARCHITECTURE.md, held against the code."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pytest_qnn"
ROOMS: dict[str, set[str]] = {
    "core": set(),
    "isolation": {"core", "forms"},
    "abi": set(),
    "cases": {"core", "facts"},
    "trace": {"cases", "core", "facts"},
    "oracle": {"abi", "cases", "facts", "trace"},
    "rules": {"abi", "cases", "core", "facts", "oracle", "trace", "mutants"},
    "reference": {"abi", "cases", "isolation", "oracle"},
    "mutants": {"abi", "cases", "core", "isolation", "kills", "oracle", "reference", "rules", "trace"},
    "run": {
        *("abi", "cases", "core", "facts", "forms", "isolation", "mutants", "oracle", "reference"),
        "trace",
    },
    "report": {"cases", "core", "facts", "rules", "session"},
    "session": {"cases", "core", "forms", "isolation", "newhooks", "options", "report", "rules", "run"},
}
"""Room -> the rooms it may import from, besides itself. ``rules`` names mutants in its document only;
``mutants`` is a command too, which measures its table with ``kills``; ``run`` takes the names of built-in
targets from ``forms``; ``cases`` takes codes from ``abi``, which are plain integers."""
WITHOUT_CIRCLES = ("core", "isolation", "session")
CODES_ONLY = {"cases", "oracle", "rules"}
"""Rooms that may import of ``abi`` the codes alone, which are plain integers."""


def modules(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Every module that a file imports, at its top or later, under its full name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_from_the_rooms_it_may(room: str) -> None:
    allowed = ROOMS[room] | {room} | ({"abi"} if room in CODES_ONLY else set())
    wrong = [
        (path.name, name)
        for path in modules(room)
        for name in imported(path)
        if name.startswith("pytest_qnn.") and name.split(".")[1] not in allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("room", WITHOUT_CIRCLES)
def test_no_files_of_a_room_import_each_other_in_a_circle(room: str) -> None:
    prefix = f"pytest_qnn.{room}."
    left = {path.stem: {name.removeprefix(prefix) for name in imported(path)} for path in modules(room)}
    while free := [name for name, needs in left.items() if not needs & left.keys() - {name}]:
        for name in free:
            del left[name]
    assert left == {}


@pytest.mark.parametrize("room", sorted(CODES_ONLY))
def test_a_pure_room_knows_no_ctypes(room: str) -> None:
    layouts = ("pytest_qnn.abi.qnn.", "pytest_qnn.abi.tflite", "pytest_qnn.abi.qnn_table", "ctypes")
    wrong = [
        (path.name, name)
        for path in modules(room)
        for name in imported(path)
        if name.startswith(layouts) or name == "pytest_qnn.abi.qnn"
    ]
    assert wrong == []
    assert "ctypes" not in imported(PACKAGE / "abi" / "qnn_codes.py")


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_imports_the_suite_or_the_fixtures(room: str) -> None:
    folders = ("pytest_qnn.conformance", "pytest_qnn.fixtures", "conformance", "fixtures")
    assert [path.name for path in modules(room) for name in imported(path) if name.startswith(folders)] == []


@pytest.mark.parametrize("worker", ["memory_worker", "delegate_worker"])
def test_processes_that_carry_cases_out_load_nothing_that_generates_or_judges(worker: str) -> None:
    """Each case pays for the size of its process."""
    heavy = "{'hypothesis', 'pytest', '_pytest', 'pytest_qnn.core.engine', 'pytest_qnn.report'}"
    code = (
        "import sys; from pytest_qnn.isolation import supervisor;"
        f"import pytest_qnn.run.{worker}; import pytest_qnn.run.delegates;"
        f"print(*{heavy} & sys.modules.keys(), *(name for name in sys.modules"
        " if name.startswith('pytest_qnn.rules.') and name != 'pytest_qnn.core.rule'))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []
