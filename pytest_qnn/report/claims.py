"""What was learned of a delegate, in lines of text: which nodes it claims, and how it cuts up graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def lines(found: Mapping[str, Any]) -> list[str]:
    """A few lines for the terminal; the page has tables of it."""
    text = [line for dtype in ("float32", "int8") for line in _of_type(dtype, found.get("claims", ()))]
    price = found.get("price")
    if price:
        text.append(
            f"a plain case takes {price['seconds']:g} s: no case has a history, or more than "
            f"{price['most_lives']} delegates; rules have fewer examples, but for --qnn-profile=thorough"
        )
    sums = found.get("partitioning")
    if sums:
        text.append(
            f"{sums['graphs']} sample graphs of {sums['nodes']} nodes: {sums['kernels']} kernels, "
            f"{sums['switches']} switches between CPU and kernels; left to the CPU: {_left(sums)}"
        )
    return text


def _left(counted: Mapping[str, Any]) -> str:
    return ", ".join(f"{op} {count}" for op, count in counted["left"].items()) or "nothing"


def _of_type(dtype: str, claims: Iterable[Mapping[str, Any]]) -> list[str]:
    mine = [claim for claim in claims if claim["dtype"] == dtype]
    if not mine:
        return []
    # A run about QNN memory loads nothing of TensorFlow Lite.
    from pytest_qnn.tflite.learned import WORDS

    full = [claim["op"] for claim in mine if claim["claimed"] == claim["asked"]]
    part = [f"{claim['op']} {claim['text']}" for claim in mine if 0 < claim["claimed"] < claim["asked"]]
    none = [
        claim["op"] + ("" if claim["text"] == WORDS["refused"] else f" ({claim['text']})")
        for claim in mine
        if not claim["claimed"]
    ]
    named = [("claims", ", ".join(full)), ("claims in part", " | ".join(part)), ("leaves", ", ".join(none))]
    return [f"{dtype}: {word} {text}" for word, text in named if text]
