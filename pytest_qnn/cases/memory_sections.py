"""Steps on sections of context binaries: updates of a graph, taken from it and put into another."""

from __future__ import annotations

from typing import Literal

from pytest_qnn.cases.memory_step import Step

SectionMemory = Literal["raw", "handle", "short", "null", "unknown", "dead"]
"""What a QnnContext_Buffer_t leads to. Raw memory, or a memory handle: one of just enough bytes, of one byte
less (behind it the buffer goes on), NULL, a value that was never given out, or one that was deregistered."""
UNREGISTERED = frozenset({"null", "unknown", "dead"})


class UpdateWeights(Step, tag="update-weights", frozen=True, gc=False, omit_defaults=True):
    """QnnTensor_updateGraphTensors of the updatable weights of ``graph``, and QnnGraph_finalize."""

    graph: str
    weights: int
    """Their contents from now on, as in `Prepare`."""


class GetSection(Step, tag="get-section", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_getBinarySectionSize, then, if it succeeded, QnnContext_getBinarySection.

    The bytes are called ``section`` if both succeed.
    """

    context: str
    graph: str
    section: str
    memory: SectionMemory = "raw"
    mem_type: int = 1
    """Qnn_MemType_t of the memory behind a handle."""


class ApplySection(Step, tag="apply-section", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_applyBinarySection of the bytes called ``section``."""

    context: str
    graph: str
    section: str
    memory: SectionMemory = "raw"
    mem_type: int = 1


SectionStep = UpdateWeights | GetSection | ApplySection
