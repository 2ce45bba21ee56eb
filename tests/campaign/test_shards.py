"""``--qnn-shard``, ``--qnn-blocks`` and ``python -m pytest_qnn merge``: shards come to what one run finds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any

import fake_suite
import jsonschema
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reports import comparable, judged_by_id, refusal

from pytest_qnn import effort
from pytest_qnn.commands import USAGE_ERROR
from pytest_qnn.commands import merge as command
from pytest_qnn.core.fingerprint import Fingerprint
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.verdict import WORST_FIRST, Finding, Further, Level, Outcome, Verdict, of_blocks, worst
from pytest_qnn.report.merge import github
from pytest_qnn.report.merge.merged import Merged
from pytest_qnn.session.judging import rule_seed
from pytest_qnn.session.shards import block_seed, units

RULES = [rule for rule in fake_suite.CATALOGUE if rule != "REG-12"]  # REG-12 ends its process
FAKES = ("--qnn-seed=3", "--qnn-blocks=2", "--tflite-delegate=xnnpack", "--qnn-backend=reference")
SHARDS = ("1.json", "2.json", "3.json")


def run(pytester: pytest.Pytester, name: str, *options: str) -> int:
    return int(pytester.runpytest_inprocess(f"--qnn-report={name}", *options).ret)


def merge(*arguments: str) -> int:
    return command.main(["--update=merged.json", *arguments])


def edited(name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Write a report anew with a change in it."""
    document = json.loads(Path(name).read_text())
    change(document)
    Path(name).write_text(json.dumps(document))


_made: dict[str, str] = {}


@pytest.fixture
def shards(pytester: pytest.Pytester, fakes: None) -> pytest.Pytester:
    """Three shards of the made-up rules, in files; they are run once."""
    pytester.makepyfile(test_rules=fake_suite.suite(*RULES))
    for number, name in enumerate(SHARDS, 1):
        if name not in _made:
            assert run(pytester, name, *FAKES, f"--qnn-shard={number}/3") == 1
            _made[name] = Path(name).read_text()
        Path(name).write_text(_made[name])
    return pytester


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        resources.files("pytest_qnn.report").joinpath("schema.json").read_text()
    )
    return content


def test_shards_in_any_order_come_to_the_report_and_the_exit_status_of_one_run(
    shards: pytest.Pytester, schema: dict[str, Any]
) -> None:
    assert run(shards, "whole.json", *FAKES) == 1
    for order in itertools.permutations(SHARDS):
        assert merge(*order) == 1
        assert comparable("merged.json") == comparable("whole.json")
    validator = jsonschema.Draft202012Validator(schema)
    for name in (*SHARDS, "merged.json", "whole.json"):
        validator.validate(json.loads(Path(name).read_text()))
    merged = judged_by_id(json.loads(Path("merged.json").read_text()))
    assert sorted(merged) == sorted(RULES)
    assert merged["REG-01"]["examples"] == 2  # one of each block


def test_what_a_shard_leaves_to_others_is_not_missing_in_it(shards: pytest.Pytester) -> None:
    """The test of REG-12 is not collected: the shard that should judge it is incomplete, and no other."""
    for name in SHARDS:
        report = json.loads(Path(name).read_text())
        states = {rule["id"]: rule["state"] for target in report["targets"] for rule in target["rules"]}
        units = set(report["shard"]["units"])
        assert {rule for rule, state in states.items() if state == "judged"} == units
        left = {rule for rule, state in states.items() if state == "not_selected"}
        assert left <= {"REG-12"}
        assert {rule for rule, state in states.items() if state == "other_shard"} == {
            rule for rule in fake_suite.CATALOGUE if rule not in units | left
        }
        assert (report["complete"], report["not_judged"]) == (not left, [])
    result = shards.runpytest_inprocess(*FAKES, "--qnn-shard=1/3")
    result.stdout.fnmatch_lines(["qnn: *, shard 1/3, 2 seed blocks", "left to other shards: * rules; *"])


