"""Who may import what: the table of ARCHITECTURE.md, held against the code, without exceptions."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"pytest_qnn": "", "conformance": "conformance", "fixtures": "fixtures"}
"""Folder at the top of the repository -> its name inside the package."""
HALVES = ("qnn", "tflite")
CODES = "qnn.abi.codes"
"""Plain integers: what knows no ctypes may import it."""
ROOMS: dict[str, set[str]] = {
    "core": set(),
    "isolation": {"core"},
    # QNN memory
    "qnn.abi": set(),
    "qnn.facts": set(),
    "qnn.cases": {"core", CODES},
    "qnn.trace": {"core", "qnn.facts"},
    "qnn.controls": {"core", "qnn.cases", "qnn.facts"},
    "qnn.strategies": {"core", "qnn.cases", "qnn.facts"},
    "qnn.model": {"core", CODES, "qnn.cases", "qnn.facts", "qnn.trace"},
    "qnn.rules": {"core", CODES, "qnn.cases", "qnn.facts", "qnn.model", "qnn.strategies", "qnn.trace"},
    "qnn.reference": {"isolation", "qnn.abi"},
    "qnn.mutants": {"core"},
    "qnn.rules/mutants": {"isolation", "qnn.abi", "qnn.mutants", "qnn.reference"},
    "qnn.late": {"isolation", "qnn.abi", "qnn.mutants", "qnn.reference"},
    "qnn.proxies": {"core", "qnn.abi", "qnn.mutants", "qnn.reference"},
    "qnn.runner": {
        *("core", "isolation", "qnn.abi", "qnn.cases", "qnn.facts"),
        *("qnn.model.codes", "qnn.model.growth", "qnn.model.operators"),
        *("qnn.mutants", "qnn.proxies", "qnn.reference", "qnn.strategies.scene", "qnn.trace"),
    },
    "qnn.target": {
        *("core", "isolation", "qnn.cases", "qnn.controls", "qnn.facts", "qnn.model.codes", "qnn.mutants"),
        *("qnn.proxies", "qnn.runner", "qnn.trace"),
    },
    "qnn.live": {"qnn.abi", "qnn.cases", "qnn.model.codes", "qnn.runner", "qnn.trace"},
    "qnn.reproduce": {"qnn.abi", "qnn.cases", "qnn.model", "qnn.reference", "qnn.runner", "qnn.trace"},
    # TensorFlow Lite delegates
    "tflite.abi": set(),
    "tflite.graph": {"core"},
    "tflite.facts": {"tflite.graph"},
    "tflite.learned": {"tflite.facts", "tflite.graph"},
    "tflite.domain": {"core"},
    "tflite.cases": {"core", "tflite.domain", "tflite.graph"},
    "tflite.trace": {"core", "tflite.cases", "tflite.domain", "tflite.facts"},
    "tflite.controls": {
        *("core", "tflite.cases", "tflite.domain", "tflite.facts", "tflite.graph", "tflite.numerics"),
    },
    "tflite.strategies": {"core", "tflite.cases", "tflite.facts", "tflite.graph"},
    "tflite.partition": {"tflite.graph", "tflite.trace"},
    "tflite.numerics": {"tflite.graph"},
    "tflite.checks": {
        *("core", "tflite.cases", "tflite.facts", "tflite.graph", "tflite.numerics", "tflite.partition"),
        *("tflite.strategies", "tflite.trace"),
    },
    "tflite.rules": {
        *("core", "tflite.cases", "tflite.checks", "tflite.domain", "tflite.facts", "tflite.graph"),
        *("tflite.numerics", "tflite.partition", "tflite.strategies", "tflite.trace"),
    },
    "tflite.reference": {"isolation", "tflite.abi", "tflite.cases", "tflite.graph", "tflite.numerics"},
    "tflite.mutants": {"core"},
    "tflite.rules/mutants": {
        *("isolation", "tflite.abi", "tflite.cases", "tflite.graph", "tflite.mutants", "tflite.numerics"),
        *("tflite.reference", "tflite.trace"),
    },
    "tflite.late": {
        *("isolation", "tflite.abi", "tflite.graph", "tflite.mutants", "tflite.reference"),
    },
    "tflite.reproduce": {
        *("core", "tflite.cases", "tflite.domain", "tflite.graph", "tflite.numerics", "tflite.trace"),
    },
    "tflite.runtime": {"tflite.abi", "tflite.graph", "tflite.reference", "tflite.trace"},
    "tflite.observe": {
        *("core", "isolation", "tflite.abi", "tflite.cases", "tflite.runtime", "tflite.trace"),
    },
    "tflite.runner": {
        *("core", "isolation", "tflite.abi", "tflite.cases", "tflite.domain", "tflite.facts", "tflite.graph"),
        *("tflite.mutants", "tflite.numerics", "tflite.observe", "tflite.reference", "tflite.runtime"),
        "tflite.trace",
    },
    "tflite.target": {
        *("core", "isolation", "tflite.cases", "tflite.controls", "tflite.domain", "tflite.facts"),
        "tflite.learned",
        *("tflite.mutants", "tflite.runner", "tflite.trace"),
    },
    "tflite.live": {
        *("tflite.abi", "tflite.cases", "tflite.graph", "tflite.observe", "tflite.runner", "tflite.runtime"),
        "tflite.trace",
    },
    # The delegate that runs on QNN: the only room of the two halves that knows both
    "tflite.qnn_delegate": {"core", "isolation", "qnn", "tflite"},
    # The plugin
    "effort": {"core"},
    "options": {"core"},
    "rules": {"core", CODES, "qnn.mutants", "tflite.mutants", "tflite.strategies"},
    "mutants": {"core", "effort", "qnn.mutants", "qnn.target", "rules", "tflite.mutants", "tflite.target"},
    "native": {"qnn.reference"},
    "case_file": {"core", "qnn.cases", "tflite.cases"},
    "targets": {"core", "isolation", "options", "qnn.target", "tflite.target"},
    "expect": {"core", "rules", "tflite.learned"},
    "session.selection": {"core", "options", "rules"},
    "session.shards": {"core", "effort"},
    "state": {
        *(
            "case_file",
            "core",
            "expect",
            "isolation",
            "options",
            "rules",
            "session.selection",
            "session.shards",
            "targets",
        ),
    },
    "report": {
        *("core", "expect", "qnn.cases", "rules", "state", "tflite.cases", "tflite.graph", "tflite.learned"),
    },
    "report.compare": {"core", "report.loaded"},
    "report.explain": {"case_file", "core", CODES, "qnn.cases", "tflite.cases", "tflite.graph"},
    "report.merge": {"core", "report", "rules"},
    "session": {
        *(
            "case_file",
            "core",
            "effort",
            "expect",
            "isolation",
            "options",
            "qnn.reproduce",
            "qnn.trace",
            "report",
            "report.compare",
            "report.explain",
            "rules",
            "session.selection",
            "session.shards",
            "state",
            "targets",
        ),
        *("tflite.cases", "tflite.domain", "tflite.graph", "tflite.reproduce", "tflite.trace"),
    },
    "session.certification": {
        *("core", "effort", "isolation", "options", "report", "rules", "session", "state", "targets"),
    },
    "plugin": {
        *("case_file", "core", "expect", "options", "report", "session", "session.selection", "state"),
    },
    "commands": {
        *("core", "expect", "options", "report", "report.compare", "report.merge", "session"),
        "session.certification",
    },
    "__main__": {"commands"},
    "fixtures": {"core", "isolation", "qnn", "state", "tflite"},
    "conformance": {"core", "plugin", "rules"},
    "": {"qnn", "tflite"},
}
"""Room -> what it may import from, besides itself: rooms, single modules, or whole halves.

