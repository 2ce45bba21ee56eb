"""Whether executes with memory handles copy tensors: their memory compared with that of raw executes.

What is compared with what is as in QMG-12 (`qnn/rules/qmg/copies.py`, which this may not import: who changes
one changes both): of numbers that were measured, or of C expressions for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes
from pytest_qnn.qnn.trace import ExecuteCounts, MemoryTrace

LEAST: Final = 1 << 17
"""Bytes of a tensor, below which its copy is not told from what a process touches by chance."""


class Group(NamedTuple):
    """The measured executes of one graph, as numbers of steps, each kind in order."""

    made: case.Prepare
    raw: tuple[int, ...]
    handles: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of a tensor."""
        return nbytes(self.made.shape, self.made.dtype)

    @property
    def copies_at_most(self) -> int:
        """Bytes of all tensors, where a later raw execute shows what it copies; else 0."""
        return 0 if self.raw[0] < self.handles[0] else self.size * (io_inputs(self.made) + 1)

    @property
    def known(self) -> tuple[int, ...]:
        """Those with handles that are not the first: that one may take what all later ones need."""
        return self.handles if self.raw[0] < self.handles[0] else self.handles[1:]


def groups(steps: tuple[case.AnyStep, ...], trace: MemoryTrace) -> tuple[list[Group], list[Group]]:
    """The graphs of large tensors, and the small ones, that were executed in both ways and measured."""
    made = {step.graph: step for step in steps if isinstance(step, case.Prepare)}
    found: dict[tuple[str, str], list[int]] = {}
    for index, (step, seen) in enumerate(zip(steps, trace.steps, strict=False)):
        if (
            not isinstance(step, case.Execute)
            or not step.measured
            or seen.code != 0
            or step.graph not in made
        ):
            continue
        kinds = {each.kind for each in step.bindings}
        if isinstance(seen.counts, ExecuteCounts) and seen.counts.new is not None and len(kinds) == 1:
            found.setdefault((step.graph, kinds.pop()), []).append(index)
    both = [
        Group(step, tuple(found.get((name, "raw"), ())), tuple(found.get((name, "handle"), ())))
        for name, step in made.items()
    ]
    both = [each for each in both if each.raw and each.handles]
    large = [each for each in both if each.size >= LEAST and min(len(each.raw), len(each.handles)) > 1]
    return large, [each for each in both if each.size < LEAST]


def seen(steps: tuple[case.AnyStep, ...], trace: MemoryTrace) -> Iterator[tuple[int, str, int]]:
    """Of each execute with handles whether it shows a copy: its step, a label, 1 or 0.

    "copies:new": by pages that are new to the process. "copies:used": by pages that are used, which is said
    of all executes of a graph, and of none where new pages show it.
    """
    large, small = groups(steps, trace)

    def counts(step: int) -> ExecuteCounts:
        return trace.steps[step].counted(ExecuteCounts)

    def used(step: int) -> int:
        return counts(step).used or 0

    if not small:
        return
    of_small = max(min(map(used, group.raw)) for group in small)
    for group in large:
        later = counts(group.raw[-1]).new or 0
        new = {step: (counts(step).new or 0) - counts(step).mapped_late for step in group.known}
        shown = {step: int(_is_copy(each, later, group.size)) for step, each in new.items()}
        yield from ((step, "copies:new", each) for step, each in shown.items())
        if not any(shown.values()):
            first = counts(group.raw[0]).new or 0
            copied = max(0, min(first - later, group.copies_at_most))
            raw = max(of_small, max(map(used, group.raw)) - copied)
            least = min(map(used, group.known))
            room = group.size + group.size // 2
            yield from ((step, "copies:used", int(_is_copy(least, raw, room))) for step in group.known)


def _is_copy(more: int, raw: int, size: int) -> bool:
    return more > max(raw, 0) + size // 2


def expressions(
    steps: tuple[case.AnyStep, ...],
    trace: MemoryTrace,
    name: Callable[[int], str],
    late: Callable[[int], str],
) -> Iterator[tuple[int, str, str]]:
    """The same in C; ``name(step)``: what was touched, ``late(step)``: bytes that may be mapped late."""
    large, small = groups(steps, trace)

    def listed(steps: tuple[int, ...]) -> str:
        return f"{len(steps)}, (const long[]){{{', '.join(f'{name(step)}.used' for step in steps)}}}"

    if not small:
        return
    of_small = ", ".join(f"least({listed(group.raw)})" for group in small)
    for group in large:
        first, later = (f"{name(step)}.fresh" for step in (group.raw[0], group.raw[-1]))
        copied = f"within({first} - {later}, {group.copies_at_most})"
        raw = f"most({len(small) + 1}, (const long[]){{{of_small}, most({listed(group.raw)}) - {copied}}})"
        for step in group.known:
            new = f"{name(step)}.fresh - {late(step)}"
            yield step, "copies:new", f"is_copy({new}, {later}, {group.size})"
            room = group.size + group.size // 2  # three quarters of a tensor, as in the rule
            yield step, "copies:used", f"is_copy(least({listed(group.known)}), {raw}, {room})"
