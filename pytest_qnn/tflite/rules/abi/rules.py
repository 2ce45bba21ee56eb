"""ABI: the two functions of an external delegate library, its symbols, and the structures that it makes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded, prefixed
from pytest_qnn.core.printable import counted, heard, is_text
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Measured, Unsupported, Violation
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.plugin import (
    CREATE,
    DESTROY,
    AnyPluginStep,
    Apply,
    Copy,
    Create,
    Cycle,
    Destroy,
    Options,
    OverwriteArguments,
    PluginCase,
)
from pytest_qnn.tflite.checks import leaks
from pytest_qnn.tflite.checks.judging import need_observation
from pytest_qnn.tflite.checks.numbers import outputs_are_right
from pytest_qnn.tflite.facts import USUAL_OPTIONS, DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.strategies import delegates
from pytest_qnn.tflite.strategies.claimed import taken
from pytest_qnn.tflite.trace import DelegateTrace, PluginSeen, PluginTrace, StructSeen

HEADER = "tflite/delegates/external/external_delegate_interface.h"
PYTHON = "tflite/python/interpreter.py, Delegate"

Check = Callable[[PluginCase, PluginTrace], Examined]
StepT = TypeVar("StepT", bound=AnyPluginStep)


def need_interface(trace: PluginTrace) -> None:
    """Raises Unsupported for a delegate without a plugin interface."""
    if trace.missing:
        chain = trace.facts.delegates if trace.facts else ()
        raise Unsupported(trace.missing, final=len(chain) < 2)


def need_functions(trace: PluginTrace) -> None:
    """Raises Unsupported where the two functions cannot be called: ABI-01 and ABI-12 say why."""
    need_interface(trace)
    if trace.library.load_error:
        raise Unsupported(f"the library cannot be loaded: {trace.library.load_error}")
    for function in (CREATE, DESTROY):
        if function not in trace.library.exports:
            raise Unsupported(f"the library exports no {function}")


def need_alone(case: PluginCase, trace: PluginTrace, position: int) -> None:
    """Raises Unsupported where another delegate of the plugin lives before this step: one may be all."""
    live = {f"kept {number}" for number in range(case.history.kept if case.history else 0)}
    for step, seen in zip(case.steps[:position], trace.steps, strict=False):
        if isinstance(step, Create) and seen.made:
            live.add(step.name)
        elif isinstance(step, Destroy):
            live.discard(step.name)
    if live:
        raise Unsupported("no other delegate is made beside one", final=False)


def need_options(case: PluginCase, trace: PluginTrace) -> None:
    """Raises Unsupported where the delegate was selected without options: nobody knows which it takes."""
    if not any(step.options for step in case.steps if isinstance(step, Create)):
        chain = trace.facts.delegates if trace.facts else ()
        raise Unsupported(
            "the delegate was selected without options (--tflite-delegate-option), and has none "
            f"of {', '.join(USUAL_OPTIONS)}",
            final=len(chain) < 2,
        )


def pictured(check: Check) -> Check:
    """The check, with a list of the case's steps as the picture of its violations."""

    @functools.wraps(check)
    def checked(case: PluginCase, trace: PluginTrace) -> Examined:
        try:
            return check(case, trace)
        except Violation as violation:
            violation.picture = draw(case)
            raise

    return checked


def draw(case: PluginCase) -> str:
    """The steps of a case in words, options as text."""
    return "\n".join(f"{number}  {_described(step)}" for number, step in enumerate(case.steps))


def _described(step: AnyPluginStep) -> str:
    words = [type(step).__name__.lower()]
    if isinstance(step, Cycle):
        words.append(f"{4 * step.times} delegates")
    else:
        words.append(step.name or "NULL")
    if isinstance(step, Create | Copy | Cycle):
        words += map(shown, step.options)
    if isinstance(step, Create) and step.report == "null":
        words.append("without report_error")
    if isinstance(step, Create) and step.null_arrays:
        words.append("with NULL arrays")
    if isinstance(step, Create) and step.guarded:
        words.append("guarded")
    return " ".join(words)


def shown(option: tuple[bytes, bytes]) -> str:
    """An option as text of few characters."""
    key, value = (part[:40].decode(errors="replace") for part in option)
    return f"{key}={value!r}"


def steps(case: PluginCase, trace: PluginTrace, kind: type[StepT]) -> Iterator[tuple[int, StepT, PluginSeen]]:
    """(position, step, what it gave) of each step of one kind that was carried out."""
    for position, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=True)):
        if isinstance(step, kind) and not seen.skipped:
            yield position, step, seen


def at(position: int, step: AnyPluginStep) -> str:
    """The place of a step, for a violation."""
    name = "" if isinstance(step, Cycle) else f" {step.name or 'NULL'}"
    return f"step {position}, {type(step).__name__.lower()}{name}"


def works(case: PluginCase, trace: PluginTrace, seen: PluginSeen, when: str) -> None:
    """Raises FailedCall where applying the delegate failed, WrongOutput where outputs are gravely wrong."""
    if seen.error:
        raise FailedCall(f"the delegate to work {when}", " ".join(seen.error.split()))
    plain = DelegateCase(case.graph, data_seed=case.data_seed)
    inputs = tuple(map(Array.of, inputs_of(plain)))
    outputs_are_right(
        plain,
        DelegateTrace(inputs=inputs, cpu=trace.cpu, outputs=(seen.outputs,)),
        f"the CPU's values {when}",
    )