def test_a_shard_without_failures_passes(pytester: pytest.Pytester, fakes: None) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01", "REG-06", "PART-01"))
    options = ("--qnn-rule=REG-01,REG-06,PART-01", "--qnn-seed=1")
    for number in (1, 2, 3):
        assert run(pytester, f"{number}.json", *options, f"--qnn-shard={number}/3") == 0
    assert run(pytester, "whole.json", *options) == 0
    assert merge(*SHARDS) == 0
    assert comparable("merged.json") == comparable("whole.json")


def test_a_test_that_judges_no_rule_and_fails_in_a_shard_fails_the_campaign(
    pytester: pytest.Pytester, fakes: None, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "\n\ndef test_own():\n    import pathlib\n    assert not pathlib.Path('1.json').exists()\n"
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01", "PART-01") + own)
    options = ("--qnn-rule=REG-01,PART-01", "--qnn-seed=1")
    assert run(pytester, "1.json", *options, "--qnn-shard=1/2") == 0
    assert run(pytester, "2.json", *options, "--qnn-shard=2/2") == 1
    assert merge("1.json", "2.json") == 1
    assert "failed: shard 2 ended with exit status 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            ("--tflite-delegate=mutant:ignores-activation", "--qnn-rule=NUM-06,PART-10", "--qnn-blocks=2"),
            marks=pytest.mark.full,
        ),
        # What dies in cases of DET-01 is a verdict on RUN-01, which is the other shard's.
        pytest.param(
            ("--tflite-delegate=mutant:aborts-in-invoke", "--qnn-rule=DET-01,RUN-01", "--qnn-sandbox=fork"),
            marks=pytest.mark.full,
        ),
    ],
    ids=["blocks", "owners"],
)
def test_a_real_target_gives_in_shards_what_it_gives_in_one_run(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    suite = ("--pyargs", "pytest_qnn.conformance", "-p", "no:cacheprovider", "--qnn-seed=1")
    for name, more in (("1", ("--qnn-shard=1/2",)), ("2", ("--qnn-shard=2/2",)), ("whole", ())):
        pytester.runpytest_subprocess(
            *suite, "--qnn-profile=quick", *options, *more, f"--qnn-report={name}.json"
        )
    assert merge("2.json", "1.json") == 1
    whole = comparable("whole.json")
    assert comparable("merged.json") == whole
    parts = [part for name in "12" for part in json.loads(Path(f"{name}.json").read_text())["shard"]["parts"]]
    assert any(part["found_by"] for part in parts) == ("--qnn-rule=DET-01,RUN-01" in options)
    assert {rule["verdict"] for rule in judged_by_id(whole).values()} & {"fail", "crash"}


@pytest.mark.usefixtures("fakes", "fakes_outside")
@pytest.mark.full
def test_workers_share_a_shard(pytester: pytest.Pytester) -> None:
    """Options alone decide what is this shard's: nobody tells workers what the others collect."""
    few = ("REG-01", "REG-02", "REG-06", "PART-01")
    pytester.makepyfile(test_rules=fake_suite.suite(*few))
    options = ("--qnn-seed=1", "--qnn-blocks=2", f"--qnn-rule={','.join(few)}")
    assert run(pytester, "whole.json", *options) == 1
    run(pytester, "1.json", *options, "--qnn-shard=1/2")
    pytester.runpytest_subprocess(
        *("-p", "fake_suite", "-n1", *options, "--qnn-shard=2/2", "--qnn-report=2.json")
    )
    assert merge("1.json", "2.json") == 1
    assert comparable("merged.json") == comparable("whole.json")


def without_a_rule(report: dict[str, Any]) -> None:
    """Another selection: without a rule that is no unit of the shard."""
    shard = report["shard"]
    shard["campaign"] = [rule for rule in shard["campaign"] if rule in shard["units"]]


def with_all_blocks(report: dict[str, Any]) -> None:
    """Each rule of the shard with both blocks, one of which is another shard's."""
    report["shard"]["units"] = {rule: [0, 1] for rule in report["shard"]["units"]}


def without_a_unit(report: dict[str, Any]) -> None:
    """A rule that the shard should have collected, as without -k."""
    shard = report["shard"]
    gone = next(iter(shard["units"]))
    del shard["units"][gone]
    shard["parts"] = [part for part in shard["parts"] if part["rule"] != gone]


SEED = "2.json is of another campaign than 1.json: seed 3 and 4"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda report: report.update(seed=4), SEED),
        (lambda report: report.update(profile="quick"), "profile default and quick"),
        (lambda report: report["tool"].update(hypothesis="0"), "tool, hypothesis: "),
        (lambda report: report["tool"].update({"pytest-qnn": "9"}), "was made by pytest-qnn 9, and this is"),
        (lambda report: report["catalogue"].update(sha256="0" * 64), "with other rules than this one's"),
        (lambda report: report["options"].update(qnn_timeout=3.0), "options, qnn_timeout: 10.0 and 3.0"),
        (
            lambda report: report["targets"][1]["provenance"].update(library_sha256="1" * 64),
            f"target reference, library_sha256: {'0' * 64} and {'1' * 64}",
        ),
        (lambda report: report["targets"].pop(), "has other targets than those of its halves"),
        (lambda report: report.update(submission={"board": "b"}), "submission, board: None and b"),
        (without_a_rule, "they select different rules"),
        (with_all_blocks, "is in 2 shards"),
        (without_a_unit, "is in no shard: different tests were collected"),
        (lambda report: report["shard"].update(of=4), "3 and 4 shards"),
        (lambda report: report["shard"].update(number=1), "2.json is shard 1/3, and so is 1.json"),
        (lambda report: report["shard"].update(number=4), "is shard 4 of 3"),
        (lambda report: report.pop("shard"), "is the report of a whole run"),
        (lambda report: report["shard"].pop("parts"), "is no report that can be merged"),
        (lambda report: report["options"].update(qnn_blocks="x"), "says of no seed blocks how many"),
        (lambda report: report["shard"]["units"].update({"REG-99": [0]}), "there is no such rule"),
        (lambda report: report["shard"]["parts"][0].update(block=7), "which is not its unit"),
        (lambda report: report["shard"]["parts"][0].update(target="\x1b[2J"), "which is not its target"),
        (lambda report: report["shard"]["parts"][0].update(level="MAY"), "and there is no such rule"),
        (lambda report: report.update(targets=[]), "has other targets than"),
    ],
)
def test_what_is_no_shard_of_the_campaign_is_refused_in_one_sentence(
    shards: pytest.Pytester,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[dict[str, Any]], None],
    said: str,
) -> None:
    edited("2.json", change)
    capsys.readouterr()
    assert merge(*SHARDS) == USAGE_ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("merge: ")
    assert said in line
    assert "\x1b" not in line
    assert not Path("merged.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("1.json", "3.json"), "of 3 shards these are missing: 2"),
        (("1.json", "2.json", "3.json", "3.json"), "3.json is shard 3/3, and so is 3.json"),
        (("nowhere.json",), "nowhere.json cannot be read: No such file or directory"),
    ],
)
def test_missing_and_double_shards_are_refused(
    shards: pytest.Pytester, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert merge(*arguments) == USAGE_ERROR
    assert said in capsys.readouterr().err


def test_a_rule_that_has_no_verdict_in_one_block_is_not_judged(
    shards: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose(report: dict[str, Any]) -> None:
        shard = report["shard"]
        shard["parts"] = [part for part in shard["parts"] if part["rule"] != "REG-01"]

    holders = [name for name in SHARDS if "REG-01" in json.loads(Path(name).read_text())["shard"]["units"]]
    edited(holders[0], lose)
    assert merge(*SHARDS) == 1
    report = json.loads(Path("merged.json").read_text())
    assert (report["complete"], report["not_judged"]) == (False, ["REG-01"])
    assert "REG-01 not judged" in capsys.readouterr().out


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--qnn-shard=0/2", "--qnn-seed=1"), "--qnn-shard: '0/2' is not K/N"),
        (("--qnn-shard=3/2", "--qnn-seed=1"), "--qnn-shard: '3/2' is not K/N"),
        (("--qnn-shard=1", "--qnn-seed=1"), "--qnn-shard: '1' is not K/N"),
        (("--qnn-shard=1/10000", "--qnn-seed=1"), "--qnn-shard: '1/10000' is not K/N"),
        (("--qnn-shard=1/2",), "--qnn-shard: needs --qnn-seed, the same for all shards"),
        (("--qnn-shard=1/29", "--qnn-seed=1", "--qnn-blocks=2"), "there are 28 units (14 rules"),
        (("--qnn-shard=1/2", "--qnn-shard=2/2", "--qnn-seed=1"), "a run has one"),
        (("--qnn-blocks=0",), "--qnn-blocks: '0' is not a whole number from 1 to 9999"),
        (("--qnn-blocks=two",), "--qnn-blocks: 'two' is not a whole number"),
    ],
)
def test_a_shard_of_another_form_ends_the_run_before_any_test(
    pytester: pytest.Pytester, options: tuple[str, ...], said: str
) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01"))
    assert said in refusal(pytester.runpytest_inprocess(*options))


