"""TFL: the QNN delegate's own interface, and its mandatory option backend_type (seed 000)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.tflite.cases.script import AnyScriptStep, DestroyDelegate, MakeDelegate, ScriptCase
from pytest_qnn.tflite.checks import scripts
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.qnn_delegate.rules import TENSORS, Scene, alone, judged, scenes, works
from pytest_qnn.tflite.trace import NOT_REPORTED, ScriptSeen, ScriptTrace

Cases = SearchStrategy[ScriptCase]
Option = tuple[str, str]
_KEY = "backend_type"
_HTP = "htp"
_BAD = "bad"
"""Beginning of the names of delegates that must not come to be."""
_SEED = "seed 000, running example"
_STRUCT = "QnnTFLiteDelegate.h, TfLiteQnnDelegateOptions.backend_type"
_TABLE = "80-63442-10, External Delegate Options"
_NUMBERS = ("99", "258", "-1", "65538", "16777218", "2147483647", "-2147483648", "4098", "-254", "16")
"""Of no backend in any version of the header; some are kHtpBackend to who reads a part of the bits."""
_TEXTS = ("no-such-backend", "htpx", "ht", "99", "258", "-1", "", "htp,gpu")


def _option(facts: DelegateFacts, position: int) -> Option:
    """The backend that the delegate was selected with, or the seed's."""
    given = dict(facts.options[position]) if position < len(facts.options) else {}
    known = facts.backend_type if position == facts.own_interface else ""
    return _KEY, given.get(_KEY, known) or _HTP


def by_own_interface(facts: DelegateFacts) -> Cases:
    """The workflow of custom memory, with a delegate of the library's own interface.

    Another one of it lives beside the first, or has been deleted.
    """
    if facts.own_interface < 0 or facts.own_interface != facts.custom_memory:
        raise NothingToJudge(
            "the delegate has no TfLiteQnnDelegateCreate, or no custom memory", unsupported=True
        )
    option = _option(facts, facts.own_interface)

    def own(step: AnyScriptStep) -> AnyScriptStep:
        if not (isinstance(step, MakeDelegate) and step.delegate == "d0"):
            return step
        return msgspec.structs.replace(step, interface="own", options=(option,))

    def make(scene: Scene) -> tuple[AnyScriptStep, ...]:
        position = scene.position
        other = MakeDelegate("d2", position=position, interface="own", options=(option,))
        placed = tuple(map(own, scene.placed()))
        end = DestroyDelegate("d2")
        return ((*placed, *scene.use()), (other, *placed, *scene.use()), (other, *placed, end, *scene.use()))[
            (1 + scene.choice[0]) % 3
        ]

    return scenes(facts, make)


