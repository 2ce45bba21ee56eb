"""The proof of the plan: what it tries, what it keeps, and what it calls too few examples."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pytest_qnn.core.mutant import Mutant
from pytest_qnn.effort import Pair
from pytest_qnn.mutants import Measured, Task, chosen, planning, proof
from pytest_qnn.mutants.__main__ import main

WANTED = chosen(["claims-twice", "reg-null-handle"], "")
PLAN = {
    "PART-01": planning.planned({"claims-twice": Pair((1,) * 5, "a"), "slower": Pair((3,) * 20, "b")}),
    "REG-01": planning.planned({"reg-null-handle": Pair((1,) * 5, "c")}),
}


def tasks(seeds: int = 4, wanted: list[tuple[Mutant, list[str]]] = WANTED) -> list[Task]:
    return proof.tasks(PLAN, wanted, seeds)


def test_every_pair_of_the_plan_is_tried_in_each_place_on_seeds_of_its_own() -> None:
    found = {(task.mutant, task.place): task for task in tasks()}
    assert found.keys() == {
        ("claims-twice", "tflite_runtime"),
        ("claims-twice", "ai_edge_litert"),
        ("reg-null-handle", "reference"),
    }
    assert found["reg-null-handle", "reference"].limits == {"REG-01": 20}
    assert found["reg-null-handle", "reference"].seeds == (1001, 1002, 1003, 1004)


def test_slices_part_the_pairs_and_keep_both_places_of_a_pair_together() -> None:
    everything = chosen((), "")
    rules = {rule: PLAN["REG-01"] for _, own in everything for rule in own}
    plan = {
        rule: msgspec.structs.replace(
            each, pairs={mutant.name: Pair((1,), "") for mutant, own in everything if rule in own}
        )
        for rule, each in rules.items()
    }
    whole = proof.tasks(plan, everything, 1)
    parts = [proof.tasks(plan, everything, 1, f"{part}/3") for part in range(3)]
    assert sum(map(len, parts)) == len(whole) > 700
    pairs = [{(task.mutant, *task.limits) for task in part} for part in parts]
    assert not pairs[0] & pairs[1] | pairs[1] & pairs[2] | pairs[0] & pairs[2]


def test_a_proof_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "proof.jsonl"
    proof.run(file, tasks(2))
    begun = file.read_text()
    assert len(begun.splitlines()) == 3
    file.write_text(begun + begun[:40])  # stopped while it wrote a line
    done: list[Task] = []

    def measured(task: Task) -> list[Measured]:
        done.append(task)
        return [Measured(rule, (1,) * len(task.seeds), 0.5) for rule in task.limits]

    monkeypatch.setattr(proof, "measured", measured)
    proof.run(file, tasks(4))
    assert {task.seeds for task in done} == {(1003, 1004)}
    assert len(file.read_text().splitlines()) == 6
    proof.run(file, tasks(4))
    assert len(done) == 3
    result = proof.result(file, tasks(4), PLAN)
    assert (len(result.rows), result.pairs, result.short, result.short_without) == (2, 2, [], [])


def _changed_sources(file: Path, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...]) -> list[Task]:
    """What is tried after all sources have changed, where searches take these examples, in turns."""
    done: list[Task] = []

    def measured(task: Task) -> list[Measured]:
        done.append(task)
        return [
            Measured(rule, tuple(counts[seed % len(counts)] for seed in task.seeds), 0.5)
            for rule in task.limits
        ]

    monkeypatch.setattr(proof, "measured", measured)
    monkeypatch.setattr(proof, "pair_digest", lambda rule, mutant, **_: f"{rule}/{mutant.name}, now")
    proof.run(file, tasks(100))
    return done


def _tried_before(file: Path, monkeypatch: pytest.MonkeyPatch, missed: int = 0) -> None:
    """With one or two examples each; with the seed ``missed`` in vain."""

    def count(seed: int) -> int | None:
        return None if seed == missed else 1 + seed % 2

    with monkeypatch.context() as patch:
        patch.setattr(
            proof,
            "measured",
            lambda task: [Measured(rule, tuple(map(count, task.seeds)), 0.5) for rule in task.limits],
        )
        proof.run(file, tasks(100))


def test_what_an_earlier_tree_has_missed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "proof.jsonl"
    _tried_before(file, monkeypatch, missed=1090)
    done = _changed_sources(file, monkeypatch, (1, 2))
    assert {seed for task in done for seed in task.seeds} == set(range(1001, 1101))
    result = proof.result(file, tasks(100), PLAN)
    assert [(row.sampled, row.missed) for row in result.rows] == [(False, 0), (False, 0)]


def test_what_an_earlier_tree_has_tried_stands_where_a_sample_of_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "proof.jsonl"
    _tried_before(file, monkeypatch)
    done = _changed_sources(file, monkeypatch, (1, 2))
    assert [task.seeds for task in done] == [tuple(range(1001, 1011))] * 3
    result = proof.result(file, tasks(100), PLAN)
    assert (len(result.rows), [row.seeds for row in result.rows]) == (2, [100, 100])
    assert all(row.sampled for row in result.rows)
    assert (
        "2 of them were tried so on an earlier tree, and with the first 10 seeds on this one" in result.text()
    )


def test_where_one_search_of_the_sample_differs_all_seeds_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "proof.jsonl"
    _tried_before(file, monkeypatch)
    counts = tuple(3 if seed % 100 == 7 else 1 + seed % 2 for seed in range(100))
    done = _changed_sources(file, monkeypatch, counts)
    assert sorted(len(task.seeds) for task in done) == [*[10] * 3, *[15] * 3, *[25] * 9]
    result = proof.result(file, tasks(100), PLAN)
    assert [row.sampled for row in result.rows] == [False, False]
    assert "earlier tree" not in result.text()


def test_nothing_is_begun_after_the_time_that_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "measured", lambda task: [Measured("REG-01", (1,) * len(task.seeds), 61.0)])
    proof.run(tmp_path / "proof.jsonl", tasks(100), minutes=2)
    assert len((tmp_path / "proof.jsonl").read_text().splitlines()) == 2
    assert proof.result(tmp_path / "proof.jsonl", tasks(100), PLAN).rows == []


@pytest.mark.parametrize(
    ("counts", "short", "short_without"),
    [
        ((1,) * 99 + (None,), False, False),
        ((1,) * 98 + (None,) * 2, True, False),
        ((1,) * 94 + (21,) * 6, False, True),
        ((1,) * 95 + (21,) * 5, False, False),
        ((1,) * 90 + (None,) * 10, True, True),
    ],
)
def test_what_falls_short(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    counts: tuple[int | None, ...],
    short: bool,
    short_without: bool,
) -> None:
    slow = {"PART-01": planning.planned({"claims-twice": Pair((4,) * 20, "a"), "faster": Pair((1,), "b")})}
    own = proof.tasks(slow, WANTED, 100)
    by_seed = dict(zip(own[0].seeds, counts, strict=True))

    def measured(task: Task) -> list[Measured]:
        hit = task.place == "ai_edge_litert"
        return [Measured("PART-01", tuple(by_seed[seed] if hit else 1 for seed in task.seeds), 0.1)]

    monkeypatch.setattr(proof, "measured", measured)
    file = tmp_path / "proof.jsonl"
    proof.run(file, own)
    result = proof.result(file, own, slow)
    assert (bool(result.short), bool(result.short_without)) == (short, short_without)
    assert ("| `claims-twice` | PART-01 | ai_edge_litert | 40 |" in result.text()) is (short or short_without)


def test_the_command_prints_what_was_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, file = tmp_path / "effort.json", tmp_path / "proof.jsonl"
    plan.write_text(planning.text(PLAN))
    words = ("--only", "reg-null-handle", "--seeds", "3", "--plan", str(plan), "--proof", str(file))
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "1 of 1 pairs of a rule and a mutant were tried with the 3 seeds\n1001 to 1003, in"
    )
    assert "99 of 100: 1 pairs\n  (missed in 0 of 3 searches)" in printed
