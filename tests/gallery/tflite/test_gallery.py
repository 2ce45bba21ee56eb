"""No rule accuses a delegate of the gallery, and each of them was seen to use its freedom."""

from __future__ import annotations

import dataclasses
import functools
from contextlib import closing

import pytest
from fast_run import LARGE, part

from pytest_qnn.core.engine import judge_with_owners
from pytest_qnn.core.profile import PROFILES, Profile
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.effort import profile
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.domain.table import made
from pytest_qnn.tflite.runner import domain
from pytest_qnn.tflite.target import DelegateTarget
from tests.gallery.tflite.odd import ODDITIES
from tests.gallery.tflite.plugins import PLUGINS
from tests.gallery.tflite.targets import FIRST, FREEDOMS, MEANT, RUNTIMES, SECOND, met, opened, targets

LEAST, FEW, SOME, MORE = (
    dataclasses.replace(PROFILES["quick"], in_process_examples=count) for count in (1, 4, 5, 10)
)
DRAWN = dataclasses.replace(PROFILES["quick"], in_process_examples=20, isolated_examples=20)
"""Of the input domain the operators that these delegates know, and some more."""
RULES = {
    "all-flags": "PROF-01",
    "by-turns": "PART-17",
    "c-dynamic": "DYN-02",
    "c-fma": "PREC-08",
    "c-one": "THR-01",
    "c-options": "ABI-04",
    "eight-lanes": "NUM-02",
    "first-of-equals": "NUM-07",
    "in-place": "PART-11",
    "no-infinity": "NUM-07",
    "no-negative-zero": "NUM-07",
    "no-plan-no-claims": "ERR-01",
    "operator-events": "PROF-01",
    "range-of-shapes": "DYN-02",
    "remembers": "DET-01",
    "silent": "ERR-07",
    "sums-in-order": "NUM-02",
    "two-kernels": "NUM-09",
    "windows-inside": "NUM-02",
}
"""What a freedom is met with, where a few graphs of several nodes do not meet it."""
USUAL = "NUM-09"
CELLS = "DOM-01"
"""It judges each cell of the input domain, whatever its number of examples, and has a test of its own."""
LATE = ("eight-lanes", "sums-in-order")
"""It is met by long sums, which the first examples do not have."""
PASSES = {Outcome.PASS, Outcome.UNSUPPORTED}
NEVER_WHOLE = ("inner", "odd-index", "in-place", "no-ends")
"""They never claim a graph of several nodes as a whole, which XNN-03 looks at."""


def judged(rule_id: str, name: str, target: DelegateTarget, effort: Profile) -> None:
    """No finding but one that the oddity means."""
    rules = catalogue()
    found = judge_with_owners(rules[rule_id], target, effort, 1, rules.__getitem__)
    if found.verdict.outcome is Outcome.INCONCLUSIVE:  # so few examples showed it nothing
        found = judge_with_owners(rules[rule_id], target, profile("default"), 1, rules.__getitem__)
    for verdict in (found.verdict, *found.handed_over):
        if verdict.rule == "XNN-03" and name.partition(",")[0] in NEVER_WHOLE:
            assert verdict.outcome is Outcome.INCONCLUSIVE, verdict
        else:
            assert verdict.outcome in PASSES or verdict.rule in MEANT[name], verdict


def test_the_gallery_is_as_large_as_it_is_to_be() -> None:
    assert len(ODDITIES) + len(PLUGINS) >= 40
    assert len(PLUGINS) >= 10
    assert targets().keys() == FREEDOMS.keys() == MEANT.keys()
    assert {catalogue()[rule_id].level.name for meant in MEANT.values() for rule_id in meant} == {"SHOULD"}


@pytest.mark.parametrize("name", part([*ODDITIES, *PLUGINS], 1, 4))
def test_an_oddity_meets_its_freedom_and_is_not_accused(name: str) -> None:
    before = met(name)
    with closing(opened(name, FIRST if len(name) % 2 else SECOND, "off")) as target:
        judged(RULES.get(name, USUAL), f"{name}, {FIRST}", target, MORE if name in LATE else FEW)
    assert met(name) > before


@pytest.mark.parametrize("name", ["in-company", "no-ends"])
def test_nodes_that_are_claimed_only_beside_others_are_learned_in_chains(name: str) -> None:
    with closing(opened(name, FIRST, "off")) as target:
        assert target.facts.floor.chain
        assert sum(claim.outcome == "claimed" for claim in target.facts.claims) > 200


def test_convolutions_are_learned_by_windows_that_lie_inside_the_image() -> None:
    with closing(opened("windows-inside", FIRST, "off")) as target:
        assert {claim.outcome for claim in target.facts.claims if claim.kind.op == "CONV_2D"} == {"claimed"}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_who_claims_less_after_a_resize_is_not_blamed_for_another_delegate_that_fails_then(
    runtime: str,
) -> None:
    """The runtime does not apply anybody again, and keeps a kernel (RT-02)."""
    with closing(opened("as-shapes-stand", runtime, "off")) as target:
        judged("RSZ-03", f"as-shapes-stand, {runtime}", target, profile("default"))


def test_room_for_two_kernels_is_less_while_the_runtime_keeps_one() -> None:
    """LiteRT never frees one of two kernels that it undoes because a later init failed (RT-02)."""
    with closing(opened("two-kernels", SECOND, "off")) as target:
        judged("PREC-07", f"two-kernels, {SECOND}", target, profile("default"))


@pytest.mark.full
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", [*ODDITIES, *PLUGINS])
def test_no_rule_accuses_an_oddity(name: str, runtime: str) -> None:
    before = met(name)
    with closing(opened(name, runtime)) as target:
        for rule in catalogue().values():
            if rule.subject == "delegate" and rule.id != CELLS:
                judged(rule.id, f"{name}, {runtime}", target, LEAST if rule.id in LARGE else SOME)
    assert met(name) > before


made_once = functools.cache(made)
"""The model of a cell, for all delegates: 26 MiB, and half of the time that they take."""


@pytest.mark.full
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", [*ODDITIES, *PLUGINS])
def test_no_cell_accuses_an_oddity(name: str, runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "made", made_once)
    with closing(opened(name, runtime)) as target:
        judged(CELLS, f"{name}, {runtime}", target, DRAWN)
