"""The plan of examples: made from its counts, and again when a rule, a strategy or a mutant has changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fast_run import later
from msgspec.structs import replace

from pytest_qnn import effort
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.effort import Pair
from pytest_qnn.mutants import LIMIT, Kill, planning, table
from pytest_qnn.mutants.__main__ import main
from pytest_qnn.mutants.planning import LEAST, needed
from pytest_qnn.rules import catalogue

ROOT = Path(__file__).parents[2]
PLAN = effort.read()


def kill(name: str, rule: str, *counts: int | None, place: str = "tflite_runtime") -> Kill:
    return Kill(table()[name], rule, place, counts)


def test_the_plan_was_made_again_since_a_rule_a_strategy_or_a_mutant_changed() -> None:
    changed = planning.stale(PLAN) + planning.unconfirmed(PLAN) + planning.gone(PLAN)
    assert not changed, (
        f"{', '.join(changed)}: "
        "run python -m pytest_qnn.mutants --jobs 2 --stale --update docs/measured/mutants.md"
    )


@pytest.mark.parametrize(
    ("module", "line"),
    [
        later("tflite/cases/effects.py", "    SetInputs: _INTERPRETER,\n"),
        later("tflite/cases/script.py", "    | SetInputs\n"),
        ("qnn/cases/case.py", "    | WholeSession\n"),
    ],
)
def test_a_new_kind_of_step_makes_no_pair_stale(tmp_path: Path, module: str, line: str) -> None:
    """It changes no case that was drawn before; and each pair takes seconds to measure."""
    shutil.copytree(ROOT / "pytest_qnn", tmp_path / "pytest_qnn")
    changed = tmp_path / "pytest_qnn" / module
    text = changed.read_text()
    assert text.count(line) == 1
    changed.write_text(text.replace(line, ""))
    # Sources are read, and not imported: one of each half reaches the tables of its half's steps.
    program = (
        "from pathlib import Path; from pytest_qnn.mutants import digests, table; "
        f"digests._ROOT = Path({str(tmp_path / 'pytest_qnn')!r}); "
        "print(*(digests.pair_digest(rule, table()[name]) for rule, name in "
        "(('XNN-04', 'xnn-knows-kernels'), ('OOM-05', 'oom-takes-the-name'))))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, text=True
    )
    own = PLAN["XNN-04"].pairs["xnn-knows-kernels"], PLAN["OOM-05"].pairs["oom-takes-the-name"]
    assert found.stdout.split() == [pair.digest for pair in own]


def test_the_plan_has_every_rule_with_the_numbers_that_follow_from_its_counts() -> None:
    assert PLAN.keys() == catalogue().keys()
    assert {rule: planning.planned(each.pairs) for rule, each in PLAN.items()} == PLAN
    for rule, each in PLAN.items():
        assert each.examples >= max(LEAST, 10 * each.median), rule
    assert effort.PLAN.read_text() == planning.text(PLAN)


def test_only_the_default_profile_goes_by_the_plan() -> None:
    assert effort.profile("default").plan == {rule: each.examples for rule, each in PLAN.items()}
    assert effort.profile("quick") is PROFILES["quick"]
    assert effort.profile("thorough") is PROFILES["thorough"]


@pytest.mark.parametrize(
    ("counts", "examples"),
    [
        ((1, 1, 1, 1, 1), LEAST),
        ((1, 2, 1, 1, 1), LEAST),
        ((5,) * 20, 50),
        ((None,) * 5, LIMIT),
        ((4,) * 20, 40),
    ],
)
def test_examples_that_a_pair_needs(counts: tuple[int | None, ...], examples: int) -> None:
    assert needed(counts) == examples


@pytest.mark.parametrize("counts", [(1,) * 15 + (20,) * 5, (1,) * 16 + (None,) * 4])
def test_late_kills_count_although_the_median_is_one(counts: tuple[int | None, ...]) -> None:
    """All but one in a thousand, where each case finds the mutant with the mean's probability."""
    found = len(counts) - counts.count(None)
    mean = sum(LIMIT if count is None else count for count in counts) / found
    assert (1 - 1 / mean) ** needed(counts) < 0.001
    assert needed(counts) > 10 * planning.median(counts)


def test_the_slowest_mutant_decides_and_without_it_the_others_do() -> None:
    slow, fast = Pair((4,) * 20, "a"), Pair((1,) * 5, "b")
    plan = planning.planned({"slow": slow, "fast": fast})
    assert (plan.examples, plan.median, plan.mutant) == (needed(slow.counts), 4, "slow")
    assert planning.without(plan, "slow") == LEAST
    assert planning.without(plan, "fast") == plan.examples
    assert planning.without(planning.planned({"slow": slow}), "slow") == LEAST


def test_of_two_places_the_slower_one_is_kept() -> None:
    kills = [
        kill("claims-twice", "PART-01", 1, 1, 1),
        kill("claims-twice", "PART-01", 9, 9, 9, place="ai_edge_litert"),
    ]
    for order in (kills, kills[::-1]):
        assert planning.updated({}, order)["PART-01"].pairs["claims-twice"].counts == (9, 9, 9)


