"""The tutorials run as they stand, and say what they show (docs/tutorials, docs/how-to/debugging.md)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from pages import ROOT, before_all, missing, run, typed

needs_a_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
IGNORED = shutil.ignore_patterns("build", ".*", "__pycache__")


DEBUGGING = ROOT / "docs" / "how-to" / "debugging.md"
PAGES = [*sorted((ROOT / "docs" / "tutorials").glob("*.md")), DEBUGGING]
TOOLS = ("gdb", "valgrind")
"""What only debugging.md needs."""
FAILED = re.compile(" fail| crash|FAILS|NOT A CERT|ERROR|definitely lost|Direct leak")
"""In what a page shows of commands whose status is not 0."""


@needs_a_compiler
@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    if page == DEBUGGING and not all(map(shutil.which, TOOLS)):
        pytest.skip(f"needs {' and '.join(TOOLS)}")
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=IGNORED)
    folder, steps, said = tmp_path, list(typed(page)), ""
    assert len(steps) > 5
    for step in steps:
        done = run(step.commands, folder)
        told = f"{step.commands}\n{done.output}"
        assert [missing(shown, done.output) for shown in step.shown] == [None] * len(step.shown), told
        if step.commands.startswith("ls "):  # which shows that nothing is left out
            assert step.shown == (done.output,)
        assert done.status == 0 or FAILED.search("".join(step.shown)), told
        folder, said = done.folder, said + done.output
    assert [missing(shown, said) for shown in before_all(page)] == [None] * len(before_all(page))


def test_the_readmes_finding_is_that_of_the_tutorial() -> None:
    (finding,) = re.findall(r"^```\n(NUM-10 fail.*?)```$", (ROOT / "README.md").read_text(), re.M | re.S)
    steps = typed(ROOT / "docs" / "tutorials" / "delegate.md")
    assert any(missing(finding, shown) is None for step in steps for shown in step.shown)


@pytest.mark.parametrize(
    ("shown", "absent"),
    [
        ("one 7 two\n", None),
        ("one ...\n...\n  three\n", None),
        ("one 1 two\nthree 2\n", "three 2"),
        ("three\none 1 two\n", "one 1 two"),
        ("one 1\n", "one 1"),
        ("", None),
    ],
)
def test_what_a_page_shows_is_looked_for_in_order(shown: str, absent: str | None) -> None:
    assert missing(shown, "one  12   two\nnothing\nthree\n") == absent


SAID = """REG-08 fail, in 0x1a: source.c:12: f
NUM     8      3      .      .            .              .             .
2 failed, 8 passed, 1,344 bytes in 28 blocks, in 5.12s
"""


@pytest.mark.parametrize("line", SAID.splitlines())
@pytest.mark.parametrize(("number", "other"), [("08", "09"), ("12:", "13:"), ("3", "4"), ("28", "29")])
def test_some_figures_are_those_of_the_page_and_others_of_a_machine(
    line: str, number: str, other: str
) -> None:
    stale = line.replace(number, other)
    assert missing(line, SAID) is None
    assert missing(stale, SAID) == (None if stale == line else stale)
    assert missing(line.replace("0x1a", "0x7a").replace("5.12s", "66.7s"), SAID) is None
