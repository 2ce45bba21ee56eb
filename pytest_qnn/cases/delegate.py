"""DelegateCase: what is done to one interpreter, as immutable data."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_qnn.cases.graph import Graph

Fault = Literal["", "prepare", "init", "kernel-prepare", "kernel-invoke"]
Fill = Literal["ramp", "mixed", "extreme"]


class Application(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One ``ModifyGraphWithDelegate``, in order.

    ``target`` stands for the delegate under test: each delegate of its chain in order of precedence.
    ``probe`` is a reference delegate of the suite's own that claims exactly ``claim``.
    """

    who: Literal["target", "probe"] = "target"
    claim: tuple[int, ...] | None = None
    """Original node indices to claim. A probe obeys; so does a steerable target (the reference and its
    mutants); a native one decides for itself. None: everything that the delegate supports."""
    fault: Fault = ""
    """Probe only: the callback that reports failure."""
    flags: int = 0
    """Probe only: TfLiteDelegateFlags."""


class DelegateCase(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Build the graph, apply delegates, allocate, invoke some times, read, destroy."""

    graph: Graph
    applications: tuple[Application, ...] = (Application(),)
    invokes: int = 1
    data_seed: int = 0
    """Seed of the input contents (`pytest_qnn.cases.data.inputs_of`)."""
    fill: Fill = "mixed"
    poison: tuple[int, ...] = ()
    """Byte written over every output before invoke k: ``poison[k]``; shorter: outputs are left alone."""
    watch: bool = False
    """Record every write of a kernel outside its own outputs (slower)."""
