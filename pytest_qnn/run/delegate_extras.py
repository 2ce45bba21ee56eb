"""What a delegate case may ask for beyond build, apply, allocate, invoke and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pytest_qnn.cases.data import inputs_of
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.run.looking import Looking
from pytest_qnn.run.state import delegates_applied
from pytest_qnn.trace import Name, Spied

_OTHER_SEED = 0x5EED
"""Combined with the case's seed, for the inputs that nothing may depend on."""


def looking_of(case: DelegateCase) -> Looking | None:
    """What the case wants to be looked at; None: nothing."""
    if not case.look and not any(application.refused for application in case.applications):
        return None
    return Looking(case.look, arena=case.late)


def run_early(interpreter: Any, case: DelegateCase) -> None:
    """Allocate and invoke on the CPU, with other inputs than the case's."""
    interpreter.allocate_tensors()
    other = msgspec.structs.replace(case, data_seed=case.data_seed ^ _OTHER_SEED, fill="mixed")
    for tensor, values in zip(case.graph.inputs, inputs_of(other), strict=True):
        interpreter.set_tensor(tensor, values)
    interpreter.invoke()


def resize_and_back(interpreter: Any, case: DelegateCase) -> None:
    """Resize the first input that has a dimension, give it its shape again, and allocate.

    A static delegate is undone by the first of these and applied again by the last.
    """
    for tensor in case.graph.inputs:
        shape = case.graph.tensors[tensor].shape
        if shape:
            interpreter.resize_tensor_input(tensor, (shape[0] + 1, *shape[1:]))
            interpreter.resize_tensor_input(tensor, shape)
            break
    interpreter.allocate_tensors()


def order_of(context: int, owners: Mapping[int, int]) -> tuple[int, ...]:
    """Applications of the delegates in force; -1: a delegate that the case did not apply."""
    return tuple(owners.get(address, -1) for address in delegates_applied(context))


def spied(
    looking: Looking | None,
    target: Sequence[int],
    order: Sequence[tuple[int, ...]],
    names: tuple[Sequence[Name], Sequence[Name]],
) -> Spied:
    """What was seen, as data.

    Args:
        looking: what was looked at.
        target: applications of the target.
        order: of the delegates in force, at several times.
        names: of kernels, the first and the second time.
    """
    if looking is None:
        return Spied()
    lender = looking.lender
    wanted = set(target)
    count = {
        kind: sum(owner in wanted for owner in owners)
        for kind, owners in (
            ("plans", lender.plans),
            ("plans_taken_back", lender.plans_back),
            ("nodes_taken_back", lender.nodes_back),
            ("previews_taken_back", lender.previews_back),
        )
    }
    return Spied(
        refused=tuple(looking.refused),
        forbidden=tuple(looking.forbidden),
        changes=tuple(looking.changes),
        looked_at=looking.looked_at,
        names=tuple(names[0]),
        names_again=tuple(name.text for name in names[1]),
        reports=tuple(looking.reports),
        stale=tuple(looking.stale),
        previews=tuple(looking.previews),
        asked=tuple(looking.asked),
        added=tuple(looking.added),
        order=tuple(order),
        **count,
    )