``HALF.rules/mutants`` are the modules ``mutants`` of the areas: what makes a faulty reference. ``""`` is the
package itself, which gives out names of both halves.
"""
PURE = re.compile(
    r"(qnn|tflite)\.(cases|domain|facts|trace|strategies|model|graph|partition|numerics|rules)\b"
)
"""Rooms that know no ctypes, the mutants in them aside."""


def modules() -> dict[str, Path]:
    """Every module of the package by its name without ``pytest_qnn.``; the package itself is ``""``."""
    found = {}
    for folder, name in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = [name, *path.relative_to(ROOT / folder).with_suffix("").parts]
            found[".".join(part for part in parts if part not in ("", "__init__"))] = path
    return found


MODULES = modules()


def folders() -> list[str]:
    """Every folder with a module of the package, or with a test."""
    tests = [
        path for path in (ROOT / "tests").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    return sorted({path.parent.relative_to(ROOT).as_posix() for path in (*MODULES.values(), *tests)})


def room_of(module: str) -> str:
    """The longest room that the module's name begins with."""
    if re.fullmatch(r"(qnn|tflite)\.rules\.\w+\.mutants", module):
        return f"{module.partition('.')[0]}.rules/mutants"
    if module in HALVES or "." not in module:
        return module if module in ROOMS else ""
    first_two = ".".join(module.split(".")[:2])
    return first_two if first_two in ROOMS else module.partition(".")[0]


