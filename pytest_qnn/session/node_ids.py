"""Node ids of the suite's tests: ``pytest_qnn/conformance/qnn/test_reg.py::test_reg_08``, on every machine.

pytest's id of a test outside its rootdir begins below the argument that the test was found by. Of ``--pyargs
pytest_qnn.conformance`` that is ``qnn/test_reg.py::test_reg_08``, a path of no file: pytest does not find the
test when the id is given back, and JUnit files name the class ``qnn.test_reg``. Inside the rootdir the id
depends on where packages are installed.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_qnn.core.rule import Demand

_BEGIN = "pytest_qnn/conformance"
"""What the ids of the suite's tests begin with: the path of its package where packages are installed."""


@functools.cache
def _home() -> Path | None:
    """The folder that the suite is installed in; None: it is not. The suite is not imported."""
    found = importlib.util.find_spec(_BEGIN.replace("/", "."))
    return Path(found.origin).parent if found and found.origin else None


def module(path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The collector of a file of the suite, with an id that is the same everywhere; None: of another file."""
    home = _home()
    if home is None or home not in path.parents:
        return None
    node_id = f"{_BEGIN}/{path.relative_to(home).as_posix()}"
    made: pytest.Module = pytest.Module.from_parent(parent, path=path, nodeid=node_id)
    return made


def of_rule(rule: Demand) -> str:
    """The id of the suite's own test of a rule."""
    folder = "qnn" if rule.subject == "memory" else "tflite"
    name = f"test_{rule.id.lower().replace('-', '_')}"
    return f"{_BEGIN}/{folder}/test_{rule.area.lower()}.py::{name}"


def find(config: pytest.Config) -> None:
    """Replace ids of the suite's tests among the arguments by what pytest finds the tests by."""
    config.args[:] = [_found(argument, config) for argument in config.args]


def _found(argument: str, config: pytest.Config) -> str:
    """The argument; where it is an id of the suite's tests, with the path that the file really has."""
    text, colons, names = argument.partition("::")
    path = config.invocation_params.dir / text
    if os.path.lexists(path) or (home := _home()) is None:
        return argument
    # An id is relative to the rootdir; with -v pytest prints it relative to the folder it was started in.
    for start in (config.invocation_params.dir, config.rootpath):
        inside = Path(os.path.relpath(path, start / _BEGIN))
        if ".." not in inside.parts:
            return f"{home / inside}{colons}{names}"
    return argument
