"""What of docs/known-bugs.md is called caught: a mutant of a rule has the report's fault, or a test shows it.

The mutants are found by `tests/suite/test_mutants_found.py` and measured in the plan; here is which of them
stands for which report, and that the document says the same.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_run import later

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # The faults in C are not installed; the path is taken back below.

from pytest_qnn import effort  # noqa: E402
from pytest_qnn.core.engine import judge  # noqa: E402
from pytest_qnn.core.profile import PROFILES  # noqa: E402
from pytest_qnn.core.verdict import Outcome  # noqa: E402
from pytest_qnn.expect.claims import Difference, difference  # noqa: E402
from pytest_qnn.expect.file import Claims  # noqa: E402
from pytest_qnn.mutants import table  # noqa: E402
from pytest_qnn.rules import catalogue  # noqa: E402
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target  # noqa: E402
from tests.faults import faults  # noqa: E402

sys.path.remove(str(ROOT))

PAGE = ROOT / "docs" / "known-bugs.md"
BY_MUTANTS = {
    1: (("DOM-01", "fails-at-rank-8"),),
    2: (("HOS-01", "rows-of-each-operand"),),
    13: (("OWN-06", "refuses-second-model"),),
    14: (("PART-22", "context-for-each-kernel"),),
    15: (("PART-04", "cannot-divide"),),
    19: (("QLEAK-06", "first-graph-keeps"), ("QLEAK-05", "end-keeps-weights")),
    24: (("OFF-12", "list-notifies-as-made"),),
    27: (("SSR-02", "killed-leaves-graph"),),
    31: (("OWN-06", "dies-at-36th"),),
}
"""By report: pairs of a rule and a mutant with the report's fault."""
IN_PART = {
    11: (("PART-10", "skips-last-output"),),
    12: (("MEM-16", "recycles-an-output"),),
}
"""By report: a rule that demands what it misses, and a mutant with another fault than its own."""
BY_TESTS = {
    3: "test_a_library_that_leaves_a_kind_to_the_cpu_in_silence_lacks_what_was_claimed",
    4: "test_a_library_without_its_device_claims_nothing_and_that_is_red",
}
"""By report: the test that shows it on a library in C with the report's fault."""
_ROW = re.compile(r"^\| (\d+) \| (\w+) \|.*\| ([^|]+) \|$", re.MULTILINE)


def rows() -> dict[int, tuple[str, str]]:
    """Of the document, by number: the side that is blamed, and what is said of it today."""
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {int(number): (side, today) for number, side, today in found}


def test_the_document_calls_caught_what_stands_here_and_nothing_else() -> None:
    caught = {number for number, (_, today) in rows().items() if today.startswith("caught")}
    assert caught == BY_MUTANTS.keys() | BY_TESTS.keys()
    assert len(rows()) == 31
    assert {rows()[number][0] for number in caught} == {"target"}


def test_the_document_counts_them_right() -> None:
    of_targets = {number: today for number, (side, today) in rows().items() if side == "target"}
    caught = sum(today.startswith("caught") for today in of_targets.values())
    assert f"Of the {len(of_targets)} that blame a target **{caught} are caught" in PAGE.read_text()
    assert {number for number, today in of_targets.items() if today.startswith("in part")} == IN_PART.keys()
    assert "caught**, two in part (11 and 12)." in PAGE.read_text()
    assert not [number for number, today in of_targets.items() if today.startswith("not")]


@pytest.mark.parametrize("report", BY_MUTANTS | IN_PART)
def test_a_rule_must_find_the_mutant_of_a_report_and_was_measured_to(report: int) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"\n{report}. **{'Caught' if report in BY_MUTANTS else 'In part'}.**" in text
    for rule, name in (BY_MUTANTS | IN_PART)[report]:
        assert rule in table()[name].kills
        assert None not in effort.read()[rule].pairs[name].counts
        assert f"`{name}`" in text
        assert rule in text


