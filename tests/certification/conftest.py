"""Two bundles with the same rules: of a backend with a fault and of the reference."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_qnn import commands
from tests.certification.forged_bundles import Bundles
from tests.faults import faults

RULES = "CTX-09,PRE-11,REG-08,PART-01,LIFE-02"


def certified(folder: Path, *options: str) -> int:
    """Make a bundle of few rules and few examples; the exit status."""
    trial = ("--qnn-profile=quick", f"--qnn-rule={RULES}")
    return commands.main(["certify", "--to", str(folder), *trial, *options])


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler (gcc)")
    folder = tmp_path_factory.mktemp("bundles")
    library = faults.built("qnn-dies-in-finalize", folder)
    found = Bundles(folder / "faulty", folder / "conforming")
    assert certified(found.faulty, f"--qnn-backend={library}", "--tflite-delegate=reference") == 1
    both = ("--qnn-backend=reference", "--tflite-delegate=reference")
    assert certified(found.conforming, *both, "--qnn-vendor=ACME") == 3
    return found
