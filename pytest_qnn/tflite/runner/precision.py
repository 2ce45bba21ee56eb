"""In what precision a chain of delegates computes float32 graphs, by plain cases of one operator each."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.combinations import Combination
from pytest_qnn.tflite.graph.graph import Op
from pytest_qnn.tflite.graph.kinds import asked_about
from pytest_qnn.tflite.numerics.half import is_computed_in_half
from pytest_qnn.tflite.numerics.precision import EVERY_OP
from pytest_qnn.tflite.trace import DelegateTrace

_SEEDS = (3, 4, 5, 6, 7, 8)
"""Of contents with 16 significant bits, most of which float16 rounds."""


def precision_cases(facts: DelegateFacts) -> list[DelegateCase]:
    """A case for each float32 operator that is claimed, of the highest rank and the plainest kind.

    The graphs are as small as those that the claims were learned with: what depends on more
    is left to the rules.
    """
    kinds: dict[Op, Combination] = {}
    for claim in facts.claims:
        kind = claim.kind
        is_wanted = claim.outcome == "claimed" and kind.dtype == "float32"
        if is_wanted and (kind.op not in kinds or kind.rank > kinds[kind.op].rank):
            kinds[kind.op] = kind
    return [
        DelegateCase(asked_about(kind, facts.floor), invokes=len(_SEEDS), data_seed=_SEEDS[0], reseed=_SEEDS)
        for kind in kinds.values()
    ]


def half_in(traces: Iterable[tuple[DelegateCase, DelegateTrace]]) -> tuple[Op, ...]:
    """The operators that were computed in float16; all that there are, if each one that was seen is.

    A case that failed, or in which there is no kernel, says nothing.
    """
    found: dict[Op, bool] = {}
    for case, trace in traces:
        is_half = _is_half(case, trace)
        if is_half is not None:
            found[case.graph.nodes[0].op] = is_half
    operators = [op for op, is_half in found.items() if is_half]
    return tuple(sorted(EVERY_OP if operators and len(operators) == len(found) else operators))


def _is_half(case: DelegateCase, trace: DelegateTrace) -> bool | None:
    """None: what was seen could be either."""
    if not trace.kernels or len(trace.outputs) != len(_SEEDS):
        return None
    written = {tensor for kernel in trace.kernels for tensor in kernel.outputs}
    found = None
    for seed, outputs in zip(_SEEDS, trace.outputs, strict=True):
        inputs = inputs_of(msgspec.structs.replace(case, data_seed=seed))
        if len(outputs) != len(case.graph.outputs):
            return None
        seen = [array.numpy() for array in outputs]
        answer = is_computed_in_half(case.graph, inputs, seen, written)
        if answer is False:
            return False
        found = answer or found
    return found
