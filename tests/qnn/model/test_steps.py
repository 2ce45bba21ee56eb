"""Every kind of QNN step has its place in what follows a sequence of steps."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest

from pytest_qnn.qnn.cases.case import (
    AnyStep,
    ApplySection,
    Binding,
    Deregister,
    Descriptor,
    GetSection,
    Prepare,
    Register,
    Restart,
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
