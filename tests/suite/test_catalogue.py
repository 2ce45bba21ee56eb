"""The catalogue as a whole: every rule has a test of its name, a source and a mutant."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from pytest_qnn.conformance import rule_tests

from pytest_qnn.core.rule import Rule
from pytest_qnn.mutants import table
from pytest_qnn.rules import LIST, areas, catalogue, document, list_of_rules, listed

ROOT = Path(__file__).parents[2]
FOLDERS = {"memory": "qnn", "delegate": "tflite"}
"""Subject -> the folder of the suite's tests about it."""

ISSUED = set(
    """
PART-01 PART-02 PART-03 PART-04 PART-05 PART-06 PART-07 PART-08 PART-09 PART-10 PART-11 PART-12 PART-13
PART-14 PART-15 PART-16 PART-17
PREC-01 PREC-02 PREC-03 PREC-04 PREC-06 LIFE-01 LIFE-02 LIFE-04 ERR-03 MEM-01 MEM-02 DET-01 DET-04
MEM-03 MEM-04 MEM-05 MEM-06 MEM-07 MEM-08 MEM-09 MEM-10 MEM-11 MEM-12 MEM-13 MEM-14
NUM-01 NUM-02 NUM-03 NUM-04 NUM-05 NUM-06 NUM-07 NUM-08 NUM-09 NUM-10 DET-02 DET-03
ABI-01 ABI-02 ABI-03 ABI-04 ABI-05 ABI-06 ABI-07 ABI-08 ABI-09 ABI-10 ABI-11 ABI-12 ABI-13 ABI-14
XNN-01 XNN-02 XNN-03 XNN-04
LIFE-03 LIFE-05 LIFE-06 LIFE-07 LIFE-08 LIFE-09 LIFE-10 LIFE-11 LIFE-12 LIFE-13 LIFE-14
ERR-01 ERR-02 ERR-04 ERR-05 ERR-06 ERR-07 ERR-08 ERR-09 ERR-10
PART-19 PART-20 PART-21 PREC-05 PREC-07 PREC-08
DYN-01 DYN-02 DYN-03 DYN-04 DYN-05 DYN-06 RSZ-01 RSZ-02 RSZ-03 RSZ-04 RSZ-05
CTRL-01 CTRL-02 CTRL-03 CTRL-04 PART-18
BUF-01 BUF-02 BUF-03 BUF-04 BUF-05 BUF-06 BUF-07 BUF-08 BUF-09 BUF-10
OWN-01 OWN-02 OWN-03 OWN-04 OWN-05 LEAK-01 LEAK-02 LEAK-03 LEAK-04 THR-01 THR-02 THR-03 THR-04 THR-05 THR-06
PROF-01 CANC-01
TFL-01 TFL-02 TFL-03 TFL-04 TFL-06 TFL-09 TFL-10 TFL-11 TFL-12 TFL-13
IF-01 IF-02 IF-05 CAP-01 CAP-02 CAP-03 CAP-04
RPC-02 RPC-04 RPC-06 RPC-07 RPC-08 RPC-09 RPC-10 RPC-11
REG-01 REG-02 REG-03 REG-04 REG-05 REG-06 REG-07 REG-08 REG-13 REG-14 REG-15 REG-16
REG-20 REG-21 REG-22 REG-23 REG-24 ION-03 ION-04 ION-05
SHB-03 SHB-04 SHB-06 SHB-07 SHB-08 SHB-09 SHB-13
DRG-01 DRG-02 DRG-03 DRG-04 DRG-05 DRG-06 DRG-09 DRG-11
CTX-01 CTX-03 CTX-04 CTX-05 CTX-06 EXE-01 EXE-02 EXE-03 EXE-04 EXE-05
EXT-01 EXT-02 EXT-03 EXT-04 EXT-05 EXT-06 EXT-07 EXT-08 EXT-09 EXT-11 EXT-12 EXT-13 EXT-14 EXT-15 EXT-16
EXT-17
EXT-19 EXT-20 EXT-21 EXT-22 EXT-23 EXT-24 EXT-25 EXT-26 EXT-28 EXT-29 EXT-30 EXT-31 EXT-32
OFF-01 OFF-02 OFF-03 OFF-05
OFF-06
OFF-07 OFF-08 OFF-09 OFF-10 CAP-06 REG-17
QMG-01 QMG-02 QMG-03 QMG-04 QMG-05 QMG-06 QMG-07 QMG-08 PRE-01 PRE-02 PRE-04
IF-03 IF-04 IF-06 IF-07 IF-08 IF-09 IF-10 CAP-05 CAP-07 CAP-08 EXE-06 EXE-07 EXE-08 EXE-09 EXE-10 EXE-11
EXE-12 EXE-13
EXE-14 EXE-15 EXE-16 EXE-17 EXE-18 EXE-19 PRE-03 PRE-05 PRE-06 PRE-07 PRE-08 PRE-09 QMG-09 QMG-11
QTHR-01 QTHR-03 QTHR-04 QTHR-05 QTHR-06 SSR-01 MSC-01
QLEAK-01 QLEAK-02 QLEAK-03 QLEAK-04 QLEAK-06 QLEAK-07 QLEAK-08
RPC-03 RPC-05 RPC-13 REG-09 REG-10 REG-11 REG-12 REG-18 REG-19 REG-25 REG-26 REG-27 REG-28 ION-01
ION-02 ION-06 DMA-01 DMA-02 DMA-03 DMA-04 SHB-01 SHB-02 SHB-05 SHB-10 SHB-11 SHB-12 SHB-14 SHB-15
SHB-16 DRG-07 DRG-08 DRG-10 DRG-12 DRG-13 DRG-14 CTX-02 CTX-07 CTX-08



""".split()  # noqa: SIM905 - a table of ids reads better than a list of strings
)
"""Ids are never reused and never dropped: this list only grows."""