_LEAST_LEAK = 16
"""Bytes per delegate: the smallest block that malloc gives."""
_PAGE = 4096
"""Bytes: the least that a mapping takes."""


def given_options(facts: DelegateFacts, delegate: int) -> Options:
    """The options that the delegate at this position of the chain was given."""
    return _in_bytes(facts.options[delegate] if delegate < len(facts.options) else ())


def known_options(facts: DelegateFacts, delegate: int) -> Options:
    """Those, or where there are none, options that it was found to have (`DelegateFacts.limits`)."""
    is_last = delegate == max(0, len(facts.delegates) - 1)  # of others nothing is learned
    found = [(key, "1") for key, reason in facts.limits.items() if is_last and not reason]
    return given_options(facts, delegate) or _in_bytes(found)


def _in_bytes(pairs: Sequence[tuple[str, str]]) -> Options:
    return tuple((key.encode(), value.encode()) for key, value in pairs)


TRIVIAL = Graph(
    tensors=(Tensor((1, 2)), Tensor((1, 2))), nodes=(Node("ABS", (0,), (1,)),), inputs=(0,), outputs=(1,)
)
"""For cases that apply nothing."""


Choices = Sequence[tuple[AnyPluginStep, ...]]
"""Steps to choose from, the simplest first."""


def _length(facts: DelegateFacts) -> int:
    return max(1, len(facts.delegates))


OptionsOf = Callable[[DelegateFacts, int], Options]


def _at_each(
    facts: DelegateFacts, choices: Callable[[Options], Choices], options_of: OptionsOf = given_options
) -> SearchStrategy[PluginCase]:
    """Cases that apply nothing, for every position in the chain."""
    every = [choices(options_of(facts, position)) for position in range(_length(facts))]
    return decoded(_PLACE, lambda data: _chosen(data, every))


_PLACE = 3
"""Bytes: position in the chain, steps (2)."""


def _chosen(data: bytes, every: Sequence[Choices]) -> PluginCase:
    position = data[0] % len(every)
    choices = every[position]
    # Scaled, not modulo: the first byte is spread evenly, so that each sixteenth of the choices is met.
    place = int.from_bytes(data[1:_PLACE], "big") * len(choices) >> 16
    return PluginCase(TRIVIAL, choices[place], position)


