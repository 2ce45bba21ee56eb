"""The search for a case that breaks one rule: cases are drawn, run and judged, and a failure made smaller."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from pytest_qnn.core import activity
from pytest_qnn.core.engine.attribution import Attribution, is_in_same_call, traits, traits_of_data
from pytest_qnn.core.engine.checking import (
    InternalError,
    UnfitAnswerError,
    died,
    examined,
    none_on_internal_error,
    noting_errors,
)
from pytest_qnn.core.engine.scope import Scope
from pytest_qnn.core.fingerprint import Fingerprint
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.rule import NothingToJudge, Rule
from pytest_qnn.core.search import Search
from pytest_qnn.core.target import Target, TargetLost, TraceLike
from pytest_qnn.core.verdict import (
    Crashed,
    Divergence,
    Hung,
    Measured,
    Unsupported,
    Violation,
    WrongOutput,
)

_UNSUPPORTED_CASES = 5
"""Cases that prove that the target lacks support, after which a rule that examined nothing is given up."""
_LAST_HANG = 1
"""Of the budget of hangs: kept for `Judge.repeat`."""
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
_MOST_SEARCHES = 12
"""Searches of one rule: the first, and one around each cause that was found."""
_FURTHER_SHARE = 1 / 8
"""Of the cases of the budget of shrinking, for the first finding beside the first."""
_NEXT_SHARE = 0.7
"""Of the share of the one before, for the next: all of them together have two fifths of the budget. With an
eighth for each, IF-10 took twice as long on libQnnHtp, where a case takes half a second of processor time."""


@dataclasses.dataclass
class Tally:
    """What the cases of a rule have shown, beside violations."""

    examples: int = 0
    """Cases that were run."""
    examined: int = 0
    """Things that the rule has looked at in them."""
    what: str = ""
    """What things."""
    unsupported: str = ""
    """Why the target has not what the rule is about, by the last case that showed so; empty: none did."""
    unsupported_cases: int = 0
    """Cases that prove that it does not."""
    no_cases: str = ""
    """Why there is no case to run, or none whose trace can be judged."""
    only_in_company: int = 0
    """Cases that broke the rule after others in one process, and neither alone nor joined with them."""
    large: set[bytes] = dataclasses.field(default_factory=set)
    """Cases, encoded, that gave too much to be judged."""
    unexamined_case: Any = None
    """The first case in which the rule examined nothing."""

    def add(self, other: Tally) -> None:
        """Add what was seen behind a finding; that search goes on counting what is only in company."""
        self.examples += other.examples
        self.examined += other.examined
        self.only_in_company = other.only_in_company
        self.large |= other.large


class Judge:
    """Runs cases, remembers what each gave, and keeps what follows the first failure within its budgets.

    There are three budgets, because three things cost time in different ways:

    1. `Profile.examples`: cases of the search, up to the first failure. A rule that has
       examined nothing after `_UNSUPPORTED_CASES` proofs of no support ends it early.
    2. ``shrinking`` (`_ShrinkBudget`): cases, and seconds, after the first failure, to make it smaller.
    3. ``hangs_left`` (`Profile.hang_budget`): cases that may hang, before and after the first failure, since
       each takes the whole ``--qnn-timeout``. The last one is kept for `repeat`; where it is the only one
       that is left, the search ends.

    A case whose result is known is never run again for the search, and costs no budget.
    """

    def __init__(
        self,
        rule: Rule[Any, Any, Any],
        target: Target[Any, Any],
        profile: Profile,
        attribution: Attribution | None = None,
        scope: Scope | None = None,
        tried_first: Sequence[Any] = (),
    ) -> None:
        self.rule = rule
        self.target = target
        self.profile = profile
        self.tried_first = tried_first
        """Cases of earlier runs, before any that is drawn."""
        self.attribution = attribution or Attribution(rule, target)
        self.scope = scope or Scope(target)
        self.tally = Tally()
        self.searches = _MOST_SEARCHES
        self.others_before = 0
        """Other cases in the process of the minimal one, which is wrong behind them only."""
        self.keeps_call = False
        """A smaller case must die in the same call: in another one it may be another rule's."""
        self.ended_behind = 0
        """Causes behind the last of which nothing was searched any more; 0: the search came to its end."""
        self.last = 0
        """The number of the case that was judged last."""
        self.shrinking = _ShrinkBudget(
            profile.shrink_budget(isolated=target.isolated), profile.shrink_seconds
        )
        self.further_share = _FURTHER_SHARE
        """Of the budget, for the judge behind this one's finding (`behind`)."""
        self.hangs_left = profile.hang_budget
        self.known: dict[bytes, Violation | None] = {}
        """By encoded case: bytes are small, and the garbage collector does not track them."""
        self.kept: dict[bytes, tuple[Any, list[Any]]] = {}
        """By encoded case: what was carried out and not judged yet."""
        self.minimal: tuple[Any, Violation] | None = None
        self.found: Any = None
        """The first case that broke the rule, as it was drawn."""
        self.deaths: list[tuple[Any, Violation]] = []
        """The first death behind a milder violation: of a smaller case, or of the same one run again."""
        self.is_alone = False
        """The minimal case is the step in which its process ended, and smaller ones were not looked for."""
        self.confirmed: tuple[Any, Violation] | None = None
        """The first measured finding, which was reproduced in fresh processes."""
        self.making_errors: list[Exception] = []
        """Of the suite itself, where it made other cases of one that was seen to fail: the first one."""
        self.further_errors: list[Exception] = []
        """The same where it looked for what else breaks the rule."""
        self.is_cut_off = False
        """What else breaks the rule was not looked for to the end."""

    def search_around(self, seed: int, *, shrink: bool = True) -> None:
        """`search`, and again around each cause that was found to be another rule's."""
        if self._fails_as_before():
            return
        examples = self.profile.examples(self.rule, isolated=self.target.isolated)
        begin, searches = 0, self.searches + len(self.scope.accepted)
        for _ in range(searches):
            facts = self.scope.facts
            try:
                cases = self.rule.cases(facts)
            except NothingToJudge as nothing:
                self.give_up(nothing)
                return
            drawn = Search(cases, examples, seed, whole=self.profile.whole(self.rule))
            self.search(drawn, begin=begin, shrink=shrink)
            if self.scope.facts is facts or self.minimal is not None or self.hung_too_often:
                return
            # Cases before the one that met the cause are judged, if the rule has looked at something in them.
            # In a shorter list the one behind it has another number, and of equal cases none is run again.
            begin = self.last if self.tally.examined and drawn.is_decoded else 0
        self.ended_behind = searches

    def _fails_as_before(self) -> bool:
        """Run the cases of earlier runs until one breaks the rule.

        In a case of another release the rule may fail itself: what it cannot judge (any more) is passed over.
        """
        for numbered in enumerate(self.tried_first):
            with contextlib.suppress(InternalError):
                if self._first_failure([numbered]) is not None:
                    self.shrinking.start()
                    return True
        # Of another target's cases none proves that this one lacks what the rule is about.
        self.tally.unsupported, self.tally.unsupported_cases = "", 0
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
            facts = self.scope.facts
            failed = self._first_failure(company)
            if failed is not None:
                if not shrink:
                    return
                self.shrinking.start()
                # Where nothing is found, it is several cases in one, and no draw.
                if self.found is not None and not self._alone():
                    with noting_errors(self.making_errors):
                        cases.shrink(failed, self._still_fails)
                return
            if self.scope.facts is not facts or self.hung_too_often:
                return  # the cases were drawn for what is known to be wrong, or each may take its whole time
            if not self.tally.examined and self.tally.unsupported_cases >= _UNSUPPORTED_CASES:
                return

    @property
    def errors(self) -> list[Exception]:
        """Of the suite itself behind a violation: where it looked for causes, or for smaller cases."""
        return [*self.attribution.errors, *self.scope.errors, *self.making_errors, *self.further_errors]

    @property
    def hung_too_often(self) -> bool:
        """Whether so many cases have hung that none may any more."""
        return self.hangs_left <= min(_LAST_HANG, self.profile.hang_budget - 1)

    def _companies(self, numbered: Iterator[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
        """The cases in pieces that are run together: one by one in this process, several in a child.

        Once a case broke the rule in company and not alone, all are alone: the target does not bear company.
        """
        sizes = itertools.chain(_FIRST_COMPANIES, itertools.repeat(_COMPANY))
        for planned in sizes:
            # Where nothing was examined yet, a few cases more may prove that there is no support.
            size = _UNSUPPORTED_CASES if self.tally.unsupported_cases and not self.tally.examined else planned
            alone = self.tally.only_in_company or not self.target.isolated
            company = list(itertools.islice(numbered, 1 if alone else min(size, planned)))
            if not company:
                return
            yield company

    def _first_failure(self, company: list[tuple[int, Any]]) -> int | None:
        """Run the cases; the number of the first that broke the rule, which is then `minimal`."""
        first: dict[bytes, tuple[int, Any]] = {}
        for index, case in company:
            first.setdefault(msgspec.msgpack.encode(case), (index, case))
        new = (each for key, each in first.items() if key not in self.known)
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
            self.tally.examples += 1
            self.last = index
            violation = self._judged(case, trace, before)
            del trace  # it may be large, and is not held while the next one comes
            if isinstance(violation, Measured):
                violation = self._in_fresh_processes(case)  # None: a chance result; the search continues
            facts = self.scope.facts
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
            if self.scope.facts is not facts or self.hung_too_often:
                return None
            if together and self.tally.only_in_company:  # the rest of them are alone already
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

        Not so behind a death, where the rest begins in another process when it is asked for, and where all
        cases are alone. Nothing is looked for behind a hang, nor behind what is measured (`behind`).
        """
        ended = Crashed | Hung | Measured
        alone = not self.target.isolated or self.tally.only_in_company
        if alone or self.minimal is None or isinstance(self.minimal[1], ended):
            return
        # Whatever goes wrong comes again where the case is needed.
        with contextlib.suppress(Exception):
            room = _KEPT
            for case in cases:
                trace, before = next(traces)
                if trace.death is not None:
                    return
                room -= len(msgspec.msgpack.encode(trace))
                if room < 0:
                    return
                self.kept[msgspec.msgpack.encode(case)] = trace, before

    def _joined(self, before: Sequence[Any], last: Any) -> None:
        """Judge as one case those that ran in a child that died, which the last of them does not alone.

        Where that is too much for one case it is some of them with the last, the latest first.
        """
        waiting = [before]
        while waiting:
            some = waiting.pop()
            case, violation = None, None
            with noting_errors(self.making_errors):
                case = self.target.joined([*some, last])
            if case is None and len(some) > 1:
                waiting += [some[: len(some) // 2], some[len(some) // 2 :]]
            with contextlib.suppress(InternalError):
                violation = None if case is None else self._run_again(case)
            if isinstance(violation, Crashed | Hung):
                if self._own(case, violation) is not None:
                    self.minimal = (case, violation)
                return
        self.tally.only_in_company += 1
        self._together_again(before, last)

    def _together_again(self, before: Sequence[Any], last: Any) -> None:
        """Hand a death over that comes again where the same cases are carried out together once more."""
        if not self.target.owner_in_company or self.hangs_left <= 1:
            return
        together = [*before, last]
        for case, (trace, ran) in zip(together, self._carried_out(together), strict=False):
            if trace.death is None or trace.death.kind == "large":
                continue
            if trace.death.lost:
                raise TargetLost(trace.death.detail)
            violation = died(trace.death)
            self.hangs_left -= isinstance(violation, Hung)
            if not ran or self.attribution.note_in_company(case, violation, len(ran)):
                return
            if not self.scope.is_known(case, violation):
                self.minimal, self.others_before = (case, violation), len(ran)
            return

    def _still_fails(self, case: Any) -> bool:
        """Whether the target breaks the rule in the case, in the way in which it did so first.

        A failure does not turn into a crash while it shrinks, nor the other way round.
        """
        violation = none_on_internal_error(lambda case: self.result(case, share=_DRAWS), case)
        if violation is None or self.minimal is None or not self._is_alike(violation, self.minimal[1]):
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
            self.tally.examples += 1
            activity.doing("shrinking a finding of" if self.minimal is not None else "judging")
            found = self._own(case, self._run_again(case))
            self._note_death(case, found)
            if found is not None and self.rule.by_chance and self.minimal is not None:
                found = self._own(case, self._run_again(case))
                self._note_death(case, found)
            self.known[key] = found
        return self.known[key]

    def _is_alike(self, violation: Violation, other: Violation) -> bool:
        """Whether it is the same kind of finding, and where that matters in the same call."""
        if type(violation) is not type(other):
            return False
        died = isinstance(violation, Crashed | Hung)
        return not (died and self.keeps_call) or is_in_same_call(violation, other)

    def _note_death(self, case: Any, violation: Violation | None) -> None:
        """Keep the first death that comes behind a violation that is none, so that it is not lost."""
        death = Crashed | Hung
        milder = self.minimal is not None and not isinstance(self.minimal[1], death)
        if milder and isinstance(violation, death) and not self.deaths:
            self.deaths.append((case, violation))

    def _own(self, case: Any, violation: Violation | None) -> Violation | None:
        """The violation; None where it is known, or a control of the case shows that another rule owns it."""
        if violation is None or self.scope.is_known(case, violation):
            return None
        cause = self.attribution.cause(case, violation)
        if cause is None:
            return violation
        self.scope.leave_out(cause)
        return None

    def give_up(self, nothing: NothingToJudge) -> None:
        """There is no case that could show anything of the target."""
        if nothing.unsupported:
            self.tally.unsupported = nothing.reason
        else:
            self.tally.no_cases = nothing.reason

    def reduce(self) -> None:
        """Remove steps and nodes from the minimal case until none can be removed; it still fails alike."""
        # Behind others only, no case fails alone.
        shrinking = self.minimal is not None and not self.others_before and not self._alone()
        while shrinking and self.minimal is not None:
            shrinking = False
            case, violation = self.minimal
            with noting_errors(self.making_errors):
                for candidate in self.target.smaller(case, deadly=isinstance(violation, Crashed | Hung)):
                    found = none_on_internal_error(self.result, candidate)
                    if found is not None and self._is_alike(found, violation):
                        self.minimal = (candidate, found)
                        shrinking = True
                        break

    def _alone(self) -> bool:
        """Whether the minimal case is the step in which its process ended, alone, as far as the target knows.

        Then no smaller case is there to be tried: each death costs a process, and its evidence.
        """
        if self.minimal is None or not isinstance(self.minimal[1], Crashed | Hung):
            return False
        case, violation = self.minimal
        with noting_errors(self.making_errors):
            alone = self.target.alone(case, violation.step)
            if alone is not None and alone != case:
                found = none_on_internal_error(self.result, alone)
                alike = found is not None and self._is_alike(found, violation)
                if found is None or not alike or not is_in_same_call(found, violation):
                    return False
                self.minimal = (alone, found)
            self.is_alone = alone is not None
        return self.is_alone

    def locate(self) -> None:
        """Find the node at which a wrong number first appears, by examining the minimal case."""
        if self.minimal is None:
            return
        case, end = self.minimal
        if not isinstance(end, Divergence) or end.is_first:
            return
        with noting_errors(self.making_errors):
            for candidate in self.target.revealing(case):
                found = none_on_internal_error(self.result, candidate)
                if isinstance(found, Divergence) and (found.is_first or found.node < end.node):
                    self.minimal = (candidate, found)
                    return

    def confirm(self) -> None:
        """Go back to the first measured finding where the reduced one is not reproduced.

        Smaller cases may have failed by chance: of those, the reduction chooses the ones that did.
        """
        if self.minimal is None or self.confirmed is None or self.minimal[0] == self.confirmed[0]:
            return
        again = none_on_internal_error(self._in_fresh_processes, self.minimal[0])
        if isinstance(again, Crashed | Hung):
            self._note_death(self.minimal[0], self._own(self.minimal[0], again))
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

    def behind(self) -> Judge | None:
        """A judge that goes on behind the finding, and passes over what is wrong in the same place.

        The place is the call; of a delegate's wrong numbers and deaths the operators, too. Nothing is looked
        for behind a hang, each further one of which takes the whole time of a case, or behind what is
        measured, which is in no place. What was learned so far is kept: only what failed elsewhere is run
        again.
        """
        if self.minimal is None or isinstance(self.minimal[1], Hung | Measured):
            return None
        case, violation = self.minimal
        mark = traits(case, violation).fingerprint
        operators = mark.operators if isinstance(violation, WrongOutput | Crashed) else ()
        if not (mark.call or operators):
            return None
        place = Fingerprint(call=mark.call, operators=operators)
        profile = dataclasses.replace(self.profile, repeats=1)
        scope = self.scope.behind(place, violation.outcome)
        other = Judge(self.rule, self.target, profile, self.attribution, scope)
        other.making_errors = self.making_errors
        other.kept, other.hangs_left = self.kept, self.hangs_left
        other.tally.only_in_company = self.tally.only_in_company
        # Few cases, but all of the seconds: otherwise it would depend on load how small a case becomes.
        other.further_share = self.further_share * _NEXT_SHARE
        cases = int(self.profile.shrink_budget(isolated=self.target.isolated) * self.further_share)
        other.shrinking = _ShrinkBudget(max(1, cases), self.profile.shrink_seconds)  # one for `_alone`
        # What was wrong in the same place is no failure there; what was wrong elsewhere may be found again.
        other.known = {
            key: None
            for key, found in self.known.items()
            if found is None or scope.place_of(found, traits_of_data(msgspec.msgpack.decode(key), found))
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
        if self.others_before:
            return f"failed twice, behind {self.others_before} other cases in one process, and not alone"
        case, violation = self.minimal
        times = self.profile.repeats
        if isinstance(violation, Hung):
            # Each run costs the whole time of a case. Where it was made smaller, the larger one has hung too.
            times = 1 if case == self.found else 0
        try:
            again = [self._run_again(case) for _ in range(times)]
        except TargetLost:
            return ""  # nothing can be run any more, which is no doubt about what was seen
        except UnfitAnswerError:
            if isinstance(violation, Crashed | Hung):
                return ""  # no check has seen the death, so that none which fails itself speaks against it
            raise
        for found in again:
            if isinstance(found, Crashed | Hung) and not isinstance(violation, Crashed | Hung):
                self._note_death(case, self._own(case, found))
        failed = 1 + sum(found is not None for found in again)
        return "" if failed == 1 + times else f"failed {failed} of {1 + times} runs"

    def _unfit(self, case: Any) -> bool:
        """Whether the case cannot be carried out on the target, or would show nothing but what is known."""
        unfit = self.target.unfit(case) or self._foreseen(case)
        if unfit:
            self.tally.unsupported = unfit
            self.tally.unsupported_cases += 1
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

    def _run_again(self, case: Any) -> Violation | None:
        """`_run`, behind something that was seen already.

        Raises:
            TargetLost: the target cannot be loaded any more, which is the doing of what was seen before.
        """
        return self._run(case, functools.partial(_run_or_lost, self.target))

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
            if self.scope.place(case, violation) is not None:
                self.hangs_left -= isinstance(violation, Hung)
                return violation  # as it would be alone; what it means, `_own` says
            in_company = violation
            try:
                violation = self._again(case)
            except TargetLost:
                return in_company
            except UnfitAnswerError:
                if isinstance(in_company, Crashed | Hung):
                    return in_company
                raise
            if violation is None and isinstance(in_company, Crashed | Hung):
                try:
                    self._joined(before, case)
                except TargetLost:
                    return in_company
            elif violation is None:
                self.tally.only_in_company += 1
        elif isinstance(violation, Hung):
            self.hangs_left -= 1
        return violation

    def _again(self, case: Any) -> Violation | None:
        """What the case does alone that broke the rule in company; where that is chance it has many."""
        for _ in range(_CHANCES if self.rule.by_chance else 1):
            if (violation := self._run_again(case)) is not None:
                return violation
        return None

    def _violation(self, case: Any, trace: TraceLike) -> Violation | None:
        if trace.death is not None and trace.death.kind == "large":
            # Not unsupported: then a target that only says so of its process would hide what it does.
            self.tally.no_cases = trace.death.detail
            if not trace.death.of_case:
                self.tally.large.add(msgspec.msgpack.encode(case))
            return None
        if trace.death is not None:
            return died(trace.death)
        try:
            looked = examined(self.rule, case, trace)
        except Violation as violation:
            return violation.with_traceback(None)
        except Unsupported as unsupported:
            self.tally.unsupported = unsupported.reason
            self.tally.unsupported_cases += unsupported.final
            return None
        except Exception as error:
            raise (UnfitAnswerError if self.target.isolated else InternalError)(case) from error
        if not looked.count and (missing := self.target.missing(trace)):
            self.tally.unsupported = missing
        elif not looked.count and self.tally.unexamined_case is None:
            self.tally.unexamined_case = case
        self.tally.examined += looked.count
        self.tally.what = looked.what
        return None


def _run_or_lost(target: Target[Any, Any], case: Any) -> TraceLike:
    trace: TraceLike = target.run(case)
    if trace.death is not None and trace.death.lost:
        raise TargetLost(trace.death.detail)
    return trace


class _ShrinkBudget:
    """Cases that may be run after the first failure, and the seconds in which.

    Smaller draws may use the first `_DRAWS` of both; `Judge.reduce`, which gains more with each run, the
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
