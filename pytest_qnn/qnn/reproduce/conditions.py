"""What a program looks at: in what the finding's run differs from a conforming one, and how C says it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from pytest_qnn.qnn.abi.table import PROTOTYPES
from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.function_names import function_name
from pytest_qnn.qnn.model.expected import walk
from pytest_qnn.qnn.reproduce.observed import (
    NULL_SEEN,
    OWN_SEEN,
    UNTOUCHED_SEEN,
    Seen,
    Where,
    failures,
    observations,
)
from pytest_qnn.qnn.reproduce.recorder import Called
from pytest_qnn.qnn.reproduce.refused import statements
from pytest_qnn.qnn.reproduce.text import NothingSeen, literal
from pytest_qnn.qnn.reproduce.threads import WITHOUT_CODE, failure_of
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

_MOST_WINDOW: Final = 1 << 22
"""Bytes of an output that are compared by their digest."""


class Difference(NamedTuple):
    """One thing that was seen otherwise than on the reference."""

    where: Where
    found: Seen
    conforming: Seen


def differences(
    steps: tuple[case.AnyStep, ...], found: MemoryTrace, conforming: MemoryTrace
) -> list[Difference]:
    """All of them, in order; only what both runs have seen."""
    one, other = observations(steps, found), observations(steps, conforming)
    absent = [
        Difference(Where(index, f"entry:{seen.absent}"), NULL_SEEN, OWN_SEEN)
        for index, (seen, there) in enumerate(zip(found.steps, conforming.steps, strict=False))
        if seen.absent in PROTOTYPES and not there.absent
    ]
    threads = [
        Difference(Where(index, label), 1, 0)
        for index, (step, seen, there) in enumerate(zip(steps, found.steps, conforming.steps, strict=False))
        if isinstance(step, case.Parallel)
        for label in _first_failure(seen, there)
    ]
    return (
        absent
        + threads
        + [
            Difference(where, value, other[where])
            for where, value in one.items()
            if where in other and value != other[where]
        ]
    )


def _first_failure(seen: StepSeen, there: StepSeen) -> list[str]:
    """Of the calls that failed in threads the first one: the others may follow from it."""
    labels = sorted(failures(seen) - failures(there))
    first = [label for label in labels if label.endswith(f":{seen.code}")]
    return (first or labels)[:1]


def missing(names: Collection[str]) -> list[Difference]:
    """Entries of the table that are NULL, which those of the plain reference are not."""
    return [
        Difference(Where(0, f"entry:{name}"), NULL_SEEN, OWN_SEEN) for name in names if name in PROTOTYPES
    ]


def step_named(where: str) -> int | None:
    """The number of the step in a finding's place; None: it names none."""
    named = re.search(r"\bstep (\d+)\b", where)
    return int(named[1]) if named is not None else None


def at_named_step(all_of_them: list[Difference], where: str) -> list[Difference]:
    """Those of the step that the finding names; of all steps, if it names none."""
    step = step_named(where)
    return [each for each in all_of_them if step is None or each.where.step == step]


def lacks_named_step(found: MemoryTrace, conforming: MemoryTrace, where: str) -> bool:
    """The step that the finding names was carried out on the target, and not on the reference."""
    step = step_named(where)
    if step is None or step >= min(len(found.steps), len(conforming.steps)):
        return False
    return bool(conforming.steps[step].skipped) and not found.steps[step].skipped


def left_out(found: MemoryTrace, conforming: MemoryTrace) -> int:
    """How many steps were carried out on the target, and not on the reference: nothing is seen of them."""
    both = zip(found.steps, conforming.steps, strict=False)
    return sum(bool(there.skipped) and not seen.skipped for seen, there in both)


def is_steady(given: case.MemoryCase, found: MemoryTrace) -> bool:
    """No property key is answered in two ways: else what the target declares is not known."""
    known = dict(found.facts.capabilities) if found.facts is not None else {}
    for step, seen in zip(given.steps, found.steps, strict=False):
        if isinstance(step, case.Capability) and seen.code is not None:
            code = seen.code & 0xFFFF
            if known.setdefault(step.key, code) != code:
                return False
    return True


def of_thread(given: case.MemoryCase, seen: str, where: str) -> Difference | None:
    """The call of a thread that the finding says failed: another run may see another one fail."""
    step = step_named(where)
    if step is None or step >= len(given.steps) or not isinstance(given.steps[step], case.Parallel):
        return None
    failed = re.match(r"(\w+) answers (\d+)", seen)
    label = f"failed:{failed[1]}:{failed[2]}" if failed else f"failed:{seen}:0"
    known = (failed and failed[1] in PROTOTYPES) or seen in WITHOUT_CODE
    return Difference(Where(step, label), 1, 0) if known else None


CONTROL: Final = "control:"
"""How labels of changed control words begin; then, what has changed them."""


def of_control_words(found: MemoryTrace, seen: str) -> Difference | None:
    """The change of control words that the finding is about; None: it is about something else.

    Args:
        found: the finding's run.
        seen: what the finding says.
    """
    for each in found.control_words or ():
        if each.after.text == seen:
            was, left = (words.x87 << 16 | words.mxcsr for words in (each.before, each.after))
            return Difference(Where(each.step, f"{CONTROL}{each.where}"), left, was)
    return None


