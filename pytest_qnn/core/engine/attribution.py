"""Which rule owns what went wrong in another rule's case: its controls, judged by their owners, say so.

docs/explanation/decisions/shared/blame.md has the reasons.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from pytest_qnn.core.engine.checking import checked, died, none_on_internal_error, noting_errors
from pytest_qnn.core.fingerprint import Fingerprint, Traits, traits_of
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Control, Death, Target, TraceLike
from pytest_qnn.core.verdict import (
    Crashed,
    FailedCall,
    Hung,
    Measured,
    Retained,
    Violation,
    WrongOutput,
    WrongRefusal,
    WrongSuccess,
)

ResultT = TypeVar("ResultT")

RuleNamed = Callable[[str], Rule[Any, Any, Any]]
"""The rule with an id."""

MOST_CONTROLS = 700
"""Controls of one case: of a graph of 60 nodes each by itself, in three forms, and the whole in others."""
_LAST_CONTROLS = 50
"""Of those: where there are more, these are the last ones, which are about the whole case."""
_CONTROL_HANGS = {False: 3, True: 1}
"""Controls of one rule that may hang, by whether they tell only of what spoils all (`Control.spoils`). They
have a budget of their own: without a control, a hang that any case meets is the rule's own."""
_MOST_CAUSES = 20
"""Causes of one owner that are kept for one rule."""
_OUTER = "Interpreter."
"""How calls begin in which those of a target are nested."""
_CONTROLLED = WrongOutput | WrongRefusal | WrongSuccess | Retained | Measured | Crashed | Hung
"""What is seen by whatever case meets it: a wrong output, what is left behind, the failure of a call and the
death of a process. Any other violation is of what the rule itself looks for. A call that succeeds where it
must not may have been given another thing than the case says. Of what is measured few controls tell
(`Control.explains`)."""


class Cause(NamedTuple):
    """What is wrong in a plain case, and the rule that owns it."""

    owner: Rule[Any, Any, Any]
    case: Any
    violation: Violation
    others_before: int = 0
    """Other cases that were carried out before in its process, where it is wrong behind them only."""


