"""The tutorials run as they stand, and say what they show (docs/tutorials)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from pages import ROOT, missing, run, typed

needs_a_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
IGNORED = shutil.ignore_patterns("build", ".*", "__pycache__")


@needs_a_compiler
@pytest.mark.full
@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "tutorials").glob("*.md")), ids=lambda page: page.stem
)
def test_a_tutorial_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=IGNORED)
    folder, steps = tmp_path, list(typed(page))
    assert len(steps) > 5
    for step in steps:
        done = run(step.commands, folder)
        told = f"{step.commands}\n{done.output}"
        assert [missing(shown, done.output) for shown in step.shown] == [None] * len(step.shown), told
        assert done.status == 0 or re.search(" fail|FAILS|NOT A CERT", "".join(step.shown)), told
        folder = done.folder


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
