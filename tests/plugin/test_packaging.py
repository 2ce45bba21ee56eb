from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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
    litter = shutil.ignore_patterns(
        *(
            ".git",
            ".venv",
            ".hypothesis",
            ".*_cache",
            ".pytest-qnn",
            "build",
            "dist",
            "__pycache__",
            "*.egg-info",
        )
    )
    return Path(shutil.copytree(pytestconfig.rootpath, copy, ignore=litter))


@pytest.fixture(scope="module")
def sdist(source: Path) -> Path:
    """The unpacked source distribution, in a folder of its own."""
    build = "from setuptools import build_meta; print(build_meta.build_sdist('../sdist'))"
    command = [sys.executable, "-c", build]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True, timeout=120)
    unpacked = source.parent / "unpacked"
    with tarfile.open(source.parent / "sdist" / done.stdout.split()[-1]) as archive:
        archive.extractall(unpacked, filter="data")
    shutil.rmtree(source / "pytest_qnn.egg-info")
    (folder,) = unpacked.iterdir()
    return folder


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Iterator[zipfile.ZipFile]:
    folder = sdist.parents[1] / "wheel"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(sdist)], check=True, timeout=120)
    (path,) = folder.iterdir()
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_a_source_distribution_holds_every_file(source: Path, sdist: Path) -> None:
    """Also those of tests, tools and documents: its tests are run from it."""
    made = {"PKG-INFO", "setup.cfg"}
    assert _files(sdist) - made == _files(source) - made  # the source may be one that was unpacked