def test_a_finding_of_a_later_block_names_the_seed_that_gives_its_cases_alone(
    pytester: pytest.Pytester, fakes: None
) -> None:
    """Of two blocks in two shards: the second one's own seed is in its text and in its folder."""
    pytester.makepyfile(test_rules=fake_suite.suite("REG-02"))
    options = ("--qnn-rule=REG-02", "--qnn-seed=1", "--qnn-blocks=2", "--qnn-report=out.json")
    own = block_seed(1, 1)
    for number in (1, 2):
        result = pytester.runpytest_inprocess(*options, f"--qnn-shard={number}/2")
        report = json.loads(Path("out.json").read_text())
        if report["shard"]["units"] == {"REG-02": [1]}:
            break
    result.stdout.fnmatch_lines([f"  seed      --qnn-seed={own}"])
    rule = judged_by_id(report)["REG-02"]
    assert (rule["block"], rule["seed"]) == (1, rule_seed(own, "REG-02"))
    (case,) = Path(".pytest-qnn").glob("*/REG-02-block-1/case.json")
    assert json.loads(case.read_text())["seed"] == own


def test_a_run_without_blocks_is_block_0_and_says_nothing_of_blocks(
    pytester: pytest.Pytester, fakes: None
) -> None:
    assert block_seed(5, 0) == 5
    assert block_seed(5, 1) == 74649444442227  # a stored --qnn-seed must keep its meaning
    assert len({block_seed(seed, block) for seed in range(20) for block in range(20)}) == 400
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01"))
    assert run(pytester, "one.json", "--qnn-seed=3") == 0
    rule = judged_by_id(json.loads(Path("one.json").read_text()))["REG-01"]
    assert "block" not in rule
    assert rule["seed"] == rule_seed(3, "REG-01")


