from __future__ import annotations

import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import pytest_qnn


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
