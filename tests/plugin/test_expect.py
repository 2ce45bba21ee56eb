"""Known failures: exactly what is expected is accepted, and the search goes on around it."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import importlib.resources
import json
import resource
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomlkit
from fast_run import later
from reports import judged_by_id, refusal

from pytest_qnn import commands
from pytest_qnn.core.engine import judge_with_owners
from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.fingerprint import Fingerprint, fits, masked, traits_of
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.known_failures import Expectations
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Examined, Outcome, Verdict
from pytest_qnn.expect import file
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.target import open_delegate_target

SUITE = ("--pyargs", "pytest_qnn.conformance", "-p", "no:cacheprovider", "--qnn-seed=3")
ADD = '{ operators = ["ADD float32"] }'
REPORT = "--qnn-report=out.json"


def entry(**changes: str) -> str:
    """An entry that is complete, for NUM-10 on any target."""
    values = {
        "rule": '"NUM-10"',
        "verdict": '"fail"',
        "fingerprint": ADD,
        "library": '{ precision = "float32" }',
        "reason": '"sums are approximate"',
        "issue": '"QN-1"',
        "owner": '"kernels"',
        "expires": "2999-12-31",
    } | changes
    return "[[failure]]\n" + "".join(f"{key} = {value}\n" for key, value in values.items() if value)


def judged(
    pytester: pytest.Pytester, mutant: str, text: str, *options: str
) -> tuple[pytest.RunResult, dict[str, Any]]:
    Path("known.toml").write_text(text, encoding="utf-8")
    target = f"--tflite-delegate={mutant}"
    chosen = options or ("-k", "test_num_10")
    result = pytester.runpytest_inprocess(*SUITE, REPORT, target, "--qnn-expect=known.toml", *chosen)
    document = json.loads(Path("out.json").read_text(encoding="utf-8"))
    schema = json.loads((importlib.resources.files("pytest_qnn.report") / "schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    (found,) = (target for target in document["targets"] if target["subject"] == "delegate")
    return result, {rule["id"]: rule for rule in found["rules"]}


def test_what_is_expected_is_known(pytester: pytest.Pytester) -> None:
    options = ("-k", "test_num_10", "-rx", "--junitxml=out.xml", "--qnn-report=out.html")
    result, rules = judged(pytester, "mutant:adds-a-thousandth", entry(), *options)
    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.OK
    said = "sums are approximate (QN-1, kernels, until 2999-12-31)"
    shown = ["area *known", f"NUM-10 MUST known fail: {said}", f"XFAIL *NUM-10 known: {said}*"]
    result.stdout.fnmatch_lines(shown)
    rule = rules["NUM-10"]
    assert (rule["verdict"], rule["known"], rule["violation"], rule["replay"]) == ("known", [said], None, "")
    assert f'<property name="known" value="{said}" />' in Path("out.xml").read_text(encoding="utf-8")
    assert f"known: {said}" in Path("out.html").read_text(encoding="utf-8")


def test_a_second_fault_under_the_rule_is_found_beside_it(pytester: pytest.Pytester) -> None:
    result, rules = judged(pytester, "mutant:approximates", entry())
    result.assert_outcomes(failed=1)
    violation = rules["NUM-10"]["violation"]
    assert rules["NUM-10"]["verdict"] == "fail"
    assert "ADD float32" not in violation["fingerprint"]["operators"]
    assert rules["NUM-10"]["known"]
    said = "sums are approximate (QN-1, kernels, until 2999-12-31)"
    unknown = "  unknown   no entry of the known failures (--qnn-expect) is this finding"
    result.stdout.fnmatch_lines([unknown, f"  besides   {said}"])


def test_what_is_not_found_fails_and_says_which(pytester: pytest.Pytester) -> None:
    result, rules = judged(pytester, "reference", entry())
    result.assert_outcomes(failed=1)
    assert rules["NUM-10"]["verdict"] == "pass"
    assert rules["NUM-10"]["unexpected"] == "entry 1 of the known failures was not found"
    result.stdout.fnmatch_lines(["NUM-10 MUST not as expected: entry 1 of the known failures was not found"])


def test_what_is_not_always_found_may_be_absent(pytester: pytest.Pytester) -> None:
    result, _ = judged(pytester, "reference", entry(flaky="0.5"))
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"expires": "2020-01-31"}, "entry 1 of the known failures is expired"),
        later({"verdict": '"crash"'}, ""),
        later({"fingerprint": '{ operators = ["MUL float32"] }'}, ""),
        later({"fingerprint": '{ operators = ["ADD float32"], seen = "something else" }'}, ""),
        later({"library": '{ precision = "float16" }'}, ""),
        later({"library": '{ runtime_version = "<2" }'}, ""),
        later({"rule": '"NUM-02"'}, ""),
    ],
)
def test_anything_else_is_not_accepted(pytester: pytest.Pytester, changes: dict[str, str], said: str) -> None:
    result, rules = judged(pytester, "mutant:adds-a-thousandth", entry(**changes))
    result.assert_outcomes(failed=1)
    assert (rules["NUM-10"]["verdict"], rules["NUM-10"]["unexpected"]) == ("fail", said)


def test_a_crash_that_is_expected_of_its_owner_is_known_where_another_rule_meets_it(
    pytester: pytest.Pytester,
) -> None:
    signal = entry(rule='"RUN-01"', verdict='"crash"', fingerprint='{ signal = "SIGABRT" }')
    result, rules = judged(pytester, "mutant:aborts-at-rank-3", signal, "-k", "life_10", "--qnn-sandbox=fork")
    assert result.ret == pytest.ExitCode.OK
    assert (rules["LIFE-10"]["verdict"], rules["LIFE-10"]["blocked_by"]) == ("pass", ["RUN-01"])
    assert rules["RUN-01"]["verdict"] == "known"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (entry(reason='""'), "entry 1 (NUM-10): empty, and to be filled: reason"),
        (entry(reason=""), "missing required field `reason`"),
        (entry(owner='" "'), "entry 1 (NUM-10): empty, and to be filled: owner"),
        (entry() + entry(issue='""'), "entry 2 (NUM-10): empty, and to be filled: issue"),
        (entry(expires='""'), "empty, and to be filled: expires"),
        (entry(expires='""', reason='""', owner='""'), "empty, and to be filled: reason, owner, expires"),
        (entry(expires='"next year"'), "expires is a date, such as 2027-01-31"),
        (entry(expires='"2027-02-31"'), "entry 1 (NUM-10): "),
        (entry(expires="2027-01-31T00:00:00"), "expires is a date, such as 2027-01-31"),
        (entry(expires=""), "missing required field `expires`"),
        (entry(rule='"NUM-100"'), "the catalogue has no rule 'NUM-100'; NUM-10?"),
        (entry(verdict='"pass"'), "verdict is 'pass', and not one of fail, crash, hang"),
        (entry(fingerprint="{}"), "fingerprint is empty, and would accept anything"),
        (entry(fingerprint='{ size = "4" }'), "unknown field `size`"),
        (entry(fingerprint='{ shape = "rank 3" }'), "not of the form 'from rank 3'"),
        (entry(library="{}"), "library names nothing"),
        (entry(library='{ runtime_version = ">=x" }'), "'>=x' is no range of versions"),
        (entry(flaky="2.0"), "flaky is a part of all runs"),
        (entry(color='"red"'), "unknown field `color`"),
        ("[[failures]]\n", "has 'failures'; entries are [[failure]]"),
        ("failure = 3\n", "entries are [[failure]]"),
        ("[[failure]\n", "is not TOML"),
        ("#" * (1 << 20) + "#", "has more than 1048576 bytes"),
    ],
)
def test_an_entry_that_is_not_complete_is_refused_in_one_sentence(
    pytester: pytest.Pytester, text: str, said: str
) -> None:
    Path("known.toml").write_text(text, encoding="utf-8")
    with pytest.raises(BadOption) as caught:
        file.read(Path("known.toml"))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_refused_is_a_usage_error(pytester: pytest.Pytester) -> None:
    Path("known.toml").write_bytes(b"\xff")
    result = pytester.runpytest_inprocess(*SUITE, "--qnn-expect=known.toml", "-k", "num_10")
    assert refusal(result) == "--qnn-expect: 'known.toml' cannot be read: not UTF-8"
    for name in ("absent.toml", "."):
        result = pytester.runpytest_inprocess(*SUITE, f"--qnn-expect={name}", "-k", "num_10")
        assert refusal(result).startswith("--qnn-expect: ")


def test_an_entry_holds_on_its_last_day_and_for_its_libraries_only(tmp_path: Path) -> None:
    known = tmp_path / "known.toml"
    known.write_text(entry(library='{ library_sha256 = "ab", backend_api = ">=5.3,<5.10" }'))
    (one,) = entries = file.read(known).failures
    provenance = {"library_sha256": "ab", "backend_api": "5.9.1"}
    late = one.expires + datetime.timedelta(1)
    assert file.expectations(entries, "NUM-10", provenance, one.expires).accepted == (one,)
    assert file.expectations(entries, "NUM-10", provenance, late).expired == (one,)
    others = ({"library_sha256": "ac"}, {"backend_api": "5.10.0"}, {"backend_api": "unknown"})
    for other in (*({**provenance, **each} for each in others), {"library_sha256": "ab"}):
        assert not file.expectations(entries, "NUM-10", other, one.expires).accepted


def test_a_date_may_stand_in_the_quotes_that_the_command_has_written(tmp_path: Path) -> None:
    known = tmp_path / "known.toml"
    known.write_text(entry(expires='"2027-01-31"'))
    assert file.read(known).failures[0].expires == datetime.date(2027, 1, 31)


def node(op: str, rank: int) -> dict[str, Any]:
    tensors = [{"shape": [2] * rank}, {"shape": [2] * rank}]
    return {"graph": {"tensors": tensors, "nodes": [{"op": op, "inputs": [0], "outputs": [1]}]}}


def test_a_fingerprint_says_nothing_that_a_seed_changes() -> None:
    said = "8000 QNN_MEM_ERROR_INVALID_ARGUMENT"
    steps = {"steps": [{"do": "alloc"}, {"do": "register"}]}
    assert traits_of(said, "step 1, register h3", Evidence(), steps).fingerprint == Fingerprint(
        call="register", code="QNN_MEM_ERROR_INVALID_ARGUMENT"
    )
    misuse = {"steps": [{"do": "misuse", "call": "graphCreate", "handle": "NULL"}]}
    assert traits_of("", "step 0, misuse", Evidence(), misuse).fingerprint.call == "misuse graphCreate"
    left = Evidence(during="invoke of kernel 0, node 0 (MUL)")
    assert traits_of("SIGABRT", "in it", left, node("MUL", 3)).fingerprint == Fingerprint(
        call="invoke of", signal="SIGABRT", operators=("MUL float32",), shape="from rank 3"
    )
    assert (
        masked("-1.5e-07, 3 of 12 elements\noff at [0, 1] of t14, nan") == "# of # elements off at [#] of #"
    )
    assert masked("(2, 3) instead of (2, 3, 4)") == "(#) instead of (#)"


def test_what_a_larger_case_has_besides_does_not_matter_and_a_lower_rank_does() -> None:
    wanted = Fingerprint(operators=("MUL float32",), shape="from rank 3")
    for rank, same in ((2, False), (3, True), (4, True)):
        assert fits(wanted, traits_of("", "", Evidence(), node("MUL", rank))) is same
    several = {"graphs": [node("ADD", 3)["graph"], node("MUL", 3)["graph"]]}
    assert fits(wanted, traits_of("", "", Evidence(), several))
    assert not fits(wanted, traits_of("", "", Evidence(), node("ADD", 3)))


CLAIMS = """
[claims.delegate]
operators = ["ADD float32", "MUL float32 rank 2", "RELU int8"]
areas = ["NUM"]
"""


def test_who_claims_less_than_is_declared_fails(pytester: pytest.Pytester) -> None:
    result, rules = judged(pytester, "reference:rank-4", CLAIMS)
    assert (result.ret, rules["NUM-10"]["verdict"]) == (pytest.ExitCode.TESTS_FAILED, "pass")
    result.stdout.fnmatch_lines(["lacks what is declared: * kinds: ADD float32 rank 1, *"])
    (target,) = json.loads(Path("out.json").read_text(encoding="utf-8"))["targets"]
    missing = target["declared"]["missing"]
    assert {"ADD float32 rank 2 RELU", "MUL float32 rank 2"} <= set(missing)
    assert not [kind for kind in missing if "rank 4" in kind or "MUL float32 rank 3" in kind]


def test_who_claims_more_is_told_so_and_passes(pytester: pytest.Pytester) -> None:
    result, _ = judged(pytester, "reference", CLAIMS)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["has more than is declared: * kinds: ABS float32 rank 1, *"])
    assert "lacks what is declared" not in result.stdout.str()


def test_what_is_unsupported_in_a_declared_area_is_not_as_expected(pytester: pytest.Pytester) -> None:
    claims = '[claims.memory]\nkeys = [1101]\nareas = ["ION"]\n'
    Path("known.toml").write_text(claims, encoding="utf-8")
    options = ("--qnn-backend=reference:no-memory", "--qnn-expect=known.toml", "--qnn-seed=1", REPORT)
    result = pytester.runpytest_inprocess(*SUITE, *options, "-k", "reg_08 or ion_01 or ctx_06")
    rules = judged_by_id(json.loads(Path("out.json").read_text(encoding="utf-8")))
    assert rules["ION-01"]["unexpected"].startswith("unsupported, and the area ION is declared: ")
    assert "(property keys 1101)" in rules["REG-08"]["unexpected"]
    assert rules["CTX-06"]["verdict"] == "pass"
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(["lacks what is declared: 1 kind: property key 1101"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[claims.delegate]\noperators = ["SUM float32"]\n', "no kind of node begins with 'SUM float32'"),
        ('[claims.delegate]\nareas = ["REG"]\n', "claims.delegate: there is no area 'REG'"),
        ("[claims.other]\n", "claims: Invalid enum value 'other'"),
        ('[claims.memory]\nkeys = ["202"]\n', "Expected `int`, got `str`"),
    ],
)
def test_claims_of_what_there_is_not_are_refused(pytester: pytest.Pytester, text: str, said: str) -> None:
    Path("known.toml").write_text(text, encoding="utf-8")
    result = pytester.runpytest_inprocess(*SUITE, "--qnn-expect=known.toml", "-k", "num_10")
    assert said in refusal(result)


def test_learned_claims_can_be_declared(pytester: pytest.Pytester) -> None:
    judged(pytester, "reference", "")
    assert updated("out.json", "--claims") == 0
    (claims,) = file.read(Path("known.toml")).claims.values()
    assert {"ADD float32", "CONV_2D int8"} <= set(claims.operators)
    assert judged(pytester, "reference", Path("known.toml").read_text(encoding="utf-8"))[0].ret == 0
    document = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert document["targets"][0]["declared"] == {"missing": [], "more": []}


def updated(*arguments: str) -> int:
    return commands.main(["expect", *arguments, "--update", "known.toml"])


def test_the_command_writes_what_a_report_found_and_no_reason(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = entry(rule='"NUM-02"', reason='"kept"') + "# a note\n"
    judged(pytester, "mutant:adds-a-thousandth", kept)
    assert updated("out.json") == 0
    text = Path("known.toml").read_text(encoding="utf-8")
    assert text.startswith(kept)
    assert "1 entry added; write reason, issue, owner and expires into it" in capsys.readouterr().out
    with pytest.raises(BadOption, match=r"entry 2 \(NUM-10\): empty, .*: reason, issue, owner, expires"):
        file.read(Path("known.toml"))
    assert updated("out.json") == 0
    assert Path("known.toml").read_text(encoding="utf-8") == text  # nothing twice
    written = text.removeprefix(kept).replace('""', '"x"').replace('expires = "x"', "expires = 2999-01-01")
    assert judged(pytester, "mutant:adds-a-thousandth", written)[0].ret == pytest.ExitCode.OK
    assert judged(pytester, "mutant:approximates", written)[0].ret == pytest.ExitCode.TESTS_FAILED


def test_a_further_finding_has_no_rank_in_its_entry(pytester: pytest.Pytester) -> None:
    """Its case is not made as small as it can be."""
    judged(pytester, "mutant:adds-a-thousandth", "")
    document = json.loads(Path("out.json").read_text(encoding="utf-8"))
    (rule,) = (one for one in document["targets"][0]["rules"] if one["verdict"] == "fail")
    rule["violation"]["fingerprint"]["shape"] = "from rank 2"
    further = copy.deepcopy(rule["violation"])
    further["fingerprint"]["operators"] = ["MUL float32"]
    rule["further"] = [{"verdict": "fail", "violation": further, "case": rule["case"]}]
    Path("out.json").write_text(json.dumps(document), encoding="utf-8")
    assert updated("out.json") == 0
    entries = tomlkit.parse(Path("known.toml").read_text(encoding="utf-8"))["failure"]
    prints = [dict(one["fingerprint"]) for one in entries.unwrap()]
    assert [(each["operators"], each.get("shape")) for each in prints] == [
        (["ADD float32"], "from rank 2"),
        (["MUL float32"], None),
    ]


def test_entries_that_match_no_longer_are_removed_when_that_is_asked_for(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, flaky = entry(issue='"QN-2"'), entry(flaky="0.5")
    other_target = entry(library='{ precision = "float16" }')
    unjudged = "# of a rule that was not judged\n" + entry(rule='"NUM-02"')
    text = "# on top\n" + gone + flaky + other_target + unjudged
    judged(pytester, "reference", text)
    assert updated("out.json") == 0
    assert Path("known.toml").read_text(encoding="utf-8") == text
    capsys.readouterr()
    assert updated("out.json", "--remove") == 0
    said = capsys.readouterr().out.splitlines()
    assert said == ["known.toml: 0 entries added", "entry 1 removed: NUM-10 fail, QN-2"]
    left = Path("known.toml").read_text(encoding="utf-8")
    assert left == "# on top\n" + flaky + other_target + unjudged
    judged(pytester, "mutant:adds-a-thousandth", gone)
    assert updated("out.json", "--remove") == 0
    assert gone in Path("known.toml").read_text(encoding="utf-8")


def test_where_the_disk_is_full_the_file_stays_as_it_was(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    """What people have written into it is nowhere else. A link to it stays a link."""
    judged(pytester, "mutant:adds-a-thousandth", f"# {'a note ' * 1000}\n")
    Path("known.toml").rename("kept.toml")
    Path("known.toml").symlink_to("kept.toml")
    text = Path("kept.toml").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(text) // 2, limits[1]))
    try:
        status = updated("out.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 2
    assert "'known.toml' cannot be written: File too large" in capsys.readouterr().err
    assert Path("kept.toml").read_bytes() == text
    assert updated("out.json") == 0
    written = Path("kept.toml").read_bytes()
    assert written.startswith(text)
    assert b"[[failure]]" in written
    assert Path("known.toml").is_symlink()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 2, "targets": [3]}', "[" * 100_000, None])
def test_what_is_no_report_is_one_sentence(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    if text is not None:
        Path("out.json").write_text(text, encoding="utf-8")
    assert updated("out.json") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("expect: out.json ")
    assert not Path("known.toml").exists()


def expected(verdict: str, fingerprint: str = "{}", flaky: str = "0.0") -> Expectations:
    changes = {"verdict": f'"{verdict}"', "fingerprint": fingerprint, "flaky": flaky}
    Path("one.toml").write_text(entry(**changes), encoding="utf-8")
    return Expectations(file.read(Path("one.toml")).failures)


@pytest.mark.usefixtures("pytester")
def test_a_rule_that_shows_nothing_may_be_expected_to() -> None:
    rule = dataclasses.replace(catalogue()["NUM-10"], check=lambda *_: Examined(0, "things"))
    with closing(open_delegate_target([("reference", {})], "auto", "off", 10.0)) as target:

        def judged_as(expectations: Expectations) -> Verdict:
            few = Profile("few", 2, 2)
            return judge_with_owners(
                rule, target, few, 1, catalogue().__getitem__, lambda _: expectations
            ).verdict

        unexpected = judged_as(Expectations())
        assert (unexpected.outcome, unexpected.is_red(strict=False)) == (Outcome.INCONCLUSIVE, True)
        known = judged_as(expected("inconclusive"))
        assert (known.shown, known.unexpected, known.is_red(strict=False)) == ("known", "", False)
        other = judged_as(expected("fail", ADD))
        assert (other.shown, bool(other.unexpected)) == ("inconclusive", True)
