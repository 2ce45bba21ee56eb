"""Which rules execute which statements of the references: only those can find a change of them.

Before each statement of each function a byte of a shared file is set, in every process that a case runs in.
Measured once for a state of the code, with the profile ``default`` and its seed, and kept in a file.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import mmap
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.automatic.applying import Trees, import_all, lead_children, take_over
from benchmarks.automatic.listing import ROOT, Automatic, files, parsed
from benchmarks.automatic.operators import Function, functions, is_docstring
from benchmarks.timing import cpu_seconds
from pytest_qnn import effort
from pytest_qnn.core.engine import InternalError, first_failure
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.core.verdict import Unsupported
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

OPENING = "opening"
"""In place of a rule: what is executed while the target is opened."""
_BYTES = 1 << 16
_TIMEOUT = 10.0
_PRIVATE = 8 << 30
"""Bytes of private memory: a mutant that allocates without end stops."""


PLACES: Final = {
    "memory": (
        "reference",
        *("reference:binary-sections", "reference:provided-pieces", "reference:environments"),
        *("reference:asynchronous", "reference:retrieve-raw", "reference:io-in-one-piece"),
    ),
    "delegate": (
        "reference",
        *("reference:dynamic", "reference:variables", "reference:device-buffers", "reference:fused"),
        *("reference:profiled", "reference:limited", "reference:other-order", "reference:propagated"),
    ),
}
"""By subject: conforming targets with which rules execute the references.

A mutant is judged in the first one in which a rule executes the changed statement."""


class Coverage(msgspec.Struct, frozen=True):
    """Of one place."""

    place: str
    digest: str
    """Of the whole package."""
    facts: str
    """What is learned of the reference."""
    seconds: dict[str, float]
    """CPU time by rule."""
    executed: dict[str, dict[str, list[int]]]
    """By rule (or `OPENING`) and file: the first lines of statements."""
    idle: tuple[str, ...]
    """Rules that have nothing to judge."""

    def of_statement(self, mutant: Automatic) -> list[str]:
        """The rules that execute the changed statement; of one that opening executes, the function's."""
        found = [rule for rule, seen in self.executed.items() if mutant.line in seen.get(mutant.file, ())]
        return self.of_function(mutant) if OPENING in found else found

    def of_function(self, mutant: Automatic) -> list[str]:
        """The rules that execute any statement of the changed function."""
        lines = set(_lines(mutant))
        return [
            rule
            for rule, seen in self.executed.items()
            if rule != OPENING and lines & set(seen.get(mutant.file, ()))
        ]


def opened(subject: str, place: str) -> MemoryTarget | DelegateTarget:
    """A conforming target, to be closed."""
    if subject == "memory":
        return open_memory_target(place, "emulated", "auto", _TIMEOUT)
    return open_delegate_target([(place, {})], "tflite_runtime", "auto", _TIMEOUT)


