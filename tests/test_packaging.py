from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HOMES = {
    "pytest_qnn": "pytest_qnn",
    "conformance": "pytest_qnn/conformance",
    "fixtures": "pytest_qnn/fixtures",
}
"""Folder of the repository -> where its contents are installed."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """A copy of the repository: building in place would leave files in it."""
    copy = tmp_path_factory.mktemp("packaging") / "source"
    litter = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.egg-info")
    return Path(shutil.copytree(pytestconfig.rootpath, copy, ignore=litter))


@pytest.fixture(scope="module")
def wheel(source: Path) -> Iterator[zipfile.ZipFile]:
    folder = source.parent / "wheel"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True, timeout=120)
    (path,) = folder.iterdir()
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_only_the_package_is_installed(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    (metadata,) = tops - {"pytest_qnn"}
    assert metadata.startswith("pytest_qnn-")
    assert metadata.endswith(".dist-info")


def test_every_module_is_installed_and_nothing_else(wheel: zipfile.ZipFile, source: Path) -> None:
    modules = {
        f"{home}/{path.relative_to(source / folder)}"
        for folder, home in HOMES.items()
        for path in (source / folder).rglob("*.py")
    }
    installed = {name for name in wheel.namelist() if name.startswith("pytest_qnn/")}
    assert installed == modules | {"pytest_qnn/py.typed", "pytest_qnn/report/schema.json"}
    assert {"pytest_qnn/conformance/test_part.py", "pytest_qnn/fixtures/delegates.py"} < installed


def test_pytest_finds_the_plugin(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert wheel.read(name).decode().split() == ["[pytest11]", "qnn", "=", "pytest_qnn.plugin"]


def test_the_licence_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    assert "License-Expression: Apache-2.0" in wheel.read(name).decode().splitlines()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())
