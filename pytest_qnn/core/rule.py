"""What a rule is, and the catalogue that all rules are entered into."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pytest_qnn.core.verdict import Examined, Level

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

CaseT = TypeVar("CaseT")
TraceT = TypeVar("TraceT")
FactsT = TypeVar("FactsT")

Subject = Literal["delegate", "memory"]


class NothingToJudge(Exception):  # noqa: N818 - a finding about the target, not an error
    """A strategy has no case that could show anything of this target; the reason says how that was learned.

    ``unsupported``: the target does other things, but not what the rule is about.
    """

    def __init__(self, reason: str, *, unsupported: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unsupported = unsupported


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a rule demands, as data: enough to list it and to report it, and cheap to know of every rule."""

    id: str
    level: Level
    sentence: str
    source: str
    subject: Subject
    gate: tuple[str, ...] = ()
    """What the rule needs, all of it: property keys (QNN) and names of `pytest_qnn.core.conditions`, or with
    ``no`` before them that they do not hold. Whether a target has something is seen in the trace."""
    self_check: bool = False
    """True: the rule judges the TensorFlow Lite runtime (and so this suite), not the delegate."""

    @property
    def area(self) -> str:
        """The part of the id before the hyphen."""
        return self.id.partition("-")[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule(Demand, Generic[CaseT, TraceT, FactsT]):
    """One requirement with a stable id.

    ``check(case, trace)`` is pure. It returns what it examined, raises a
    :class:`~pytest_qnn.core.verdict.Violation` when the target broke the rule in this case, and
    :class:`~pytest_qnn.core.verdict.Unsupported` when the trace shows that the target does not offer what
    the rule is about. ``cases(facts)`` gives the Hypothesis strategy of the cases that can show a
    violation on a target with these facts.
    """

    cases: Callable[[FactsT], SearchStrategy[CaseT]]
    check: Callable[[CaseT, TraceT], Examined]
    weight: float = 1.0
    """Share of a flat number of examples (`Profile`): below 1 where the space of cases is small or a case is
    expensive. A number of the plan was measured for the rule, and is not scaled."""
    uncontrolled: str = ""
    """Why no plain case can be the control (`pytest_qnn.core.target.Control`) of a wrong output in its cases:
    each has what the rule is about."""
    by_chance: bool = False
    """Whether a case shows what is wrong depends on how threads meet: a smaller case counts only if it does
    so twice, so that the one that is left shows it again to who replays it."""
    listed_whole: bool = False
    """Its listed cases are all run with every ``--qnn-profile``, and where a plain case takes long, too: the
    target has its ways to carry out many at the price of few."""


_CATALOGUE: dict[str, Rule[Any, Any, Any]] = {}


def rule(
    rule_id: str,
    level: Level,
    sentence: str,
    *,
    source: str,
    subject: Subject,
    cases: Callable[[FactsT], SearchStrategy[CaseT]],
    gate: tuple[str, ...] = (),
    self_check: bool = False,
    weight: float = 1.0,
    uncontrolled: str = "",
    by_chance: bool = False,
    listed_whole: bool = False,
) -> Callable[[Callable[[CaseT, TraceT], Examined]], Callable[[CaseT, TraceT], Examined]]:
    """Enter the decorated check into the catalogue under ``rule_id``.

    Raises:
        ValueError: the id is taken already; ids are never reused.
    """

    def enter(check: Callable[[CaseT, TraceT], Examined]) -> Callable[[CaseT, TraceT], Examined]:
        if rule_id in _CATALOGUE:
            raise ValueError(f"rule id {rule_id} is entered twice")
        _CATALOGUE[rule_id] = Rule(
            id=rule_id,
            level=level,
            sentence=sentence,
            source=source,
            subject=subject,
            cases=cases,
            check=check,
            gate=gate,
            self_check=self_check,
            weight=weight,
            uncontrolled=uncontrolled,
            by_chance=by_chance,
            listed_whole=listed_whole,
        )
        return check

    return enter


def entered() -> dict[str, Rule[Any, Any, Any]]:
    """The rules entered so far, by id, in the order of entry."""
    return _CATALOGUE
