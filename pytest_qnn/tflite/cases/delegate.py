"""DelegateCase: what is done to one interpreter, as immutable data."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.graph.graph import MOST_NODES, Graph

Fault = Literal["", "prepare", "init", "kernel-prepare", "kernel-invoke", "second-invoke", "dynamic"]
Refused = Literal["", "plan", "node", "replace", "preview", "node-in-init"]
Look = Literal[
    "forbidden", "graph", "data", "names", "reports", "lifetimes", "previews", "tensors", "order", "heap"
]
Fill = Literal["ramp", "mixed", "extreme", "special"]
Seed = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Byte = Annotated[int, Meta(ge=0, le=255)]
Flags = Annotated[int, Meta(ge=0, le=7)]
"""TfLiteDelegateFlags but for kTfLiteDelegateFlagsHintFullyDelegatedToSingleDelegate (RT-07)."""
Text = Annotated[str, Meta(max_length=200)]
"""An option's key, or its value."""
MOST_INVOKES = 16
MOST_ADDED = 1000


class Application(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One ``ModifyGraphWithDelegate``, in order.

    ``target`` means the delegate under test: each delegate of its chain in order of precedence.
    ``probe`` is a reference delegate of the suite's own that claims exactly ``claim``.
    """

    who: Literal["target", "probe"] = "target"
    claim: tuple[int, ...] | None = None
    """Original node indices to claim. A probe obeys; so does a steerable target (the reference and its
    mutants); a native one decides for itself. None: everything that the delegate supports."""
    fault: Fault = ""
    """The callback that reports failure; ``second-invoke``: each kernel's second invoke. A probe obeys, and
    so does a steerable target. ``dynamic`` is no failure, and a probe's only: it makes outputs dynamic."""
    flags: Flags = 0
    """Probe only: TfLiteDelegateFlags."""
    refused: Refused = ""
    """Answer Prepare's call number ``refused_call`` of this function with kTfLiteError: ``plan``
    GetExecutionPlan, ``node`` GetNodeAndRegistration, ``replace`` and ``preview`` those functions;
    ``node-in-init``: GetNodeAndRegistration, called by a kernel's init."""
    refused_call: Annotated[int, Meta(ge=0, le=MOST_NODES)] = 0
    """From 0; ``node-in-init``: that number of init, and all its calls."""
    options: Annotated[tuple[tuple[Text, Text], ...], Meta(max_length=8)] = ()
    """Target only: further (key, value) options of the last delegate of its chain."""
    order: Annotated[int, Meta(ge=0, le=255)] = 0
    """Target only: which order its delegates are applied in, of all that there are, counted in the order of
    itertools.permutations and from the beginning again; 0: that of the command line."""
    added: Annotated[int, Meta(ge=0, le=MOST_ADDED)] = 0
    """Probe only: its Prepare first adds so many tensors with AddTensors, and again so many until the table
    of tensors has moved (`pytest_qnn.tflite.reference.adding`)."""


class DelegateCase(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Build the graph, apply delegates, allocate, invoke some times, read, destroy."""

    graph: Graph
    applications: Annotated[tuple[Application, ...], Meta(max_length=8)] = (Application(),)
    invokes: Annotated[int, Meta(ge=0, le=MOST_INVOKES)] = 1
    data_seed: Seed = 0
    """Seed of the input contents (`pytest_qnn.tflite.cases.inputs.inputs_of`)."""
    fill: Fill = "mixed"
    poison: tuple[Byte, ...] = ()
    """Byte written over every output before invoke k: ``poison[k]``; shorter: outputs are left alone."""
    baseline: Literal["", "alone", "plain"] = ""
    """What the target claims is also seen on another interpreter of the same graph: ``alone``, without any
    probe, or ``plain``, behind the same probes; without `Application.options` in either case."""
    watch: bool = False
    """Record every write of a kernel outside its own outputs (slower)."""
    reseed: tuple[Seed, ...] = ()
    """Before invoke k the inputs are those of the seed ``reseed[k]``; shorter: they stay as they are."""
    again: Literal["", "interpreter", "process"] = ""
    """Carry the case out a second time: on another interpreter of the same process while the first is
    still there, or in a fresh process."""
    late: bool = False
    """Allocate, set other inputs and invoke before the first application: tensors have memory by then."""
    redo: Annotated[int, Meta(ge=0, le=16)] = 0
    """After allocating, so many times: resize an input to another shape and back, and allocate again."""
    look: tuple[Look, ...] = ()
    """What else is looked at (each costs time): see `pytest_qnn.tflite.trace.Spied`; ``heap``: in a process
    of its own the case is carried out twice, and the second time what the target requests is checked."""
    history: History | None = None
    """What is done in the process before."""