def call_that_left(where: Where, calls: list[Called]) -> int:
    """The number of the recorded call that has changed them; the first one, if loading changed them."""
    name = where.label.removeprefix(CONTROL)
    named = [(each.step, number) for number, each in enumerate(calls) if function_name(each.name) == name]
    at_step = [number for step, number in named if step == where.step]
    return next(iter(at_step or [number for _, number in named]), 0)


def of_control(slot: int, difference: Difference) -> str:
    """The statement that looks at the control words behind the call just made."""
    what = literal(f"{difference.where.label.removeprefix(CONTROL)} has changed control words".encode())
    assert isinstance(difference.found, int)
    return f"observe({slot}, {what}, control_words() == {difference.found:#x});"


def of_answer(slot: int, key: int, answer: int) -> str:
    """The statement that looks at what a property key is answered with."""
    shown = f"QnnProperty_hasCapability({key}) gives {answer}"
    return f'observe({slot}, "{shown}", qnn && (qnn->propertyHasCapability({key}) & 0xffff) == {answer});'


def chosen(
    given: case.MemoryCase,
    found: MemoryTrace,
    all_of_them: list[Difference],
    where: str,
    *,
    declared: bool,
) -> list[Difference]:
    """Those that the finding is about: of the step that it names, or else of all steps but for free choices.

    Args:
        given: the case.
        found: the finding's run.
        all_of_them: its differences.
        where: the finding's place.
        declared: the target declares something else than the reference: then what it does at the step counts
            even where it is the same.

    Raises:
        NothingSeen: there is none.
    """
    step = step_named(where)
    own = at_named_step(all_of_them, where) if step is not None else []
    if own:
        return own
    code = found.steps[step].code if step is not None and step < len(found.steps) else None
    if declared and step is not None and code is not None:
        return [Difference(Where(step, "call:main"), code, code)]
    free = _free_choices(given, found)
    left = [each for each in all_of_them if each.where not in free]
    if not left:
        raise NothingSeen("a run on the reference gives the same codes, contents and counts of memory")
    # Mappings of a size come and go with other things of a process: they count where nothing else shows it.
    counted = [each for each in left if not each.where.label.startswith("regions:")]
    return counted or left


def _free_choices(given: case.MemoryCase, found: MemoryTrace) -> set[Where]:
    """Codes that documents leave a target the choice of."""
    return {
        Where(walked.index, "call:main")
        for walked in walk(given, found)
        if walked.code is not None and walked.code in walked.allowed.codes
    }


def deciding(given: case.MemoryCase, found: MemoryTrace, where: str) -> set[int]:
    """The step that the finding names, and steps that a library may refuse: what it refuses is not seen."""
    named = step_named(where)
    refused = {walked.index for walked in walk(given, found) if any(walked.allowed.codes)}
    return refused | ({named} if named is not None else set())


def call_of(
    where: Where, calls: list[Called], steps: tuple[case.AnyStep, ...], trace: MemoryTrace
) -> int | None:
    """The number of the recorded call whose code the label names; None: there is none."""
    own = [
        (number, each)
        for number, each in enumerate(calls)
        if each.step == where.step and (where.step == len(steps) or not each.session)
    ]
    _, _, what = where.label.partition(":")
    if where.label.startswith("session:"):
        return next((number for number, each in enumerate(calls) if each.session and each.name == what), None)
    if where.step == len(steps):
        listed = trace.closing
    else:
        seen: StepSeen = trace.steps[where.step]
        listed, made = seen.calls, steps[where.step]
        if isinstance(made, case.Prepare) and made.mistakes:
            own = _right(own, failed=bool(seen.code))
    if what == "main":
        step = steps[where.step]
        named = [each for each in own if isinstance(step, case.BadArgument) and each[1].name == step.call]
        return _main(named or own, trace.steps[where.step])
    return _in_order(own, listed, int(what))


def _right(own: list[tuple[int, Called]], *, failed: bool) -> list[tuple[int, Called]]:
    """Without the calls that have a mistake, all refused; the last call may have failed itself."""
    return [each for each in own[:-1] if each[1].code == 0] + [
        each for each in own[-1:] if failed or each[1].code == 0
    ]


def _main(own: list[tuple[int, Called]], seen: StepSeen) -> int | None:
    """Of a step that says one code: the call that gave it; asking for a capability is beside it."""
    wanted = [(number, each) for number, each in own if each.code == seen.code]
    asked = [number for number, each in wanted if each.name == "propertyHasCapability"]
    others = [number for number, each in wanted if each.name != "propertyHasCapability"]
    return next(iter(others or asked), None)


def _in_order(
    own: list[tuple[int, Called]], listed: tuple[tuple[str, int], ...], position: int
) -> int | None:
    left = iter(own)
    for place, (name, _) in enumerate(listed):
        number = next((number for number, each in left if each.name == name), None)
        if place == position or number is None:
            return number
    return None