@rule(
    "TFL-08",
    Level.MUST,
    "A delegate that TfLiteQnnDelegateCreate makes from TfLiteQnnDelegateOptionsDefault and a backend_type "
    "works with custom memory, alone and beside another.",
    source=f"{_SEED} (use QNN Delegate interface rather than external delegate interface)",
    subject="delegate",
    cases=by_own_interface,
    gate=("own interface",),
)
def works_by_its_own_interface(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at what create returns, and at results in custom memory, whichever interface was selected."""
    for number, step, seen in _made(case, trace):
        if step.interface == "own" and not seen.ok:
            if trace.facts and not trace.facts.backend_type:
                raise Unsupported(f"{_which(step)} is not to be had here: {seen.message}")
            raise Violation(f"a delegate with {_which(step)}", seen.message, f"step {number}")
    count = judged(case, trace)
    if count:
        works(case, trace, "right results from and in the client's memory, by the delegate's own interface")
    return Examined(count, TENSORS)


def _made(case: ScriptCase, trace: ScriptTrace) -> list[tuple[int, MakeDelegate, ScriptSeen]]:
    return [
        (number, step, seen)
        for number, step, seen in scripts.numbered(case, trace)
        if isinstance(step, MakeDelegate) and not seen.skipped
    ]


def _which(step: MakeDelegate) -> str:
    value = dict(step.options).get(_KEY)
    return f"no {_KEY}" if value is None else f"{_KEY}={value}"


def _at(facts: DelegateFacts) -> list[tuple[MakeDelegate, Option]]:
    """Each way to make a delegate that has the option, with a value that it should take.

    Raises:
        NothingToJudge: there is none.
    """
    ways: list[tuple[MakeDelegate, Option]] = []
    if facts.own_interface >= 0:
        own = MakeDelegate(_BAD, position=facts.own_interface, interface="own", without=(_KEY,))
        ways.append((own, _option(facts, facts.own_interface)))
    for position, options in enumerate(facts.options):
        if _KEY in dict(options):
            ways.append((MakeDelegate(_BAD, position=position, without=(_KEY,)), _option(facts, position)))
    if not ways:
        raise NothingToJudge(
            "the delegate has no TfLiteQnnDelegateCreate, and was not given the option backend_type",
            unsupported=True,
        )
    return ways


def _tried(bad: Sequence[MakeDelegate], way: MakeDelegate, option: Option, shape: int) -> ScriptCase:
    """Delegates that must not come to be, and before, between or after them one that should."""
    good = msgspec.structs.replace(way, delegate="good", options=(option,))
    end = DestroyDelegate("good")
    before: tuple[AnyScriptStep, ...] = (good, end) if shape & 1 else ()
    beside: tuple[AnyScriptStep, ...] = (
        (msgspec.structs.replace(good, delegate="other"),) if shape & 2 else ()
    )
    return alone((*before, *beside, *bad, good, end))


def without_backend(facts: DelegateFacts) -> Cases:
    """Creates without backend_type, or with kUndefinedBackend, and then a valid one."""
    ways = _at(facts)

    def decode(data: bytes) -> ScriptCase:
        way, option = ways[data[0] % len(ways)]
        undefined = way.interface == "own" and data[1] & 4
        bad = msgspec.structs.replace(way, options=((_KEY, "0"),)) if undefined else way
        return _tried([bad], way, option, data[1])

    return decoded(2, decode)


@rule(
    "TFL-20",
    Level.MUST,
    "The option backend_type is mandatory: without it, or with kUndefinedBackend, create returns NULL, and "
    "with a backend that the delegate has it makes a delegate.",
    source=f"{_STRUCT} (required, errors out if kUndefinedBackend); {_TABLE} (mandatory); {_SEED}",
    subject="delegate",
    cases=without_backend,
    gate=("backend type",),
    weight=0.3,
)
def wants_a_backend(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at what TfLiteQnnDelegateCreate returns, and the external interface's create if that is used."""
    found = _made(case, trace)
    for number, step, seen in found:
        bad = step.delegate.startswith(_BAD)
        if bad and seen.ok:
            raise Violation(f"NULL with {_which(step)}", "a delegate", f"step {number}")
        if not (bad or seen.ok) and trace.facts and _is_declared(trace.facts, step):
            raise Violation(f"a delegate with {_which(step)}", seen.message, f"step {number}")
    return Examined(sum(step.delegate.startswith(_BAD) for _, step, _ in found), "creates without a backend")


def _is_declared(facts: DelegateFacts, step: MakeDelegate) -> bool:
    """The user has said that this backend is there."""
    return step.interface == "selected" or bool(facts.backend_type)


def wrong_backends(facts: DelegateFacts) -> Cases:
    """Creates with values that name no backend, or by the external interface with none; then a valid one."""
    ways = _at(facts)

    def decode(data: bytes) -> ScriptCase:
        way, option = ways[data[0] % len(ways)]
        values = _NUMBERS if way.interface == "own" else (*_TEXTS, None)
        drawn = dict.fromkeys(values[byte % len(values)] for byte in data[2 : 3 + data[1] // 4 % 3])
        bad = [
            msgspec.structs.replace(
                way, delegate=f"{_BAD}{at}", options=() if value is None else ((_KEY, value),)
            )
            for at, value in enumerate(drawn)
        ]
        return _tried(bad, way, option, data[1])

    return decoded(5, decode)


@rule(
    "TFL-21",
    Level.SHOULD,
    "A backend_type that names no backend makes create return NULL; the external interface reports why, as "
    "it does where backend_type is missing.",
    source=f"{_STRUCT} (an enumeration); {_TABLE}; external_delegate_interface.h (report_error)",
    subject="delegate",
    cases=wrong_backends,
    gate=("backend type",),
    weight=0.3,
)
def refuses_other_backends(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Tries numbers outside of the enumeration, and texts that are no name of it."""
    looked_at = 0
    for number, step, seen in _made(case, trace):
        if not step.delegate.startswith(_BAD):
            continue
        if seen.ok and step.options:  # without the option: TFL-20
            raise Violation(f"NULL with {_which(step)}", "a delegate", f"step {number}")
        if step.interface == "selected" and seen.message.endswith(NOT_REPORTED):
            raise Violation(f"a reason through report_error for {_which(step)}", "none", f"step {number}")
        looked_at += 1
    return Examined(looked_at, "creates with a wrong backend")
