"""The page of a rule: all that is known of it, in sections; as plain text and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from pytest_qnn.core.conditions import CONDITIONS
from pytest_qnn.core.printable import printable
from pytest_qnn.core.rule import Demand
from pytest_qnn.qnn.abi.codes import Property
from pytest_qnn.report.explain import calls, known, stored, written

WIDTH = 100
"""Columns of the text; what has no space in it may be longer."""
_MOST_PERSONALITIES = 8


class Block(NamedTuple):
    """A part of a section."""

    lines: tuple[str, ...]
    kind: str = "prose"
    """``prose``: one paragraph; ``items``: a list; ``verbatim``: lines as they are."""


class Section(NamedTuple):
    """A heading and what is below it."""

    title: str
    blocks: tuple[Block, ...]


def sections(rule: Demand) -> list[Section]:
    """The page of the rule, but for its sentence: sections that have something in them."""
    found = [
        *_demand(rule),
        *_by_hand(rule),
        *_smallest(rule),
        *_mutants(rule),
        *_personalities(rule),
        *_libraries(rule),
    ]
    return [section for section in found if any(block.lines for block in section.blocks)]


def _demand(rule: Demand) -> Iterator[Section]:
    lines = [f"Level: {rule.level.value}.", f"Source: {rule.source}."]
    if rule.gate:
        lines.append(f"Needs: {'; '.join(map(condition, rule.gate))}.")
    if rule.self_check:
        lines.append("It judges the runtime, and so the suite itself, not the delegate.")
    yield Section("Demand", (Block(tuple(lines), "items"),))


def condition(part: str) -> str:
    """One part of a gate, in words."""
    denied, name = ("not: ", part.removeprefix("no ")) if part.startswith("no ") else ("", part)
    if name.isdecimal():
        return f"{denied}property key {name} (QNN_PROPERTY_{Property(int(name)).name}) is supported"
    return denied + CONDITIONS.get(name, name)


def _by_hand(rule: Demand) -> Iterator[Section]:
    found = written.of(rule.id, rule.subject)
    if found is None:
        return
    yield Section("What the source says", (Block((found.source,)),))
    yield Section("Why it matters", (Block((found.why,)), Block(found.bugs, "items")))
    yield Section("How implementations go wrong", (Block((found.wrong,)),))
    yield Section("How to fix it", (Block((found.fix,)),))


def _smallest(rule: Demand) -> Iterator[Section]:
    example = stored.example_of(rule.id, rule.subject)
    if example is None:
        yield Section(
            "Smallest violation",
            (Block(("None is kept: no case shows it each time and is obeyed elsewhere.",)),),
        )
        return
    file = example.file
    yield Section(
        "Smallest violation",
        (
            Block((f"On the mutant {example.mutant}; {_held(example)}.",)),
            Block(tuple(calls.graphs_of(file.case)), "verbatim"),
            Block(tuple(calls.lines(file.case)), "verbatim"),
            Block(
                (f"verdict   {file.verdict}", f"expected  {file.expected}", f"seen      {file.seen}"),
                "verbatim",
            ),
            Block((_command(rule, example),), "verbatim"),
        ),
    )


def _held(example: stored.Example) -> str:
    """What a conforming target does in the case."""
    given = "".join(f" with the option {key}={value}" for key, value in example.options.items())
    if example.unsupported:
        return f"{example.passes_on}{given} has not what the rule is about, and no conforming target here has"
    return f"{example.passes_on}{given} obeys the rule in it"


def _command(rule: Demand, example: stored.Example) -> str:
    """What judges the rule on the mutant."""
    words = ["pytest", "--pyargs", "pytest_qnn.conformance", f"--qnn-rule={rule.id}"]
    option = "--qnn-backend" if rule.subject == "memory" else "--tflite-delegate"
    words.append(f"{option}=mutant:{example.mutant}")
    return " ".join([*words, f"--tflite-runtime={example.runtime}"] if example.runtime else words)


def _mutants(rule: Demand) -> Iterator[Section]:
    found = known.of(rule.id).mutants
    yield Section("Mutants", (Block(tuple(f"{name}: {fault}" for name, fault in found.items()), "items"),))


def _personalities(rule: Demand) -> Iterator[Section]:
    names = known.of(rule.id).unsupported_on
    shown = ", ".join(names[:_MOST_PERSONALITIES])
    more = len(names) - _MOST_PERSONALITIES
    text = f"Unsupported on {shown}" + (f" and {more} more" if more > 0 else "") + "; the others obey it."
    yield Section("Conforming targets that differ", (Block((text,) if names else ()),))


def _libraries(rule: Demand) -> Iterator[Section]:
    judged = known.libraries()
    lines = [
        f"{name}, {judged[name].date}: {verdict}{f' ({seen})' if seen else ''}"
        for name, (verdict, seen) in known.of(rule.id).libraries.items()
    ]
    found = written.of(rule.id, rule.subject)
    told = (found.libraries,) if found is not None and found.libraries else ()
    yield Section("What public libraries do", (Block(told), Block(tuple(lines), "items")))


def text(rule: Demand) -> str:
    """The page as plain text, its lines wrapped at `WIDTH` columns; nothing of it is cut."""
    head = f"{rule.id}  {rule.sentence}"
    lines = textwrap.wrap(head, WIDTH, break_long_words=False, break_on_hyphens=False)
    for section in sections(rule):
        lines += ["", section.title]
        for block in section.blocks:
            lines += _text(block)
    return printable("\n".join(lines))


def _text(block: Block) -> list[str]:
    if block.kind == "verbatim":
        return ["", *(f"    {line}" for line in block.lines)] if block.lines else []
    first, later = ("  * ", "    ") if block.kind == "items" else ("  ", "  ")
    return [
        line
        for one in block.lines
        for line in textwrap.wrap(
            one,
            WIDTH,
            initial_indent=first,
            subsequent_indent=later,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def markdown(rule: Demand) -> str:
    """The page as Markdown, below a heading of the second level."""
    parts = [f"## {rule.id}", rule.sentence]
    for section in sections(rule):
        parts.append(f"### {rule.id}: {section.title}")
        parts += [_markdown(block) for block in section.blocks if block.lines]
    return "\n\n".join(parts) + "\n"


def _markdown(block: Block) -> str:
    if block.kind == "verbatim":
        return "\n".join(f"    {line}" for line in block.lines)
    if block.kind == "items":
        return "\n".join(f"* {line}" for line in block.lines)
    return "\n\n".join(block.lines)