def of_code(slot: int, name: str, code: int) -> str:
    """The statement that looks at the code of the call just made."""
    shown = name if name.startswith("Qnn") else function_name(name)
    return f'observe({slot}, "{shown} gives {code}", code == UINT64_C({code}));'


def of_fact(slot: int, difference: Difference, facts: Mapping[Where, str]) -> str | None:
    """The statement that looks at something else; None: C cannot see it."""
    place, found = difference.where, difference.found
    expression = facts.get(place)
    if place.label.startswith("failed:"):
        what = place.label.removeprefix("failed:").replace(":", " gives ")
        shown = literal(f"a thread ends as {what}".encode())
        return f"observe({slot}, {shown}, {failure_of(place.label)});"
    if place.label.startswith("entry:"):
        name = place.label.partition(":")[2]
        not_null = "" if found == OWN_SEEN else "!"
        shown = "is there" if found == OWN_SEEN else "is NULL"
        return f'observe({slot}, "{function_name(name)} {shown}", {not_null}qnn->{name});'
    if expression is None:
        return None
    if place.label == "count:changed":  # whether, and not how much
        expression, found = f"!!({expression})", int(bool(found))
    if isinstance(found, bytes):
        return _of_bytes(slot, difference, expression)
    if isinstance(found, int):
        what = literal(f"{place.label.replace(':', ' ')} is {found}".encode())
        return f"observe({slot}, {what}, (int64_t)({expression}) == INT64_C({found}));"
    return _of_relation(slot, difference, expression, facts)


def _of_bytes(slot: int, difference: Difference, expression: str) -> str | None:
    found, conforming = difference.found, difference.conforming
    assert isinstance(found, bytes)
    pointer, _, size = expression.partition("\0")
    if not size:  # a text
        condition = f"{pointer} && !strncmp({pointer}, {literal(found)}, 512)"
        return f'observe({slot}, "the text is the one that was found", {condition});'
    if not isinstance(conforming, bytes) or len(found) != len(conforming):
        return None
    places = [at for at, (one, other) in enumerate(zip(found, conforming, strict=True)) if one != other]
    first, length = places[0], places[-1] + 1 - places[0]
    if length > _MOST_WINDOW:
        return None
    what = (
        f"bytes {first} to {places[-1]} are as found, {len(places)} of them wrong, "
        f"the first {found[first]} instead of {conforming[first]}"
    )
    digest = zlib.crc32(found[first : first + length])
    return f'observe({slot}, "{what}", digest(AT({pointer}, {first}), {length}) == 0x{digest:08x}u);'


_NUMBER: Final = re.compile(r"(size|written|count)(_\d+)?")
"""Variables in which a call writes a number; those of a case's objects end otherwise (`text.of_case`)."""


def _of_relation(
    slot: int, difference: Difference, expression: str, facts: Mapping[Where, str]
) -> str | None:
    found, conforming = difference.found, difference.conforming
    assert isinstance(found, tuple)
    if difference.where.label in statements.LABELS:
        return statements.statement(slot, difference.where, found, facts)
    is_number = _NUMBER.fullmatch(expression) is not None
    if ".id" in expression:
        unwritten, null = "0", "0"
    elif is_number:
        unwritten, null = "UNTOUCHED_NUMBER", "0"
    else:
        unwritten, null = "UNTOUCHED", "NULL"
    conditions = {
        UNTOUCHED_SEEN: ("was not written", f"{expression} == {unwritten}"),
        NULL_SEEN: ("is NULL", f"{expression} == {null}"),
        ("none",): ("is -1", f"{expression} < 0"),
        ("aligned",): ("begins at a page", f"{expression} && (uintptr_t){expression} % 4096 == 0"),
        ("unaligned",): ("begins at no page", f"(uintptr_t){expression} % 4096 != 0"),
        ("size",): ("is the size told", ""),
    }
    shown, condition = conditions.get(found, ("", ""))
    if found[0] == "same":
        step, _, label = found[1].partition(":")
        other = facts.get(Where(int(step), label.replace("fd", "value:0") if label == "fd" else label))
        shown, condition = "is that of an earlier object", f"{expression} == {other}" if other else ""
    elif found == OWN_SEEN:
        shown, condition = _own(expression, conforming, unwritten, null, facts)
    return f'observe({slot}, "what the call gives {shown}", {condition});' if condition else None


def _own(
    expression: str, conforming: Seen, unwritten: str, null: str, facts: Mapping[Where, str]
) -> tuple[str, str]:
    if conforming == ("none",):
        return "is a descriptor", f"{expression} >= 0"
    is_fd = expression.startswith("fd_")
    parts = [f"{expression} >= 0"] if is_fd else [f"{expression} != {unwritten}", f"{expression} != {null}"]
    if isinstance(conforming, tuple) and conforming[0] == "same":
        step, _, label = conforming[1].partition(":")
        other = facts.get(Where(int(step), "value:0" if label == "fd" else label))
        if other is None:
            return "", ""
        parts.append(f"{expression} != {other}")
    return "is an object of its own", " && ".join(parts)