def without_options(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """A create without options, its arrays NULL or empty; and one more while others with options live."""

    def steps(options: Options) -> Choices:
        plain: list[tuple[AnyPluginStep, ...]] = [
            (Create(null_arrays=null), Destroy("d0")) for null in (True, False)
        ]
        others = dict.fromkeys((turned(options), options)) if options else ()
        return [*plain, *(_beside(other, count) for other in others for count in _LIVING)]

    return _at_each(facts, steps)


_LIVING = (1, 3)
"""Delegates with options that live while one without is made."""


def _beside(options: Options, count: int) -> tuple[AnyPluginStep, ...]:
    """A delegate without options alone, and another one made while ``count`` with options live."""
    names = [f"d{number}" for number in range(1, 1 + count)]
    alone = Create(null_arrays=True), Destroy("d0")
    living = (Create(name, options=options) for name in names)
    last = Create("last", null_arrays=True), Destroy("last")
    return *alone, *living, *last, *map(Destroy, names)


_OPPOSITES = {b"true": b"false", b"yes": b"no", b"on": b"off"}
_OPPOSITES |= {other: value for value, other in _OPPOSITES.items()}


def turned(options: Options) -> Options:
    """The options with every truth value turned into its opposite, spelled as Python's str() has it or C."""
    return tuple((key, _turned(value)) for key, value in options)


def _turned(value: bytes) -> bytes:
    other = _OPPOSITES.get(value.lower(), value)
    return other.title() if value.istitle() else other


@rule(
    "ABI-02",
    Level.MUST,
    "tflite_plugin_create_delegate may be given no options (NULL for both arrays); a delegate that was "
    "selected without options is then made with its defaults.",
    source=f"{HEADER}, tflite_plugin_create_delegate",
    subject="delegate",
    cases=without_options,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def creates_without_options(case: PluginCase, trace: PluginTrace) -> Examined:
    """A plugin that was selected with options may need them, and refuse to do without.

    What its defaults are shows in the flags: they do not depend on what else lives.
    """
    need_functions(trace)
    needs = trace.facts is not None and trace.facts.needs_options
    creates = [found for found in steps(case, trace, Create) if not found[1].options]
    defaults: StructSeen | None = None
    for position, step, seen in creates:
        if not seen.made and not needs:
            need_alone(case, trace, position)
            raise Violation(
                "a delegate with its defaults",
                f"NULL{_said(seen)}",
                f"{at(position, step)}, {'NULL arrays' if step.null_arrays else 'empty arrays'}",
            )
        defaults = defaults or seen.struct
        if defaults is not None and seen.struct is not None and _flags(seen.struct) != _flags(defaults):
            raise Violation(
                f"the flags of its defaults, {_flags(defaults):#x}, as when it was made alone",
                f"{_flags(seen.struct):#x}",
                f"{at(position, step)}, while delegates with options live",
            )
    return Examined(len(creates), "creates without options")


def _flags(struct: StructSeen) -> int:
    return struct.flags | struct.builder_flags


ALTERED = "altered"
"""The name of a create with a value that is not of its option's kind."""
NO_UTF_8 = b"\xff"
"""A byte that no text in UTF-8 has."""
NOT_NUMBERS = (b"abc", b"", b"None", b"12abc", b"0x", b"--1", b"four")
NOT_TRUTHS = (b"maybe", b"", b"None", b"truefalse", b"2.5")
_TRUTHS = frozenset({"true", "false", "yes", "no", "on", "off"})


def spoilt_values(value: bytes) -> tuple[bytes, ...]:
    """Values that are none of the kind of ``value``; nothing where any text may be right."""
    text = value.decode()
    if text.lower() in _TRUTHS:
        return (*NOT_TRUTHS, value + NO_UTF_8)
    try:
        float(text)
    except ValueError:
        return ()
    return (*NOT_NUMBERS, value + b"abc", value + NO_UTF_8, *_long(value))


_CUT = (15, 31, 63, 127, 255)
"""Bytes of a value that a buffer of a usual size holds."""


def _long(value: bytes) -> list[bytes]:
    """Values that are a number if what is behind so many bytes is not looked at."""
    if value.isdigit():
        return [value.rjust(size, b"0") + b"abc" for size in _CUT]
    return [value.ljust(size, b"0") + b"abc" for size in _CUT] if b"." in value else []


_LONG_TEXTS = (64, 256, 1000, 5000)
"""Bytes of a text, each more than a buffer of a usual size holds."""


def _stretched(options: Options) -> list[Options]:
    """The options with one text made longer, where any text may be right; not where it may name a file."""
    return [
        (*options[:at], (key, value.ljust(size, b"x")), *options[at + 1 :])
        for at, (key, value) in enumerate(options)
        if not spoilt_values(value) and b"/" not in value
        for size in _LONG_TEXTS
    ]


def _altered(options: Options) -> list[Options]:
    """The options with one value made invalid, in every way."""
    return [
        (*options[:at], (key, bad), *options[at + 1 :])
        for at, (key, value) in enumerate(options)
        for bad in spoilt_values(value)
    ]


def parsed(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """The given options, then with one value made invalid."""

    def steps(options: Options) -> Choices:
        first: tuple[AnyPluginStep, ...] = Create(options=options), Destroy("d0")
        altered = [(*first, Create(ALTERED, options=bad), Destroy(ALTERED)) for bad in _altered(options)]
        return altered or [first]

    return _at_each(facts, steps, known_options)


@rule(
    "ABI-03",
    Level.SHOULD,
    "tflite_plugin_create_delegate reads options as UTF-8 text in the form of Python's str(), leaves the "
    "arrays unchanged, and refuses a value of the wrong type, such as 'abc' for a number.",
    source=f"{HEADER}, tflite_plugin_create_delegate (should not modify); {PYTHON}.__init__",
    subject="delegate",
    cases=parsed,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def parses_strictly(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at options of the command line: as they are, and, if a number or truth value, made invalid."""
    need_functions(trace)
    need_options(case, trace)
    looked_at = 0
    for position, step, seen in steps(case, trace, Create):
        if seen.modified:
            raise Violation("the arrays as they were", f"{seen.modified[0]} changed", at(position, step))
        if step.name == ALTERED and seen.made:
            raise Violation(
                "NULL for a value that is not of its option's kind (a text that looks like a number may be "
                "given as another text)",
                "a delegate",
                f"{at(position, step)}, {_shown(step)}",
            )
        if step.name != ALTERED and not seen.made:
            need_alone(case, trace, position)
            raise Violation("a delegate", f"NULL{_said(seen)}", f"{at(position, step)}, {_shown(step)}")
        looked_at += len(step.options)
    return Examined(looked_at, "options")


BAD = "bad"
"""The name of a create that must be refused."""
UNKNOWN_KEYS = (b"pytest-qnn-unknown", b"", "Größe".encode(), b"%s%n%s%n", b"k" * 1000, NO_UTF_8)


def _inserted(options: Options, key: bytes, at: int) -> Options:
    return (*options[:at], (key, b"1"), *options[at:])


_BEFORE = (4, 8, 16, 32, 63)
"""Options in front of an unknown one: those given, again and again. It must be refused all the same."""


def _many(options: Options) -> list[Options]:
    """An unknown key behind many options."""
    repeated = [(options * size)[:size] for size in _BEFORE] if options else []
    return [_inserted(before, UNKNOWN_KEYS[0], len(before)) for before in repeated]


def refused(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """The given options with a key that no plugin has, or one value made invalid or longer; and as they are.

    Also behind many options, and without a report_error.
    """

    def steps(options: Options) -> Choices:
        unknown: list[tuple[AnyPluginStep, ...]] = [
            (Create(BAD, options=_inserted(options, key, at)), Destroy(BAD))
            for key in (*UNKNOWN_KEYS, NO_UTF_8, NO_UTF_8)  # a reader of text may give up before it has a key
            for at in {0, len(options)}
        ]
        silent: list[tuple[AnyPluginStep, ...]] = [
            (Create(BAD, options=_inserted(options, key, len(options)), report="null"), Destroy(BAD))
            for key in UNKNOWN_KEYS[:2]
        ]
        many = [(Create(BAD, options=long), Destroy(BAD)) for long in _many(options)]
        others = [*_altered(options), *_stretched(options)]
        altered = [(Create(ALTERED, options=other), Destroy(ALTERED)) for other in others]
        wrong = [*unknown, *silent, *many, *altered]
        plain: tuple[AnyPluginStep, ...] = (Create(options=options), Destroy("d0"))
        # One in four: that it returns NULL shows in no other where it refuses unknown keys as it should.
        return [*wrong, *[plain] * (len(wrong) // 3)]

    return _at_each(facts, steps)


@rule(
    "ABI-04",
    Level.SHOULD,
    "tflite_plugin_create_delegate returns NULL for a key that it does not know; whenever it returns NULL, "
    "it has called report_error with a text that gives the reason.",
    source=f"{HEADER}, tflite_plugin_create_delegate",
    subject="delegate",
    cases=refused,
    gate=("plugin interface",),
    weight=0.5,
)
@pictured
def explains_refusals(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at creates with an unknown key, or an invalid value where that is refused, and plain ones."""
    need_functions(trace)
    refusals = 0
    for position, step, seen in steps(case, trace, Create):
        where = f"{at(position, step)}, {_shown(step)}"
        if step.name == BAD and seen.made:
            raise Violation("NULL for a key that the plugin does not know", "a delegate", where)
        if not seen.made:
            refusals += 1
            if step.report == "function" and not "".join(seen.reports).strip():
                raise Violation("a text through report_error", "NULL without one", where)
            # A text may repeat what it was given.
            given = all(is_text(heard(text)) for option in step.options for text in option)
            if given and not all(map(is_text, seen.reports)):
                wanted = "a text in UTF-8 through report_error, as Python's interpreter reads it"
                raise Violation(wanted, f"bytes that are none: {''.join(seen.reports)[:80]!a}", where)
    return Examined(refusals, "refused options")


Steps = Callable[[Options], tuple[AnyPluginStep, ...]]


def _with_graph(
    facts: DelegateFacts, choices: Callable[[Options], Choices], options_of: OptionsOf = given_options
) -> SearchStrategy[PluginCase]:
    """The steps with a graph that the target is likely to take nodes of; any graph if it takes none."""
    every = [choices(options_of(facts, position)) for position in range(_length(facts))]

    def make(case: DelegateCase, data: bytes) -> PluginCase:
        bare = _chosen(data, every)
        return PluginCase(case.graph, bare.steps, bare.delegate, case.data_seed)

    graphs = delegates.routing(facts) if taken(facts) else delegates.anything(facts)
    return prefixed(_PLACE, graphs, make)


def _applied(
    facts: DelegateFacts, steps: Steps, options_of: OptionsOf = given_options
) -> SearchStrategy[PluginCase]:
    return _with_graph(facts, lambda options: [steps(options)], options_of)


def spoiling(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """The delegate works twice, its caller reuses the memory of the options, the delegate works again."""

    def steps(options: Options) -> tuple[AnyPluginStep, ...]:
        return Create(options=options), Apply(), Apply(), OverwriteArguments(), Apply(), Destroy("d0")

    return _applied(facts, steps, known_options)


@rule(
    "ABI-05",
    Level.MUST,
    "tflite_plugin_create_delegate keeps no pointer to the arrays or the texts of the options: their owner "
    "reuses the memory.",
    source=f"{HEADER}, tflite_plugin_create_delegate; {PYTHON}.__init__ frees them",
    subject="delegate",
    cases=spoiling,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def keeps_no_options(case: PluginCase, trace: PluginTrace) -> Examined:
    """Compares the delegate at work before and after its options were overwritten."""
    need_functions(trace)
    need_options(case, trace)
    given = sum(len(step.options) for _, step, seen in steps(case, trace, Create) if seen.made)
    spoilt = [position for position, _, _ in steps(case, trace, OverwriteArguments)]
    applied = list(steps(case, trace, Apply))
    before = [seen for position, _, seen in applied if spoilt and position < spoilt[0]]
    after = [(position, step, seen) for position, step, seen in applied if spoilt and position > spoilt[0]]
    if not before or before[0].error:
        return Examined(0, "options overwritten")
    if len({seen.claimed for seen in before}) > 1:
        raise Unsupported("the delegate claims otherwise each time (PART-17)", final=False)
    for position, step, seen in after:
        works(case, trace, seen, "after its options' memory was overwritten, as before")
        if seen.claimed != before[0].claimed:
            raise Violation(
                f"the nodes {list(before[0].claimed)} to be claimed as before",
                f"{list(seen.claimed)} after the options' memory was overwritten",
                at(position, step),
            )
    return Examined(given * len(after), "options overwritten")


def unreported(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """Creates without a report_error, good and bad ones; and a delegate at work after its create.

    Some come and go before.
    """

    def steps(options: Options) -> Choices:
        wrong = _inserted(options, UNKNOWN_KEYS[0], len(options))
        silent = Create("d1", options=options, report="null"), Apply("d1"), Destroy("d1")
        refuse = (Create(BAD, options=wrong, report="null"), Destroy(BAD))
        own = Create(options=options), Apply(), Destroy("d0")
        more = (Create("d2", options=options), Destroy("d2"))
        return [(*more * times, *own, *refuse, *silent) for times in (0, 1, 2, 5)]

    return _with_graph(facts, steps)


@rule(
    "ABI-06",
    Level.MUST,
    "tflite_plugin_create_delegate accepts a report_error of NULL, and does not call report_error once it "
    "has returned.",
    source=f"{HEADER}, report_error if provided; tflite/delegates/external/external_delegate.cc",
    subject="delegate",
    cases=unreported,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def reports_in_create_only(case: PluginCase, trace: PluginTrace) -> Examined:
    """Without a report_error the result must be the same as with one."""
    need_functions(trace)
    creates = list(steps(case, trace, Create))
    made = [seen.made for _, step, seen in creates if step.report == "function"]
    for position, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=True)):
        if seen.late:
            raise Violation(
                "no call of report_error after its create",
                f"report_error({seen.late[0]!r})",
                at(position, step),
            )
    for position, step, seen in creates:
        if step.report == "null" and step.name != BAD and made and made[0] and not seen.made:
            need_alone(case, trace, position)
            raise Violation("a delegate, as with a report_error", "NULL", at(position, step))
    return Examined(sum(step.report == "null" for _, step, _ in creates), "creates without report_error")


def destroying_nothing(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """NULL is destroyed: first of all, while a delegate lives, and at the end.

    Of a plugin that makes no delegate without it either, only that the calls return is looked at.
    """

    def steps(options: Options) -> tuple[AnyPluginStep, ...]:
        if facts.unusable:
            return Destroy(), Destroy()
        create = Create(options=options)
        return Destroy(), create, Apply(), Destroy(), Apply(), Destroy("d0"), Destroy()

    return _applied(facts, steps)


@rule(
    "ABI-07",
    Level.MUST,
    "tflite_plugin_destroy_delegate with NULL has no effect.",
    source=f"{HEADER}, tflite_plugin_destroy_delegate; docs/reference/runtimes.md RT-11",
    subject="delegate",
    cases=destroying_nothing,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def destroys_nothing(case: PluginCase, trace: PluginTrace) -> Examined:
    """The delegate works after it as it did before."""
    need_functions(trace)
    nulls = [position for position, step, _ in steps(case, trace, Destroy) if not step.name]
    worked = False
    for position, step, seen in steps(case, trace, Create):
        if not seen.made and nulls and nulls[0] < position:
            need_alone(case, trace, position)
            raise Violation("a delegate after destroy(NULL)", f"NULL{_said(seen)}", at(position, step))
    for _, _, seen in steps(case, trace, Apply):
        if worked:
            works(case, trace, seen, "after destroy(NULL), as before")
        worked = not seen.error
    return Examined(len(nulls), "calls of destroy with NULL")


def two_at_once(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """Two delegates or more, of which any is destroyed while others work on; then cycles."""

    def steps(options: Options) -> Choices:
        return [_several(options, count, goes) for count, goes in _SEVERAL]

    return _with_graph(facts, steps)


_SEVERAL = ((2, 0), (2, 1), (3, 1), (3, 2), (3, 0), (5, 2), (9, 8), (17, 9))
"""(delegates that live at once, the one that is destroyed first)."""


def _several(options: Options, count: int, goes: int) -> tuple[AnyPluginStep, ...]:
    """Of those that stay the oldest and the youngest work before and after it."""
    names = [f"d{number}" for number in range(count)]
    stay = [name for name in names if name != names[goes]]
    at_work = tuple(Apply(name) for name in dict.fromkeys((stay[0], stay[-1])))
    made = (Create(name, options=options) for name in names)
    return (*made, *at_work, Destroy(names[goes]), *at_work, *map(Destroy, stay), Cycle(options=options))


@rule(
    "ABI-08",
    Level.MUST,
    "tflite_plugin_destroy_delegate destroys only the given delegate, and releases everything that creating "
    "it acquired.",
    source=f"{HEADER}, tflite_plugin_destroy_delegate",
    subject="delegate",
    cases=two_at_once,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def destroys_its_own(case: PluginCase, trace: PluginTrace) -> Examined:
    """One of two delegates works on when the other is gone; memory in use is the same after every cycle.

    Of a library with an allocator of its own, whose memory is all present from the beginning, no cycle says
    anything: nothing is examined.
    """
    need_functions(trace)
    worked: set[str] = set()
    for _, step, seen in steps(case, trace, Apply):
        if step.name in worked:
            works(case, trace, seen, f"({step.name}) after another one was destroyed")
        if not seen.error:
            worked.add(step.name)
    looked_at = len(list(steps(case, trace, Destroy)))
    for position, cycle, seen in steps(case, trace, Cycle):
        _keeps_nothing(seen, at(position, cycle))
        looked_at += max(0, len(seen.in_use) - 1) * seen.times
    unseen = any(seen.full for _, _, seen in steps(case, trace, Cycle))
    return Examined(0 if unseen else looked_at, "delegates destroyed")


def _keeps_nothing(seen: PluginSeen, where: str) -> None:
    """Raises Measured where a Cycle's delegates leave memory: malloc's, mappings, or the library's own."""
    in_use, mapped, arena = map(_growth, (seen.in_use, seen.mapped, seen.arena))
    # A page or two come once, whatever is made: of few delegates each has to leave one.
    each = _LEAST_LEAK if seen.times >= leaks.LEAST_TIMES else _PAGE
    kept = (
        ("bytes in use", in_use, bool(in_use) and min(in_use) >= _LEAST_LEAK * seen.times),
        ("bytes of address space", mapped, bool(mapped) and min(mapped) >= _PAGE * seen.times),
        (
            "resident bytes of the target's own allocator",
            arena,
            leaks.pages_left(arena, len(arena) * seen.times, each),
        ),
    )
    for what, growth, is_kept in kept:
        if is_kept:
            raise Measured(
                f"as many {what} after each delegate was created and destroyed",
                f"{', '.join(f'{grown:+}' for grown in growth)} bytes for {seen.times} delegates each",
                where,
            )


def _growth(values: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(values)]


def _said(seen: PluginSeen) -> str:
    text = " ".join("".join(seen.reports).split())
    return f" ({text!r})" if text else " without a report"


def _shown(step: Create) -> str:
    return f"options {', '.join(map(shown, step.options))}" if step.options else "no options"


_COMMON = "tflite/core/c/common.h"
_KNOWN_FLAGS = 0b1111
"""TfLiteDelegateFlags: dynamic tensors, propagated shapes, profiling per operator, all claimed."""
_KNOWN_INPLACE = 0b11111
"""TfLiteInPlaceOp: data unmodified, outputs by number, and a bit for each of the first three inputs."""


def alone(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """No call at all: the library is looked at."""
    return _at_each(facts, lambda _: [()])


@rule(
    "ABI-01",
    Level.MUST,
    f"The library exports {CREATE} and {DESTROY} under these names.",
    source=f'{HEADER}, extern "C" and TFL_EXTERNAL_DELEGATE_EXPORT',
    subject="delegate",
    cases=alone,
    gate=("plugin interface",),
    weight=0.3,
)
def exports_its_functions(case: PluginCase, trace: PluginTrace) -> Examined:  # noqa: ARG001 - the form of a check
    """Looks at the dynamic symbols of the library's file."""
    need_interface(trace)
    for name in (CREATE, DESTROY):
        if name not in trace.library.exports:
            alike = [export for export in trace.library.exports if name in export]
            raise Violation(
                f"the dynamic symbol {name}",
                f"{alike[0]}, a name that C++ made" if alike else "no such symbol",
            )
    return Examined(2, "symbols")


def created(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """One delegate, made and destroyed."""
    return _at_each(facts, lambda options: [(Create(options=options), Destroy("d0"))])


_MAKES_NONE = "create makes no delegate: ABI-02 judges it"


@rule(
    "ABI-09",
    Level.MUST,
    "tflite_plugin_create_delegate returns a TfLiteDelegate of 56 bytes with a Prepare or a valid opaque "
    "builder; unused callbacks are NULL, and flags are known ones.",
    source=f"{_COMMON}, TfLiteDelegate",
    subject="delegate",
    cases=created,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def returns_a_delegate(case: PluginCase, trace: PluginTrace) -> Examined:
    """Reads the struct's members; a function is NULL or the address of code."""
    need_functions(trace)
    looked_at = 0
    for position, step, seen in steps(case, trace, Create):
        if seen.struct is not None:
            _valid(seen.struct, at(position, step))
            looked_at += 1
    if not looked_at:
        raise Unsupported(_MAKES_NONE, final=False)
    return Examined(looked_at, "delegates")


def _valid(struct: StructSeen, where: str) -> None:
    if struct.builder == "unreadable":
        raise Violation("56 bytes that can be read", "memory that is not mapped", where)
    for name, kind in struct.functions.items():
        if kind == "no code":
            raise Violation(f"{name} to be NULL or a function", "a pointer that shows no code", where)
    if struct.builder == "invalid":
        raise Violation(
            "opaque_delegate_builder (bytes 48 to 55) to be NULL or valid",
            "a pointer that shows no TfLiteOpaqueDelegateBuilder; headers of 2022 and before end at byte 48",
            where,
        )
    if struct.functions["Prepare"] == "null" and struct.builder == "null":
        raise Violation("a Prepare, or an opaque builder", "neither", where)
    unknown = (struct.flags | struct.builder_flags) & ~_KNOWN_FLAGS
    if unknown:
        raise Violation(f"no flags but {_KNOWN_FLAGS:#x}", f"{unknown & (1 << 64) - 1:#x}", where)


@rule(
    "ABI-10",
    Level.MUST,
    "A delegate uses its own callbacks or its opaque builder and does not mix them: with a Prepare, the "
    "builder is ignored.",
    source="tflite/core/c/common_internal.cc, TfLiteDelegateHasValidOpaqueDelegateBuilder",
    subject="delegate",
    cases=created,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def does_not_mix(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at the members of what create returned."""
    need_functions(trace)
    made = [each for each in steps(case, trace, Create) if each[2].struct is not None]
    if not made:
        raise Unsupported(_MAKES_NONE, final=False)
    looked_at = 0
    for position, step, seen in made:
        if seen.struct is None or seen.struct.builder in ("invalid", "unreadable"):
            continue
        looked_at += 1
        own = [name for name, kind in seen.struct.functions.items() if kind != "null"]
        if seen.struct.builder == "valid" and own:
            raise Violation(
                "no callback beside an opaque builder",
                f"{', '.join(own)} beside it",
                at(position, step),
            )
    return Examined(looked_at, "delegates")


def applied(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """One delegate at work."""
    return _applied(facts, lambda options: (Create(options=options), Apply(), Destroy("d0")))


@rule(
    "ABI-11",
    Level.MUST,
    "The registration that an opaque delegate passes to ReplaceNodeSubsetsWithDelegateKernels has a "
    "registration_external.",
    source="tflite/core/subgraph.cc, Subgraph::ReplaceNodeSubsetsWithDelegateKernels (opaque)",
    subject="delegate",
    cases=applied,
    gate=("plugin interface", "opaque"),
    weight=0.3,
)
@pictured
def registers_operators(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at each registration that an opaque Prepare passes."""
    need_functions(trace)
    structs = [seen.struct for _, _, seen in steps(case, trace, Create) if seen.struct is not None]
    if not structs:
        raise Unsupported(_MAKES_NONE, final=False)
    if all(struct.builder != "valid" for struct in structs):
        raise Unsupported("the delegate is not opaque: it has no opaque_delegate_builder")
    looked_at = 0
    for position, step, seen in steps(case, trace, Apply):
        if not all(seen.operators):
            raise Violation(
                "a registration_external in the registration",
                "NULL: the runtime refuses it, or calls functions of another kind",
                at(position, step),
            )
        looked_at += len(seen.operators)
    return Examined(looked_at, "registrations")


@rule(
    "ABI-12",
    Level.MUST,
    "The library can be loaded with all its symbols bound: it needs none that its own dependencies do not "
    "export. It cannot use a runtime's symbols, since Python loads the runtimes with RTLD_LOCAL.",
    source="dlopen(3), RTLD_NOW and RTLD_LOCAL, as Python loads libraries",
    subject="delegate",
    cases=alone,
    gate=("plugin interface",),
    weight=0.3,
)
def binds_its_symbols(case: PluginCase, trace: PluginTrace) -> Examined:  # noqa: ARG001 - the form of a check
    """Looks at what the loader said, and at the library's undefined symbols."""
    need_interface(trace)
    if trace.library.load_error:
        needed = ", ".join(trace.library.undefined[:8])
        raise Violation(
            "a library that loads with every symbol bound",
            trace.library.load_error + (f"; of TensorFlow Lite it needs {needed}" if needed else ""),
        )
    return Examined(1, "libraries")


@rule(
    "ABI-13",
    Level.MUST,
    "The TfLiteRegistration that a delegate passes is initialised in all of its 88 bytes: members that it "
    "does not use are zero.",
    source=f"{_COMMON}, TfLiteRegistration: registration_external, async_kernel, inplace_operator",
    subject="delegate",
    cases=delegates.anything,
    weight=0.5,
)
def fills_its_registration(case: DelegateCase, trace: DelegateTrace) -> Examined:  # noqa: ARG001 - as above
    """Looks at the members that old headers do not have: a delegate built with those passes garbage there."""
    need_observation(trace)
    looked_at = 0
    for position, applied in enumerate(trace.applied):
        for replace in applied.replaces if applied.is_target else ():
            for member, value, shows in replace.tail:
                if not _is_used(member, value, shows):
                    raise Violation(
                        f"{member} to be zero, or valid",
                        f"{value:#x}",
                        f"registration passed by application {position} ({applied.name})",
                    )
            looked_at += 1
    return Examined(looked_at, "registrations")


def _is_used(member: str, value: int, shows: str) -> bool:
    """A member that is not zero is one that the delegate means."""
    if member == "inplace_operator":
        return not value & ~_KNOWN_INPLACE
    return shows == ("code" if member == "async_kernel" else "memory")


def copied(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """A second copy of the library is loaded while the first has a delegate; both work."""

    def steps(options: Options) -> tuple[AnyPluginStep, ...]:
        made = Create("d0", options=options), Apply("d0"), Copy("d1", options=options)
        return *made, Apply("d1"), Apply("d0"), Destroy("d0"), Apply("d1"), Destroy("d1")

    return _applied(facts, steps)


@rule(
    "ABI-14",
    Level.SHOULD,
    "Several plugins work in one process, each with its own TensorFlow Lite: a library exports no function "
    "of TensorFlow Lite, and a second copy of it works beside the first.",
    source="dlopen(3): an exported symbol may be bound in place of another library's own",
    subject="delegate",
    cases=copied,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def stays_apart(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at the library's exports, and at delegates of two copies of it.

    Only of a library that has made a delegate itself a copy must make one, too.
    """
    need_functions(trace)
    foreign = [name for name in trace.library.exports if CREATE not in name and DESTROY not in name]
    if foreign:
        raise Violation("no exported symbol of TensorFlow Lite", f"{len(foreign)} of them, as {foreign[0]}")
    worked: set[str] = set()
    copies = list(steps(case, trace, Copy))
    made = [position for position, _, seen in steps(case, trace, Create) if seen.made]
    for position, copy, seen in copies:
        if not seen.made:
            if min(made, default=position) >= position:
                raise Unsupported(_MAKES_NONE, final=False)
            raise Violation("a delegate of the copy", seen.error or "NULL", at(position, copy))
    for _, step, seen in steps(case, trace, Apply):
        if worked:
            works(case, trace, seen, f"({step.name}) beside a copy of its library")
        if not seen.error:
            worked.add(step.name)
    return Examined(len(copies), "copies of the library")


def starved(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """A create during which no file or few can be opened, then one during which all can."""

    def steps(options: Options) -> Choices:
        return [
            (Create(BAD, options, descriptors=count), Destroy(BAD), Create(options=options), Destroy("d0"))
            for count in (0, 1, 2, 4)
        ]

    return _at_each(facts, steps)


@rule(
    "ABI-15",
    Level.SHOULD,
    "Where a library or another file that it needs cannot be opened, tflite_plugin_create_delegate returns "
    "NULL and gives the reason to report_error, or makes a delegate that does without; once it can be, it "
    "makes one.",
    source=f"{HEADER}, tflite_plugin_create_delegate; seed 004, creating a delegate (finding its libraries)",
    subject="delegate",
    cases=starved,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def does_without_a_file(case: PluginCase, trace: PluginTrace) -> Examined:
    """The system refuses every new descriptor, or all but a few, while the delegate is made.

    What the plugin opened before, in its history too, stays open: a library that is loaded already is there.
    A create that gives no reason when files can be opened either is ABI-04's.
    """
    need_functions(trace)
    found = list(steps(case, trace, Create))
    starved_ones = [(position, seen) for position, step, seen in found if step.descriptors is not None]
    others = [seen for _, step, seen in found if step.descriptors is None]
    speaks = bool(others) and not any(map(_is_mute, others))
    for position, seen in starved_ones:
        if speaks and _is_mute(seen):
            where = f"{at(position, case.steps[position])}, while no file can be opened"
            raise Violation("a delegate, or NULL and a text through report_error", "NULL without one", where)
    for position, step, seen in found:
        if step.descriptors is None and starved_ones and not seen.made:
            need_alone(case, trace, position)
            if trace.facts is not None and trace.facts.unusable:
                raise Unsupported(_MAKES_NONE, final=False)
            what = f"NULL{_said(seen)}"
            raise Violation("a delegate, now that files can be opened again", what, at(position, step))
    return Examined(len(starved_ones), "creates during which files could not be opened")


def _is_mute(seen: PluginSeen) -> bool:
    """A create that has returned NULL and given no reason."""
    return not seen.made and not "".join(seen.reports).strip()


def fenced(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """A create whose arrays and texts end where a page begins that nobody may touch.

    With the given options, with each of them alone, with none, with many, with an unknown one, and with a
    longer value.
    """

    def steps(options: Options) -> Choices:
        unknown = _inserted(options, UNKNOWN_KEYS[0], len(options))
        each = [(one,) for one in options] if len(options) > 1 else []
        taken_ones: list[Options] = [options, (), *each]
        doubtful = [unknown, *_many(options)[:2], *_stretched(options)]
        named = [*(("d0", one) for one in taken_ones), *((BAD, one) for one in doubtful)]
        return [(Create(name, one, guarded=True), Destroy(name)) for name, one in dict.fromkeys(named)]

    return _at_each(facts, steps, known_options)


@rule(
    "ABI-16",
    Level.MUST,
    "tflite_plugin_create_delegate reads num_options entries of each array, and each text up to its NUL: it "
    "touches nothing behind them.",
    source=f"{HEADER}, tflite_plugin_create_delegate: num_options; {PYTHON}.__init__ passes arrays of so "
    "many entries, with no NULL behind them",
    subject="delegate",
    cases=fenced,
    gate=("plugin interface",),
    weight=0.3,
)
@pictured
def stays_within_options(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at each access to the page behind an array or a text, whichever thread it is on.

    Whether the options are taken or refused is no matter here.
    """
    need_functions(trace)
    looked_at = 0
    for position, step, seen in steps(case, trace, Create):
        if not step.guarded:
            continue
        looked_at += 2 + 2 * len(step.options)
        for touch in seen.touched:
            far = f"{touch.behind} bytes behind" if touch.behind else "right behind"
            raise Violation(
                f"nothing behind the {counted(len(step.options), 'option')} to be touched",
                f"a {touch.access} {far} the end of {_of_what(touch.what, step.options)}",
                f"{at(position, step)}, {_shown(step)}",
            )
    return Examined(looked_at, "ends of arrays and texts")


def _of_what(name: str, options: Options) -> str:
    """An array with its length, or a text."""
    kind, _, number = name.partition(" ")
    if not number:
        return f"{name}, an array of {len(options)}"
    return f"{name}, {options[int(number)][kind == 'value'][:40].decode(errors='replace')!r}"
