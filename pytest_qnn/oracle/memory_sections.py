"""What calls on sections of context binaries may be answered with (`pytest_qnn.cases.memory_sections`).

UpdateWeights
    unsettled where the weights are not updatable.
GetSection, ApplySection
    faults: ``unregistered`` (a memory handle that is none), ``short`` (the memory behind it is too small: no
    document says with which code that is refused). Unsettled: a context or a graph that is gone, one without
    updatable weights, and a section taken from a context that came out of a binary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.cases.memory_sections import UNREGISTERED, ApplySection, GetSection, UpdateWeights
from pytest_qnn.oracle.memory_state import Allowed

if TYPE_CHECKING:
    from pytest_qnn.oracle.memory import Model

_SUCCESS = frozenset({0})
_REFUSED = frozenset(
    {int(Error.CONTEXT_ERROR_INVALID_ARGUMENT), int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)}
)
"""QnnContext.h, QnnContext_getBinarySection: an argument is invalid, or the feature is not supported."""


def _updatable(model: Model, name: str) -> bool:
    graph = model.graphs.get(name)
    return graph is not None and graph.live and graph.finalised and graph.updatable


def _update(model: Model, step: UpdateWeights) -> Allowed:
    return Allowed(_SUCCESS, settled=_updatable(model, step.graph))


def _section(model: Model, step: GetSection | ApplySection) -> Allowed:
    graph = model.graphs.get(step.graph)
    own = graph is not None and graph.context == step.context and model.context_lives(step.context)
    settled = own and _updatable(model, step.graph)
    if isinstance(step, GetSection):
        settled = settled and model.contexts[step.context].binary is None
    if step.memory in UNREGISTERED:
        return Allowed(_REFUSED, frozenset({"unregistered"}), settled=settled)
    if step.memory == "short":
        return Allowed(frozenset(), frozenset({"short"}), settled=settled)
    return Allowed(_SUCCESS, settled=settled)


EXPECT_SECTIONS: dict[type[Any], Callable[[Any, Any], Allowed]] = {
    UpdateWeights: _update,
    GetSection: _section,
    ApplySection: _section,
}
"""As in `pytest_qnn.oracle.memory_expect`."""
