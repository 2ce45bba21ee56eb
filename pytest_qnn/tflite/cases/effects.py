"""What each step of a script makes, uses and ends: the one place that says so.

Objects have names; the field of a step that holds the name is called like the kind of object. A buffer of
`AllocCustom` and one of `Place` are of one kind here, for they are named by fields of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

from pytest_qnn.tflite.cases.script import (
    Allocate,
    AllocCustom,
    AnyScriptStep,
    Apply,
    AssignCustom,
    Cancel,
    Close,
    CopyFrom,
    CopyTo,
    DestroyDelegate,
    FreeBuffer,
    FreeCustom,
    HandleOutput,
    InspectCustom,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    PassToConstructor,
    Place,
    Poison,
    Profile,
    Read,
    ReadCustom,
    ReadLog,
    Refuse,
    RemoveAll,
    Resize,
    Sample,
    SetInputs,
    Unallocate,
    Unload,
)

Thing = Literal["interpreter", "delegate", "buffer"]
"""A kind of named object."""
THINGS: Final[tuple[Thing, ...]] = get_args(Thing)
Part = Literal["claim", "tensor", "tensors", "input", "output"]
"""A field with numbers of nodes, of tensors, or of inputs or outputs of the interpreter's graph."""


class Effect(NamedTuple):
    """One type of step."""

    makes: tuple[Thing, ...] = ()
    """Without the step no later one has the object."""
    uses: tuple[Thing, ...] = ()
    """What must exist already; but `Place` makes a buffer that does not, as does each later one."""
    ends: tuple[Thing, ...] = ()
    parts: tuple[Part, ...] = ()
    """What of a graph the step names by number."""

    def names(self) -> tuple[Thing, ...]:
        """Every object that the step names."""
        return (*self.makes, *self.uses, *self.ends)


_INTERPRETER: Final = Effect(uses=("interpreter",))

EFFECTS: Final[Mapping[type[AnyScriptStep], Effect]] = {
    MakeDelegate: Effect(makes=("delegate",), parts=("claim",)),
    DestroyDelegate: Effect(ends=("delegate",)),
    Open: Effect(makes=("interpreter",)),
    Apply: Effect(uses=("interpreter", "delegate")),
    Place: Effect(uses=("interpreter", "buffer"), parts=("tensor",)),
    Unallocate: _INTERPRETER,
    FreeBuffer: Effect(ends=("buffer",)),
    Resize: Effect(uses=("interpreter",), parts=("input",)),
    Allocate: _INTERPRETER,
    SetInputs: _INTERPRETER,
    Poison: _INTERPRETER,
    Invoke: _INTERPRETER,
    Read: Effect(uses=("interpreter",), parts=("tensors",)),
    Sample: _INTERPRETER,
    RemoveAll: _INTERPRETER,
    HandleOutput: _INTERPRETER,
    CopyFrom: Effect(uses=("interpreter",), parts=("output",)),
    CopyTo: Effect(uses=("interpreter",), parts=("output",)),
    Profile: _INTERPRETER,
    Cancel: _INTERPRETER,
    PassToConstructor: Effect(uses=("delegate",)),
    Unload: Effect(),
    Close: Effect(ends=("interpreter",)),
    Measure: Effect(),
    Refuse: Effect(),
    AllocCustom: Effect(makes=("buffer",)),
    InspectCustom: Effect(uses=("buffer",)),
    FreeCustom: Effect(ends=("buffer",)),
    AssignCustom: Effect(uses=("interpreter", "buffer"), parts=("tensor",)),
    ReadCustom: Effect(uses=("interpreter",), parts=("tensor",)),
    ReadLog: Effect(uses=("delegate",)),
}
"""`tests/tflite/runner/test_handlers.py` names a step that is missing here."""
_NOTHING: Final = Effect()


def effect_of(step: AnyScriptStep) -> Effect:
    """What a step does itself; nothing, if it holds other steps."""
    return EFFECTS.get(type(step), _NOTHING)


def named(step: AnyScriptStep, thing: Thing) -> str:
    """The name of the object of this kind that a step is about; empty: of none."""
    return getattr(step, thing) if thing in effect_of(step).names() else ""


def all_named(step: AnyScriptStep) -> tuple[str, ...]:
    """The names of all objects that a step is about."""
    return tuple(getattr(step, thing) for thing in effect_of(step).names())
