"""How the cases of a search are drawn, made smaller, and run in company."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from minimal_doubles import FakeTarget, finding, made_up, refusing

from pytest_qnn.core.drawing import LEADING, changed, decoded, listed, shrunk, strings
from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.search import Search
from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Examined, Outcome, Unsupported, Violation
from pytest_qnn.qnn.cases.case import Alloc, ContextCreate, Deregister, Descriptor, Free, MemoryCase, Register
from pytest_qnn.qnn.cases.join import joined
from pytest_qnn.qnn.trace import MemoryTrace

EXAMPLES = 45
PROFILE = dataclasses.replace(PROFILES["default"], isolated_examples=EXAMPLES)
NUMBERED = decoded(2, lambda data: MemoryCase((Alloc("b0", 1 + data[0] * 256 + data[1]),)))


def size_of(case: MemoryCase) -> int:
    (step,) = case.steps
    assert isinstance(step, Alloc)
    return step.size


# Drawn


@pytest.mark.parametrize("seed", range(5))
def test_each_sixteenth_of_each_leading_byte_is_met_in_sixteen_strings(seed: int) -> None:
    drawn = list(itertools.islice(strings(60, seed), 33))
    assert drawn[0] == bytes(60)
    for block in (drawn[1:17], drawn[17:33]):
        for at in range(LEADING):
            assert {string[at] // 16 for string in block} == set(range(16))


def test_leading_bytes_are_independent_of_each_other_and_later_ones_uniform() -> None:
    drawn = list(itertools.islice(strings(60, 1), 1, 4097))
    pairs = Counter((string[0] // 64, string[1] // 64) for string in drawn)
    assert len(pairs) == 16
    assert max(pairs.values()) < 2 * min(pairs.values())
    for at in (0, LEADING - 1, LEADING, 59):
        assert 120 < sum(string[at] for string in drawn) / len(drawn) < 135
        assert len({string[at] for string in drawn}) == 256


def test_strings_are_those_of_their_seed() -> None:
    first = list(itertools.islice(strings(51, 2**47 + 5), 40))
    assert first == list(itertools.islice(strings(51, 2**47 + 5), 40))
    assert first[1:] != list(itertools.islice(strings(51, 6), 1, 40))


@pytest.mark.parametrize(
    "strategy", [NUMBERED, st.integers(0, 10**6).map(lambda n: MemoryCase((Alloc("b", n),)))]
)
def test_a_search_has_as_many_cases_as_it_was_asked_for_and_the_same_again(strategy: Any) -> None:
    assert len(list(Search(strategy, 30, 3))) == 30
    assert list(Search(strategy, 30, 3)) == list(Search(strategy, 30, 3))


def test_what_is_made_of_a_decoded_case_is_drawn_as_that_case_is() -> None:
    doubled = changed(NUMBERED, lambda case: MemoryCase(case.steps * 2))
    assert [case.steps[:1] for case in Search(doubled, 30, 3)] == [
        case.steps for case in Search(NUMBERED, 30, 3)
    ]


# Made smaller


@pytest.mark.parametrize("seed", range(20))
def test_a_string_becomes_as_small_as_it_can(seed: int) -> None:
    (string,) = itertools.islice(strings(200, seed), 5, 6)
    at, least = seed * 9, string[seed * 9] // 2

    def fails(data: bytes) -> bool:
        return data[at] >= least and data[199] == string[199]

    small = shrunk(string, fails)
    assert {place: value for place, value in enumerate(small) if value} == {
        place: value for place, value in ((at, least), (199, string[199])) if value
    }


def test_making_smaller_ends_where_nothing_smaller_fails_and_takes_few_tries() -> None:
    tried: list[bytes] = []
    (string,) = itertools.islice(strings(64, 1), 1, 2)
    assert shrunk(string, lambda data: bool(tried.append(data))) == string
    assert len(tried) < 5 * 64


# In company


class Children(FakeTarget):
    """Children; ``wrong`` says how a case ends in one that has carried out ``count`` others."""

    isolated = True

    def __init__(self, wrong: Callable[[MemoryCase, int], Death | bool]) -> None:
        super().__init__("memory")
        self._wrong = wrong
        self.companies: list[int] = []

    def _carried_out(self, case: MemoryCase, count: int) -> MemoryTrace:
        self.cases.append(case)
        end = self._wrong(case, count)
        if isinstance(end, Death):
            return MemoryTrace(death=end)
        return MemoryTrace(session=(("wrong", int(end)),))

    def run(self, case: Any) -> Any:
        self.companies.append(1)
        # A joined case is as many cases as it has buffers.
        ends = [self._carried_out(case, count) for count in range(len(case.steps))]
        return next((trace for trace in ends if trace.death), ends[-1])

    def run_all(self, cases: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        left = list(cases)
        while left:
            self.companies.append(len(left))
            for count in itertools.count():
                trace = self._carried_out(left.pop(0), count)
                yield trace, not count
                if trace.death or not left:
                    break


def examines(_case: Any, trace: MemoryTrace) -> Examined:
    if dict(trace.session)["wrong"]:
        raise Violation("0", "1")
    return Examined(1, "cases")


RULE = made_up(NUMBERED, "memory", examines)


def test_each_of_the_first_cases_begins_a_child_and_then_thirty_share_one() -> None:
    target = Children(lambda _case, _count: False)
    verdict = judge(RULE, target, PROFILE, 1)
    assert verdict.outcome is Outcome.PASS
    assert target.companies[:3] == [1, 1, 3]
    assert set(target.companies[3:-1]) == {30}
    assert len(target.cases) == verdict.examples


def test_no_thirty_share_a_child_where_the_first_cases_were_unsupported() -> None:
    """One case that examined nothing, and was not unsupported either, is among the first five."""
    count = itertools.count()

    def check(_case: Any, _trace: MemoryTrace) -> Examined:
        if next(count) == 1:
            return Examined(0, "cases")
        raise Unsupported("it is not there")

    target = Children(lambda _case, _count: False)
    verdict = judge(made_up(NUMBERED, "memory", check), target, PROFILE, 1)
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert target.companies == [1, 1, 3, 5]


def test_a_fault_that_shows_only_alone_is_found() -> None:
    verdict = judge(RULE, Children(lambda case, count: count == 0 and size_of(case) > 1), PROFILE, 1)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.flaky == ""


def test_a_fault_of_the_case_itself_is_found_in_company_and_made_smaller_alone() -> None:
    target = Children(lambda case, _count: size_of(case) % 256 > 200)
    verdict = judge(RULE, target, PROFILE, 1)
    assert verdict.outcome is Outcome.FAIL
    case = msgspec.json.decode(finding(verdict).case, type=MemoryCase)
    assert size_of(case) == 201
    after = target.companies.index(1, 3)
    assert set(target.companies[after:]) == {1}


def test_what_breaks_the_rule_only_in_company_is_no_finding_and_ends_the_company() -> None:
    target = Children(lambda _case, count: count == 3)
    verdict = judge(RULE, target, PROFILE, 1)
    assert verdict.outcome is Outcome.PASS
    assert verdict.only_in_company == 1
    assert target.companies[:4] == [1, 1, 3, 30]
    assert set(target.companies[4:]) == {1}


@pytest.mark.parametrize(("by_chance", "outcome"), [(True, Outcome.FAIL), (False, Outcome.PASS)])
def test_what_shows_by_chance_is_tried_alone_more_than_once(by_chance: bool, outcome: Outcome) -> None:
    seen: list[MemoryCase] = []

    def wrong(case: MemoryCase, count: int) -> bool:
        """The fourth of a company, and the same case the third time that it is alone."""
        seen.extend([case] if count == 3 or case in seen else [])
        return count == 3 or seen.count(case) == 4

    rule = dataclasses.replace(RULE, by_chance=by_chance)
    verdict = judge(rule, Children(wrong), PROFILE, 1)
    assert verdict.outcome is outcome
    assert verdict.only_in_company == (not by_chance)


@pytest.mark.parametrize(("kind", "outcome"), [("signal", Outcome.CRASH), ("hang", Outcome.HANG)])
def test_a_death_only_in_company_is_found_as_one_case_and_cut_down(kind: Any, outcome: Outcome) -> None:
    target = Children(lambda _case, count: Death(kind, "it died", 0) if count == 3 else False)
    verdict = judge(RULE, target, PROFILE, 1)
    assert verdict.outcome is outcome
    assert len(msgspec.json.decode(finding(verdict).case, type=MemoryCase).steps) == 4


def test_a_death_in_company_that_the_joined_cases_do_not_show_is_no_finding_but_told() -> None:
    def wrong(case: MemoryCase, count: int) -> Death | bool:
        return Death("signal", "it died", 0) if count == 3 and len(case.steps) == 1 else False

    verdict = judge(RULE, Children(wrong), PROFILE, 1)
    assert (verdict.outcome, verdict.only_in_company) == (Outcome.PASS, 1)


def test_the_cases_behind_a_death_are_carried_out_too() -> None:
    seen: set[int] = set()

    def wrong(case: MemoryCase, count: int) -> Death | bool:
        if len(case.steps) > 1:
            return False
        seen.add(size_of(case))
        return Death("signal", "it died", 0) if count == 3 else False

    judge(RULE, Children(wrong), PROFILE, 1)
    assert seen == {size_of(case) for case in Search(NUMBERED, EXAMPLES, 1)}


def test_joined_cases_keep_their_own_objects() -> None:
    case = MemoryCase(
        (
            ContextCreate("c0"),
            Alloc("b0", 8),
            Register("c0", (Descriptor("b0", (1,)),), ("h0",)),
            Deregister(("h0", "NULL", "BOGUS")),
            Free("b0"),
        )
    )
    both = joined([case, case])
    assert both is not None
    assert both.steps[5:] == (
        ContextCreate("c0-1"),
        Alloc("b0-1", 8),
        Register("c0-1", (Descriptor("b0-1", (1,)),), ("h0-1",)),
        Deregister(("h0-1", "NULL", "BOGUS")),
        Free("b0-1"),
    )
    assert joined([case] * 100) is None


def test_refusing_rules_are_refused_in_company_too() -> None:
    rule = made_up(NUMBERED, "memory", refusing(lambda case: size_of(case) > 1))
    assert judge(rule, Children(lambda _case, _count: False), PROFILE, 1).outcome is Outcome.FAIL


def test_cases_that_are_listed_are_run_in_their_order_and_have_no_smaller_draw() -> None:
    strategy = listed([3, 1, 2])
    assert list(Search(strategy, 2, seed=1)) == [3, 1]
    assert list(Search(strategy, 2, seed=1, whole=True)) == [3, 1, 2]
    tried: list[int] = []
    Search(strategy, 3, seed=1).shrink(1, lambda case: bool(tried.append(case)))
    assert tried == []
