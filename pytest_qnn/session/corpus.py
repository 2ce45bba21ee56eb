"""The corpus: a folder of cases that broke rules once, tried first in each run; new findings join it.

A file is a case file (`pytest_qnn.case_file`) without what belongs to one machine, called after its rule and
the digest of its case: ``EXE-05-0123456789abcdef.json``. So the same case found twice is one file, and
folders of several machines can be put together by copying.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_qnn import case_file, rules
from pytest_qnn.core import engine
from pytest_qnn.core.engine.checking import call_in
from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.fingerprint import Fingerprint, traits_of
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.printable import printable
from pytest_qnn.core.target import Target, TargetLost
from pytest_qnn.core.verdict import Outcome, Violation
from pytest_qnn.options import Options
from pytest_qnn.report import files
from pytest_qnn.targets import open_target

if TYPE_CHECKING:
    from pytest_qnn.case_file import AnyCaseFile
    from pytest_qnn.state import Session

FLAG = "--qnn-corpus"
Shown = tuple[str, Fingerprint]
"""Verdict and fingerprint of what a case shows."""
_HALVES = {"delegate": "a delegate", "memory": "QNN memory"}
_DEATHS = (Outcome.CRASH.value, Outcome.HANG.value)
_NAME = re.compile(r"([A-Z]{1,12}-[0-9]{2,4})-[0-9a-f]{16}\.json")


def cases(folder: Path, rule_id: str) -> tuple[Any, ...]:
    """The cases of a rule, in the order of their files' names.

    Raises:
        BadOption: a file of the rule cannot be read, or is no case file of it.
    """
    return tuple(_read(path, rule_id).case for path in _paths(folder) if _rule_of(path) == rule_id)


def tried(folder: Path, rule_id: str) -> tuple[tuple[Any, ...], str]:
    """The same while a run lasts, in which other processes may change the folder.

    Returns:
        The cases; and in a sentence what is wrong with a file that is left out (empty: none is). It is gone,
        or has become no case of the rule.
    """
    read = [_case_or_why(path, rule_id) for path in _paths(folder)]
    found = tuple(case for case, _ in read if case is not None)
    return found, next((why for _, why in read if why), "")


def _case_or_why(path: Path, rule_id: str) -> tuple[Any, str]:
    """The case in a file, if it is one of the rule, or why there is none."""
    try:
        return (_read(path, rule_id).case if _rule_of(path) == rule_id else None), ""
    except BadOption as error:
        return None, str(error)


def check(session: Session) -> None:
    """Read all files of the rules that are about to be judged.

    Raises:
        pytest.UsageError: where `cases` raises BadOption.
    """
    folder = session.options.corpus
    if folder is None:
        return
    try:
        for rule_id in sorted(session.expected):
            cases(folder, rule_id)
    except BadOption as error:
        raise pytest.UsageError(printable(str(error))) from None


def add(folder: Path, content: AnyCaseFile) -> None:
    """Add the case of a finding, if the folder does not have it.

    Args:
        folder: made if it is not there.
        content: the case file; of its target only the last part of its name stays.

    Raises:
        OSError: it cannot be written.
    """
    own = msgspec.structs.replace(content, options=(), target=Path(content.target).name)
    path = folder / f"{own.rule}-{_digest(own)}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        files.replace(path, case_file.encode(own))


def recorded(content: AnyCaseFile) -> Shown:
    """What the case showed when it was found."""
    data = msgspec.to_builtins(content.case)
    evidence = Evidence(call_in(content.where) if content.verdict in _DEATHS else "")
    return content.verdict, traits_of(content.seen, content.where, evidence, data).fingerprint


@contextlib.contextmanager
def judged_on(options: Options) -> Iterator[Callable[[AnyCaseFile], Shown | None]]:
    """What says of a case what it shows when it is carried out on the target of these options; None: nothing.

    Raises:
        pytest_qnn.targets.TargetUnusable: the target of a case's half cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        targets: dict[str, Any] = {}

        def shown(content: AnyCaseFile) -> Shown | None:
            if content.subject not in targets:
                opened = contextlib.closing(open_target(content.subject, options))
                targets[content.subject] = stack.enter_context(opened)
            found = _judged(targets[content.subject], content)
            if not isinstance(found, Violation):
                return None
            data = msgspec.to_builtins(content.case)
            traits = traits_of(found.seen, found.where, found.evidence, data)
            return found.outcome.value, traits.fingerprint

        yield shown


def _judged(target: Target[Any, Any], content: AnyCaseFile) -> Any:
    """What `engine.judge_case` gives; None where this suite cannot judge the case, which another one found.

    Raises:
        TargetLost: the target can carry out none.
    """
    try:
        return engine.judge_case(rules.named(content.rule), target, content.case)
    except TargetLost:
        raise
    except Exception:
        return None


def superfluous(folder: Path, shown: Callable[[AnyCaseFile], Shown | None] = recorded) -> list[Path]:
    """Files beside which there is one of the same rule that shows the same with a smaller case.

    Args:
        folder: the corpus.
        shown: verdict and fingerprint; a case that shows nothing is not superfluous, since what it once
            showed may come back.

    Raises:
        BadOption: a file cannot be read.
    """
    alike: dict[Any, list[tuple[int, str, Path]]] = defaultdict(list)
    for path in _paths(folder):
        content = _read(path, _rule_of(path))
        found = shown(content)
        if found is not None:
            size = len(msgspec.json.encode(content.case))
            alike[content.rule, found].append((size, path.name, path))
    return [path for group in alike.values() for _, _, path in sorted(group)[1:]]


def _read(path: Path, rule_id: str) -> AnyCaseFile:
    try:
        content = case_file.decode(case_file.raw(path))
    except (OSError, ValueError) as error:  # BadOption is a ValueError
        raise BadOption(f"{FLAG}: {str(path)!r} {error}") from None
    if content.rule != rule_id:
        raise BadOption(f"{FLAG}: {str(path)!r} is a case of {content.rule}")
    rule = rules.listed().get(rule_id)
    if rule is not None and content.subject != rule.subject:
        of, about = _HALVES[content.subject], _HALVES[rule.subject]
        raise BadOption(f"{FLAG}: {str(path)!r} is a case of {of}, and {rule_id} is about {about}")
    return content


def _paths(folder: Path) -> Sequence[Path]:
    return sorted(folder.glob("*.json")) if folder.is_dir() else []


def _rule_of(path: Path) -> str:
    """Raises BadOption where the name is not one of the corpus."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise BadOption(f"{FLAG}: {str(path)!r} is not called RULE-DIGEST.json")
    return match[1]


def _digest(content: AnyCaseFile) -> str:
    return hashlib.sha256(msgspec.json.encode(content.case, order="deterministic")).hexdigest()[:16]


def counts(folder: Path) -> Iterator[tuple[str, int]]:
    """How many cases each rule has. Raises BadOption."""
    found: dict[str, int] = defaultdict(int)
    for path in _paths(folder):
        found[_rule_of(path)] += 1
    yield from found.items()
