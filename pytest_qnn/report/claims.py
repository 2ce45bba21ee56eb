"""What was learned of a delegate, for the report: which nodes it claims, and how it cuts up graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_qnn.cases.combinations import Combination
from pytest_qnn.facts import Claim, DelegateFacts, Sample

WORDS = {"claimed": "claims", "refused": "leaves", "failed": "fails", "died": "dies of", "unknown": "unknown"}
"""What is said of the kinds with each outcome."""


def learned(facts: object) -> dict[str, Any]:
    """``claims`` and ``partitioning`` as JSON data; empty where nothing was learned, or of a QNN backend.

    ``claims`` is a list of {op, dtype, claimed, asked, text}, of kinds of node; ``partitioning`` holds sums
    over the sample graphs (`pytest_qnn.facts.Sample`), ``left`` operators with numbers of nodes, and under
    ``samples`` the same for each graph.
    """
    if not isinstance(facts, DelegateFacts) or not facts.claims:
        return {}
    found: dict[str, Any] = {
        "claims": [_operator(key, claims) for key, claims in _grouped(facts.claims).items()]
    }
    return found | ({"partitioning": _partitioning(facts.samples)} if facts.samples else {})


def lines(found: Mapping[str, Any]) -> list[str]:
    """The same in a few lines of text."""
    text = [line for dtype in ("float32", "int8") for line in _of_type(dtype, found.get("claims", ()))]
    sums = found.get("partitioning")
    if sums:
        text.append(
            f"{sums['graphs']} sample graphs of {sums['nodes']} nodes: {sums['kernels']} kernels, "
            f"{sums['switches']} switches between CPU and kernels; left to the CPU: {_left(sums)}"
        )
    return text


def sample_lines(found: Mapping[str, Any]) -> list[str]:
    """A line for each sample graph: where a delegate cuts, and which nodes make it cut."""
    return [
        f"{number}: {sample['nodes']} nodes, {sample['kernels']} kernels, {sample['switches']} switches; "
        f"left to the CPU: {_left(sample)}"
        for number, sample in enumerate(found.get("partitioning", {}).get("samples", ()), 1)
    ]


def _left(counted: Mapping[str, Any]) -> str:
    return ", ".join(f"{op} {count}" for op, count in counted["left"].items()) or "nothing"


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


def _of_type(dtype: str, claims: Iterable[Mapping[str, Any]]) -> list[str]:
    mine = [claim for claim in claims if claim["dtype"] == dtype]
    if not mine:
        return []
    full = [claim["op"] for claim in mine if claim["claimed"] == claim["asked"]]
    part = [f"{claim['op']} {claim['text']}" for claim in mine if 0 < claim["claimed"] < claim["asked"]]
    none = [
        claim["op"] + ("" if claim["text"] == WORDS["refused"] else f" ({claim['text']})")
        for claim in mine
        if not claim["claimed"]
    ]
    named = [("claims", ", ".join(full)), ("claims in part", " | ".join(part)), ("leaves", ", ".join(none))]
    return [f"{dtype}: {word} {text}" for word, text in named if text]


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