def test_an_update_keeps_what_was_not_measured_and_drops_what_is_gone() -> None:
    known = Pair((2, 2, 2), "digest")
    plan = {
        "PART-01": planning.planned({"claims-positions": known, "no-such-mutant": known}),
        "REG-99": planning.planned({"no-such-mutant": known}),
    }
    made = planning.updated(plan, [kill("claims-twice", "PART-01", 1, 1, 1)])
    assert made.keys() == {"PART-01"}
    assert made["PART-01"].pairs.keys() == {"claims-positions", "claims-twice"}
    assert made["PART-01"].pairs["claims-positions"] == known
    assert set(planning.gone(plan)) == {"no-such-mutant/PART-01", "no-such-mutant/REG-99"}


def test_single_rows_of_table_and_plan_are_updated(tmp_path: Path) -> None:
    document, plan = tmp_path / "mutants.md", tmp_path / "effort.json"
    shutil.copy(ROOT / "docs" / "measured" / "mutants.md", document)
    rows = len(document.read_text().splitlines())
    shutil.copy(effort.PLAN, plan)
    pairs = dict(PLAN["PART-01"].pairs) | {"claims-twice": Pair((7,) * 5, "old")}
    plan.write_text(planning.text(PLAN | {"PART-01": planning.planned(pairs)}))
    assert planning.stale(effort.read(plan)) == ["claims-twice/PART-01"]
    assert main(["--stale", "--update", str(document), "--plan", str(plan)]) == 0
    assert effort.read(plan)["PART-01"].pairs["claims-twice"] == PLAN["PART-01"].pairs["claims-twice"]
    assert len(document.read_text().splitlines()) == rows


@pytest.mark.parametrize(("counts", "lines"), [((1,) * 5, 2), ((2,) * 5, 4)])
def test_where_controls_changed_the_first_seed_confirms_the_others_or_all_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], counts: tuple[int, ...], lines: int
) -> None:
    document, plan = tmp_path / "mutants.md", tmp_path / "effort.json"
    shutil.copy(ROOT / "docs" / "measured" / "mutants.md", document)
    known = PLAN["PART-01"].pairs["claims-twice"]
    changed = replace(known, counts=counts, controls="old")
    pairs = dict(PLAN["PART-01"].pairs) | {"claims-twice": changed}
    plan.write_text(planning.text(PLAN | {"PART-01": planning.planned(pairs)}))
    assert planning.stale(effort.read(plan)) == []
    assert planning.unconfirmed(effort.read(plan)) == ["claims-twice/PART-01"]
    assert main(["--stale", "--update", str(document), "--plan", str(plan)]) == 0
    assert effort.read(plan)["PART-01"].pairs["claims-twice"] == known
    # One line for each runtime; once more where a seed did not confirm the numbers.
    assert capsys.readouterr().err.count("claims-twice/PART-01") == lines


def test_nothing_is_measured_where_nothing_is_stale(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stale"]) == 0
    assert capsys.readouterr() == ("", "the plan is not stale\n")


def edited(folder: Path, file: str, before: str, after: str) -> None:
    path = folder / "pytest_qnn" / file
    text = path.read_text()
    assert before in text, file
    path.write_text(text.replace(before, after, 1))


def stale_in(folder: Path) -> list[str]:
    """The stale pairs of a copy of the package, under the plan of this one."""
    script = (
        "import json; from pytest_qnn import effort; from pytest_qnn.mutants import planning; "
        "print(json.dumps(planning.stale(effort.read())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(
        ROOT / "pytest_qnn", tmp_path / "pytest_qnn", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


@pytest.mark.full
def test_the_plan_is_stale_for_exactly_the_pairs_of_what_changed(copy: Path) -> None:
    """Not after remarks, annotations or what no rule uses: all of these are edited at once."""
    scene, rules, steps = "qnn/strategies/scene.py", "qnn/rules/reg/rules.py", "qnn/cases/case.py"
    edited(copy, scene, "class Scene:", "# a remark\nclass Scene:")
    edited(copy, scene, "Add any step as it is", "Another docstring")
    edited(copy, scene, "def add(self, step: AnyStep) -> None:", "def add(self, step: object) -> object:")
    edited(copy, scene, "    def add(", "    def not_used_yet(self) -> None:\n        pass\n\n    def add(")
    edited(copy, rules, '    """Every single registration', '    # a remark\n    """Another docstring')
    edited(copy, rules, 'source="', 'source="Another source. ')
    edited(copy, steps, "class UpdateWeights(", "class Later:\n    pass\n\n\nclass UpdateWeights(")
    edited(copy, "tflite/rules/part/mutants.py", "Claims its nodes a second", "Claims its nodes another")

    edited(copy, "tflite/rules/part/mutants.py", "self.choose(self.plan))", "self.choose(self.plan[:]))")
    edited(copy, rules, "w.allowed.valid and _single(w)", "_single(w) and w.allowed.valid")
    assert stale_in(copy) == ["claims-twice/PART-01", *(f"{name}/REG-01" for name in PLAN["REG-01"].pairs)]


@pytest.mark.full
def test_a_strategy_that_a_half_shares_makes_its_rules_stale_and_no_others(copy: Path) -> None:
    edited(copy, "qnn/strategies/scene.py", "        self.steps.append(step)", "        self.steps += [step]")
    changed = {word.partition("/")[2] for word in stale_in(copy)}
    assert len(changed) > 100
    assert {catalogue()[rule].subject for rule in changed if not rule.startswith("TFL-")} == {"memory"}