def limit_memory() -> None:
    """What a mutant may have, and so the reference too when it is measured: the control of every finding.

    Not the address space: cases map buffers of many gigabytes, and the reference itself would fail in them.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (_PRIVATE, _PRIVATE))


def facts_of(target: MemoryTarget | DelegateTarget) -> str:
    """What was learned of it, as text."""
    return msgspec.json.encode(target.facts).decode()


def nothing_to_judge(rule: str, target: MemoryTarget | DelegateTarget) -> str:
    """Why a rule has no case for the target, which makes it inconclusive; empty: it has some."""
    cases: Callable[[Any], Any] = catalogue()[rule].cases
    try:
        cases(target.facts)
    except NothingToJudge as nothing:
        return str(nothing)
    except Unsupported:
        pass
    return ""


def state() -> str:
    """A digest of the package's code."""
    digest = hashlib.sha256()
    for path in sorted(ROOT.rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def known(file: Path) -> Coverage | None:
    """What was measured of the code as it is; None: nothing."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        coverage = msgspec.json.decode(file.read_bytes(), type=Coverage)
        return coverage if coverage.digest == state() else None
    return None


def measured(subject: str, place: str, folder: Path, seed: int) -> Coverage:
    """What is known of a place in a file of the folder; if nothing is, it is measured.

    Raises:
        RuntimeError: the measurement failed.
    """
    file = folder / f"coverage-{subject}-{place.replace(':', '-')}.json"
    if known(file) is None:
        # In a process that ends after it: its code stays marked.
        process = multiprocessing.get_context("spawn").Process(
            target=_write, args=(subject, place, file, seed)
        )
        process.start()
        process.join()
    found = known(file)
    if found is None:
        raise RuntimeError(f"which rules execute {place} could not be measured")
    return found


def _write(subject: str, place: str, file: Path, seed: int) -> None:
    import_all()
    limit_memory()
    file.write_bytes(msgspec.json.encode(_measure(subject, place, seed)))


def _measure(subject: str, place: str, seed: int) -> Coverage:
    """Judge the place by every rule of a half."""
    with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as folder:
        file.truncate(_BYTES)
        executed = mmap.mmap(file.fileno(), _BYTES)
        trees, numbers = _marked(subject)
        for name, tree in trees.items():
            take_over(name, tree)
            _globals(name)["__executed__"] = executed
            _open_file(tree, file.name)
        lead_children(trees, Path(folder))
        return _judged(subject, place, seed, executed, numbers)


def _judged(
    subject: str, place: str, seed: int, executed: mmap.mmap, numbers: list[tuple[str, int]]
) -> Coverage:
    seconds: dict[str, float] = {}
    idle: list[str] = []
    found: dict[str, dict[str, list[int]]] = {}
    with contextlib.closing(opened(subject, place)) as target:
        facts = facts_of(target)
        found[OPENING] = _taken(executed, numbers)
        for rule in catalogue().values():
            if rule.subject != subject or rule.self_check:
                continue
            began = cpu_seconds()
            with contextlib.suppress(InternalError):
                failure = first_failure(rule, target, effort.profile("default"), seed)
                if failure is not None:
                    raise RuntimeError(f"{rule.id} finds a fault in {place}: {failure.violation}")
            if nothing_to_judge(rule.id, target):
                idle.append(rule.id)
            seconds[rule.id] = cpu_seconds() - began
            found[rule.id] = _taken(executed, numbers)
    return Coverage(place, state(), facts, seconds, found, tuple(idle))


def _taken(executed: mmap.mmap, numbers: list[tuple[str, int]]) -> dict[str, list[int]]:
    """What was executed since the last call."""
    lines: dict[str, list[int]] = {}
    for number, (file, line) in enumerate(numbers):
        if executed[number]:
            lines.setdefault(file, []).append(line)
    executed[:] = bytes(_BYTES)
    return lines


def _marked(subject: str) -> tuple[Trees, list[tuple[str, int]]]:
    """The trees with a mark before each statement; and what each mark's number stands for."""
    trees = {}
    numbers: list[tuple[str, int]] = []
    for _, file in files(subject):
        trees[file] = parsed(file)
        for _, function in functions(trees[file]):
            mark(function, file, numbers)
    assert len(numbers) < _BYTES
    return trees, numbers


def mark(node: ast.AST, file: str, numbers: list[tuple[str, int]]) -> None:
    """Have every statement below a node set its byte of ``__executed__`` first; ``numbers`` gets its line."""
    for _, held in ast.iter_fields(node):
        children = held if isinstance(held, list) else [held]
        for child in children:
            if isinstance(child, ast.AST) and not isinstance(child, ast.expr):
                mark(child, file, numbers)
        if held and isinstance(held, list) and isinstance(held[0], ast.stmt):
            held[:] = [each for statement in held for each in _with_mark(statement, file, numbers)]


def _with_mark(statement: ast.stmt, file: str, numbers: list[tuple[str, int]]) -> list[ast.stmt]:
    if is_docstring(statement) or isinstance(statement, ast.Nonlocal | ast.Global):
        return [statement]
    (mark,) = ast.parse(f"__executed__[{len(numbers)}] = 1").body
    for node in ast.walk(mark):
        ast.copy_location(node, statement)
    numbers.append((file, statement.lineno))
    return [mark, statement]


def _open_file(tree: ast.Module, path: str) -> None:
    """Have a module that is imported from this tree set the same file's bytes."""
    source = f"import mmap, os\n__executed__ = mmap.mmap(os.open({path!r}, os.O_RDWR), {_BYTES})"
    imports = [
        position + 1
        for position, statement in enumerate(tree.body)
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    ]
    position = max(imports, default=0)
    tree.body[position:position] = ast.parse(source).body


def _globals(file: str) -> dict[str, object]:
    module = sys.modules[".".join(("pytest_qnn", *Path(file).with_suffix("").parts))]
    return vars(module)


def _lines(mutant: Automatic) -> list[int]:
    for name, function in functions(parsed(mutant.file)):
        if name == mutant.function and _has(function, mutant.line):
            return list(range(function.lineno, (function.end_lineno or 0) + 1))
    return []


def _has(function: Function, line: int) -> bool:
    return function.lineno <= line <= (function.end_lineno or 0)
