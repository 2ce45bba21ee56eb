"""What was learned of a chain of delegates, as JSON data: which nodes it claims, how it cuts up graphs."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from pytest_qnn.tflite.facts import Claim, DelegateFacts, Sample
from pytest_qnn.tflite.graph.combinations import GRID, Combination
from pytest_qnn.tflite.graph.graph import Op

WORDS = {"claimed": "claims", "refused": "leaves", "failed": "fails", "died": "dies of", "unknown": "unknown"}
"""What is said of the kinds with each outcome."""


def learned(facts: object) -> dict[str, Any]:
    """``claims``, ``capabilities`` and ``partitioning`` as JSON data; empty where nothing was learned.

    ``claims`` is a list of {op, dtype, claimed, asked, text}, of kinds of node; ``partitioning`` holds sums
    over the sample graphs (`pytest_qnn.tflite.facts.Sample`), ``left`` operators with numbers of nodes, and
    under ``samples`` the same for each graph. ``price``, of a delegate that takes long: ``seconds`` of a
    plain case, and ``most_lives`` of a delegate in one case.
    """
    if not isinstance(facts, DelegateFacts) or not facts.claims:
        return {}
    found: dict[str, Any] = {
        "claims": [_operator(key, claims) for key, claims in _grouped(facts.claims).items()],
        "capabilities": {"operators": claimed_kinds(facts.claims), "keys": []},
    }
    if facts.seconds:
        found["price"] = {"seconds": facts.seconds, "most_lives": facts.most_lives}
    return found | ({"partitioning": _partitioning(facts.samples)} if facts.samples else {})


def claimed_kinds(claims: Iterable[Claim]) -> list[str]:
    """The kinds of node that are claimed, in as few words as name no other: ``ADD float32 rank 2``.

    `kinds_named` gives the kinds of each.
    """
    claimed = frozenset(claim.kind for claim in claims if claim.outcome == "claimed")
    words: list[str] = []
    for kind in claimed:
        operator = f"{kind.op} {kind.dtype}"
        names = (operator, f"{operator} rank {kind.rank}", str(kind))
        words.append(next((name for name in names if kinds_named(name) <= claimed), str(kind)))
    return sorted(set(words))


@functools.cache
def kinds_named(text: str) -> frozenset[Combination]:
    """The kinds of the grid that begin with these words; empty: there is no such operator, type or kind."""
    return frozenset(kind for kind in GRID if f"{kind} ".startswith(f"{text} "))


def computed_in(facts: DelegateFacts) -> str:
    """What float32 graphs are computed in, in words for the report."""
    if facts.precision == "float16":
        return "float16, as declared"
    if not facts.half:
        return "float32"
    some = "" if len(facts.half) == len(get_args(Op)) else f" ({', '.join(facts.half)})"
    return f"float16{some}, not declared"


def _grouped(claims: Iterable[Claim]) -> dict[tuple[str, str], list[Claim]]:
    grouped: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        grouped.setdefault((claim.kind.op, claim.kind.dtype), []).append(claim)
    return grouped


def _operator(key: tuple[str, str], claims: Sequence[Claim]) -> dict[str, Any]:
    outcomes = {claim.outcome for claim in claims}
    words = [
        f"{WORDS[outcome]} {_kinds([claim.kind for claim in claims if claim.outcome == outcome])}"
        for outcome in WORDS
        if outcome in outcomes
    ]
    taken = sum(claim.outcome == "claimed" for claim in claims)
    text = "; ".join(words) if len(outcomes) > 1 else WORDS[outcomes.pop()]
    return {"op": key[0], "dtype": key[1], "claimed": taken, "asked": len(claims), "text": text}


def _kinds(kinds: Sequence[Combination]) -> str:
    """Ranks, activations and the rest of what occurs among the kinds."""
    ranks = sorted({kind.rank for kind in kinds})
    shown = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    others: list[str] = [shown]
    others += [" ".join(dict.fromkeys(kind.activation for kind in kinds))]
    others += [" ".join(dict.fromkeys(kind.form or "plain" for kind in kinds))]
    if kinds[0].quantisation:
        others.append(" ".join(dict.fromkeys(f"per-{kind.quantisation}" for kind in kinds)))
        others.append(
            " ".join(dict.fromkeys("zero-points" if kind.zero_points else "symmetric" for kind in kinds))
        )
    return f"({'; '.join(others)})"


def _partitioning(samples: Sequence[Sample]) -> dict[str, Any]:
    each = [
        {
            "nodes": sample.nodes,
            "kernels": sample.kernels,
            "switches": sample.switches,
            "left": _counted(sample.left),
        }
        for sample in samples
    ]
    return {
        "graphs": len(samples),
        "nodes": sum(sample.nodes for sample in samples),
        "kernels": sum(sample.kernels for sample in samples),
        "switches": sum(sample.switches for sample in samples),
        "left": _counted(op for sample in samples for op in sample.left),
        "samples": each,
    }


def _counted(operators: Iterable[str]) -> dict[str, int]:
    """Operators with numbers of nodes, the most frequent first."""
    return dict(sorted(Counter(operators).items(), key=lambda pair: (-pair[1], pair[0])))
