"""PluginCase: calls of an external delegate's two functions, as immutable data.

Delegates are named by the step that makes them. Options are bytes, as C sees them: no text of a case file
is more than a name.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pytest_qnn.tflite.cases.delegate import Seed
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.graph.graph import Graph

CREATE: Final = "tflite_plugin_create_delegate"
DESTROY: Final = "tflite_plugin_destroy_delegate"

Text = Annotated[bytes, Meta(max_length=4096)]
Options = Annotated[tuple[tuple[Text, Text], ...], Meta(max_length=64)]
"""(key, value) pairs without NUL, in order."""


class PluginStep(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="do"):
    """One step."""


class Create(PluginStep, frozen=True, gc=False, omit_defaults=True, tag="create"):
    """``tflite_plugin_create_delegate``."""

    name: str = "d0"
    options: Options = ()
    null_arrays: bool = False
    """Keys and values are NULL; only without options."""
    report: Literal["function", "null"] = "function"
    descriptors: Annotated[int, Meta(ge=0, le=16)] | None = None
    """So many files and no more can be opened during the call, libraries among them."""
    guarded: bool = False
    """Each array and each text ends where a page begins that nobody may touch, until the case is over."""


class OverwriteArguments(PluginStep, frozen=True, gc=False, omit_defaults=True, tag="overwrite-arguments"):
    """Overwrite the arrays and texts that the delegate's create was given, as a caller may who is done."""

    name: str = "d0"


class Apply(PluginStep, frozen=True, gc=False, omit_defaults=True, tag="apply"):
    """An interpreter of the case's graph: modify it with the delegate, allocate, invoke, read, destroy it."""

    name: str = "d0"


class Destroy(PluginStep, frozen=True, gc=False, omit_defaults=True, tag="destroy"):
    """``tflite_plugin_destroy_delegate``; without a name: of NULL."""

    name: str = ""


class Cycle(PluginStep, frozen=True, gc=False, omit_defaults=True, tag="cycle"):
    """Create and destroy a delegate, four times ``times``; memory in use is measured after each quarter.

    A plugin whose delegates take long is asked for fewer of them, at least one in each quarter.
    """

    times: Annotated[int, Meta(ge=1, le=256)] = 16
    options: Options = ()


class Copy(PluginStep, frozen=True, gc=False, omit_defaults=True, tag="copy"):
    """Load a copy of the library from another file, and create a delegate with it."""

    name: str = "d1"
    options: Options = ()


AnyPluginStep = Create | OverwriteArguments | Apply | Destroy | Cycle | Copy


class PluginCase(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What is done with the plugin interface of one delegate of the target's chain."""

    graph: Graph
    steps: Annotated[tuple[AnyPluginStep, ...], Meta(max_length=64)]
    delegate: Annotated[int, Meta(ge=0, le=8)] = 0
    """Position of the plugin in the chain."""
    data_seed: Seed = 0
    """Seed of the graph's inputs."""
    history: History | None = None
    """What is done with the plugin's functions before."""