IDS = [f"REG-{number:02}" for number in range(1, 40)]


@pytest.mark.parametrize(("blocks", "of"), [(1, 1), (1, 7), (3, 8), (2, 78)])
def test_each_unit_is_in_one_shard_in_whatever_order_the_rules_are_given(blocks: int, of: int) -> None:
    found = [units(IDS, blocks, (number, of), "quick") for number in range(1, of + 1)]
    assert found == [units(IDS[::-1], blocks, (number, of), "quick") for number in range(1, of + 1)]
    assert sorted((rule, block) for each in found for rule, own in each.items() for block in own) == sorted(
        itertools.product(IDS, range(blocks))
    )
    assert all(found)
    with pytest.raises(BadOption, match="there are 39 units"):
        units(IDS, 1, (1, 40), "quick")


def test_shards_have_equally_many_planned_examples() -> None:
    plan = effort.profile("default").plan
    loads = [
        sum(plan[rule] * len(own) for rule, own in units(plan, 2, (number, 8), "default").items())
        for number in range(1, 9)
    ]
    assert max(loads) - min(loads) <= max(plan.values())
    assert sum(loads) == 2 * sum(plan.values())


def verdict(outcome: str, block: int, found_by: str, known: bool) -> Verdict:
    return Verdict(
        rule="REG-01",
        area="REG",
        level=Level.MUST,
        sentence="s",
        source="s",
        subject="memory",
        self_check=False,
        target="t",
        outcome=Outcome(outcome),
        examples=1,
        examined=2,
        what="calls",
        seconds=0.5,
        seed=block,
        block=block,
        found_by=found_by,
        known=("it",) if known else (),
    )


