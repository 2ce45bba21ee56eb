"""What one test learned of a delegate of ours, the others of the same run need not learn again.

A lesson applies the delegate to some hundred models, a third of a second of processor time for each target
that is opened, and of most mutants the same is learned as of the reference. Which those are is stored;
`tests/tflite/runner/test_lessons.py` learns it again. Lessons themselves are tested without this.

``python tests/helpers/lessons.py`` finds out which they are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from pytest_qnn.mutants import PLACES, opened, table
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

ALIKE = Path(__file__).parent.parent / "data" / "learned_as_reference.json"
"""By runtime: names of mutants of which is learned what is learned of the reference."""

_OURS = ("reference", "mutant", "xnnpack", "qnn-reference")
_LEARNED = ("claims", "floor", "limits", "samples", "half", "precision")
"""Fields of the facts that the lesson gives."""


def learned_once(
    learn: Callable[[DelegateTarget], DelegateFacts], folder: Path
) -> Callable[[DelegateTarget], DelegateFacts]:
    """`DelegateTarget._learn` that keeps what it learns of targets of ours.

    Args:
        learn: the original.
        folder: shared by the processes of a run.
    """

    def known_or_learned(target: DelegateTarget) -> DelegateFacts:
        if not all(name.partition(":")[0] in _OURS for name in target.spec.split(" + ")):
            return learn(target)
        about = (target.spec, target.options, target._precision, target._executor.mode)
        runtime = target._executor.learn(DelegateFacts).runtime
        if target.spec.removeprefix("mutant:") in alike().get(runtime, ()) and target._precision == "float32":
            about = ("reference", runtime)
        file = folder / hashlib.sha256(repr(about).encode()).hexdigest()
        if not file.exists() and about[0] == "reference" and target.spec != "reference":
            with closing(open_delegate_target([("reference", {})], runtime, "off", 10.0)) as reference:
                _write(file, reference.facts)
        if not file.exists():
            facts = learn(target)
            if not facts.deaths and not facts.unusable:
                _write(file, facts)
            return facts
        facts = target._executor.learn(DelegateFacts)
        stored = msgspec.msgpack.decode(file.read_bytes(), type=DelegateFacts)
        stored = _renamed(stored, about[0], target.spec)
        return msgspec.structs.replace(facts, **{name: getattr(stored, name) for name in _LEARNED})

    return known_or_learned


@cache
def alike() -> dict[str, frozenset[str]]:
    """What `ALIKE` holds."""
    return msgspec.json.decode(ALIKE.read_bytes(), type=dict[str, frozenset[str]]) if ALIKE.exists() else {}


def lesson(target: DelegateTarget) -> tuple[Any, ...]:
    """What the lesson has given of a target that was opened, as if it were called the reference."""
    facts = _renamed(target.facts, target.spec, "reference")
    return tuple(getattr(facts, name) for name in _LEARNED)


def _renamed(facts: DelegateFacts, before: str, after: str) -> DelegateFacts:
    """The same of a delegate of another name: reasons name it."""
    limits = {option: why.replace(f" {before} ", f" {after} ") for option, why in facts.limits.items()}
    return msgspec.structs.replace(facts, limits=limits)


def lesson_of_reference(runtime: str) -> tuple[Any, ...]:
    """What it gives of the reference."""
    with closing(open_delegate_target([("reference", {})], runtime, "off", 10.0)) as target:
        return lesson(target)


def _found(runtime: str) -> Iterator[str]:
    """The mutants for `ALIKE`, learned about one by one."""
    wanted = lesson_of_reference(runtime)
    for mutant in table().values():
        if mutant.subject == "delegate":
            with closing(opened(mutant, runtime)) as target:
                assert isinstance(target, DelegateTarget)
                if lesson(target) == wanted and not target.facts.deaths:
                    yield mutant.name


def _write(file: Path, facts: DelegateFacts) -> None:
    """Whole or not at all: another process may write the same."""
    begun = file.with_suffix(f".{os.getpid()}")
    begun.write_bytes(msgspec.msgpack.encode(facts))
    begun.replace(file)


if __name__ == "__main__":
    found = {runtime: sorted(_found(runtime)) for runtime in PLACES["delegate"]}
    ALIKE.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=0) + b"\n")
