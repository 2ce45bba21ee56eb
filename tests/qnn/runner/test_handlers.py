"""What a person adding a QNN call must not forget: each place that is missing is named."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from pytest_qnn.qnn import rules
from pytest_qnn.qnn.abi.codes import Property
from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.case import AnyStep, Providers, Step
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.table import ENTRIES
from pytest_qnn.qnn.runner import run
from pytest_qnn.qnn.runner.handlers import HANDLERS, handles
from pytest_qnn.qnn.runner.state import State
from pytest_qnn.qnn.runner.worker import KEYS
from pytest_qnn.qnn.trace import StepSeen

RUNNER = Path(run.__file__).parent
RULES = Path(rules.__path__[0])


def members(union: Any) -> set[type[Step]]:
    """The types of a union, those of unions in it included."""
    parts = get_args(union)
    return {kind for part in parts for kind in members(part)} if parts else {union}


def with_handlers(path: Path) -> bool:
    """The module has a function under ``@handles(...)``."""
    calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Name) and called.id == "handles" for called in calls)


@pytest.mark.parametrize("kind", sorted(members(AnyStep), key=lambda kind: kind.__name__))
def test_a_step_has_a_handler(kind: type[Step]) -> None:
    assert kind in HANDLERS, (
        f"{kind.__name__} has no handler: write `@handles({kind.__name__})` above a function of a module in "
        "pytest_qnn/qnn/runner that is in MODULES of pytest_qnn/qnn/runner/run.py"
    )


@pytest.mark.parametrize("kind", [kind for kind in vars(case).values() if isinstance(kind, type)])
def test_a_step_is_in_the_union(kind: type[Any]) -> None:
    if issubclass(kind, Step) and kind is not Step:
        assert kind in members(AnyStep), (
            f"{kind.__name__} is missing in AnyStep of pytest_qnn/qnn/cases/case.py"
        )


def test_a_handler_is_of_a_step() -> None:
    assert set(HANDLERS) <= members(AnyStep)


@pytest.mark.parametrize("path", sorted(RUNNER.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_with_handlers_is_imported(path: Path) -> None:
    known = {module.__name__.rpartition(".")[2] for module in run.MODULES}
    if with_handlers(path) and path.stem != "run":
        assert path.stem in known, f"{path.stem} is missing in MODULES of pytest_qnn/qnn/runner/run.py"


def test_a_second_handler_is_refused() -> None:
    def second(state: State, step: Providers) -> StepSeen:
        raise NotImplementedError

    with pytest.raises(ValueError, match="Providers is handled by providers already"):
        handles(Providers)(second)


@pytest.mark.parametrize("name", [name for name in dir(ReferenceBackend) if not name.startswith("_")])
def test_a_method_of_the_api_has_the_name_of_its_entry(name: str) -> None:
    text = getattr(ReferenceBackend, name).__doc__ or ""
    if re.match(r"Qnn[A-Z]\w+_\w+", text) and name != "interface_get_providers":
        assert name in ENTRIES.values(), f"no entry of the table is served by ReferenceBackend.{name}"


def test_an_entry_has_the_method_of_its_name() -> None:
    assert (ENTRIES["memDeRegister"], ENTRIES["graphExecuteAsync"]) == (
        "mem_deregister",
        "graph_execute_async",
    )


@pytest.mark.parametrize(
    "path", sorted(RULES.rglob("*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_property_key_that_rules_read_is_asked_for(path: Path) -> None:
    text = path.read_text() if path.stem != "mutants" else ""
    keys = {int(Property[name]) for name in re.findall(r"\bProperty\.([A-Z_]+)", text)}
    keys |= {
        int(key) for gate in re.findall(r"gate=\(([^)]*)\)", text) for key in re.findall(r'"(\d+)"', gate)
    }
    assert keys <= set(KEYS), f"KEYS of pytest_qnn/qnn/runner/worker.py has no {sorted(keys - set(KEYS))}"
