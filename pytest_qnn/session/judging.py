"""Judge one rule inside a test: the verdict, what it leaves on disk, and what is reported to pytest.

What takes long to import is loaded by this module: the plugin imports it when the first rule is judged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from pytest_qnn import effort
from pytest_qnn.core import engine
from pytest_qnn.core.printable import encodable, printable
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.rule import Demand, Rule
from pytest_qnn.core.target import Target, TargetLost
from pytest_qnn.core.verdict import Crashed, Finding, Hung, Outcome, Verdict, of_blocks
from pytest_qnn.options import DEFAULT_DELEGATES
from pytest_qnn.report import failure
from pytest_qnn.session import findings, replay
from pytest_qnn.session.shards import block_seed
from pytest_qnn.state import VERDICTS, Session
from pytest_qnn.targets import open_target

_FOUND: pytest.StashKey[list[Verdict]] = pytest.StashKey()
"""What was found in a block, while what it leaves is being kept."""
_HUNG = 3
"""Rules that may hang in one target, and in one process, before hangs in it are no longer shrunk.

Each costs up to five times ``--qnn-timeout``, and a call that hangs may be in the cases of a hundred rules.
"""


_DOMAIN = "DOM"
"""The area whose rules say what was covered of the input domain."""
_FRAMES = 8
"""Of a backtrace, what JUnit files have as a property; the whole one is in the failure's text."""


