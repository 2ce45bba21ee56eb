"""From what a target claims to the graphs that it is judged by.

Rules about numbers want nodes that the target computes; rules about partitions want such nodes among others
that it leaves to the CPU. A target that claims one operator, or int8 alone, would hardly ever be looked at
if graphs were drawn from all there is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.combinations import GRID, Combination
from pytest_qnn.tflite.graph.floors import FLOORS
from pytest_qnn.tflite.graph.graph import DType, Op
from pytest_qnn.tflite.graph.kinds import OPS, Kind, Wants

_MIXED = 3
"""Claimed slots for each refused one."""
_TAKEN = frozenset(("claimed", "failed", "died", "unknown"))
"""Of what fails, or was not learned, rules shall see more. Only a refusal is certain."""


def taken(facts: DelegateFacts) -> frozenset[Combination]:
    """The kinds of node that the target claims, or may claim."""
    if not facts.claims:
        return frozenset(GRID)
    return frozenset(claim.kind for claim in facts.claims if claim.outcome in _TAKEN)


def need_claims(facts: DelegateFacts, *, is_owner: bool = False) -> None:
    """Raises NothingToJudge for a target that claims nothing anywhere: there is no work of it to look at.

    ``is_owner``: of the rule that says so, inconclusive; of every other one that is unsupported.
    """
    if facts.claims and not taken(facts):
        raise NothingToJudge(
            f"the delegate claimed none of the {len(facts.claims)} kinds of node that it was shown, "
            f"with up to {FLOORS[-1].elements} elements, single or {FLOORS[-1].nodes} at once or in a chain",
            unsupported=not is_owner,
        )


def claimed_kinds(
    facts: DelegateFacts, *, ops: Collection[Op] | None = None, dtypes: Sequence[DType] = ("float32", "int8")
) -> tuple[Kind, ...]:
    """Graphs of nodes that the target claims.

    Raises:
        NothingToJudge: it claims none of these operators and types.
    """
    need_claims(facts)
    wanted = [kind for kind in GRID if kind.dtype in dtypes and (ops is None or kind.op in ops)]
    if taken(facts).issuperset(wanted):
        plain = (Kind(dtype, slots) for dtype in dtypes if (slots := _plain(dtype, ops)))
        return _no_smaller(facts, plain)
    found = [kind for dtype in dtypes for kind in _kinds(facts, dtype, ops, ())]
    if not found:
        named = "operator" if ops is None else ", ".join(ops)
        raise NothingToJudge(
            f"of {len(facts.claims)} kinds of node the delegate claims no {' or '.join(dtypes)} {named}",
            unsupported=True,
        )
    return _no_smaller(facts, found)


def _no_smaller(facts: DelegateFacts, kinds: Iterable[Kind], *, mixed: bool = False) -> tuple[Kind, ...]:
    """The kinds, of graphs no smaller than those that the target claimed something of.

    ``mixed``: it claims some of the nodes, so that there are twice as many.
    """
    floor = facts.floor
    if mixed and floor.nodes > 1:
        floor = floor._replace(nodes=2 * floor.nodes)
    return tuple(kind._replace(floor=floor) for kind in kinds)


def and_larger(kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """These, and twice as often the same with tensors of more elements."""
    return (*kinds, *(kind._replace(large=True) for kind in (*kinds, *kinds)))


def mixed_kinds(facts: DelegateFacts) -> tuple[Kind, ...]:
    """Graphs of nodes that the target claims, three to one that it refuses.

    As many graphs of a type as of the other when the target claims both, else one of four of the type that
    it refuses altogether. Where it claims nothing, or everything, or nothing was learned: all graphs.
    """
    known = taken(facts)
    dtypes: tuple[DType, ...] = ("float32", "int8")
    if not known or known.issuperset(GRID):
        return _no_smaller(facts, (Kind(dtype, OPS[dtype]) for dtype in dtypes))
    kinds: list[Kind] = []
    refused: list[Kind] = []
    for dtype in dtypes:
        found = _kinds(facts, dtype, None, [kind for kind in GRID if kind not in known])
        kinds += found
        refused += [] if found else [Kind(dtype, OPS[dtype])]
    return _no_smaller(facts, kinds * (3 if refused else 1) + refused, mixed=True)


def option_kinds(facts: DelegateFacts) -> tuple[Kind, ...]:
    """Graphs whose nodes differ in one parameter at a time, of the kinds that the target claims.

    Each parameter (an activation, a form, quantisation per channel, none) is as likely as any other.

    Raises:
        NothingToJudge: it claims nothing.
    """
    need_claims(facts)
    known = taken(facts)
    kinds = []
    for dtype, shift in _DOMAINS:
        grouped: dict[str, dict[int, list[Combination]]] = {}
        for kind in GRID:
            if kind in known and (kind.dtype, kind.zero_points) == (dtype, shift):
                channel = kind.quantisation == "channel"
                parameter = f"{kind.activation} {kind.form} {channel and kind.op}"
                grouped.setdefault(parameter, {}).setdefault(kind.rank, []).append(kind)
        slots = [{rank: tuple(found) for rank, found in ranks.items()} for ranks in grouped.values()]
        kinds += [Kind(dtype, slots, shift)] if slots else []
    return _no_smaller(facts, kinds)


_DOMAINS: tuple[tuple[DType, bool], ...] = (("float32", False), ("int8", True), ("int8", False))


def _plain(dtype: DType, ops: Collection[Op] | None) -> tuple[Op, ...]:
    return tuple(op for op in OPS[dtype] if ops is None or op in ops)


def _kinds(
    facts: DelegateFacts, dtype: DType, ops: Collection[Op] | None, refused: Iterable[Combination]
) -> list[Kind]:
    """The kinds of graph of one type: with and without zero points apart, where they make a difference."""
    claimed = {kind for kind in taken(facts) if kind.dtype == dtype and (ops is None or kind.op in ops)}
    plain, shifted = ({kind for kind in claimed if kind.zero_points is shift} for shift in (False, True))
    others = [kind for kind in refused if kind.dtype == dtype]
    if dtype != "int8":
        return [Kind(dtype, _slots(plain, others))] if plain else []
    if plain and {msgspec.structs.replace(kind, zero_points=False) for kind in shifted} == plain:
        return [Kind(dtype, _slots(plain, [kind for kind in others if not kind.zero_points]))]
    found = []
    for kinds, shift in ((plain, False), (shifted, True)):
        if kinds:
            left = [kind for kind in others if kind.zero_points is shift]
            found.append(Kind(dtype, _slots(kinds, left), zero_points=shift))
    return found


def _slots(claimed: Collection[Combination], refused: Collection[Combination]) -> tuple[Wants, ...]:
    """Operators with the wanted kinds of their nodes; claimed ones are as many as `_MIXED` has it."""
    first, others = _by_operator(claimed), _by_operator(refused)
    if not others:
        return tuple(first)
    times = -(-_MIXED * len(others) // len(first))
    return tuple(first * times + others)


def _by_operator(kinds: Collection[Combination]) -> list[Wants]:
    grouped: dict[Op, dict[int, list[Combination]]] = {}
    for kind in GRID:
        if kind in kinds:
            grouped.setdefault(kind.op, {}).setdefault(kind.rank, []).append(kind)
    return [{rank: tuple(found) for rank, found in ranks.items()} for ranks in grouped.values()]
