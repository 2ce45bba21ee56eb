from __future__ import annotations

import pkgutil
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import find

import pytest_qnn
from pytest_qnn.qnn.facts import MemoryFacts


def test_every_exported_name_is_what_it_says() -> None:
    modules = [module.name for module in pkgutil.iter_modules(pytest_qnn.__path__)]
    assert not set(modules) & set(pytest_qnn.__all__)
    assert sorted(pytest_qnn.__all__) == sorted(pytest_qnn._HOMES)
    for name in pytest_qnn.__all__:
        found = getattr(pytest_qnn, name)
        assert not isinstance(found, ModuleType)
        assert found.__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pytest_qnn.nothing  # noqa: B018 - the access is what is tested


def test_the_package_and_its_fixtures_import_nothing_dear() -> None:
    script = (
        "import sys, pytest_qnn, pytest_qnn.fixtures.delegates, pytest_qnn.fixtures.memory\n"
        "dear = {'numpy', 'hypothesis', 'msgspec', 'tflite_runtime', 'ai_edge_litert'}\n"
        "print(*dear & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("\n", "")


FACTS = "the facts of a QNN target (memory_target.facts)"


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "said"),
    [
        ("graphs", (), {"max_nodes": "3"}, "graphs: max_nodes is a whole number, not '3'"),
        ("graphs", (), {"max_nodes": True}, "graphs: max_nodes is a whole number, not True"),
        ("graphs", (), {"max_nodes": 0}, "no graphs of 1 to 0 nodes"),
        (
            "graphs",
            (),
            {"dtypes": "float32"},
            'graphs: dtypes is a sequence of "float32" and "int8", not \'float32\'',
        ),
        (
            "single_op_graphs",
            ("ADD",),
            {},
            "single_op_graphs: ops is a sequence of operators' names, or None, not 'ADD'",
        ),
        ("graphs_with_claims", (9,), {}, "9 claims are not between 0 and 8"),
        ("memory_sequences", (MemoryFacts(), -1), {}, "memory_sequences: max_steps is 1 to 1000, not -1"),
        (
            "memory_sequences",
            (MemoryFacts(),),
            {"invalid": 1},
            "memory_sequences: invalid is True or False, not 1",
        ),
        ("memory_sequences", (None,), {}, f"memory_sequences: facts is {FACTS}, not None"),
        ("allocation_sequences", (3, 2.5), {}, "allocation_sequences: max_size is a whole number, not 2.5"),
        (
            "custom_allocation_sequences",
            (),
            {"position": -1},
            "custom_allocation_sequences: position is 0 to 100, not -1",
        ),
    ],
)
def test_a_wrong_argument_of_a_strategy_is_told_when_it_is_made(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as found:
        getattr(pytest_qnn, name)(*args, **kwargs)
    assert str(found.value) == said


def test_every_strategy_says_so_and_takes_the_most_that_it_names() -> None:
    made = {name for name in pytest_qnn.__all__ if name.endswith(("graphs", "sequences", "claims"))}
    assert set(pytest_qnn._STRATEGIES) == made
    case = find(pytest_qnn.memory_sequences(MemoryFacts(), 1000), lambda _: True)
    assert isinstance(case, pytest_qnn.MemoryCase)
