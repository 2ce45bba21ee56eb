"""The list of automatic mutants: which functions, in which files, by names that stay; and a sample of it."""

from __future__ import annotations

import ast
import difflib
import functools
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

import pytest_qnn
from benchmarks.automatic.operators import Change, Function, changes, functions

ROOT: Final = Path(pytest_qnn.__file__).parent
HOMES: Final = {"memory": "qnn/reference", "delegate": "tflite/reference"}
"""By subject: the reference's folder, below the package.

Not in it, and so never changed: `pytest_qnn.tflite.numerics`, whose kernels the reference delegate and the
oracle of the rules share, and both `abi`, whose layouts and codes they share too. A fault in what both share
proves nothing.
"""


class Automatic(msgspec.Struct, frozen=True):
    """One mutant, as data."""

    id: str
    """A digest of what follows: it stays as long as the function's code does."""
    subject: str
    file: str
    """Below the package, with slashes."""
    function: str
    """Qualified name."""
    line: int
    """Of the file, for a reader: no part of the digest."""
    operator: str
    before: str
    """What the change takes away of the function's code, as `ast.unparse` writes it."""
    after: str
    number: int
    """Among the changes of the function."""

    @property
    def module(self) -> str:
        """Name of the module."""
        return ".".join(("pytest_qnn", *Path(self.file).with_suffix("").parts))


def files(subject: str = "") -> list[tuple[str, str]]:
    """Subject and file of everything that is changed."""
    return [
        (half, path.relative_to(ROOT).as_posix())
        for half, folder in HOMES.items()
        if subject in ("", half)
        for path in sorted((ROOT / folder).glob("*.py"))
    ]


def parsed(file: str) -> ast.Module:
    """A new tree of a file."""
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


@functools.cache
def listed(subject: str = "") -> tuple[Automatic, ...]:
    """All mutants, by file."""
    return tuple(
        mutant
        for half, file in files(subject)
        for name, function in functions(parsed(file))
        for mutant in of_function(half, file, name, function)
    )


def of_function(subject: str, file: str, name: str, function: Function) -> Iterator[Automatic]:
    """The mutants of one function. Two that read the same in two places of it are told apart by a count."""
    old = ast.unparse(function).splitlines()
    alike: Counter[tuple[str, ...]] = Counter()
    for number, (change, code) in enumerate(changes(function)):
        line = change.slot.statement.lineno
        before, after = _difference(old, code.splitlines())
        offset = str(line - function.lineno)
        what = (file, name, offset, change.operator, before, after)
        alike[what] += 1
        digest = hashlib.sha256("\0".join((*what, str(alike[what]))).encode()).hexdigest()[:10]
        yield Automatic(digest, subject, file, name, line, change.operator, before, after, number)


def _difference(old: Sequence[str], new: Sequence[str]) -> tuple[str, str]:
    before, after = [], []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            before += [line.strip() for line in old[a:b]]
            after += [line.strip() for line in new[c:d]]
    return " ".join(before), " ".join(after)


def changed(mutant: Automatic) -> tuple[ast.Module, Function, Change]:
    """A new tree of the file, the function to change, and the change, which is not applied yet.

    Raises:
        LookupError: the file has no such mutant (any more).
    """
    tree = parsed(mutant.file)
    for name, function in functions(tree):
        if name == mutant.function:
            again = of_function(mutant.subject, mutant.file, name, function)
            for same, (change, _) in zip(again, changes(function), strict=True):
                if same == mutant:
                    return tree, function, change
    raise LookupError(f"there is no mutant {mutant.id} in {mutant.file}")


def sample(mutants: Sequence[Automatic], count: int, seed: int, part: str = "0/1") -> list[Automatic]:
    """Some mutants, in an order of which any beginning has its share of every file.

    Args:
        mutants: to choose from.
        count: how many, before they are parted; 0: all.
        seed: another one gives another order.
        part: ``K/N``, the part K of N.
    """
    drawn = sorted(mutants, key=lambda mutant: _shuffled(mutant, seed))
    of_file = Counter(mutant.file for mutant in mutants)
    rank: Counter[str] = Counter()
    placed = []
    for mutant in drawn:
        placed.append(((rank[mutant.file] + 0.5) / of_file[mutant.file], _shuffled(mutant, seed), mutant))
        rank[mutant.file] += 1
    chosen = [mutant for *_, mutant in sorted(placed, key=lambda each: each[:2])][: count or None]
    number, parts = map(int, part.split("/"))
    return chosen[number::parts]


def _shuffled(mutant: Automatic, seed: int) -> str:
    return hashlib.sha256(f"{seed} {mutant.id}".encode()).hexdigest()