@pytest.mark.parametrize("report", BY_TESTS)
def test_the_test_of_a_report_is_here(report: int) -> None:
    assert callable(globals()[BY_TESTS[report]])
    assert f"\n{report}. **Caught.**" in PAGE.read_text(encoding="utf-8")


needs_a_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
_CLAIMS = "    if (is_supported(context, node, registration)) claimed"
_WITHOUT_DEVICE = f"    extern void* dlopen(const char*, int);\n{_CLAIMS}".replace(
    "if (", 'if (dlopen("libDevice_that_is_not_installed.so", 2) && ', 1
)
"""What runs on the device is not installed: nothing is claimed, and nothing is reported."""
_WITHOUT_INT8 = _CLAIMS.replace("if (", "if (context->tensors[node->outputs->data[0]].type != kInt8 && ", 1)
"""The device's compiler does not take int8: such nodes are left to the CPU, and nothing is reported."""


@contextlib.contextmanager
def opened(folder: Path, name: str, instead: str = _CLAIMS) -> Iterator[DelegateTarget]:
    """The example delegate with another choice of what it claims."""
    source = faults.conforming("delegate")
    assert source.count(_CLAIMS) == 1
    library = faults.build(folder, "delegate", name, source.replace(_CLAIMS, instead))
    target = open_delegate_target([(str(library), {})], "auto", "auto", 10.0)
    with contextlib.closing(target):
        yield target


def frozen(target: DelegateTarget) -> Claims:
    """What ``expect --claims`` writes down of a library that works."""
    return Claims(operators=tuple(target.learned()["capabilities"]["operators"]))


def lacks(target: DelegateTarget, claims: Claims) -> Difference:
    return difference("delegate", claims, target.learned())


@needs_a_compiler
@pytest.mark.full
def test_a_library_without_its_device_claims_nothing_and_that_is_red(tmp_path: Path) -> None:
    """Report 4: the libraries of the NPU were not in the application, and all of the model ran on XNNPACK."""
    with opened(tmp_path, "device-missing", _WITHOUT_DEVICE) as target:
        verdict = judge(catalogue()["PART-03"], target, PROFILES["quick"], 1)
        assert (verdict.outcome, verdict.is_red(strict=False)) == (Outcome.INCONCLUSIVE, True)
        assert "the delegate claimed none of the" in verdict.reason
        assert lacks(target, Claims(operators=("ADD float32 rank 2",))).missing


@needs_a_compiler
@pytest.mark.full
def test_a_library_that_leaves_a_kind_to_the_cpu_in_silence_lacks_what_was_claimed(tmp_path: Path) -> None:
    """Report 3: a model of int8 is not compiled for the NPU, and runs on the CPU without a word."""
    with opened(tmp_path, "device-there") as target:
        claims = frozen(target)
        assert lacks(target, claims) == Difference()
    with opened(tmp_path, "int8-refused", _WITHOUT_INT8) as target:
        missing = lacks(target, claims).missing
        assert missing
        assert {kind.split()[1] for kind in missing} == {"int8"}


@needs_a_compiler
@pytest.mark.parametrize(
    ("name", "instead"),
    [later("device-missing", _WITHOUT_DEVICE), later("int8-refused", _WITHOUT_INT8)],
)
def test_a_run_with_claims_fails_and_names_them(
    pytester: pytest.Pytester, tmp_path: Path, name: str, instead: str
) -> None:
    library = faults.build(
        tmp_path, "delegate", name, faults.conforming("delegate").replace(_CLAIMS, instead)
    )
    known = tmp_path / "known.toml"
    known.write_text('[claims.delegate]\noperators = ["ADD float32 rank 2", "ADD int8 rank 2"]\n')
    options: tuple[Any, ...] = (f"--tflite-delegate={library}", f"--qnn-expect={known}", "-k", "num_10")
    result = pytester.runpytest_subprocess("--pyargs", "pytest_qnn.conformance", "--qnn-seed=1", *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["lacks what is declared: *ADD int8 rank 2*"])