def conformance_tests() -> list[str]:
    """The suite's tests as pytest collects them: folder, module and name."""
    command = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    command += ["--pyargs", "pytest_qnn.conformance"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, check=True)
    return re.findall(r"^(?:.*/)?(\w+/test_\w+\.py::.*)$", done.stdout, re.MULTILINE)


def name_of(rule: Rule[Any, Any, Any]) -> str:
    """As it is in a test's name: ``reg_08``."""
    return rule.id.lower().replace("-", "_")


def test_no_rule_was_dropped() -> None:
    assert set(catalogue()) >= ISSUED


def test_each_rule_has_exactly_one_test_of_its_name_in_the_module_of_its_area() -> None:
    assert conformance_tests() == sorted(
        f"{FOLDERS[rule.subject]}/test_{rule.area.lower()}.py::test_{name_of(rule)}"
        for rule in catalogue().values()
    )


def test_a_test_says_what_its_rule_demands() -> None:
    for rule in catalogue().values():
        test = rule_tests("module", f"test_{rule.area.lower()}.py")[f"test_{name_of(rule)}"]
        assert test.__doc__ == rule.sentence


def test_an_area_is_loaded_without_any_other() -> None:
    code = (
        "import sys; from pytest_qnn.rules import of_area; print(len(of_area('REG')), *sorted(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    count, *modules = said.split()
    assert int(count) == sum(rule.area == "REG" for rule in catalogue().values())
    packages = {package for package in areas().values() if package in modules}
    assert packages == {areas()["REG"]}


def test_each_rule_is_found_by_a_mutant() -> None:
    killed = {rule for mutant in table().values() for rule in mutant.kills}
    assert set(catalogue()) - killed == set()


def test_mutants_name_rules_that_there_are_and_of_their_own_half() -> None:
    rules = catalogue()
    assert [
        (mutant.name, rule)
        for mutant in table().values()
        for rule in mutant.kills
        if rule not in rules or rules[rule].subject != mutant.subject
    ] == []


def test_each_mutant_is_found_in_the_text_of_one_module_by_its_name() -> None:
    """By that a run with one mutant imports no other area's."""
    texts = [path.read_text() for path in (ROOT / "pytest_qnn").rglob("mutants.py")]
    homes = {name: sum(f'"{name}"' in text for text in texts) for name in table()}
    assert {name: count for name, count in homes.items() if count != 1} == {}


def test_each_rule_names_a_source_and_says_what_it_demands() -> None:
    for rule in catalogue().values():
        assert len(rule.source) > 3, rule.id
        assert len(rule.sentence) > 20, rule.id


def test_the_list_of_rules_is_current() -> None:
    assert LIST.read_text() == list_of_rules(), "run python -m pytest_qnn.rules --list"
    assert list(listed()) == sorted(catalogue())


def test_the_document_of_rules_is_current() -> None:
    written = ROOT / "docs" / "reference" / "rules.md"
    assert written.read_text() == document(), "run python -m pytest_qnn.rules > docs/reference/rules.md"
