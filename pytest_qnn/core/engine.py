"""Judge one rule on one target: the only loop of the project.

    strategy -> Case -> target.run -> Trace -> rule.check -> Verdict

The cases are drawn one after another (`pytest_qnn.core.search`) and run, several to a process where they run
in children, until one breaks the rule. That one is made smaller by smaller draws: data to data, whatever
process the target runs in, so crashes and hangs shrink as failures do. From the case that they leave, whole
steps and nodes are then removed (`Target.smaller`) until none can be; and the smallest case is run again, to
tell a failure from a flaky result.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import gc
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from pytest_qnn.core import activity
from pytest_qnn.core.fingerprint import Fingerprint, Traits, fits, traits_of
from pytest_qnn.core.known_failures import Expectations, KnownFailure
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.rule import NothingToJudge, Rule
from pytest_qnn.core.search import Search
from pytest_qnn.core.target import Control, Death, Target, TargetLost, TraceLike
from pytest_qnn.core.verdict import (
    WORST_FIRST,
    Crashed,
    Divergence,
    Examined,
    FailedCall,
    Finding,
    Further,
    Hung,
    Measured,
    Outcome,
    Retained,
    Unsupported,
    Verdict,
    Violation,
    WrongOutput,
    WrongRefusal,
    WrongSuccess,
)

CaseT = TypeVar("CaseT")
TraceT = TypeVar("TraceT", bound=TraceLike)
ResultT = TypeVar("ResultT")

_UNSUPPORTED_CASES = 5
"""Cases that prove that the target lacks support, after which a rule that examined nothing is given up."""

_CHANCES = 20
"""Runs in which a case must show alone once more what it has shown in company, where that is chance."""

_KEPT = 4 << 20
"""Bytes of traces that are kept for the search behind a failure."""

FRESH_RUNS = 2
"""Fresh processes in which a measured finding must be reproduced.

As long as the cache of glibc was counted, one case in 60 failed on a delegate that leaks nothing, and so one
run in 4 of a rule with 40 examples had a finding. Were fresh processes no better, one in 14,400 would.
"""


_COMPANY = 30
"""Cases in one child. (A fork per case took 9.6 ms of processor time on a native plugin, ten cases to a fork
2.3 ms a case; a C backend 15.1 and 5.3 ms.)"""
_FIRST_COMPANIES = (1, 1, _UNSUPPORTED_CASES - 2)
"""Each of the first three cases begins a process, for faults that show only in the first thing that one does;
and after these companies a rule is given up whose every case was unsupported."""
_DRAWS = 1 / 3
"""Of the budget after the first failure: what smaller draws may use."""


MOST_CONTROLS = 700
"""Controls of one case: of a graph of 60 nodes each by itself, in three forms, and the whole in others."""
_LAST_CONTROLS = 50
"""Of those: where there are more, these are the last ones, which are about the whole case."""
_CONTROL_HANGS = 3
"""Controls of one rule that may hang. They have a budget of their own: without a control, a hang that any
case meets is the rule's own."""
_MOST_SEARCHES = 12
"""Searches of one rule: the first, and one around each cause that was found."""
_FEW_SEARCHES = 6
"""The same of `blame`: enough to leave one operator's two types out, each at one rank and then at all."""


_MOST_FURTHER = 9
"""Findings of a rule beside its first."""
_FURTHER_SHARE = 1 / 8
"""Of the cases of the budget of shrinking, for the first of them."""
_NEXT_SHARE = 0.7
"""Of the share of the one before, for the next: all of them together have two fifths of the budget. With an
eighth for each, IF-10 took twice as long on libQnnHtp, where a case takes half a second of processor time."""
_OUTER = "Interpreter."
"""How calls begin in which those of a target are nested."""
_COLLECTION_INTERVAL = 10.0
"""Seconds of processor time between full collections, among all objects, of which pytest's process has some
300,000: on a machine that is busy with other things, seconds of the clock would have more of them."""


RuleNamed = Callable[[str], Rule[Any, Any, Any]]
"""The rule with an id."""
ExpectedOf = Callable[[str], Expectations]
"""What is expected of the rule with an id."""


def nothing_expected(rule_id: str) -> Expectations:
    """Of a run without a file of known failures."""
    del rule_id
    return Expectations()


class Cause(NamedTuple):
    """What is wrong in a plain case, and the rule that owns it."""

    owner: Rule[Any, Any, Any]
    case: Any
    violation: Violation


class InternalError(Exception):
    """The suite itself failed in a case: a defect of this project, raised from what was raised there.

    Args:
        case: the smallest in which it does.

    """

    def __init__(self, case: Any) -> None:
        super().__init__()
        self.case = case


class UnfitAnswerError(InternalError):
    """A rule's check failed itself on what another process answered: its parts do not fit, or the check.

    A target shares that process, and may write what it likes: nobody can tell which of the two it was.
    """