class Attribution:
    """Finds the owners of what goes wrong in the cases of one rule, and remembers what its controls gave.

    Args:
        rule: under judgement.
        target: under judgement.
        rule_named: the rule with an id; None: no other rule is asked, all that goes wrong is this rule's.
        controlled: what was wrong in controls on this target, to which this adds its own.

    """

    def __init__(
        self,
        rule: Rule[Any, Any, Any],
        target: Target[Any, Any],
        rule_named: RuleNamed | None = None,
        controlled: dict[bytes, Sequence[Cause]] | None = None,
    ) -> None:
        self.rule = rule
        self.target = target
        self.rule_named = rule_named
        self.causes: dict[str, list[Cause]] = {}
        """By the id of its owner: what went wrong in cases of this rule and is another one's to judge, each
        thing once (`_is_same`)."""
        self.controlled = {} if controlled is None else controlled
        """By control (`_key`): what was wrong in it."""
        self.hangs_left = dict(_CONTROL_HANGS)
        """Of its controls, beside `Judge.hangs_left`."""
        self._ends: dict[bytes, Death] = {}
        """By control (`_key`) that ended its process, where none of its owners judges that: how."""
        self._last: tuple[Any, Any] | None = None
        """The case of the control that was run last, and its trace."""
        self.errors: list[Exception] = []
        """Of the suite itself, where it looked for causes: the first one."""
        self.unattributed = ""
        """How a process ended in a control, where no rule owns that and a case of this rule ended as well."""

    def cause(self, case: Any, violation: Violation) -> Cause | None:
        """What is another rule's to judge and explains the violation; None: it is this rule's own.

        So it is too where the suite fails itself (`errors`): the violation must not be lost.
        """
        if self.rule_named is None or not isinstance(violation, _CONTROLLED):
            return None
        try:
            with noting_errors(self.errors):
                return self._cause(case, violation)
        finally:
            self._last = None
        return None

    def _cause(self, case: Any, violation: Violation) -> Cause | None:
        if isinstance(violation, WrongRefusal):
            cause = self._cause_of_call(case, violation, violation.call)
        elif isinstance(violation, WrongSuccess) or (
            self.rule.uncontrolled and isinstance(violation, WrongOutput)
        ):
            cause = self._cause_of_call(case, violation, "")
        else:
            cause = self._cause_in_controls(case, violation)
        if cause is not None:
            self._note(cause)
        return cause

    def note_in_company(self, case: Any, violation: Violation, others_before: int) -> bool:
        """What ends a process behind other cases that are no one case with it, and has an owner.

        If a plain run shows something after which any process may end, that is the cause, and its owner's
        finding; else it is that of the owner of such deaths. False: that owner is this rule.
        """
        company = self.target.owner_in_company
        if self.rule_named is None:
            return company != self.rule.id
        spoilt = none_on_internal_error(lambda case: self._what_spoils(case, violation), case)
        self._last = None
        is_own = self._is_own(spoilt) if spoilt else company == self.rule.id
        if is_own:
            return False
        self._note(spoilt[0] if spoilt else Cause(self.rule_named(company), case, violation, others_before))
        return True

    def _what_spoils(self, case: Any, violation: Violation) -> Sequence[Cause]:
        """What is wrong in the first control in which something is after which any process may end."""
        spoiling = (each for each in self._controls(case, violation) if each.spoils or each.heap)
        return next(filter(None, (self._fitting(each, violation) for each in spoiling)), ())

    def _note(self, cause: Cause) -> None:
        of_owner = self.causes.setdefault(cause.owner.id, [])
        if len(of_owner) < _MOST_CAUSES and not any(_is_same(cause, known) for known in of_owner):
            of_owner.append(cause)

    def _cause_in_controls(self, case: Any, violation: Violation) -> Cause | None:
        """What is wrong in the first control in which something is; None: the case is this rule's own."""
        is_hung = isinstance(violation, Hung)
        controls = list(self._controls(case, violation))
        for control in self._known_first(controls):
            # Of what spoils all there may be something left to learn in the others.
            if is_hung and not control.spoils and self._too_many_hung(control):
                return self._known_hang(violation)
            if causes := self._fitting(control, violation):
                if not self._is_own(causes):
                    return causes[0]
                # One that was passed over may be wrong as well, and it is plainer.
                before = (self._fitting(each, violation) for each in controls[: controls.index(control)])
                plainest = next(filter(None, before), causes)
                return None if self._is_own(plainest) else plainest[0]
        if isinstance(violation, Crashed | Hung) and not self.unattributed:
            ends = filter(None, (self._ends.get(_key(each)) for each in controls))
            same = (each.text for each in ends if is_in_same_call(died(each), violation))
            self.unattributed = next(same, "")
        return None

    def _is_own(self, causes: Sequence[Cause]) -> bool:
        """Whether the rule is among the owners of what is wrong."""
        return any(cause.owner.id == self.rule.id for cause in causes)

    def _known_first(self, controls: Sequence[Control]) -> Sequence[Control]:
        """A control that is known to be wrong, behind those before it in which this rule may own something.

        A target that is wrong in every case would have all controls before it run for each case.
        """
        known = next((at for at, each in enumerate(controls) if self.controlled.get(_key(each))), 0)
        own = [each for each in controls[:known] if self.rule.id in each.judges]
        return [*own, *controls[known:], *(each for each in controls[:known] if each not in own)]

    def _fitting(self, control: Control, violation: Violation) -> Sequence[Cause]:
        """What is wrong in a control, as far as it may be why the case is."""
        died = isinstance(violation, Crashed | Hung) and not control.spoils
        causes = [
            cause
            for cause in self._wrong(control)
            if control.heap or isinstance(cause.violation, Crashed | Hung) is died
        ]
        if not control.owners:
            causes = [cause for cause in causes if call_of(cause.violation) == call_of(violation)]
        return causes

    def _cause_of_call(self, case: Any, violation: Violation, call: str) -> Cause | None:
        """What is wrong first, if this call fails in a control too, without any mistake; or all is spoilt.

        ``call``: what failed; empty where a control tells only that all is spoilt (`Rule.uncontrolled`).
        """
        controls = list(self._controls(case, violation))
        if not call and not any(self._wrong(control) for control in controls if control.spoils):
            return None  # before the others are run, which only tell what is wrong first
        first: Cause | None = None
        for control in controls:
            causes = self._wrong(control)
            if self._is_own(causes):
                return None
            first = first or next(iter(causes), None)
            failed = (cause.violation for cause in causes if isinstance(cause.violation, FailedCall))
            is_spoilt = control.spoils and causes
            if first and (is_spoilt or (call and any(each.call == call for each in failed))):
                return first
        return None

    def _controls(self, case: Any, violation: Violation) -> Iterator[Control]:
        """Those that may explain what was seen."""
        controls = self.target.controls(case, died=isinstance(violation, Crashed | Hung))
        call = call_of(violation)
        fit = (
            control
            for control in controls
            if isinstance(violation, control.explains) and not (call and control.within not in ("", call))
        )
        return first_and_last(fit, MOST_CONTROLS - _LAST_CONTROLS, _LAST_CONTROLS)

    def _known_hang(self, violation: Violation) -> Cause | None:
        """Where no control can be run any more: another rule's hang in the same call, if one was shown."""
        known = itertools.chain.from_iterable(self.causes.values())
        hangs = (each for each in known if isinstance(each.violation, Hung))
        return next((each for each in hangs if is_in_same_call(each.violation, violation)), None)

    def _too_many_hung(self, control: Control) -> bool:
        """Whether the control would have to be run, and so many have hung that none is any more."""
        return self.hangs_left[control.spoils] <= 0 and _key(control) not in self.controlled

    def _wrong(self, control: Control) -> Sequence[Cause]:
        """What each owner of the control finds wrong in it."""
        if self._presumes_too_much(control):
            return ()
        if self._too_many_hung(control):
            return ()
        key = _key(control)
        if key not in self.controlled:
            self.controlled[key] = none_on_internal_error(self._judged_by_owners, control) or ()
        return self.controlled[key]

    def _presumes_too_much(self, control: Control) -> bool:
        """Whether something is wrong in what the control presumes, or in what that one presumes in turn."""
        plainer = control.presumes
        return plainer is not None and (self._presumes_too_much(plainer) or bool(self._wrong(plainer)))

    def _judged_by_owners(self, control: Control) -> Sequence[Cause]:
        if self.rule_named is None or self.target.unfit(control.case):
            return ()
        # Controls with owners of their own may follow one another with the same case.
        if self._last is None or self._last[0] != control.case:
            self._last = None  # a trace may be large, and two are not held
            self._last = (control.case, self.target.run(control.case))
            self.hangs_left[control.spoils] -= _has_hung(self._last[1])
        _, trace = self._last
        if trace.death is not None and trace.death.lost:
            return ()  # it is the case before the control that the target was lost by
        causes = []
        for owner in map(self.rule_named, control.owners_of(trace.death)):
            # An owner for whose check the control was not made may fail itself: it keeps no other quiet.
            found = none_on_internal_error(functools.partial(checked, owner, control.case), trace)
            if isinstance(found, control.shown):
                causes.append(Cause(owner, control.case, found))
        if trace.death is not None and not control.owners_of(trace.death):
            self._ends[_key(control)] = trace.death
        return causes