def rule_seed(run_seed: int, rule_id: str) -> int:
    """The seed of one rule, 48 bits: the same in every process, whatever else is selected."""
    digest = hashlib.sha256(f"{run_seed} {rule_id}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def judge(session: Session, item: pytest.Item, rule_id: str, block: int = 0) -> engine.Judged:
    """Judge a rule on the run's target and keep what its finding leaves, and those that are other rules'.

    The verdicts are in the test's stash (`_FOUND`) while that is being kept, for whoever is interrupted then.

    Args:
        session: the run.
        item: the test.
        rule_id: of the rule.
        block: the seed block of the cases.

    Raises:
        LookupError: there is no such rule.
        ValueError: the test is named after another rule.
        TargetLost: the target cannot be opened, or not any more.
        Interrupted: it is lost, or the suite itself failed, and other rules own what was seen before.
    """
    rule = checked_rule(session, item, rule_id)
    target = session.target(rule.subject)
    seed = rule_seed(block_seed(session.seed, block), rule_id)
    profile = fitted(effort.profile(session.options.profile), target, session.hung[rule.subject])
    tried: tuple[Any, ...] = ()
    left_out = ""
    if session.options.corpus is not None:
        from pytest_qnn.session import corpus

        tried, left_out = corpus.tried(session.options.corpus, rule_id)
    if session.options.certify is not None:
        profile = profile.without_seconds()
    with session.recorded(rule):
        try:
            verdict, handed_over = with_owners(
                rule,
                target,
                profile,
                seed,
                session.rule,
                session.expectations,
                tried,
                strict=session.options.strict,
            )
        except engine.Interrupted as stopped:
            item.stash[_FOUND] = placed = _placed(stopped.handed_over, block)
            others = _completed_others(session, target, placed)
            raise engine.Interrupted(stopped.error, others) from stopped.error
    session.hung[rule.subject] += verdict.outcome is Outcome.HANG and not verdict.is_known
    item.stash[_FOUND] = [own, *placed] = _placed((verdict, *handed_over), block)
    others = _completed_others(session, target, placed)

    def complete(verdict: Verdict) -> Verdict:
        return _completed(session, target, _as_claimed(session, rule, _with_note(verdict, left_out)))

    return engine.Judged(_completed_anyway(complete, own), others)


def with_owners(
    rule: Rule[Any, Any, Any],
    target: Target[Any, Any],
    profile: Profile,
    seed: int,
    *rest: Any,
    strict: bool = False,
) -> engine.Judged:
    """`engine.judge_with_owners`, with what was covered of the input domain.

    ``strict``: a SHOULD that fails counts (``--qnn-strict``), also as the owner of what blocks the rule.

    Raises:
        Interrupted: as there; also where nothing more than the coverage could not be had.
        InternalError: as there.
        TargetLost: as there.
    """
    verdict, handed_over = engine.judge_with_owners(rule, target, profile, seed, *rest)
    verdict = _red_where_no_owner_is(verdict, handed_over, strict=strict)
    try:
        return engine.Judged(with_coverage(verdict, target, profile), handed_over)
    except Exception as error:
        if not handed_over:
            raise
        raise engine.Interrupted(error, handed_over) from error


def _red_where_no_owner_is(verdict: Verdict, owners: Iterable[Verdict], *, strict: bool) -> Verdict:
    """The verdict; where nothing was left to judge for findings that fail no run, it is not excused by these.

    A MUST rule could else look at nothing since a SHOULD rule owns what went wrong, and the run ended with 0.
    """
    if not verdict.is_blocked or any(each.is_known or each.is_red(strict=strict) for each in owners):
        return verdict
    reason = f"{verdict.reason} only, whose finding fails no run: nothing was left to judge"
    return msgspec.structs.replace(verdict, blocked_by=(), reason=reason)


def _placed(verdicts: Iterable[Verdict], block: int) -> list[Verdict]:
    """The verdicts, as those of a seed block."""
    return [msgspec.structs.replace(each, block=block) for each in verdicts]


def _completed_others(
    session: Session, target: Target[Any, Any], placed: Iterable[Verdict]
) -> tuple[Verdict, ...]:
    """The verdicts on other rules, completed."""
    return tuple(_completed_anyway(functools.partial(_completed, session, target), each) for each in placed)


def _completed_anyway(complete: Callable[[Verdict], Verdict], verdict: Verdict) -> Verdict:
    """The verdict completed; where the suite itself fails meanwhile, as it was found, with that error."""
    try:
        return complete(verdict)
    except Exception as error:
        note = "; ".join(filter(None, (verdict.note, failure.error_beside(error))))
        told = verdict.traceback or "".join(traceback.format_exception(error))
        return msgspec.structs.replace(verdict, note=note, traceback=told)


def with_coverage(verdict: Verdict, target: Any, profile: Profile) -> Verdict:
    """The verdict; of a rule about the input domain with what was covered of it, and the rest carried out."""
    if verdict.area != _DOMAIN:
        return verdict
    return msgspec.structs.replace(verdict, coverage=target.covered(whole=profile.looks_at_whole_domain))


def fitted(profile: Profile, target: Target[Any, Any], hung: int) -> Profile:
    """The profile for a target that may take long, and in which so many rules have hung."""
    fitting = profile.for_cases_of(getattr(target.facts, "seconds", 0.0))
    return fitting.without_hang_shrinking() if hung >= _HUNG else fitting


def _as_claimed(session: Session, rule: Demand, verdict: Verdict) -> Verdict:
    """The verdict; what is unsupported and declared to be there is not as expected."""
    if session.declared is None or rule.subject not in session.declared.claims:
        return verdict
    from pytest_qnn.expect import claims

    why = claims.unsupported(session.declared.claims[rule.subject], verdict, rule.gate)
    said = "; ".join(filter(None, (verdict.unexpected, why)))
    return msgspec.structs.replace(verdict, unexpected=said)


def _completed(session: Session, target: Target[Any, Any], verdict: Verdict) -> Verdict:
    """The verdict, with all that can be said of a process that died, and what its finding leaves kept."""
    compared = _symbolised(target, _compared(session, session.rule(verdict.rule), target, verdict))
    folder = session.options.corpus
    if folder is not None and compared.finding is not None and compared.outcome is not Outcome.INCONCLUSIVE:
        from pytest_qnn.session import corpus

        try:
            for content in (
                findings.content_of(session, target, compared),
                *findings.further_contents_of(session, target, compared),
            ):
                corpus.add(folder, content)
        except OSError as error:
            note = f"the case could not be added to {folder}: {error.strerror or error}"
            compared = _with_note(compared, note)
    return findings.keep(session, target, compared)


def _compared(
    session: Session, rule: Rule[Any, Any, Any], target: Target[Any, Any], verdict: Verdict
) -> Verdict:
    """The verdict, with whose doing it was that the process died of a self-check.

    Such a rule judges the runtime and the suite, but the target's delegate is in the process: the same case
    is carried out with the reference in its place.
    """
    died = verdict.outcome in (Outcome.CRASH, Outcome.HANG)
    if not (rule.self_check and died) or verdict.is_known or target.spec == "reference":
        return verdict
    case = findings.content_of(session, target, verdict).case
    own = dataclasses.replace(session.options, delegates=DEFAULT_DELEGATES, sandbox="fork")
    with contextlib.closing(open_target(rule.subject, own)) as reference:
        also = isinstance(engine.judge_case(rule, reference, case), Crashed | Hung)
    note = "the process dies with this delegate only: with the reference in its place it does not"
    if also:
        note = "the process dies with the reference in the delegate's place, too"
    return _with_note(verdict, note)


def _with_note(verdict: Verdict, note: str) -> Verdict:
    """The verdict, with one more note behind those that it has; empty: with none more."""
    return msgspec.structs.replace(verdict, note="; ".join(filter(None, (verdict.note, note))))


def _symbolised(target: Target[Any, Any], verdict: Verdict) -> Verdict:
    """The verdict with the names of native frames, which only those of a finding are worth."""
    finding = verdict.finding
    if finding is None or not finding.evidence:
        return verdict
    evidence = target.symbolised(finding.evidence)
    return msgspec.structs.replace(verdict, finding=msgspec.structs.replace(finding, evidence=evidence))


def checked_rule(session: Session, item: pytest.Item, rule_id: str) -> Rule[Any, Any, Any]:
    """The rule, when the test's name does not promise another one."""
    named = session.rule_of_test(item.name)
    if named is not None and named.id != rule_id:
        raise ValueError(f"{item.name} is named after {named.id}, and judges {rule_id}")
    return session.rule(rule_id)


def broken(session: Session, rule: Demand, outcome: Outcome, reason: str, block: int = 0) -> Verdict:
    """The verdict on a rule that could not be judged to the end, through no finding of the engine's."""
    seed = rule_seed(block_seed(session.seed, block), rule.id)
    return _without_result(rule, session.spec(rule.subject), seed, outcome, reason, block)


def _without_result(
    rule: Demand, spec: str, seed: int, outcome: Outcome, reason: str, block: int = 0
) -> Verdict:
    return Verdict(
        rule=rule.id,
        area=rule.area,
        level=rule.level,
        sentence=rule.sentence,
        source=rule.source,
        subject=rule.subject,
        self_check=rule.self_check,
        target=spec,
        outcome=outcome,
        examples=0,
        examined=0,
        what="",
        seconds=0.0,
        seed=seed,
        block=block,
        reason=reason,
    )


def judge_or_explain(session: Session, item: pytest.Item, rule_id: str) -> None:
    """Judge, record the verdict with the test, and end the test as the verdict demands."""
    try:
        rule = checked_rule(session, item, rule_id)
    except LookupError as error:
        from pytest_qnn.session.selection import instead

        raise _failure(f"judge({rule_id!r}): {error}{instead(rule_id)}") from None
    except ValueError as error:
        raise _failure(f"judge({rule_id!r}): {error}") from None
    if session.case_file is not None:
        replay.run(session, item, rule)
        return
    blocks = session.blocks(rule_id)
    if why := session.given_up.get(item.nodeid):
        _end(session, item, [broken(session, rule, Outcome.CRASH, why, block) for block in blocks])
    verdicts: list[Verdict] = []
    lost: Exception | None = None
    try:
        for block in blocks:
            item.stash[_FOUND] = []
            verdicts += _judge_block(session, item, rule_id, block)
    except TargetLost as reason:
        lost = reason
    except engine.Interrupted as stopped:
        lost = stopped.error
        verdicts += stopped.handed_over
    except BaseException:
        # Ctrl-C, pytest.exit, or the time limit of another plugin: what blocks have found is not lost by it.
        _keep(item, [*verdicts, *item.stash[_FOUND]])
        raise
    if lost is None:
        _end(session, item, verdicts)
        return
    # Not all verdicts: the report lists the rule as not judged. The first rule that met it has the finding.
    _keep(item, verdicts)
    raise _failure(f"{rule_id} not judged: {lost}")


def _judge_block(session: Session, item: pytest.Item, rule_id: str, block: int) -> list[Verdict]:
    """The verdict on the rule in one seed block, then those on other rules from its cases.

    Raises:
        TargetLost: the target cannot be opened, or not any more.
        Interrupted: likewise, and other rules own what was seen before.
    """
    started = time.perf_counter()
    try:
        verdict, handed_over = judge(session, item, rule_id, block)
    except TargetLost:
        raise
    except engine.Interrupted as stopped:
        if isinstance(stopped.error, TargetLost):
            raise
        own = _failed(session, item, rule_id, block, stopped.error, time.perf_counter() - started)
        return [own, *stopped.handed_over]
    except pytest.exit.Exception:
        raise
    except Exception as error:
        return [_failed(session, item, rule_id, block, error, time.perf_counter() - started)]
    return [verdict, *handed_over]


def _end(session: Session, item: pytest.Item, verdicts: list[Verdict]) -> None:
    """Record the verdicts, and end the test as what its own rule's come to demands."""
    verdict = of_blocks(verdicts)
    if verdict is None:
        return  # the rule has no block in this shard, whose test was not collected then
    record(item, verdict, verdicts)
    end_with(session, verdict)


def end_with(session: Session, verdict: Verdict) -> None:
    """End the running test as the verdict demands: it fails too where the suite itself has."""
    seed = block_seed(session.seed, verdict.block)
    if verdict.traceback:
        raise _failure(f"{failure.text(verdict, seed)}\n\n{verdict.traceback}")
    xfails = not session.config.getoption("runxfail", False)
    conclude(verdict, seed, strict=session.options.strict, xfails=xfails)


def _failure(text: str) -> BaseException:
    """What `pytest.fail` raises. To be raised ``from None``: pytest writes what led to it, and as it is."""
    return pytest.fail.Exception(printable(text), pytrace=False)


def _failed(
    session: Session, item: pytest.Item, rule_id: str, block: int, error: Exception, seconds: float
) -> Verdict:
    """The same as `failed`, of a block, with what the case leaves kept."""
    rule = checked_rule(session, item, rule_id)
    seed = rule_seed(block_seed(session.seed, block), rule_id)
    verdict = failed(rule, session.spec(rule.subject), seed, error, seconds)
    verdict = msgspec.structs.replace(verdict, block=block)
    return findings.keep(session, session.target(rule.subject), verdict) if verdict.finding else verdict


def failed(rule: Demand, spec: str, seed: int, error: Exception, seconds: float) -> Verdict:
    """The verdict where the suite itself failed, or an answer cannot be judged; with its case, if known.

    Args:
        rule: that was judged.
        spec: of its target.
        seed: of its cases.
        error: what was raised.
        seconds: until then.

    """
    cause = error.__cause__ or error if isinstance(error, engine.InternalError) else error
    if isinstance(error, engine.UnfitAnswerError):
        reason, told = failure.unfit_answer(cause), ""
    else:
        reason, told = failure.internal_error(cause), "".join(traceback.format_exception(cause))
    verdict = msgspec.structs.replace(
        _without_result(rule, spec, seed, Outcome.INCONCLUSIVE, reason), seconds=seconds, traceback=told
    )
    if not isinstance(error, engine.InternalError):
        return verdict
    case = msgspec.json.encode(error.case).decode()
    finding = Finding(expected="a verdict", seen=verdict.reason, case=case)
    return msgspec.structs.replace(verdict, finding=finding)


def record(item: pytest.Item, verdict: Verdict, verdicts: Iterable[Verdict]) -> None:
    """Keep verdicts with the test.

    Args:
        item: the test.
        verdict: on its rule, for JUnit properties.
        verdicts: of each seed block, and on other rules, for its report (across processes).
    """
    _keep(item, verdicts)
    item.user_properties += properties(verdict)


def _keep(item: pytest.Item, verdicts: Iterable[Verdict]) -> None:
    item.stash.setdefault(VERDICTS, []).extend(encodable(msgspec.to_builtins(each)) for each in verdicts)


def properties(verdict: Verdict) -> list[tuple[str, object]]:
    """What JUnit files say of a verdict, as printable text: what each has, then what only some have.

    ``blocked_by`` names the rules that own what went wrong in some of its cases, ``known`` says why what was
    found is accepted, ``unexpected`` what is expected and not so, ``flaky`` is the rate of a case that does
    not always fail, ``found_by`` the rule in whose cases it was met, ``reason`` says why there is neither a
    pass nor a finding, and ``replay`` is the command that judges the minimal case again. Of a process that
    died, ``where`` is the call at work, ``seen`` the signal, ``backtrace`` its frames.
    """
    always = [
        ("rule", verdict.rule),
        ("level", verdict.level.value),
        ("target", verdict.target),
        ("verdict", verdict.shown),
        ("examples", str(verdict.examples)),
        ("examined", str(verdict.examined)),
    ]
    some = [
        ("flaky", verdict.flaky),
        ("found_by", verdict.found_by),
        ("blocked_by", " ".join(verdict.blocked_by)),
        ("known", "; ".join(verdict.known)),
        ("unexpected", verdict.unexpected),
        ("reason", verdict.reason),
        ("replay", verdict.replay),
    ]
    told = [*always, *(pair for pair in (*some, *_of_crash(verdict)) if pair[1])]
    return [(name, printable(text)) for name, text in told]


def _of_crash(verdict: Verdict) -> list[tuple[str, str]]:
    finding = verdict.finding
    if finding is None or not finding.evidence:
        return []
    frames = (frame.place for frame in finding.evidence.frames[:_FRAMES])
    return [("where", finding.where), ("seen", finding.seen), ("backtrace", "; ".join(frames))]


def conclude(verdict: Verdict, run_seed: int, *, strict: bool, xfails: bool = True) -> None:
    """Pass, skip, xfail or fail the running test; with --runxfail (not ``xfails``) it never xfails."""
    if verdict.unexpected:
        pytest.fail(failure.text(verdict, run_seed), pytrace=False)
    if verdict.is_known and xfails:
        raise _xfail(f"{verdict.rule} known: {'; '.join(verdict.known)}")
    if verdict.outcome is Outcome.PASS:
        return
    if verdict.outcome is Outcome.UNSUPPORTED:
        pytest.skip(printable(f"{verdict.rule} unsupported: {verdict.reason}"))
    if verdict.is_blocked:
        pytest.skip(printable(f"{verdict.rule} {verdict.reason}"))
    text = failure.text(verdict, run_seed)
    if xfails and not verdict.is_red(strict=strict):
        raise _xfail(f"{verdict.rule} {verdict.level.value}: {failure.seen(verdict)}")
    pytest.fail(text, pytrace=False)


def _xfail(reason: str) -> BaseException:
    """What `pytest.xfail` raises, but without a traceback: to write one takes pytest 0.2 s."""
    return pytest.xfail.Exception(printable(reason), pytrace=False)
