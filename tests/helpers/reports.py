"""What tests read out of a report, and out of a run that was refused; and that it was in time."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def judged_rules(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The rules with a verdict, those of all targets in the report's order."""
    rules = [rule for target in document["targets"] for rule in target["rules"]]
    return [rule for rule in rules if rule["state"] == "judged"]


def judged_by_id(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The same by id."""
    return {rule["id"]: rule for rule in judged_rules(document)}


def refusal(result: pytest.RunResult) -> str:
    """The one sentence of a run that was refused."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "PASSED" not in result.stdout.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    (line,) = [line for line in result.stderr.str().splitlines() if line]
    assert line.startswith("ERROR: ")
    return line.removeprefix("ERROR: ")


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError where it takes longer, also in a system call that waits."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_OF_THE_RUN = ("started", "finished", "merged")


def comparable(path: Path | str) -> dict[str, Any]:
    """A report, of one run or merged, without what differs between the two."""
    document: dict[str, Any] = json.loads(Path(path).read_text())
    left = {key: value for key, value in document.items() if key not in _OF_THE_RUN}
    assert left["options"].pop("qnn_shard") is None
    for target in left["targets"]:
        for rule in target["rules"]:
            rule.pop("seconds", None)
            rule.pop("replay", None)
    return left
