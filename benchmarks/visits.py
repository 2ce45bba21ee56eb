"""The way of one case: how many files of the package it visits, and how often it goes from one to another."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest_qnn
from benchmarks.timing import Effort, Row
from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.target import open_delegate_target

RULES = ("REG-01", "PART-01", "EXE-01")
ONE = Profile("one", 1, 1, 1)
SEED = 1
_PACKAGE = str(Path(pytest_qnn.__file__).parent)


def rows(effort: Effort) -> Iterator[Row]:
    """Files visited, and moves between files, in one example of a rule on the reference."""
    del effort
    for rule in RULES:
        files, moves = visits(rule)
        yield Row(f"one example of {rule}", "files", "files", value=files)
        yield Row(f"one example of {rule}", "moves between files", "moves", value=moves)


def visits(rule_id: str) -> tuple[int, int]:
    """Distinct files with a call, and calls that follow one into another file, in the second of two runs."""
    rule = catalogue()[rule_id]
    if rule.subject == "memory":
        target: Any = open_memory_target("reference", "emulated", "off", 10.0)
    else:
        target = open_delegate_target([("reference", {})], "auto", "off", 10.0)
    with closing(target):
        judge(rule, target, ONE, seed=SEED)
        called: list[str] = []

        def profile(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
                called.append(frame.f_code.co_filename)

        sys.setprofile(profile)
        try:
            judge(rule, target, ONE, seed=SEED)
        finally:
            sys.setprofile(None)
    moves = sum(before != after for before, after in itertools.pairwise(called))
    return len(set(called)), moves
