"""What is said of a target: levels, outcomes, violations and the verdict of one rule.

Everything here is plain data or an exception that carries plain data; importing it loads neither numpy
nor Hypothesis nor a runtime.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.fingerprint import Fingerprint


class Level(str, enum.Enum):
    """How binding a rule is, in the words of RFC 2119. MUST only where a document says so."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


class Outcome(str, enum.Enum):
    """The verdict on one rule for one target."""

    PASS = "pass"
    FAIL = "fail"
    CRASH = "crash"
    HANG = "hang"
    UNSUPPORTED = "unsupported"
    CONTRADICTION = "contradiction"
    INCONCLUSIVE = "inconclusive"


class Examined(msgspec.Struct, frozen=True):
    """What a check looked at: ``count`` things called ``what``. Nothing looked at is never a pass."""

    count: int
    what: str


class Violation(Exception):  # noqa: N818 - it is the field's word, and not an error of ours
    """The target broke the rule in this case.

    Args:
        expected: what the rule's source demands, with values.
        seen: what the target did instead, with values.
        where: the step, node, tensor or call concerned.
        picture: an optional drawing in text, several lines.
    """

    outcome = Outcome.FAIL
    evidence = Evidence()
    """What the process left that did not survive the case."""
    step = -1
    """In which it ended, as of `pytest_qnn.core.target.Death`."""

    def __init__(self, expected: str, seen: str, where: str = "", picture: str = "") -> None:
        super().__init__(f"expected {expected}; seen {seen}" + (f" ({where})" if where else ""))
        self.expected = expected
        self.seen = seen
        self.where = where
        self.picture = picture


class WrongOutput(Violation):
    """An output has a wrong value: whoever judges one finds it, also where it is another rule's to judge."""


class WrongShape(WrongOutput):
    """An output has another shape than its operator gives it, whatever its values are."""


class FailedCall(WrongOutput):
    """A call failed that any case makes, so that there is no output to judge.

    Args:
        expected: as for `Violation`.
        seen: as for `Violation`.
        where: as for `Violation`.
        picture: as for `Violation`.
        call: what failed, for `WrongRefusal`.
    """

    def __init__(
        self, expected: str, seen: str, where: str = "", picture: str = "", *, call: str = ""
    ) -> None:
        super().__init__(expected, seen, where, picture)
        self.call = call


class Retained(Violation):
    """More is left than there was before: whoever counts finds it, whichever of the calls has left it."""


class WrongRefusal(Violation):
    """A call with something special in it was refused, and with another code than what is special has.

    Where the same call fails without it, the code says nothing of that.

    Args:
        expected: as for `Violation`.
        seen: as for `Violation`.
        where: as for `Violation`.
        call: what was refused, as in `FailedCall`.
    """

    def __init__(self, expected: str, seen: str, where: str, *, call: str) -> None:
        super().__init__(expected, seen, where)
        self.call = call


class WrongSuccess(Violation):
    """A call succeeded that must be refused: the rule's own affair, unless what it was given is spoilt."""


class Divergence(WrongOutput):
    """A number out of its bounds. Where it began is found by cutting the graph.

    Args:
        expected: as for `Violation`.
        seen: as for `Violation`.
        where: as for `Violation`.
        picture: as for `Violation`.
        node: index of the node whose result is out of its bounds.
        is_first: all that the node reads was seen, and was right.
    """

    def __init__(
        self, expected: str, seen: str, where: str = "", picture: str = "", *, node: int, is_first: bool
    ) -> None:
        super().__init__(expected, seen, where, picture)
        self.node = node
        self.is_first = is_first


class Measured(Violation):
    """What was measured in the process may not be so: a finding only if fresh processes show it too."""


class Contradiction(Violation):
    """The target disagrees with itself: what it declares and what it does cannot both be true."""

    outcome = Outcome.CONTRADICTION


class FalseDeclaration(Contradiction, WrongOutput):
    """What the target declares is not what a call does: whoever relies on it finds it, whichever is wrong."""