def _has_hung(trace: TraceLike) -> bool:
    return trace.death is not None and trace.death.kind == "hang"


def _is_same(one: Cause, other: Cause) -> bool:
    """Whether two causes of one owner are one finding: what the words say, in the same call or operators."""
    same_kind = type(one.violation) is type(other.violation)
    return same_kind and _mark(one) == _mark(other)


def _mark(cause: Cause) -> Fingerprint:
    return traits(cause.case, cause.violation).fingerprint.at_any_rank()


def call_of(violation: Violation) -> str:
    """What was at work in a death; of a kernel the callback, since which nodes it has depends on the case."""
    return violation.evidence.during.partition(" kernel ")[0]


def first_and_last(items: Iterator[ResultT], first: int, last: int) -> Iterator[ResultT]:
    """So many items from the beginning, then at most so many from the end of the rest."""
    yield from itertools.islice(items, first)
    yield from collections.deque(items, maxlen=last)


def is_in_same_call(one: Violation, other: Violation) -> bool:
    """Whether two processes ended in one call.

    Also where one was seen from outside, or no call was: of some interpreters none are noted.
    """
    calls = {call_of(one), call_of(other)}
    return len(calls) == 1 or any(not call or call.startswith(_OUTER) for call in calls)


def _key(control: Control) -> bytes:
    """Of a case that several rules may own at several places in a list, each has its own result."""
    return msgspec.msgpack.encode((control.case, control.owners, control.shown.__name__))


def traits(case: Any, violation: Violation) -> Traits:
    """By which the violation is told from others."""
    return traits_of_data(msgspec.to_builtins(case), violation)


def traits_of_data(data: Any, violation: Violation) -> Traits:
    """The same, of a case that is builtins."""
    return traits_of(violation.seen, violation.where, violation.evidence, data)