def _files(folder: Path) -> set[str]:
    """Of a clone or of what was unpacked, without what pip and setuptools leave in it."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in paths if path.parts[0] not in ("build", "pytest_qnn.egg-info")}


LINK = re.compile(r"\]\(([^()\s]+)\)")


def test_without_a_public_address_no_link_of_the_description_leads_nowhere(sdist: Path) -> None:
    metadata, _, description = (sdist / "PKG-INFO").read_text().partition("\n\n")
    assert "Description-Content-Type: text/markdown" in metadata.splitlines()
    assert "Project-URL" not in metadata
    assert len(LINK.findall((sdist / "README.md").read_text())) > 10
    assert all(re.match(r"https?://", link) for link in LINK.findall(description))
    assert "github.com/pytest-qnn" not in description


def test_with_one_the_description_has_absolute_links_that_lead_to_files(sdist: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sdist, tmp_path / "with_an_address"))
    declared = (folder / "pyproject.toml").read_text()
    urls = '[project.urls]\nRepository = "https://code.example/qnn"\n\n[project.optional-dependencies]'
    (folder / "pyproject.toml").write_text(declared.replace("[project.optional-dependencies]", urls, 1))
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=120)
    metadata, _, description = (tmp_path / "pytest_qnn.egg-info/PKG-INFO").read_text().partition("\n\n")
    assert "Project-URL: Repository, https://code.example/qnn" in metadata.splitlines()
    (version,) = re.findall(r"^Version: (.*)$", metadata, re.MULTILINE)
    base = f"https://code.example/qnn/blob/v{version}/"
    links = LINK.findall(description)
    ours = [link.removeprefix(base).partition("#")[0] for link in links if link.startswith(base)]
    assert len(ours) > 10
    assert all((sdist / name).exists() for name in ours)
    assert all(re.match(r"https?://", link) for link in links)


def test_extras_and_the_group_of_developers(pytestconfig: pytest.Config) -> None:
    declared = (pytestconfig.rootpath / "pyproject.toml").read_text()
    extras = {
        name: _requirements(declared, name) for name in ("litert", "qnn", "report", "dask", "browser", "test")
    }
    assert all(extras.values())
    in_tests = extras["litert"] | extras["qnn"] | extras["report"] | extras["dask"]
    assert in_tests <= extras["test"]
    assert extras["test"] | extras["browser"] <= _requirements(declared, "dev")


def _requirements(pyproject: str, name: str) -> set[str]:
    (listed,) = re.findall(rf"^{name} = \[(.*?)\]$", pyproject, re.MULTILINE | re.DOTALL)
    return set(re.findall(r'"(.+?)"', listed))


def test_the_page_on_installing_names_what_the_package_requires(pytestconfig: pytest.Config) -> None:
    """Its list for numpy 2 is that of pyproject.toml, with the other runtime."""
    declared = _requirements((pytestconfig.rootpath / "pyproject.toml").read_text(), "dependencies")
    page = (pytestconfig.rootpath / "docs" / "how-to" / "install.md").read_text()
    command = page.partition("pip install --no-deps /path/to/pytest-qnn\n")[2].partition("\n```")[0]
    wanted = {
        str(one)
        for one in map(Requirement, declared)
        if one.name not in ("numpy", "tflite-runtime", "ai-edge-litert")
    }
    listed = set(re.findall(r"'(.+?)'", command))
    assert listed == wanted | {"numpy>=2", "ai-edge-litert>=2.0"}


@pytest.mark.full
def test_pytest_as_a_module_runs_in_a_clone_whose_package_is_installed(
    wheel: zipfile.ZipFile, source: Path, tmp_path: Path
) -> None:
    """There the clone's package stands first on sys.path, and has no conformance/ and fixtures/ in it."""
    installed = tmp_path / "site-packages"
    wheel.extractall(installed)
    # These tests run in an environment where the package is editable: it would find the two in any case.
    run = (
        "import sys, runpy\n"
        "sys.meta_path[:] = [one for one in sys.meta_path if 'editable' not in repr(one).lower()]\n"
        "sys.path.insert(0, '')\n"
        "sys.argv[0] = 'pytest'\n"
        "runpy.run_module('pytest', run_name='__main__', alter_sys=True)\n"
    )
    arguments = [
        "-p",
        "no:cacheprovider",
        "-q",
        "--pyargs",
        "pytest_qnn.conformance",
        "-k",
        "part_01 or reg_01",
    ]
    done = subprocess.run(
        [sys.executable, "-c", run, *arguments],
        cwd=source,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


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
    schemas = {
        f"pytest_qnn/report/{name}" for name in ("schema.json", "case.schema.json", "compare/schema.json")
    }
    named = ("provider", "cdsprpc", "crash_handler", "refusals", "call_threads", "checked_heap")
    sources = {f"pytest_qnn/native/{name}.c" for name in named}
    sources |= {
        f"pytest_qnn/qnn/reproduce/{name}.c"
        for name in (
            "frame",
            "pieces",
            "asynchronous",
            "lists",
            "refused/requests",
            "system",
            "threads",
            "touched",
        )
    }
    pages = (source / "pytest_qnn/report/html").rglob("*.*")
    data = {
        *(str(path.relative_to(source)) for path in pages if path.suffix in (".css", ".jinja", ".js")),
        *("pytest_qnn/effort.json", "pytest_qnn/py.typed", "pytest_qnn/rules.json"),
        "pytest_qnn/session/interpreter.supp",
        *(f"pytest_qnn/session/certification/{name}.json" for name in ("release", "errata")),
    }
    explain = {
        f"pytest_qnn/{path.relative_to(source / 'pytest_qnn').as_posix()}"
        for path in (source / "pytest_qnn" / "report" / "explain").rglob("*.*")
        if path.suffix in (".json", ".jsonl", ".toml")
    }
    assert installed == modules | schemas | sources | data | explain
    assert {"pytest_qnn/conformance/tflite/test_part.py", "pytest_qnn/fixtures/delegates.py"} < installed


def test_pytest_finds_the_plugin(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert wheel.read(name).decode().split() == ["[pytest11]", "qnn", "=", "pytest_qnn.plugin"]


def test_the_licence_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    assert "License-Expression: Apache-2.0" in wheel.read(name).decode().splitlines()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())


def test_the_installed_suite_runs(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    wheel.extractall(installed)
    (tmp_path / "test_here.py").write_text(
        "import pytest_qnn\n"
        "def test_here(make_interpreter, shared_buffer):\n"
        f"    assert pytest_qnn.__file__.startswith({str(installed)!r})\n"
    )
    options = ["-k", "here or part_01 or reg_01", "--qnn-profile=quick"]
    said = ran(tmp_path, installed, "--pyargs", "pytest_qnn.conformance", "test_here.py", *options)
    assert " 3 passed" in f" {said.splitlines()[-1].strip('= ')}"


def ran(folder: Path, installed: Path, *arguments: str) -> str:
    """What a run of pytest in a folder printed, with a wheel's contents before what is installed here."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("rootdir", ["around the environment", "beside the environment"])
def test_ids_of_the_installed_suite_can_be_given_back(
    wheel: zipfile.ZipFile, tmp_path: Path, rootdir: str
) -> None:
    installed = tmp_path / "site-packages"
    wheel.extractall(installed)
    folder = tmp_path / "project"
    folder.mkdir()
    if rootdir == "around the environment":
        folder = tmp_path
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
    collect = ("--collect-only", "-q")
    said = ran(folder, installed, "--pyargs", "pytest_qnn.conformance", "--qnn-area=REG,PART", *collect)
    ids = [line for line in said.splitlines() if "::" in line]
    assert {name.partition("::")[0] for name in ids} == {
        "pytest_qnn/conformance/qnn/test_reg.py",
        "pytest_qnn/conformance/tflite/test_part.py",
    }
    again = ran(folder, installed, *ids, *collect)
    assert [line for line in again.splitlines() if "::" in line] == ids


def test_every_package_of_the_tree_is_shipped(pytestconfig: pytest.Config) -> None:
    root = pytestconfig.rootpath
    listed = (root / "pyproject.toml").read_text().partition("\npackages = [")[2].partition("]")[0]
    shipped = set(re.findall(r'"([\w.]+)"', listed))
    tree = {
        ".".join(path.parent.relative_to(root).parts) for path in (root / "pytest_qnn").rglob("__init__.py")
    }
    beside = {
        ".".join(("pytest_qnn", *path.parent.relative_to(root).parts))
        for folder in ("conformance", "fixtures")
        for path in (root / folder).rglob("__init__.py")
    }
    assert shipped == tree | beside