VERDICTS = st.builds(
    verdict,
    st.sampled_from([outcome.value for outcome in Outcome]),
    st.integers(0, 3),
    st.sampled_from(["", "REG-02", "REG-03"]),
    st.booleans(),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(VERDICTS, min_size=1, max_size=8), st.randoms())
@example([verdict("crash", 0, "", known=False), verdict("fail", 1, "", known=True)], Random(0))
def test_what_verdicts_come_to_does_not_depend_on_their_order(found: list[Verdict], random: Random) -> None:
    mixed = list(found)
    random.shuffle(mixed)
    assert worst(mixed).shown == worst(found).shown
    red = [each for each in found if each.is_red(strict=False)]
    least = min(WORST_FIRST.index(each.shown) for each in red or found)
    assert WORST_FIRST.index(worst(found).shown) == least
    assert worst(found).is_red(strict=False) is bool(red)
    own = of_blocks(mixed)
    blocks = {each.block for each in found if not each.found_by}
    assert (own is None) == (not blocks)
    if own is not None:
        assert (own.examples, own.examined, own.seconds) == (
            *(len(blocks), 2 * len(blocks)),
            0.5 * len(blocks),
        )


def test_what_explains_one_block_does_not_explain_another() -> None:
    """A MUST that could look at nothing in one block is red, whatever owner another block names."""
    silent = verdict("inconclusive", 0, "", known=False)
    blocked = msgspec.structs.replace(silent, block=1, blocked_by=("REG-08",))
    passed = msgspec.structs.replace(verdict("pass", 2, "", known=False), blocked_by=("REG-08",))
    for others in ([blocked], [passed], [blocked, passed]):
        found = of_blocks([silent, *others])
        assert found is not None
        assert (found.block, found.is_blocked, found.is_red(strict=False)) == (0, False, True)
    found = of_blocks([blocked, passed])
    assert found is not None
    assert found.is_blocked


def finding(call: str, shape: str = "") -> Finding:
    return Finding(expected="0", seen="1", fingerprint=Fingerprint(call=call, shape=shape))


def found_in(block: int, outcome: str, *calls: str) -> Verdict:
    """A verdict with a finding in the first call, and others beside it."""
    first, *others = [Further(Outcome(outcome), finding(call)) for call in calls]
    return msgspec.structs.replace(
        verdict(outcome, block, "", known=False),
        finding=first.finding,
        further=tuple(others),
        folder=f"target/REG-01-block-{block}",
    )


def test_what_other_blocks_found_stands_beside_the_finding_each_thing_once() -> None:
    silent = verdict("inconclusive", 4, "", known=False)
    own = of_blocks(
        [
            verdict("pass", 0, "", known=False),
            found_in(1, "fail", "alloc", "free"),
            found_in(2, "crash", "register", "alloc"),
            msgspec.structs.replace(found_in(3, "fail", "alloc"), finding=finding("alloc", "from rank 3")),
            msgspec.structs.replace(silent, finding=finding("a case that showed nothing")),
        ]
    )
    assert own is not None
    assert (own.block, own.outcome, own.finding) == (2, Outcome.CRASH, finding("register"))
    assert [(each.outcome.value, each.finding.fingerprint.call, each.file) for each in own.further] == [
        ("crash", "alloc", ""),
        ("fail", "alloc", "target/REG-01-block-1/case.json"),
        ("fail", "free", "target/REG-01-block-1/case-2.json"),
    ]


def test_an_error_of_the_suite_in_one_block_is_told_beside_what_another_found() -> None:
    failed = msgspec.structs.replace(
        verdict("inconclusive", 0, "", known=False),
        finding=finding("a case in which the suite fails"),
        reason="internal error: KeyError",
        traceback="Traceback",
    )
    own = of_blocks([failed, found_in(1, "fail", "alloc")])
    assert own is not None
    assert (own.block, own.outcome, own.further) == (1, Outcome.FAIL, ())
    assert (own.note, own.traceback) == ("internal error: KeyError", "Traceback")


