"""Conforming variations of the reference backend: what one vendor chooses and another does not."""

from __future__ import annotations

import dataclasses

from pytest_qnn.abi.qnn_codes import DataType

_BOTH = frozenset({int(DataType.FLOAT_32), int(DataType.UFIXED_POINT_8)})


@dataclasses.dataclass(frozen=True)
class Personality:
    """The choices that the QNN documents leave to a backend. Every one of them must be conforming."""

    name: str
    summary: str
    memory: bool = True
    """The QnnMem functions (property 1101). Off: both answer 1000 to anything and touch nothing."""
    ion: bool = True
    """Property 1102."""
    custom: bool = True
    """Property 1103: CUSTOM descriptors of type SHARED_BUFFER."""
    dma_buf: bool = False
    """Property 1104."""
    binaries: bool = True
    """Property 202: context binaries. Off: their functions answer 1000."""
    deferred: bool = True
    """Properties 215 and 217: deferred initialisation with external buffers, and what it asks for."""
    data_types: frozenset[int] = _BOTH
    """Qnn_DataType_t codes that the operators take."""
    error_bits: int = 0
    """Set above bit 15 in every code that is not success; clients must mask them out."""
    reuse_handles: bool = False
    """Handles are the smallest free integer of their kind, as libQnnHtp does. Off: never reused."""


DEFAULT = Personality("default", "every memory type but DMA_BUF, handles never reused")

PERSONALITIES: dict[str, Personality] = {
    personality.name: personality
    for personality in (
        DEFAULT,
        Personality(
            "no-memory",
            "no QnnMem functions at all",
            memory=False,
            ion=False,
            custom=False,
            deferred=False,
        ),
        Personality("no-ion", "no ION memory", ion=False),
        Personality("no-custom", "no shared buffers", custom=False),
        Personality("no-binaries", "no context binaries", binaries=False, deferred=False),
        Personality("no-deferred-init", "binaries are initialised when they are read", deferred=False),
        Personality("dma-buf", "DMA_BUF memory as well", dma_buf=True),
        Personality(
            "high-error-bits", "bits above the low 16 set in every error", error_bits=0x7E57_0000_0000
        ),
        Personality("float-only", "FLOAT_32 operators only", data_types=frozenset({int(DataType.FLOAT_32)})),
        Personality(
            "quantised-only",
            "UFIXED_POINT_8 operators only",
            data_types=frozenset({int(DataType.UFIXED_POINT_8)}),
        ),
        Personality("small-reused-handles", "handles 1, 2, 3, ..., reused at once", reuse_handles=True),
    )
}
"""By name, as in the target specification ``reference:NAME``."""