class _Judge:
    """Runs cases, remembers what each gave, and keeps what follows the first failure within its budgets.

    There are three budgets, because three things cost time in different ways:

    1. ``examples`` (`Profile.examples`): cases of the search, up to the first failure. A rule that has
       examined nothing after `_UNSUPPORTED_CASES` proofs of no support ends it early.
    2. ``shrinking`` (`_ShrinkBudget`): cases, and seconds, after the first failure, to make it smaller.
    3. ``hangs_left`` (`Profile.hang_budget`): cases that may hang, before and after the first failure, since
       each takes the whole ``--qnn-timeout``. The last one is kept for `repeat`.

    A case whose result is known is never run again for the search, and costs no budget.
    """

    def __init__(
        self,
        rule: Rule[Any, Any, Any],
        target: Target[Any, Any],
        profile: Profile,
        rule_named: RuleNamed | None = None,
        accepted: Sequence[KnownFailure] = (),
        tried_first: Sequence[Any] = (),
    ) -> None:
        self.rule = rule
        self.target = target
        self.rule_named = rule_named
        self.accepted = accepted
        """Failures of this rule that are expected."""
        self.met: dict[int, KnownFailure] = {}
        """Those of them that were found, by their number."""
        self.passed_over: Sequence[Fingerprint] = ()
        """Where findings of this rule were made before: the search goes on around them."""
        self.tried_first = tried_first
        """Cases of earlier runs, before any that is drawn."""
        self.facts = target.facts
        """What cases are drawn for: of what was learned, what no known cause lies in."""
        self.causes: dict[str, Cause] = {}
        """By the id of its owner: what went wrong in cases of this rule and is another one's to judge."""
        self.searches = _MOST_SEARCHES
        self.last = 0
        """The number of the case that was judged last."""
        self.controlled: dict[bytes, Sequence[Cause]] = {}
        """By control (`_key`): what was wrong in it."""
        self.last_control: tuple[Any, Any] | None = None
        """The case of the control that was run last, and its trace."""
        self.profile = profile
        self.shrinking = _ShrinkBudget(
            profile.shrink_budget(isolated=target.isolated), profile.shrink_seconds
        )
        self.further_share = _FURTHER_SHARE
        """Of the budget, for the judge behind this one's finding (`behind`)."""
        self.hangs_left = profile.hang_budget
        self.control_hangs_left = _CONTROL_HANGS
        self.known: dict[bytes, Violation | None] = {}
        """By encoded case: bytes are small, and the garbage collector does not track them."""
        self.kept: dict[bytes, tuple[Any, list[Any]]] = {}
        """By encoded case: what was carried out and not judged yet."""
        self.examples = 0
        self.only_in_company = 0
        """Cases that broke the rule after others in one process, and neither alone nor joined with them."""
        self.large: set[bytes] = set()
        """Cases, encoded, that gave too much to be judged."""
        self.examined = 0
        self.what = ""
        self.unsupported = ""
        self.no_cases = ""
        """Why there is no case to run."""
        self.unsupported_cases = 0
        self.minimal: tuple[Any, Violation] | None = None
        self.found: Any = None
        """The first case that broke the rule, as it was drawn."""
        self.confirmed: tuple[Any, Violation] | None = None
        """The first measured finding, which was reproduced in fresh processes."""
        self.unexamined_case: Any = None
        """A case in which the rule examined nothing: the smallest, which Hypothesis tries first."""

    def search_around(self, seed: int, *, shrink: bool = True) -> None:
        """`search`, and again around each cause that was found to be another rule's."""
        if self._fails_as_before():
            return
        examples = self.profile.examples(self.rule, isolated=self.target.isolated)
        begin = 0
        for _ in range(self.searches):
            facts = self.facts
            try:
                cases = self.rule.cases(facts)
            except NothingToJudge as nothing:
                self.give_up(nothing)
                return
            drawn = Search(cases, examples, seed, whole=self.profile.whole(self.rule))
            self.search(drawn, begin=begin, shrink=shrink)
            if self.facts is facts or self.minimal is not None:
                return
            # Cases before the one that met the cause are judged, if the rule has looked at something in them.
            begin = self.last if self.examined else 0

    def _fails_as_before(self) -> bool:
        """Run the cases of earlier runs until one breaks the rule.

        In a case of another release the rule may fail itself: what it cannot judge (any more) is passed over.
        """
        for numbered in enumerate(self.tried_first):
            with contextlib.suppress(InternalError):
                if self._first_failure([numbered]) is not None:
                    self.shrinking.start()
                    return True
        return False

    def search(self, cases: Search, *, begin: int = 0, shrink: bool = True) -> None:
        """Run the cases in order until one breaks the rule, then look for a smaller one.

        ``begin``: the number of the first of them that is run.

        Where cases run in children, several run in one child; what breaks the rule there is run again alone,
        and only what it does alone counts: whatever earlier cases left behind cannot be blamed on it. A child
        that died is another matter: then those cases and this one are joined to one, which is judged alone.
        """
        for company in self._companies(itertools.islice(enumerate(cases), begin, None)):
            activity.still()
            facts = self.facts
            failed = self._first_failure(company)
            if failed is not None:
                if not shrink:
                    return
                self.shrinking.start()
                cases.shrink(failed, self._still_fails)
                return
            if self.facts is not facts:
                return  # the cases were drawn for what is known to be wrong
            if not self.examined and self.unsupported_cases >= _UNSUPPORTED_CASES:
                return

    def _companies(self, numbered: Iterator[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
        """The cases in pieces that are run together: one by one in this process, several in a child.

        Once a case broke the rule in company and not alone, all are alone: the target does not bear company.
        """
        sizes = itertools.chain(_FIRST_COMPANIES, itertools.repeat(_COMPANY))
        for planned in sizes:
            # Where nothing was examined yet, a few cases more may prove that there is no support.
            size = _UNSUPPORTED_CASES if self.unsupported_cases and not self.examined else planned
            alone = self.only_in_company or not self.target.isolated
            company = list(itertools.islice(numbered, 1 if alone else min(size, planned)))
            if not company:
                return
            yield company

    def _first_failure(self, company: list[tuple[int, Any]]) -> int | None:
        """Run the cases; the number of the first that broke the rule, which is then `minimal`."""
        new = [(index, case) for index, case in company if msgspec.msgpack.encode(case) not in self.known]
        fit = [(index, case) for index, case in new if not self._unfit(case)]
        traces = self._carried_out([case for _, case in fit])
        together = len(fit) > 1
        for position, (index, case) in enumerate(fit):
            try:
                trace, before = next(traces)
            except TargetLost:
                raise
            except Exception as error:
                raise InternalError(case) from error
            self.examples += 1
            self.last = index
            violation = self._judged(case, trace, before)
            del trace  # it may be large, and is not held while the next one comes
            if isinstance(violation, Measured):
                violation = self._in_fresh_processes(case)  # None: a chance result; the search continues
            facts = self.facts
            violation = self._own(case, violation)
            self.known[msgspec.msgpack.encode(case)] = violation
            if violation is not None:
                self.minimal = (case, violation)
                self.found = case
                if isinstance(violation, Measured):
                    self.confirmed = self.minimal
            if self.minimal is not None:
                self._keep([case for _, case in fit[position + 1 :]], traces)
                return index
            if self.facts is not facts:
                return None
            if together and self.only_in_company:  # the rest of them are alone already
                rest = [[case] for _, case in fit[position + 1 :]]
                traces = itertools.chain.from_iterable(map(self._carried_out, rest))
                together = False
        return None

    def _carried_out(self, cases: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
        """The traces in order, each with the cases that ran in its process before it."""
        kept = [self.kept.pop(msgspec.msgpack.encode(case), None) for case in cases]
        traces = iter(
            self.target.run_all([case for case, there in zip(cases, kept, strict=True) if there is None])
        )
        before: list[Any] = []
        for case, there in zip(cases, kept, strict=True):
            if there is not None:
                yield there
                continue
            trace, alone = next(traces)
            before = [] if alone else before
            yield trace, list(before)
            del trace
            before.append(case)

    def _keep(self, cases: Sequence[Any], traces: Iterator[tuple[Any, list[Any]]]) -> None:
        """What the rest of a company has given, for the search behind what failed in it: it ran already.

        Nothing is looked for behind a hang, nor behind what is measured (`behind`).
        """
        if not self.target.isolated or self.minimal is None or isinstance(self.minimal[1], Hung | Measured):
            return
        # Whatever goes wrong comes again where the case is needed.
        with contextlib.suppress(Exception):
            room = _KEPT
            for case in cases:
                trace, before = next(traces)
                room -= len(msgspec.msgpack.encode(trace))
                if room < 0:
                    return
                self.kept[msgspec.msgpack.encode(case)] = trace, before

    def _joined(self, cases: list[Any]) -> None:
        """Judge as one case those that ran in a child that died, which none of them does alone."""
        case = self.target.joined(cases)
        violation = None if case is None else _none_on_internal_error(self._run, case)
        if isinstance(violation, Crashed | Hung):
            if self._own(case, violation) is not None:
                self.minimal = (case, violation)
        else:
            self.only_in_company += 1

    def _still_fails(self, case: Any) -> bool:
        """Whether the target breaks the rule in the case, in the way in which it did so first.

        A failure does not turn into a crash while it shrinks, nor the other way round.
        """
        violation = _none_on_internal_error(lambda case: self.result(case, share=_DRAWS), case)
        if violation is None or self.minimal is None or type(violation) is not type(self.minimal[1]):
            return False
        self.minimal = (case, violation)
        return True

    def result(self, case: Any, *, share: float = 1.0) -> Violation | None:
        """The known result of the case, or that of running it; None also where no budget is left to run it.

        Args:
            case: the case.
            share: of the budget that may be used. With less than all of it, a failure that is a hang is not
                made smaller: each run costs the whole time of a case, and `reduce` gains more by it.
        """
        key = msgspec.msgpack.encode(case)
        if key not in self.known:
            hung = self.minimal is not None and isinstance(self.minimal[1], Hung)
            if self.hangs_left <= 1 or (hung and share < 1) or not self.shrinking.spend(share):
                return None
            self.examples += 1
            activity.doing("shrinking a finding of" if self.minimal is not None else "judging")
            found = self._run(case)
            if found is not None and self.rule.by_chance and self.minimal is not None:
                found = self._run(case)
            self.known[key] = self._own(case, found)
        return self.known[key]

    def _own(self, case: Any, violation: Violation | None) -> Violation | None:
        """The violation; None where it is known, or a control of the case shows that another rule owns it.

        Only a wrong output, what is left behind, the failure of a call and the death of a process are seen by
        whatever case meets them; any other violation is of what the rule itself looks for. A call that
        succeeds where it must not may have been given another thing than the case says.
        """
        controlled = WrongOutput | WrongRefusal | WrongSuccess | Retained | Crashed | Hung
        if violation is not None and self.is_known(case, violation):
            return None
        if self.rule_named is None or not isinstance(violation, controlled):
            return violation
        if isinstance(violation, WrongRefusal):
            cause = self._cause_of_call(case, violation, violation.call)
        elif isinstance(violation, WrongSuccess) or (
            self.rule.uncontrolled and isinstance(violation, WrongOutput)
        ):
            cause = self._cause_of_call(case, violation, "")
        else:
            cause = self._cause(case, violation)
        self.last_control = None
        if cause is None:
            return violation
        self.causes.setdefault(cause.owner.id, cause)
        self.facts = self.target.around(self.facts, cause.case, _call(cause.violation))
        return None

    def is_known(self, case: Any, violation: Violation) -> bool:
        """Whether the failure is expected. The search then goes on around it, without its kind of node."""
        place = self._place_passed_over(case, violation)
        if place is not None:
            self._go_around(case, violation, place.operators)
            return True
        if not self.accepted:
            return False
        traits = _traits(case, violation)
        for one in self.accepted:
            if one.verdict is violation.outcome and fits(one.fingerprint, traits):
                self.met[one.number] = one
                self._go_around(case, violation, one.fingerprint.operators)
                return True
        return False

    def _place_passed_over(self, case: Any, violation: Violation) -> Fingerprint | None:
        """The place of the finding behind which is searched, if it is there."""
        if not self.passed_over:
            return None
        traits = _traits(case, violation)
        return next((place for place in self.passed_over if fits(place, traits)), None)

    def _go_around(self, case: Any, violation: Violation, operators: tuple[str, ...]) -> None:
        """Draw no further case with these operators, where the facts can say so."""
        wanted = Fingerprint(operators=operators)
        died = isinstance(violation, Crashed | Hung)
        for control in self.target.controls(case, died=died) if operators else ():
            if fits(wanted, _traits(control.case, violation)):
                facts, self.facts = self.facts, self.target.around(self.facts, control.case)
                if self.facts is not facts:
                    return

    def _cause(self, case: Any, violation: Violation) -> Cause | None:
        """What is wrong in the first control in which something is; None: the case is this rule's own."""
        is_hung = isinstance(violation, Hung)
        controls = list(self._controls(case, violation))
        for control in self._known_first(controls):
            if is_hung and self.control_hangs_left <= 0 and _key(control) not in self.controlled:
                return self._known_hang(violation)
            if causes := self._fitting(control, violation):
                if not self._is_own(causes):
                    return causes[0]
                # One that was passed over may be wrong as well, and it is plainer.
                before = (self._fitting(each, violation) for each in controls[: controls.index(control)])
                plainest = next(filter(None, before), causes)
                return None if self._is_own(plainest) else plainest[0]
        return None

    def _is_own(self, causes: Sequence[Cause]) -> bool:
        """Whether the rule is among the owners of what is wrong."""
        return any(cause.owner.id == self.rule.id for cause in causes)

    def _known_first(self, controls: Sequence[Control]) -> Sequence[Control]:
        """A control that is known to be wrong, behind those before it in which this rule may own something.

        A target that is wrong in every case would have all controls before it run for each case.
        """
        known = next((at for at, each in enumerate(controls) if self.controlled.get(_key(each))), 0)
        own = [each for each in controls[:known] if self.rule.id in each.owners]
        return [*own, *controls[known:], *(each for each in controls[:known] if each not in own)]

    def _fitting(self, control: Control, violation: Violation) -> Sequence[Cause]:
        """What is wrong in a control, as far as it may be why the case is."""
        died = isinstance(violation, Crashed | Hung) and not control.spoils
        causes = [
            cause for cause in self._wrong(control) if isinstance(cause.violation, Crashed | Hung) is died
        ]
        if not control.owners:
            causes = [cause for cause in causes if _call(cause.violation) == _call(violation)]
        return causes

    def _cause_of_call(self, case: Any, violation: Violation, call: str) -> Cause | None:
        """What is wrong first, if this call fails in a control too, without any mistake; or all is spoilt.

        ``call``: what failed; empty where a control tells only that all is spoilt (`Rule.uncontrolled`).
        """
        first: Cause | None = None
        for control in self._controls(case, violation):
            causes = self._wrong(control)
            if self._is_own(causes):
                return None
            first = first or next(iter(causes), None)
            failed = (cause.violation for cause in causes if isinstance(cause.violation, FailedCall))
            if first and (control.spoils or (call and any(each.call == call for each in failed))):
                return first
        return None

    def _controls(self, case: Any, violation: Violation) -> Iterator[Control]:
        """Those that may explain what was seen."""
        controls = self.target.controls(case, died=isinstance(violation, Crashed | Hung))
        call = _call(violation)
        fit = (
            control
            for control in controls
            if isinstance(violation, control.explains) and not (call and control.within not in ("", call))
        )
        return first_and_last(fit, MOST_CONTROLS - _LAST_CONTROLS, _LAST_CONTROLS)

    def _known_hang(self, violation: Violation) -> Cause | None:
        """Where no control can be run any more: another rule's hang in the same call, if one was shown."""
        hangs = (known for known in self.causes.values() if isinstance(known.violation, Hung))
        return next((known for known in hangs if _is_in_same_call(known.violation, violation)), None)

    def _wrong(self, control: Control) -> Sequence[Cause]:
        """What each owner of the control finds wrong in it."""
        if control.presumes is not None and self._wrong(control.presumes):
            return ()
        key = _key(control)
        if key not in self.controlled:
            self.controlled[key] = _none_on_internal_error(self._judged_by_owners, control) or ()
        return self.controlled[key]

    def _judged_by_owners(self, control: Control) -> Sequence[Cause]:
        if self.rule_named is None or self.target.unfit(control.case):
            return ()
        # Controls with owners of their own may follow one another with the same case.
        if self.last_control is None or self.last_control[0] != control.case:
            self.last_control = None  # a trace may be large, and two are not held
            self.last_control = (control.case, self.target.run(control.case))
        _, trace = self.last_control
        causes = []
        for owner in map(self.rule_named, control.owners_of(trace.death)):
            # An owner for whose check the control was not made may fail itself: it keeps no other quiet.
            found = _none_on_internal_error(functools.partial(_checked, owner, control.case), trace)
            if isinstance(found, Violation):
                causes.append(Cause(owner, control.case, found))
        self.control_hangs_left -= any(isinstance(cause.violation, Hung) for cause in causes)
        return causes

    def give_up(self, nothing: NothingToJudge) -> None:
        """There is no case that could show anything of the target."""
        if nothing.unsupported:
            self.unsupported = nothing.reason
        else:
            self.no_cases = nothing.reason

    def reduce(self) -> None:
        """Remove steps and nodes from the minimal case until none can be removed; it still fails alike."""
        shrinking = self.minimal is not None
        while shrinking and self.minimal is not None:
            shrinking = False
            case, violation = self.minimal
            for candidate in self.target.smaller(case, deadly=isinstance(violation, Crashed | Hung)):
                found = _none_on_internal_error(self.result, candidate)
                if found is not None and type(found) is type(violation):
                    self.minimal = (candidate, found)
                    shrinking = True
                    break

    def locate(self) -> None:
        """Find the node at which a wrong number first appears, by examining the minimal case."""
        if self.minimal is None:
            return
        case, end = self.minimal
        if not isinstance(end, Divergence) or end.is_first:
            return
        for candidate in self.target.revealing(case):
            found = _none_on_internal_error(self.result, candidate)
            if isinstance(found, Divergence) and (found.is_first or found.node < end.node):
                self.minimal = (candidate, found)
                return

    def confirm(self) -> None:
        """Go back to the first measured finding where the reduced one is not reproduced.

        Smaller cases may have failed by chance: of those, the reduction chooses the ones that did.
        """
        if self.minimal is None or self.confirmed is None or self.minimal[0] == self.confirmed[0]:
            return
        again = _none_on_internal_error(self._in_fresh_processes, self.minimal[0])
        if not isinstance(again, Measured):
            self.minimal = self.confirmed

    def _in_fresh_processes(self, case: Any) -> Violation | None:
        """What a measured finding is where some fresh processes carry the case out, each alone.

        `Measured`: each measures so too. Another violation: the first that broke the rule in another way, as
        by a crash. None: one of them did not break it.

        They are used with every sandbox mode: with ``--qnn-sandbox off`` a case is measured in a process
        that has run others before, and with glibc's cache of freed blocks. For a finding, that is not enough.
        """
        violation: Violation | None = None
        for _ in range(FRESH_RUNS):
            violation = self._run(case, self.target.run_fresh)
            if not isinstance(violation, Measured):
                break
        return violation

    def behind(self) -> _Judge | None:
        """A judge that goes on behind the finding, and passes over what is wrong in the same place.

        The place is the call; of a delegate's wrong numbers and deaths the operators, too. Nothing is looked
        for behind a hang, each further one of which takes the whole time of a case, or behind what is
        measured, which is in no place. What was learned so far is kept: no case is run twice.
        """
        if self.minimal is None or isinstance(self.minimal[1], Hung | Measured):
            return None
        case, violation = self.minimal
        mark = _traits(case, violation).fingerprint
        operators = mark.operators if isinstance(violation, WrongOutput | Crashed) else ()
        if not (mark.call or operators):
            return None
        place = Fingerprint(call=mark.call, operators=operators)
        profile = dataclasses.replace(self.profile, repeats=1)
        other = _Judge(self.rule, self.target, profile, self.rule_named, self.accepted)
        other.passed_over = (*self.passed_over, place)
        other.met, other.causes, other.controlled = self.met, self.causes, self.controlled
        other.kept = self.kept
        other.facts, other.hangs_left = self.facts, self.hangs_left
        other.control_hangs_left = self.control_hangs_left
        # Few cases, but all of the seconds: otherwise it would depend on load how small a case becomes.
        other.further_share = self.further_share * _NEXT_SHARE
        cases = int(self.profile.shrink_budget(isolated=self.target.isolated) * self.further_share)
        other.shrinking = _ShrinkBudget(cases, self.profile.shrink_seconds)
        # What was wrong in the same place is no failure there; what was wrong elsewhere may be found again.
        other.known = {
            key: None
            for key, found in self.known.items()
            if found is None or fits(place, _traits_of_data(msgspec.msgpack.decode(key), found))
        }
        return other

    def repeat(self) -> str:
        """Run the minimal case again: how often it failed, if it does not always; else empty.

        Raises:
            InternalError: the suite failed where it runs the case; what it saw of the case before is worth
                no more.
        """
        if self.minimal is None:
            return ""
        case, violation = self.minimal
        times = self.profile.repeats
        if isinstance(violation, Hung):
            # Each run costs the whole time of a case. Where it was made smaller, the larger one has hung too.
            times = 1 if case == self.found else 0
        try:
            again = [self._run(case) for _ in range(times)]
        except TargetLost:
            return ""  # nothing can be run any more, which is no doubt about what was seen
        failed = 1 + sum(found is not None for found in again)
        return "" if failed == 1 + times else f"failed {failed} of {1 + times} runs"

    def _unfit(self, case: Any) -> bool:
        """Whether the case cannot be carried out on the target, or would show nothing but what is known."""
        unfit = self.target.unfit(case) or self._foreseen(case)
        if unfit:
            self.unsupported = unfit
            self.unsupported_cases += 1
        return bool(unfit)

    def _foreseen(self, case: Any) -> str:
        """Why the rule is unsupported, whatever the case does; empty: it is to be carried out."""
        trace = self.target.foreseen(case)
        if trace is None:
            return ""
        try:
            self.rule.check(case, trace)
        except Unsupported as unsupported:
            return unsupported.reason
        except Exception:
            return ""  # the rule looks for more than is foreseen
        return ""

    def _run(self, case: Any, run: Callable[[Any], TraceLike] | None = None) -> Violation | None:
        """Run the case, alone, and judge its trace."""
        if self._unfit(case):
            return None
        try:
            trace = (run or self.target.run)(case)
        except TargetLost:
            raise
        except Exception as error:
            raise InternalError(case) from error
        return self._judged(case, trace)

    def _judged(self, case: Any, trace: TraceLike, before: Sequence[Any] = ()) -> Violation | None:
        """Judge the trace; only what is learned of the target is remembered.

        Args:
            case: the case.
            trace: what it gave.
            before: the cases that were carried out before in its process, if that is a child.
        """
        try:
            violation = self._violation(case, trace)
        except InternalError:
            if not before:
                raise
            return self._run(case)
        if before and violation is not None:
            if self._place_passed_over(case, violation) is not None:
                return violation  # as it would be alone; what it means, `_own` says
            in_company = violation
            try:
                violation = self._again(case)
            except TargetLost:
                return in_company
            if violation is None and isinstance(in_company, Crashed | Hung):
                self._joined([*before, case])
            elif violation is None:
                self.only_in_company += 1
        elif isinstance(violation, Hung):
            self.hangs_left -= 1
        return violation

    def _again(self, case: Any) -> Violation | None:
        """What the case does alone that broke the rule in company; where that is chance it has many."""
        for _ in range(_CHANCES if self.rule.by_chance else 1):
            if (violation := self._run(case)) is not None:
                return violation
        return None

    def _violation(self, case: Any, trace: TraceLike) -> Violation | None:
        if trace.death is not None and trace.death.kind == "large":
            # Not unsupported: then a target that only says so of its process would hide what it does.
            self.no_cases = trace.death.detail
            self.large.add(msgspec.msgpack.encode(case))
            return None
        if trace.death is not None:
            return died(trace.death)
        try:
            examined = _examined(self.rule, case, trace)
        except Violation as violation:
            return violation.with_traceback(None)
        except Unsupported as unsupported:
            self.unsupported = unsupported.reason
            self.unsupported_cases += unsupported.final
            return None
        except Exception as error:
            raise (UnfitAnswerError if self.target.isolated else InternalError)(case) from error
        if not examined.count and (missing := self.target.missing(trace)):
            self.unsupported = missing
        elif not examined.count and self.unexamined_case is None:
            self.unexamined_case = case
        self.examined += examined.count
        self.what = examined.what
        return None


class _ShrinkBudget:
    """Cases that may be run after the first failure, and the seconds in which.

    Smaller draws may use the first `_DRAWS` of both; `_Judge.reduce`, which gains more with each run, the
    rest, and what they left.
    """

    def __init__(self, cases: int, seconds: float) -> None:
        self._cases = cases
        self._seconds = seconds
        self._spent = 0
        self._started = 0.0

    def start(self) -> None:
        """The first failure was found now."""
        self._started = time.monotonic()

    def spend(self, share: float) -> bool:
        """Whether one more case may be run within a share of the budget; it is then spent."""
        elapsed = time.monotonic() - self._started
        left = self._spent < self._cases * share and elapsed < self._seconds * share
        self._spent += left
        return left


def _traits(case: Any, violation: Violation) -> Traits:
    return _traits_of_data(msgspec.to_builtins(case), violation)


def _traits_of_data(data: Any, violation: Violation) -> Traits:
    return traits_of(violation.seen, violation.where, violation.evidence, data)


def _call(violation: Violation) -> str:
    """What was at work in a death; of a kernel the callback, since which nodes it has depends on the case."""
    return violation.evidence.during.partition(" kernel ")[0]


def first_and_last(items: Iterator[ResultT], first: int, last: int) -> Iterator[ResultT]:
    """So many items from the beginning, then at most so many from the end of the rest."""
    yield from itertools.islice(items, first)
    yield from collections.deque(items, maxlen=last)


def _is_in_same_call(one: Violation, other: Violation) -> bool:
    """Also where one was seen from outside, or no call was: of some interpreters none are noted."""
    calls = {_call(one), _call(other)}
    return len(calls) == 1 or any(not call or call.startswith(_OUTER) for call in calls)


def _key(control: Control) -> bytes:
    """Of a case that several rules may own at several places in a list, each has its own result."""
    return msgspec.msgpack.encode((control.case, control.owners))


def _none_on_internal_error(judge: Callable[[Any], ResultT | None], case: Any) -> ResultT | None:
    """What ``judge`` gives for the case; None when the suite itself fails in it.

    Once there is a finding, an internal error in a later trial must not lose it: a rule may rely on how its
    own cases are made, and fail in one that a step was removed from.
    """
    try:
        return judge(case)
    except Exception:
        return None


def breaks(rule: Rule[Any, Any, Any], case: Any, trace: TraceLike) -> bool:
    """Whether the trace shows that the target breaks the rule."""
    return isinstance(_checked(rule, case, trace), Violation)


def _checked(rule: Rule[Any, Any, Any], case: Any, trace: TraceLike) -> Violation | Unsupported | Examined:
    """What the rule says of the trace; a death is a violation of every rule."""
    if trace.death is not None and trace.death.kind == "large":
        return Unsupported(trace.death.detail, final=False)
    if trace.death is not None:
        return died(trace.death)
    try:
        return _examined(rule, case, trace)
    except (Violation, Unsupported) as outcome:
        return outcome.with_traceback(None)


def _examined(rule: Rule[Any, Any, Any], case: Any, trace: TraceLike) -> Examined:
    """What the rule's check says. Memory that a target never wrote may hold signalling NaNs.

    Of those numpy warns when it converts them, which ends the check where warnings are errors.
    """
    with np.errstate(invalid="ignore"):
        return rule.check(case, trace)


ANSWER = "an answer"
"""What is expected of a process that hangs."""
AFTER_ALL = "after the last step"
"""Where a process died of its end."""


def died(death: Death) -> Violation:
    """The violation that every rule shares: the process that ran the case did not survive it."""
    left = death.evidence
    during = f"in {left.during}" if left.during else ""
    where = ", ".join(
        filter(None, (during, death.place or (f"step {death.step}" if death.step >= 0 else "")))
    )
    kind = Hung if death.kind == "hang" else Crashed
    expected = ANSWER if kind is Hung else "the call returns, with success or an error"
    if death.late:
        expected, where = "the process ends in good order, whatever is alive", AFTER_ALL
    said = left.said and kind is Crashed and f"; stderr: {left.said}"
    seen = death.detail + (f", {left.fault}" if left.fault else "") + (said or "")
    violation = kind(expected, seen, where)
    violation.evidence = left
    return violation


def judge(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    profile: Profile,
    seed: int,
) -> Verdict:
    """Search for a case in which the target breaks the rule, and say what was found.

    The same rule, target, profile and seed give the same cases. No other rule is asked: what any case may
    show, a wrong operator or a crash, is this rule's finding. `judge_with_owners` asks.

    Raises:
        InternalError: the suite itself failed.
        TargetLost: the target could not be loaded any more before the first case.
    """
    return _judged(_Judge(rule, target, profile), seed)


class Judged(NamedTuple):
    """The verdict on a rule, and those on rules that own what went wrong in its cases."""

    verdict: Verdict
    handed_over: tuple[Verdict, ...]


class Blamed(NamedTuple):
    """The verdict on a rule, and the ids of rules that own what went wrong in its cases."""

    verdict: Verdict
    owners: tuple[str, ...]


def judge_with_owners(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    profile: Profile,
    seed: int,
    rule_named: RuleNamed,
    expected_of: ExpectedOf = nothing_expected,
    tried_first: Sequence[Any] = (),
) -> Judged:
    """`judge`, but what is wrong in a plain case already (`Target.controls`) is its owner's finding.

    Args:
        rule: to be judged.
        target: under judgement.
        profile: of the search.
        seed: of the cases.
        rule_named: the rule with an id.
        expected_of: failures that are expected of the rule with an id.
        tried_first: cases of earlier runs.

    """
    expected = expected_of(rule.id)
    run = _Judge(rule, target, profile, rule_named, expected.accepted, tried_first)
    verdict = _judged(run, seed)
    verdict = _as_expected(run, expected, _with_further(verdict, _further(run, seed)))
    handed_over = tuple(
        _owners_verdict(run, cause, seed, expected_of(cause.owner.id)) for cause in run.causes.values()
    )
    return Judged(verdict, handed_over)


def _as_expected(run: _Judge, expected: Expectations, verdict: Verdict) -> Verdict:
    """The verdict, with what is expected of the rule and was not found, or is expected no more."""
    if run.minimal is not None and not expected.expired:
        return verdict  # the search ended there: it may not have come to the others
    absent = [one for one in expected.accepted if one.number not in run.met and not one.flaky]
    if verdict.outcome is Outcome.INCONCLUSIVE and not verdict.is_blocked:
        same = [one for one in absent if one.verdict is Outcome.INCONCLUSIVE]
        absent = [one for one in absent if one not in same]
        if same:
            verdict = msgspec.structs.replace(verdict, known=tuple(each.text for each in same), finding=None)
    told = [f"entry {one.number} of the known failures is expired" for one in expected.expired]
    if run.minimal is None:
        told += [f"entry {one.number} of the known failures was not found" for one in absent]
    return msgspec.structs.replace(verdict, unexpected="; ".join(told)) if told else verdict


def _judged(run: _Judge, seed: int) -> Verdict:
    started = time.perf_counter()
    activity.doing("judging")
    with _rare_collections():
        run.search_around(seed)
        run.reduce()
        run.locate()
        run.confirm()
        flaky = run.repeat()
    return _verdict(run, seed, flaky, time.perf_counter() - started)


def _further(run: _Judge, seed: int) -> Iterator[Further]:
    """What else breaks the rule, in other calls or with other operators: one finding does not hide others."""
    judge: _Judge | None = run
    for _ in range(_MOST_FURTHER):
        judge = judge.behind() if judge is not None else None
        if judge is None:
            return
        with _rare_collections():
            try:
                judge.search_around(seed)
                judge.reduce()
                again = judge.repeat()
            except (InternalError, TargetLost):
                return  # the finding that there is must not be lost
        run.examples += judge.examples
        if judge.minimal is None:
            return
        case, violation = judge.minimal
        if not again:  # else it is flaky: of the first finding that is said
            yield Further(violation.outcome, _found(case, violation))


def _with_further(verdict: Verdict, further: Iterable[Further]) -> Verdict:
    """The verdict with what was found beside its finding; the worst of them is the verdict's."""
    found = tuple(further)
    if verdict.finding is None or not found:
        return verdict
    own = Further(verdict.outcome, verdict.finding)
    first, *rest = sorted((own, *found), key=lambda each: WORST_FIRST.index(each.outcome.value))
    flaky = verdict.flaky if first is own else ""
    return msgspec.structs.replace(
        verdict, outcome=first.outcome, finding=first.finding, flaky=flaky, further=tuple(rest)
    )


def _owners_verdict(run: _Judge, cause: Cause, seed: int, expected: Expectations) -> Verdict:
    """The verdict on the rule that owns a cause, its case made smaller; a known one stays as it is."""
    started = time.perf_counter()
    owner = _Judge(cause.owner, run.target, run.profile, accepted=expected.accepted)
    owner.examples = 1
    if not owner.is_known(cause.case, cause.violation):
        owner.minimal = (cause.case, cause.violation)
        owner.found = cause.case
        owner.shrinking.start()
    with _rare_collections():
        owner.reduce()
        owner.locate()
        flaky = owner.repeat()
    verdict = _verdict(owner, seed, flaky, time.perf_counter() - started)
    return msgspec.structs.replace(verdict, found_by=run.rule.id)


def blame(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    profile: Profile,
    seed: int,
    rule_named: RuleNamed,
    controlled: dict[bytes, Sequence[Cause]],
) -> Blamed:
    """`judge_with_owners` with nothing made smaller or repeated, and of the owners their ids only.

    Args:
        rule: to be judged.
        target: under judgement.
        profile: of the search.
        seed: of the cases.
        rule_named: the rule with an id.
        controlled: what was wrong in controls on this target, to which this judgement adds its own. None is
            run twice for several rules: what it gives does not depend on who asks.

    """
    run = _Judge(rule, target, profile, rule_named)
    run.controlled, run.searches = controlled, _FEW_SEARCHES
    started = time.perf_counter()
    with _rare_collections():
        run.search_around(seed, shrink=False)
    return Blamed(_verdict(run, seed, "", time.perf_counter() - started), tuple(run.causes))


@dataclasses.dataclass(frozen=True)
class FirstFailure:
    """The first case of a search that broke the rule."""

    examples: int
    """Cases that were run, this one included."""
    violation: Violation


def first_failure(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    profile: Profile,
    seed: int,
    rule_named: RuleNamed | None = None,
) -> FirstFailure | None:
    """What broke the rule first, and after how many cases; None: nothing did. Nothing is shrunk.

    The cases are those of `judge` with the same arguments, or with ``rule_named`` of `judge_with_owners`.
    """
    run = _Judge(rule, target, profile, rule_named)
    with _rare_collections():
        run.search_around(seed, shrink=False)
    return FirstFailure(run.examples, run.minimal[1]) if run.minimal is not None else None


def judge_case(
    rule: Rule[CaseT, TraceT, Any], target: Target[CaseT, TraceT], case: CaseT
) -> Violation | Unsupported | Examined:
    """Judge exactly one case, without any search (used by replay and tests).

    What is measured must be measured in fresh processes too, as in a search: else their result counts.
    """
    unfit = target.unfit(case)
    if unfit:
        return Unsupported(unfit)
    found = _judged_once(rule, target, case, target.run)
    for _ in range(FRESH_RUNS):
        if isinstance(found, Measured):
            found = _judged_once(rule, target, case, target.run_fresh)
    return found


def _judged_once(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    case: CaseT,
    run: Callable[[CaseT], TraceT],
) -> Violation | Unsupported | Examined:
    with _rare_collections():
        trace = run(case)
    try:
        return _checked(rule, case, trace)
    except Exception as error:
        if target.isolated:
            raise UnfitAnswerError(case) from error
        raise


class _LastCollection:
    """When this process's last full collection was, in seconds of `time.process_time`."""

    last = 0.0

    @classmethod
    def collect_if_due(cls) -> None:
        """Collect, at most once in `_COLLECTION_INTERVAL`: a full collection takes a tenth of a second."""
        if time.process_time() - cls.last > _COLLECTION_INTERVAL:
            gc.collect()
            cls.last = time.process_time()


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage less often while examples are made, and never among what was there before.

    Each example leaves some thousand objects, few of them in cycles: at Python's default thresholds the
    collector takes a fifteenth of an example, at these hardly anything. A case that measures memory collects
    before each measurement: what pytest and Hypothesis hold is frozen, or most of a leak rule's time goes to
    collections among it.
    """
    # `gc.freeze` moves every tracked object into the permanent generation, garbage included, which is not
    # collected before `gc.unfreeze`: so a full collection comes first, where the last one was long ago.
    # https://docs.python.org/3/library/gc.html#gc.freeze
    _LastCollection.collect_if_due()
    thresholds = gc.get_threshold()
    frozen_before = gc.get_freeze_count()
    gc.set_threshold(20_000, 20, 20)
    gc.freeze()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen_before:  # else another plugin froze objects too, and `gc.unfreeze` knows no owners
            gc.unfreeze()


def _outcome(run: _Judge) -> tuple[Outcome, str]:
    """The outcome, and the reason where there is neither a pass nor a finding."""
    if run.minimal is not None:
        return run.minimal[1].outcome, ""
    if run.met:
        first = next(iter(run.met.values()))
        return first.verdict, f"known: {first.text}"
    if run.examined:
        return Outcome.PASS, ""
    # A rule about what the target has not is unsupported, whatever went wrong in its cases.
    denied = run.target.denies(run.rule.gate) if run.causes else ""
    if run.causes and not denied:
        return Outcome.INCONCLUSIVE, f"blocked by {', '.join(sorted(run.causes))}"
    if unsupported := denied or run.unsupported:
        return Outcome.UNSUPPORTED, unsupported
    return (
        Outcome.INCONCLUSIVE,
        run.no_cases or f"{run.examples} cases were run and none of them let the rule look at anything",
    )


def _examined_and_wrong(run: _Judge) -> int:
    """1 for what was examined last and found wrong: a check that raises has counted nothing.

    Where the process died, there was nothing to examine.
    """
    return int(run.minimal is not None and not isinstance(run.minimal[1], Crashed | Hung))


def _finding(run: _Judge, outcome: Outcome, reason: str) -> Finding | None:
    """What can be judged again: a violation, or that a case showed nothing."""
    if run.minimal is not None:
        return _found(*run.minimal)
    if outcome is Outcome.INCONCLUSIVE and run.unexamined_case is not None and not run.met:
        wanted = "a case that lets the rule look at something"
        return Finding(expected=wanted, seen=reason, case=msgspec.json.encode(run.unexamined_case).decode())
    return None


def _found(case: Any, violation: Violation) -> Finding:
    """The violation as data, with its case."""
    return Finding(
        expected=violation.expected,
        seen=violation.seen,
        where=violation.where,
        picture=violation.picture,
        evidence=violation.evidence,
        case=msgspec.json.encode(case).decode(),
        fingerprint=_traits(case, violation).fingerprint,
    )


def _verdict(run: _Judge, seed: int, flaky: str, seconds: float) -> Verdict:
    rule, target = run.rule, run.target
    outcome, reason = _outcome(run)
    return Verdict(
        rule=rule.id,
        area=rule.area,
        level=rule.level,
        sentence=rule.sentence,
        source=rule.source,
        subject=rule.subject,
        self_check=rule.self_check,
        target=target.spec,
        outcome=outcome,
        examples=run.examples,
        examined=run.examined + _examined_and_wrong(run),
        what=run.what,
        seconds=seconds,
        seed=seed,
        reason=reason,
        finding=_finding(run, outcome, reason),
        flaky=flaky,
        blocked_by=tuple(sorted(run.causes)),
        only_in_company=run.only_in_company,
        note=f"cases that gave too much to be judged: {len(run.large)}" if run.large else "",
        known=tuple(one.text for one in run.met.values()),
    )
