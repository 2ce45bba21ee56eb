"""--qnn-explain: pages of rules in place of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_pages_of_several_rules_are_printed_whole_and_no_test_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own(): assert False")
    result = pytester.runpytest_inprocess("--qnn-explain=reg-21,CTX-0[12]", "--qnn-explain=PART-03")
    assert result.ret == pytest.ExitCode.OK
    text = result.stdout.str()
    heads = [line.split()[0] for line in text.splitlines() if line.startswith(("CTX", "REG", "PART"))]
    assert heads == ["CTX-01", "CTX-02", "PART-03", "REG-21"]
    assert "ALREADY_REGISTERED (8002); its handle stays valid." in text
    assert "3. QnnMem_register in c0 of b0" in text
    assert "collected" not in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("REG-211", "--qnn-explain: 'REG-211' matches no rule; the nearest is REG-21"),
        ("reg", "--qnn-explain: 'REG' matches no rule; REG-[*] matches those of the area"),
        ("REG-21,,", "--qnn-explain: 'REG-21,,' has an empty name in it"),
        ("ZZ-*", "--qnn-explain: 'ZZ-[*]' matches no rule"),
    ],
)
def test_what_names_no_rule_is_one_sentence_and_exit_code_4(
    pytester: pytest.Pytester, given: str, said: str
) -> None:
    result = pytester.runpytest_inprocess(f"--qnn-explain={given}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}*"])
    assert "Traceback" not in result.stderr.str()


def test_the_ini_file_may_name_rules_and_help_is_still_help(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nqnn_explain = REG-21")
    shown = pytester.runpytest_inprocess()
    assert shown.ret == pytest.ExitCode.OK
    shown.stdout.fnmatch_lines(["REG-21  QnnMem_register refuses memory*"])
    helped = pytester.runpytest_inprocess("--help")
    helped.stdout.fnmatch_lines(["usage: *"])
    assert "REG-21  " not in helped.stdout.str()


def test_pages_that_cannot_be_written_are_a_usage_error() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "pytest", "--qnn-explain=REG-01"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.strip() == (
        "ERROR: --qnn-explain: the pages cannot be written: No space left on device"
    )