class Crashed(Violation):
    """The process in which the target ran was killed by a signal or exited on its own."""

    outcome = Outcome.CRASH


class Hung(Violation):
    """The target did not answer within the time of one case."""

    outcome = Outcome.HANG


class Unsupported(Exception):  # noqa: N818 - a finding about the target, not an error
    """The target does not offer what the rule is about; the reason says how that was learned.

    ``final``: no other case can show the contrary, so the search may stop.
    """

    def __init__(self, reason: str, *, final: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A violation as data, with its smallest case."""

    expected: str
    seen: str
    where: str = ""
    picture: str = ""
    evidence: Evidence = Evidence()
    """What the process left that did not survive the case."""
    case: str = ""
    """The minimal Case as JSON text."""
    fingerprint: Fingerprint = Fingerprint()
    """What of it is the same from seed to seed."""


class Further(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finding beside a rule's first: in another call, with other operators, or in another seed block."""

    outcome: Outcome
    finding: Finding
    flaky: str = ""
    """How often it was seen again, if not always; as of a `Verdict`."""
    file: str = ""
    """That of its case, below ``.pytest-qnn``; empty: in the folder of the first, by its number
    (`case_file`)."""

    @property
    def mark(self) -> tuple[Outcome, Fingerprint]:
        """What tells it from other findings of the rule."""
        return self.outcome, self.finding.fingerprint.at_any_rank()


MOST_FURTHER = 9
"""Findings of a rule beside its first, but for deaths in one call that was carried out alone."""


def case_file(number: int) -> str:
    """The file of a finding's case, in the folder of the first of them, which is number 1."""
    return "case.json" if number == 1 else f"case-{number}.json"


def fails(outcome: Outcome, level: Level, *, strict: bool) -> bool:
    """Whether a rule of this level that ends so, neither passed nor unsupported, fails a run.

    Args:
        outcome: of the rule.
        level: of the rule.
        strict: a SHOULD that fails counts (``--qnn-strict``).
    """
    if outcome in (Outcome.CRASH, Outcome.HANG):
        return True  # nobody's choice, whatever the level
    if level is Level.MAY:
        return False
    return strict or level is Level.MUST or outcome is not Outcome.FAIL


class CoverageRow(msgspec.Struct, frozen=True):
    """Of the input domain of delegates: what became of the cells of one operator and type."""

    op: str
    dtype: str
    ranks: str
    """A letter for each rank from 0 on, of the plain cells: ``c`` covered (claimed, computed, right), ``l``
    left to the CPU, ``n`` not applied by the runtime, ``r`` refused by the runtime, ``-`` there is no such
    model, ``w`` wrong, ``f`` failed, ``d`` ended the process, ``u`` not judged, ``?`` not tried any more,
    ``.`` not tried."""
    special: dict[str, str]
    """The same letters of cells with something special, by what it is: ``rank 4 RELU6``."""
    reasons: dict[str, int]
    """Why cells are not covered, with the number of cells."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the suite says of one rule for one target. It crosses processes as JSON."""

    rule: str
    area: str
    level: Level
    sentence: str
    source: str
    subject: str
    self_check: bool
    target: str
    outcome: Outcome
    examples: int
    """Cases that were run on the target (repeats of an equal case are not counted)."""
    examined: int
    what: str
    """What the examined things are, in the plural."""
    seconds: float
    seed: int
    block: int = 0
    """The seed block of the cases (--qnn-blocks); of several blocks the one that the verdict is of."""
    reason: str = ""
    finding: Finding | None = None
    further: tuple[Further, ...] = ()
    """What else breaks the rule, at most nine, none of them worse than the ``finding``."""
    flaky: str = ""
    """How often the minimal case failed, if not in every run: ``failed 2 of 6 runs``."""
    blocked_by: tuple[str, ...] = ()
    """Rules that own what went wrong in cases of this one: not its own, and nothing is said of it by them."""
    found_by: str = ""
    """The rule in whose cases it was found, where that is another one (`blocked_by` there)."""
    only_in_company: int = 0
    """Cases that broke the rule after others in one process, but neither alone nor as one case with them."""
    note: str = ""
    """Of a self-check in which the process died: whether it does so without the target, too. Else how many
    cases gave too much to be judged, if some did."""
    replay: str = ""
    """One shell command that judges the minimal case again."""
    folder: str = ""
    """Where the finding is kept, below ``.pytest-qnn``; empty: there is none, or it could not be written."""
    files: dict[str, str] = msgspec.field(default_factory=dict)
    """The files of that folder: what each is, by its name."""
    traceback: str = ""
    """Where the suite itself failed; without a finding or a pass, nothing is known of the target then."""
    coverage: tuple[CoverageRow, ...] = ()
    """Of the rule that enumerates the input domain: what became of it."""
    known: tuple[str, ...] = ()
    """Failures that were found and are expected (--qnn-expect); what is beside them is the `finding`."""
    unexpected: str = ""
    """A failure that is expected and was not found, or is expected no more."""

    def is_red(self, *, strict: bool) -> bool:
        """Whether a run in which the target was found so has failed.

        Args:
            strict: a SHOULD that fails counts (``--qnn-strict``).
        """
        return bool(self.unexpected) or self.is_wrong(strict=strict)

    def is_wrong(self, *, strict: bool) -> bool:
        """`is_red` by what was seen, whatever was expected and not found."""
        if self.traceback:
            return True
        if self.outcome in (Outcome.PASS, Outcome.UNSUPPORTED) or self.is_blocked or self.is_known:
            return False
        return fails(self.outcome, self.level, strict=strict)

    @property
    def shown(self) -> str:
        """The outcome in a word, for reports: ``known`` where it is expected."""
        return "known" if self.is_known else self.outcome.value

    @property
    def is_known(self) -> bool:
        """Nothing failed but what is expected to."""
        return bool(self.known) and self.finding is None and not self.traceback

    @property
    def is_blocked(self) -> bool:
        """Nothing was left to judge the rule by: every case went wrong in a way that another rule owns."""
        return self.outcome is Outcome.INCONCLUSIVE and bool(self.blocked_by)


WORST_FIRST = ("crash", "hang", "fail", "contradiction", "inconclusive", "known", "unsupported", "pass")
"""Which of several verdicts on one rule is kept, by `Verdict.shown`: a pass never hides a finding. Those for
which a run fails come before all others: a SHOULD that fails does not hide a contradiction."""


def of_blocks(verdicts: Iterable[Verdict]) -> Verdict | None:
    """What a rule's own tests found in all seed blocks: the worst, of equal ones that of the first block.

    Examples, things examined and seconds are added up, what each block says besides is kept, and what other
    blocks found stands beside the finding, each thing once.

    Args:
        verdicts: on one rule and target, in any order; those with ``found_by`` do not count; of several of
            one block (a test that another plugin has run again) the worst does.

    Returns:
        None where there is none.
    """
    by_block: dict[int, Verdict] = {}
    for each in sorted((each for each in verdicts if not each.found_by), key=_place):
        by_block.setdefault(each.block, each)
    own = sorted(by_block.values(), key=_place)
    if not own:
        return None
    in_order = sorted(own, key=lambda each: each.block)
    unexplained = own[0].outcome is Outcome.INCONCLUSIVE and not own[0].blocked_by
    # A verdict without a finding (a worker was killed) would look like a known one beside what is known.
    told = in_order if own[0].is_known or own[0].finding else own[:1]
    failed = [each for each in own if each.traceback]
    notes = (own[0].note, *(each.note or each.reason for each in failed if each is not own[0]))
    return msgspec.structs.replace(
        own[0],
        note="; ".join(dict.fromkeys(filter(None, notes))),
        traceback=next((each.traceback for each in (own[0], *failed) if each.traceback), ""),
        examples=sum(each.examples for each in own),
        examined=sum(each.examined for each in own),
        what=next((each.what for each in in_order if each.what), ""),
        seconds=sum(each.seconds for each in in_order),
        # What explains another block does not explain the one that the verdict is of.
        blocked_by=() if unexplained else tuple(sorted({owner for each in own for owner in each.blocked_by})),
        only_in_company=sum(each.only_in_company for each in own),
        known=tuple(dict.fromkeys(text for each in told for text in each.known)),
        unexpected="; ".join(dict.fromkeys(each.unexpected for each in in_order if each.unexpected)),
        further=_further(own),
    )


def _further(own: Sequence[Verdict]) -> tuple[Further, ...]:
    """What stands beside the finding of the first verdict: its own, then what others found, worst first."""
    first, *others = own
    found = list(first.further)
    told = {each.mark for each in (*_findings(first)[:1], *found)}
    more = [_findings(each) for each in others]
    most = max(MOST_FURTHER, *(len(each.further) for each in own))
    candidates = [one for each in more for one in each[:1]] + [one for each in more for one in each[1:]]
    for one in sorted(candidates, key=lambda one: WORST_FIRST.index(one.outcome.value)):
        if one.mark not in told and len(found) < most:
            told.add(one.mark)
            found.append(one)
    return tuple(found)


def _findings(verdict: Verdict) -> list[Further]:
    """All findings of a verdict that accuse the target, its first one first, each with its file."""
    if verdict.finding is None:
        return []
    own = Further(verdict.outcome, verdict.finding, verdict.flaky)
    first = [] if verdict.outcome is Outcome.INCONCLUSIVE else [own]
    found = (*first, *verdict.further)
    at = 1 if first else 2
    return [
        msgspec.structs.replace(one, file=f"{verdict.folder}/{case_file(number)}" if verdict.folder else "")
        for number, one in enumerate(found, at)
    ]


def not_judged(units: Iterable[tuple[str, int]], verdicts: Iterable[Verdict]) -> list[str]:
    """Ids of the rules that lack a verdict of their own in some seed block, sorted.

    Args:
        units: id and seed block of what was to be judged.
        verdicts: that there are; those from the cases of other rules (``found_by``) do not count.
    """
    judged = {(each.rule, each.block) for each in verdicts if not each.found_by}
    return sorted({rule for rule, block in units if (rule, block) not in judged})


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The one verdict of a rule on a target: of its own tests, or worse from the cases of another rule.

    It does not depend on the order of the verdicts. What the rule's own tests found stands beside what is
    worse.

    Args:
        verdicts: as for `of_blocks`, at least one; those with ``found_by`` count.
    """
    given = tuple(verdicts)
    own = of_blocks(given)
    others = [each for each in given if each.found_by]
    first = min([*([own] if own else []), *others], key=_place)
    if own is None or first is own:
        return first
    return msgspec.structs.replace(
        first,
        further=_further([first, own]),
        unexpected=first.unexpected or own.unexpected,
        note="; ".join(dict.fromkeys(filter(None, (first.note, own.note)))),
        traceback=first.traceback or own.traceback,
    )


def _place(verdict: Verdict) -> tuple[bool, int, bool, int, str]:
    """Where a verdict stands among those on the same rule and target, the one to keep first."""
    is_wrong, shown = verdict.is_wrong(strict=False), WORST_FIRST.index(verdict.shown)
    return not is_wrong, shown, bool(verdict.found_by), verdict.block, verdict.found_by


Result = Literal["STILL FAILS", "FIXED", "FAILS HERE", "PASSES HERE", "CANNOT RUN"]
"""``... HERE``: on another target than the one of the file, of which nothing is said."""


class Replayed(msgspec.Struct, frozen=True):
    """What replaying a case gave."""

    rule: str
    target: str
    result: Result
    detail: str
    other: str = ""
    """Where another target than the one of the file was judged: both of them."""

    @property
    def good(self) -> bool:
        """The rule holds in the case."""
        return self.result in ("FIXED", "PASSES HERE")