def test_of_what_blocks_found_ten_are_told_the_worst_first() -> None:
    many = [found_in(block, "fail", f"call {block}", "one more") for block in range(12)]
    own = of_blocks([*many, found_in(12, "hang", "waits"), found_in(13, "crash", "dies")])
    assert own is not None
    assert own.block == 13
    told = [each.finding.fingerprint.call for each in own.further]
    assert told == ["waits", *(f"call {block}" for block in range(8))]


def test_of_blocks_as_many_findings_stand_beside_the_first_as_one_of_them_has() -> None:
    one, *others = (found_in(0, "crash", f"call {number}") for number in range(15))
    beside = tuple(Further(each.outcome, each.finding) for each in others if each.finding)
    own = of_blocks([msgspec.structs.replace(one, further=beside[:12]), found_in(1, "crash", "another")])
    assert own is not None
    assert len(own.further) == 12
    own = of_blocks([one, msgspec.structs.replace(others[0], block=1, further=beside[1:12])])
    assert own is not None
    assert len(own.further) == 11


@pytest.mark.parametrize("level", [Level.SHOULD, Level.MAY])
def test_a_failure_that_is_allowed_hides_none_that_is_not(level: Level) -> None:
    failed = msgspec.structs.replace(verdict("fail", 0, "", known=False), level=level)
    broken = msgspec.structs.replace(
        verdict("inconclusive", 1, "", known=False), level=level, traceback="KeyError"
    )
    own = of_blocks([failed, broken])
    assert own is not None
    assert (own.traceback, own.is_red(strict=False)) == ("KeyError", True)
    other = msgspec.structs.replace(verdict("contradiction", 0, "REG-02", known=False), level=level)
    assert worst([failed, other]).is_red(strict=False) is (level is Level.SHOULD)


def test_what_the_own_tests_found_stands_beside_what_another_rule_found() -> None:
    own = msgspec.structs.replace(found_in(0, "fail", "alloc", "free"), note="said", traceback="Traceback")
    other = found_in(0, "crash", "register", "free")
    other = msgspec.structs.replace(other, found_by="REG-02", folder="target/REG-01-found-by-REG-02")
    told = worst([other, own])
    assert (told.found_by, told.outcome, told.finding) == ("REG-02", Outcome.CRASH, finding("register"))
    assert [(each.outcome.value, each.finding.fingerprint.call, each.file) for each in told.further] == [
        ("crash", "free", ""),
        ("fail", "alloc", "target/REG-01-block-0/case.json"),
        ("fail", "free", "target/REG-01-block-0/case-2.json"),
    ]
    assert (told.note, told.traceback) == ("said", "Traceback")


def test_what_was_expected_and_not_found_is_said_whatever_another_rule_found() -> None:
    own = msgspec.structs.replace(verdict("pass", 0, "", known=False), unexpected="entry 1 was not found")
    other = verdict("fail", 0, "REG-02", known=True)
    assert worst([own, other]).unexpected == "entry 1 was not found"


def test_an_annotation_says_what_was_seen_however_long_the_sentence_is() -> None:
    failed = msgspec.structs.replace(found_in(0, "fail", "register"), sentence="A call " * 40)
    merged = Merged({}, {("memory", "reference"): [failed]}, (f"{failed.rule} fail",))
    (line,) = github.errors(merged)
    assert line.startswith(f"::error title={failed.rule} fail::{failed.rule} fail: A call A call ")
    assert line.endswith(" Seen: 1")


def test_the_schema_of_a_verdict_by_itself_has_all_its_fields(schema: dict[str, Any]) -> None:
    assert set(schema["$defs"]["part"]["properties"]) == set(Verdict.__struct_fields__)
    data = json.loads(msgspec.json.encode(verdict("fail", 1, "", known=False)))
    part = {"$ref": "#/$defs/part", "$defs": schema["$defs"]}
    jsonschema.Draft202012Validator(part).validate(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(part).validate(data | {"outcome": "known"})
