"""Hypothesis strategies for cases of a plugin's interface.

What options a plugin takes is known of those alone that it was given on the command line: these are
handed to create as they are, with values spoilt, and beside keys that no plugin has.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases import delegate_strategies
from pytest_qnn.cases.graph import Graph, Node, Tensor
from pytest_qnn.cases.plugin import (
    AnyPluginStep,
    Apply,
    Copy,
    Create,
    Cycle,
    Destroy,
    Options,
    PluginCase,
    Spoil,
)
from pytest_qnn.facts import DelegateFacts

BAD = "bad"
"""The name of a create that must be refused."""
ALTERED = "altered"
"""The name of a create with a value that is not of its option's kind."""
UNKNOWN_KEYS = (b"pytest-qnn-unknown", b"", "Größe".encode(), b"%s%n%s%n", b"k" * 1000)
NOT_NUMBERS = (b"abc", b"", b"None", b"12abc", b"0x", b"--1", b"four")
NOT_TRUTHS = (b"maybe", b"", b"None", b"truefalse", b"2.5")
_TRUTHS = frozenset({"true", "false", "yes", "no", "on", "off"})

TRIVIAL = Graph(
    tensors=(Tensor((1, 2)), Tensor((1, 2))), nodes=(Node("ABS", (0,), (1,)),), inputs=(0,), outputs=(1,)
)
"""For cases that apply nothing."""

Steps = Callable[[Options], tuple[AnyPluginStep, ...]]


def given_options(facts: DelegateFacts, delegate: int) -> Options:
    """The options that the delegate at this position of the chain was given."""
    pairs = facts.options[delegate] if delegate < len(facts.options) else ()
    return tuple((key.encode(), value.encode()) for key, value in pairs)


def spoilt_values(value: bytes) -> tuple[bytes, ...]:
    """Values that are none of the kind of ``value``; nothing where any text may be right."""
    text = value.decode()
    if text.lower() in _TRUTHS:
        return NOT_TRUTHS
    try:
        float(text)
    except ValueError:
        return ()
    return (*NOT_NUMBERS, value + b"abc")


def alone(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """No call at all: the library is looked at."""
    return _at_each(facts, lambda _: st.just(()))


def without_options(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """A create without options, its arrays NULL or empty."""
    made = [(Create(null_arrays=null), Destroy("d0")) for null in (True, False)]
    return _at_each(facts, lambda _: st.sampled_from(made))


def parsed(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """The given options, then with one value spoilt."""

    def steps(options: Options) -> SearchStrategy[tuple[AnyPluginStep, ...]]:
        first: tuple[AnyPluginStep, ...] = Create(options=options), Destroy("d0")
        altered = [(*first, Create(ALTERED, options=bad), Destroy(ALTERED)) for bad in _altered(options)]
        return st.sampled_from(altered or [first])

    return _at_each(facts, steps)


def refused(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """The given options with a key that no plugin has, or with one value spoilt."""

    def steps(options: Options) -> SearchStrategy[tuple[AnyPluginStep, ...]]:
        unknown = [
            (Create(BAD, options=_inserted(options, key, at)), Destroy(BAD))
            for key in UNKNOWN_KEYS
            for at in {0, len(options)}
        ]
        altered = [(Create(ALTERED, options=bad), Destroy(ALTERED)) for bad in _altered(options)]
        return st.sampled_from(unknown + altered)

    return _at_each(facts, steps)


def spoiling(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """The delegate works, its caller reuses the memory of the options, the delegate works again."""
    return _applied(
        facts, lambda options: (Create(options=options), Apply(), Spoil(), Apply(), Destroy("d0"))
    )


def unreported(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """Creates without a report_error, good and bad ones; and a delegate at work after its create."""

    def steps(options: Options) -> tuple[AnyPluginStep, ...]:
        wrong = _inserted(options, UNKNOWN_KEYS[0], len(options))
        silent = Create("d1", options=options, report="null"), Apply("d1"), Destroy("d1")
        refuse = (Create(BAD, options=wrong, report="null"), Destroy(BAD))
        return Create(options=options), Apply(), Destroy("d0"), *refuse, *silent

    return _applied(facts, steps)


def destroying_nothing(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """NULL is destroyed: first of all, while a delegate lives, and at the end."""

    def steps(options: Options) -> tuple[AnyPluginStep, ...]:
        create = Create(options=options)
        return Destroy(), create, Apply(), Destroy(), Apply(), Destroy("d0"), Destroy()

    return _applied(facts, steps)


def two_at_once(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """Two delegates, of which either is destroyed first while the other works on; then cycles."""

    def steps(options: Options) -> SearchStrategy[tuple[AnyPluginStep, ...]]:
        made = Create("d0", options=options), Create("d1", options=options)
        orders = [
            (*made, Apply(stays), Destroy(goes), Apply(stays), Destroy(stays), Cycle(options=options))
            for goes, stays in (("d0", "d1"), ("d1", "d0"))
        ]
        return st.sampled_from(orders)

    return _with_graph(facts, steps)


def created(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """One delegate, made and destroyed."""
    return _at_each(facts, lambda options: st.just((Create(options=options), Destroy("d0"))))


def applied(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """One delegate at work."""
    return _applied(facts, lambda options: (Create(options=options), Apply(), Destroy("d0")))


def copied(facts: DelegateFacts) -> SearchStrategy[PluginCase]:
    """A second copy of the library is loaded while the first has a delegate; both work."""

    def steps(options: Options) -> tuple[AnyPluginStep, ...]:
        made = Create("d0", options=options), Apply("d0"), Copy("d1", options=options)
        return *made, Apply("d1"), Apply("d0"), Destroy("d0"), Apply("d1"), Destroy("d1")

    return _applied(facts, steps)


def _altered(options: Options) -> list[Options]:
    """The options with one value spoilt, in every way."""
    return [
        (*options[:at], (key, bad), *options[at + 1 :])
        for at, (key, value) in enumerate(options)
        for bad in spoilt_values(value)
    ]


def _inserted(options: Options, key: bytes, at: int) -> Options:
    return (*options[:at], (key, b"1"), *options[at:])


def _at_each(
    facts: DelegateFacts, steps: Callable[[Options], SearchStrategy[tuple[AnyPluginStep, ...]]]
) -> SearchStrategy[PluginCase]:
    """Cases that apply nothing, for every position in the chain."""
    return st.one_of(
        [_at(position, steps(given_options(facts, position))) for position in range(_length(facts))]
    )


def _at(position: int, steps: SearchStrategy[tuple[AnyPluginStep, ...]]) -> SearchStrategy[PluginCase]:
    return steps.map(lambda made: PluginCase(TRIVIAL, made, position))


def _length(facts: DelegateFacts) -> int:
    return max(1, len(facts.delegates))


def _applied(facts: DelegateFacts, steps: Steps) -> SearchStrategy[PluginCase]:
    return _with_graph(facts, lambda options: st.just(steps(options)))


def _with_graph(
    facts: DelegateFacts, steps: Callable[[Options], SearchStrategy[tuple[AnyPluginStep, ...]]]
) -> SearchStrategy[PluginCase]:
    """The steps with a graph that the target is likely to take nodes of."""
    return st.builds(
        lambda case, bare: PluginCase(case.graph, bare.steps, bare.delegate, case.data_seed),
        delegate_strategies.routing(facts),
        _at_each(facts, steps),
    )