def imported(path: Path) -> set[str]:
    """Every module that a file imports, at its top or later; those of this package without its name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            ours = {name for name in inner if name.removeprefix("pytest_qnn.") in MODULES}
            names |= ours | ({node.module} if len(ours) < len(inner) else set())
    return {name.removeprefix("pytest_qnn.") if name != "pytest_qnn" else "" for name in names}


@functools.cache
def imports() -> dict[str, set[str]]:
    """What each module imports. To read all files takes seconds: only who judges them does."""
    return {module: imported(path) for module, path in MODULES.items()}


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def test_the_table_is_that_of_the_document() -> None:
    told = set(re.findall(r"^\| `([\w./]+)` \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE))
    assert told == {room for room in ROOMS if room}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_from_the_rooms_it_may(room: str) -> None:
    wrong = [
        (module, name)
        for module in MODULES
        if room_of(module) == room
        for name in imports()[module]
        if name in MODULES
        and room_of(name) != room
        and not any(
            within(name, allowed) and (room_of(name) == allowed or allowed not in ROOMS)
            for allowed in ROOMS[room]
        )
    ]
    assert wrong == []


AREA = re.compile(r"((?:qnn|tflite)\.rules\.\w+)\.(\w+)")
"""A module of an area: the area's package, and the module's own name."""


def test_what_is_in_an_area_is_imported_by_nothing_else() -> None:
    """What several areas use stands beside them: so a run about one rule imports one area.

    Mutants may build on mutants of other areas. The delegate on QNN is an area, and builds on both halves.
    """
    wrong = []
    for module, names in imports().items():
        own = AREA.fullmatch(module)
        for name in names:
            area = AREA.fullmatch(name)
            if area is None or (own and own[1] == area[1]):
                continue
            if not (own and own[2] == area[2] == "mutants"):
                wrong.append((module, name))
    assert wrong == []


def test_the_halves_do_not_know_each_other() -> None:
    bridge = "tflite.qnn_delegate"
    for half, other in (HALVES, HALVES[::-1]):
        wrong = [
            (module, name)
            for module in MODULES
            if within(module, half) and not within(module, bridge)
            for name in imports()[module]
            if within(name, other) or within(name, bridge)
        ]
        assert wrong == []


@pytest.mark.parametrize("unit", ["files", "rooms"])
def test_nothing_is_imported_in_a_circle(unit: str) -> None:
    graph: dict[str, set[str]] = {}
    for module, names in imports().items():
        one = module if unit == "files" else room_of(module)
        ours = {name if unit == "files" else room_of(name) for name in names if name in MODULES}
        graph.setdefault(one, set()).update(ours - {one})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"circle: {error.args[1]}")


def test_what_is_data_knows_no_ctypes() -> None:
    layouts = ("ctypes", "qnn.abi.layouts", "qnn.abi.system", "qnn.abi.table", "qnn.abi.rpcmem", "tflite.abi")
    wrong = [
        (module, name)
        for module in MODULES
        if PURE.match(module) and not module.endswith(".mutants")
        for name in imports()[module]
        if any(within(name, layout) for layout in layouts)
    ]
    assert wrong == []
    assert "ctypes" not in imports()[CODES]


def test_nothing_imports_the_suite_or_the_fixtures() -> None:
    folders = ("conformance", "fixtures")
    assert [
        (module, name)
        for module in MODULES
        if not module.startswith(folders)
        for name in imports()[module]
        if name.startswith(folders)
    ] == []


MOST_ENTRIES = 24


@pytest.mark.parametrize("folder", folders(), ids=str)
def test_a_folder_has_few_entries(folder: str) -> None:
    entries = [path for path in (ROOT / folder).iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES


@pytest.mark.parametrize("half", HALVES)
def test_processes_that_carry_cases_out_load_nothing_that_generates_or_judges(half: str) -> None:
    """Each case pays for the size of its process."""
    heavy = "{'hypothesis', 'pytest', '_pytest', 'pytest_qnn.core.engine', 'pytest_qnn.report'}"
    code = (
        "import sys; from pytest_qnn.isolation import supervisor;"
        f"import pytest_qnn.{half}.runner.worker;"
        f"print(*{heavy} & sys.modules.keys(), *(name for name in sys.modules"
        " if name.startswith(('pytest_qnn.qnn.rules', 'pytest_qnn.tflite.rules'))))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []
    other = HALVES[1 - HALVES.index(half)]
    code = (
        f"import sys; import pytest_qnn.{half}.runner.worker;"
        f"print(*(name for name in sys.modules if name.startswith('pytest_qnn.{other}')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []
