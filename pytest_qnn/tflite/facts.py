"""What was learned of a chain of delegates before any rule is judged: strategies and gates read it."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_qnn.tflite.graph.combinations import Combination
from pytest_qnn.tflite.graph.floors import Floor
from pytest_qnn.tflite.graph.graph import Op

LIMITS = ("max_delegated_partitions", "min_nodes_per_partition")
"""Options that delegates made with TensorFlow Lite's SimpleDelegate have (simple_delegate.h, Options)."""
USUAL_OPTIONS = (*LIMITS, "num_threads", "threads")
"""Options that many delegates have, with numbers for values: each delegate is asked for them."""


Precision = Literal["float32", "float16"]


class Claim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a delegate did with a model of one node."""

    kind: Combination
    outcome: Literal["claimed", "refused", "failed", "died", "unknown"]
    """``failed``: it was claimed or not, and its application failed; ``died``: the process did; ``unknown``:
    it was not asked any more."""


class Sample(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What became of one graph of many operators: seed 003, the cost of many partitions."""

    nodes: int
    kernels: int
    switches: int
    """Changes between CPU and delegate, or from one kernel to the next, in the order of the plan."""
    left: tuple[str, ...]
    """Operators of the nodes left to the CPU."""


class DelegateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A delegate (or a chain of them) on one runtime."""

    runtime: str = ""
    runtime_version: str = ""
    delegates: tuple[str, ...] = ()
    """Specification of each delegate of the chain, in order of precedence."""
    steerable: bool = False
    """Every delegate of the chain obeys `Application.claim`."""
    observed: bool = True
    """Plans and kernels can be read on this runtime (the canary held)."""
    options: tuple[tuple[tuple[str, str], ...], ...] = ()
    """By position in the chain: options that the delegate's plugin interface takes, as far as known."""
    needs_options: bool = False
    """The options come from the command line: a delegate may be unable to do without them."""
    unusable: str = ""
    """Why no delegate can be made although the library is a plugin: only its interface is judged then."""
    unloadable: bool = False
    """That is so because the loader refuses the library: of the rules about its interface, only ABI-12, which
    says so, judges it."""
    deaths: tuple[str, ...] = ()
    """How the process died while more than this was to be learned."""
    claims: tuple[Claim, ...] = ()
    """What became of each of `pytest_qnn.tflite.graph.combinations.GRID`; empty: nothing could be learned."""
    floor: Floor = Floor()
    """How large and long the graphs were that the claims were learned with: some delegates leave smaller ones
    alone."""
    samples: tuple[Sample, ...] = ()
    """The same graphs for every target, of any operators."""
    custom_memory: int = -1
    """Position in the chain of the first delegate that offers custom memory
    (TfLiteQnnDelegateAllocCustomMem); -1: none does."""
    own_interface: int = -1
    """Position in the chain of the first delegate that has TfLiteQnnDelegateCreate, whichever interface was
    selected; -1: none has."""
    backend_type: str = ""
    """The option of this name that it was selected with; empty: nobody has said which backend it has here."""
    registers: bool | None = None
    """Its QNN backend registers shared buffers; None: that is not known."""
    precision: Precision = "float32"
    """What float32 graphs are declared to be computed in (--tflite-delegate-precision)."""
    half: tuple[Op, ...] = ()
    """Operators that compute float32 in float16 although that was not declared, as a plain case showed."""
    seconds: float = 0.0
    """What making the delegates, applying them to a plain graph, invoking it and destroying them takes, as a
    power of two; 0: less than an eighth of a second."""
    most_lives: int = 0
    """How often one case may do so, if that takes long, within --qnn-timeout; 0: as often as it likes."""
    limits: dict[str, str] = {}
    """Of `USUAL_OPTIONS`: why the delegate is taken not to have the option; empty: it has it."""

    def is_in_half(self, op: str) -> bool:
        """Whether an operator computes float32 in float16, as declared or as a plain case has shown."""
        return self.precision == "float16" or op in self.half
