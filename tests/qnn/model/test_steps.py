"""Every kind of QNN step has its place in what follows a sequence of steps."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest

from pytest_qnn.qnn.cases.case import (
    AnyStep,
    ApplySection,
    Binding,
    ContextCreate,
    ContextFromBinary,
    Deregister,
    Descriptor,
    GetBinary,
    GetSection,
    NewProcess,
    Prepare,
    Register,
    Restart,
    Retrieve,
    UpdateWeights,
)
from pytest_qnn.qnn.cases.lives import EFFECTS, Alive, Known, ended_by, made_by, used_by
from pytest_qnn.qnn.model.expected import EXPECT, FOLLOW, JUDGED_ALONE, NO_QNN_CALL

KINDS: tuple[type[Any], ...] = get_args(AnyStep)
BUFFERS = (Descriptor("first", (1,)), Descriptor("second", (1,)))
NAMED: dict[Any, Any] = {
    tuple[str, ...]: ("one", "two"),
    tuple[Descriptor, ...]: BUFFERS,
    tuple[Binding, ...]: (Binding("handle", "one", of="other"),),
}
"""By type of a step's field: a value that has names of objects. A field of type str holds one name."""
PLAIN: dict[Any, Any] = {int: 1, bytes: b"", tuple[int, ...]: (1,)}


def bare(type_: Any) -> Any:
    """The type of a field without its bounds."""
    return get_args(type_)[0] if get_origin(type_) is Annotated else type_


def field_names(kind: type[Any]) -> list[str]:
    """Fields that hold names of objects."""
    return [field.name for field in msgspec.structs.fields(kind) if bare(field.type) in (str, *NAMED)]


def example(kind: type[Any]) -> Any:
    """A step with a name in every field that can hold one."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        type_ = bare(field.type)
        if type_ is str:
            values[field.name] = f"the {field.name}"
        elif type_ in NAMED:
            values[field.name] = NAMED[type_]
        elif field.required:
            values[field.name] = PLAIN.get(type_) or (get_args(type_) or ((),))[0]
    return kind(**values | ({"graphs": ()} if "graphs" in values else {}))


def alive_before() -> Alive:
    """Everything that an `example` refers to."""
    alive = Alive()
    alive.contexts["the context"] = EXAMPLES[KINDS[0]]
    alive.alloc("the buffer", 64)
    for handle, descriptor in zip(("one", "two"), BUFFERS, strict=True):
        alive.register(handle, Known("another context", descriptor))
    alive.prepare("the source", Prepare("the source", "another context"))
    return alive


def followed(*steps: AnyStep) -> Alive:
    alive = Alive()
    for step in steps:
        alive.follow(step)
    return alive


SAVED = (
    ContextCreate("c0"),
    Prepare("g0", "c0", "ElementWiseAdd", weights=1, weights_as="updatable"),
    GetSection("c0", "g0", "s0"),
    GetBinary("c0", "b0"),
    UpdateWeights("g0", 2),
)


def test_a_binary_holds_weights_as_they_were_when_it_was_written() -> None:
    alive = followed(*SAVED, NewProcess(), ContextFromBinary("c1", "b0"), Retrieve("g1", "c1", "g0"))
    assert (alive.prepared["g0"].weights, alive.prepared["g1"].weights) == (2, 1)
    assert (alive.graphs["g1"].graph, alive.graphs["g1"].context) == ("g1", "c1")
    assert "g0" not in alive.graphs


def test_a_binary_of_a_context_out_of_a_binary_holds_the_same_graphs() -> None:
    again = (ContextFromBinary("c1", "b0"), GetBinary("c1", "b1"), ContextFromBinary("c2", "b1"))
    assert followed(*SAVED, *again, Retrieve("g2", "c2", "g0")).graphs["g2"].weights == 1


def test_a_graph_has_the_weights_of_the_section_that_was_applied_last() -> None:
    alive = followed(*SAVED, ApplySection("c0", "g0", "s0"))
    assert alive.graphs["g0"].weights == alive.prepared["g0"].weights == 1


def test_a_graph_of_the_same_context_has_the_weights_of_now() -> None:
    assert followed(*SAVED, Retrieve("g1", "c0", "g0")).graphs["g1"].weights == 2


EXAMPLES = {kind: example(kind) for kind in KINDS}
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))


def test_every_kind_of_step_has_an_entry() -> None:
    missing = [kind.__name__ for kind in KINDS if kind not in EFFECTS]
    assert not missing, f"EFFECTS in pytest_qnn/qnn/cases/lives.py has no entry for {', '.join(missing)}"
    assert set(EFFECTS) == set(KINDS)


def test_the_oracle_follows_every_kind_that_changes_what_is_alive() -> None:
    nothing = EFFECTS[Restart].follow
    changes = {kind for kind, effect in EFFECTS.items() if effect.makes or effect.follow is not nothing}
    # `Model.follow`; what weights a graph has is no matter for the answers, but for `qnn.model.contents`.
    elsewhere = {Register, Deregister, GetSection, ApplySection, UpdateWeights}
    missing = sorted(kind.__name__ for kind in changes - elsewhere - FOLLOW.keys())
    assert not missing, f"FOLLOW in pytest_qnn/qnn/model/expected.py has no entry for {', '.join(missing)}"


@each_kind
def test_the_oracle_says_what_every_kind_may_be_answered_with(kind: type[Any]) -> None:
    places = (EXPECT, NO_QNN_CALL, JUDGED_ALONE)
    assert [kind in place for place in places].count(True) == 1, (
        f"{kind.__name__} in pytest_qnn/qnn/model/expected.py: either an entry in EXPECT, "
        "or a name in NO_QNN_CALL or JUDGED_ALONE"
    )


@each_kind
def test_every_field_with_names_is_told(kind: type[Any]) -> None:
    effect = EFFECTS[kind]
    told = [field.partition(".")[0] for field in (*effect.makes, *effect.uses, *effect.ends)]
    place = f"EFFECTS[{kind.__name__}] in pytest_qnn/qnn/cases/lives.py"
    assert set(told) == set(field_names(kind)), place


@each_kind
def test_what_a_step_makes_lives_and_what_it_ends_does_not(kind: type[Any]) -> None:
    alive, step = alive_before(), EXAMPLES[kind]
    alive.follow(step)
    live = {*alive.contexts, *alive.buffers, *alive.handles, *alive.graphs}
    kept = {"the binary", "the section"}  # They end with the case.
    assert set(made_by(step)) - kept <= live
    assert live.isdisjoint(ended_by(step))
    assert set(ended_by(step)) <= set(used_by(step))
