"""What lies in the user's folder is not taken for Python's own modules, nor for this package's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fast_run import later
from native_plugins import plugin

PYTEST = Path(sys.executable).with_name("pytest")
SHADOWS = ("platform", "types", "resource", "select", "secrets", "msgspec", "runpy", "traceback", "tempfile")
RULE = "test_abi_01.py"
TEST = "def test_abi_01(judge): judge('ABI-01')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder whose modules have the names of others, and a test that pytest puts on the path."""
    made = tmp_path / "work"
    (made / "numpy").mkdir(parents=True)
    (made / "numpy" / "__init__.py").write_text("raise RuntimeError('the numpy of the working directory')\n")
    for name in SHADOWS:
        (made / f"{name}.py").write_text(f"raise RuntimeError('{name} of the working directory')\n")
    return made


def judged(folder: Path, library: Path, *options: str, **environment: str) -> str:
    command = [str(PYTEST), "-q", "-p", "no:cacheprovider", f"--tflite-delegate={library}", *options]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("sandbox", ["fork", later("spawn")])
def test_modules_of_the_working_directory_are_not_taken_for_others(
    folder: Path, tmp_path: Path, sandbox: str
) -> None:
    library = plugin(tmp_path)
    suite = ("--pyargs", "pytest_qnn.conformance", "-k", "test_abi_01 or test_part_01", "--qnn-profile=quick")
    assert "2 passed" in judged(folder, library, f"--qnn-sandbox={sandbox}", *suite)


def test_what_pytest_puts_on_the_path_for_tests_comes_last(folder: Path, tmp_path: Path) -> None:
    """Pytest puts a test's folder first on its own path; what it has imported by then is not shadowed."""
    for name in ("msgspec", "secrets"):  # imported by pytest's own process when a rule is judged
        (folder / f"{name}.py").unlink()
    (folder / "numpy" / "__init__.py").unlink()
    (folder / "numpy").rmdir()
    (folder / RULE).write_text(TEST)
    assert "1 passed" in judged(folder, plugin(tmp_path), RULE)


def test_a_search_path_of_the_user_comes_after_the_standard_library(folder: Path, tmp_path: Path) -> None:
    library = plugin(tmp_path)
    script = (
        "from pytest_qnn.tflite.target import open_delegate_target\n"
        "import sys\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        f"open_delegate_target([({str(library)!r}, {{}})], 'auto', 'fork', 10).close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder.parent,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_helper_process_that_fails_says_where(tmp_path: Path) -> None:
    """Here by a module that every interpreter of the environment imports, and that fails in helpers only."""
    library = plugin(tmp_path)
    (tmp_path / "failing.py").write_text("raise RuntimeError('this module fails')\n")
    script = (
        "from pytest_qnn.isolation.start import interpreter\n"
        "interpreter._START = 'import sys; sys.path.insert(0, sys.argv[1].split(\":\")[0]); import failing'\n"
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import pytest\n"
        "suite = ['--pyargs', 'pytest_qnn.conformance']\n"
        f"sys.exit(pytest.main(['-q', '--tflite-delegate={library}', *suite]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"--tflite-delegate: {library}: a helper process failed before it was loaded:" in done.stderr
    assert done.stderr.strip().endswith("RuntimeError: this module fails")
