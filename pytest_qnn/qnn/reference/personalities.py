"""Conforming variations of the reference backend: what one vendor chooses and another does not."""

from __future__ import annotations

import dataclasses
from typing import Literal

from pytest_qnn.qnn.abi.codes import DataType, Error

_BOTH = frozenset({int(DataType.FLOAT_32), int(DataType.UFIXED_POINT_8)})
_OTHER_CODES = tuple(
    (fault, int(code))
    for fault, code in (
        ("type-unknown", Error.MEM_ERROR_INVALID_ARGUMENT),
        ("htp-type", Error.MEM_ERROR_INVALID_ARGUMENT),
        ("bad-shape", Error.MEM_ERROR_INVALID_ARGUMENT),
        ("fd-minus-one", Error.MEM_ERROR_INVALID_ARGUMENT),
        ("small-buffer", Error.MEM_ERROR_INVALID_SHAPE),
        ("size-too-large", Error.MEM_ERROR_MAPPING),
        ("short-handle", Error.GRAPH_ERROR_INVALID_ARGUMENT),
    )
)


_OVER = ("size-too-large", "past-end", "small-buffer")


_MEMORY = frozenset({"memRegister", "memDeRegister"})
_BINARIES = frozenset({"contextGetBinarySize", "contextGetBinary", "contextCreateFromBinary"})
_ABSENT = frozenset(
    {
        "contextFinalize",
        "contextCreateFromBinaryWithCallback",
        "contextGetBinarySectionSize",
        "contextGetBinarySection",
        "contextApplyBinarySection",
        "graphExecuteAsync",
        "graphPrepareExecutionEnvironment",
        "graphReleaseExecutionEnvironment",
        "tensorUpdateGraphTensors",
    }
)


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
    by_number: bool = False
    """Memory is distinguished by the number of its fd, as devices do. Off: by the file behind it."""
    overlap: bool = True
    """Tensors in one shared buffer may overlap (catalogue, SHB-12)."""
    context_first: bool = False
    """memRegister looks at its context before its arrays."""
    empty_calls: bool = False
    """A count of 0 succeeds, and nothing happens (REG-05, DRG-07). Off: 8000."""
    parents_wait: bool = True
    """deviceFree under a context is refused (14003). Off: it takes the contexts along (CTX-07)."""
    spill_fill: bool = True
    """Graphs need spill-fill memory for what lies between their nodes. Off: property 2 is 0."""
    early_limits: bool = True
    """What excludes deferred initialisation is refused at creation. Off: at contextFinalize (EXT-28)."""
    asynchronous: bool = False
    """Property 304: graphExecuteAsync."""
    lists: bool = False
    """Property 212: contexts are made from lists of binaries, by contextCreateFromBinaryListAsync."""
    udma64: bool = False
    """Graphs can be prepared with extended udma, which excludes external memory. Off: it has no effect."""
    sections: bool = False
    """Properties 213 and 506: updatable weights, and sections of binaries to carry them."""
    retrieve_raw: bool = False
    """Property 516: data of STATIC tensors is fetched by a callback (RETRIEVE_RAW)."""
    environments: bool = False
    """Properties 317 and 318: execution environments bind handles, and tell the backend's own buffers."""
    one_piece: bool = False
    """The IO buffers of a graph lie in one mapping. Off: each has its own."""
    pieces: Literal["", "kept", "read"] = ""
    """Property 220: a client may provide binaries piece by piece; it has them back when their context is
    freed (kept), or once they are read."""
    finalize: bool = True
    """QnnContext_finalize is there. Off: it answers 1000 to anything (deferred is off too)."""
    empty_config: bool = False
    """An empty shapeConfig is none, as NULL is."""
    null_context: bool = False
    """contextFinalize takes NULL for a missing argument (5000)."""
    size_from_offset: bool = False
    """The size of external memory is that of what follows its offset. Off: that of the whole buffer."""
    types_at_finalize: bool = False
    """A memory type that there is not is refused by graphFinalize. Off: by tensorCreateGraphTensor."""
    rounding: Literal["half-up", "half-even", "down"] = "half-up"
    """How quantised results are rounded; down is off by one step wherever a half would be rounded up."""
    weights: bool = True
    """Contexts need memory for their weights. Off: property 3 is 0."""
    arenas: bool = False
    """Memory is mapped with the first graph of the process, for as long as there is a backend."""
    worker: bool = False
    """Mappings are given back by a thread, a little later. Off: by the call that ends them."""
    null: frozenset[str] = frozenset()
    """Members of the interface table that are NULL: functions of features that it does not have."""
    codes: tuple[tuple[str, int], ...] = ()
    """(what is wrong, code), where the catalogue allows several; names as in `qnn.model.expected`."""

    def code(self, fault: str, usual: int) -> int:
        """The code for what is wrong."""
        return dict(self.codes).get(fault, usual)


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
            "dma-buf-only",
            "DMA_BUF memory and no other, as backends of GPUs have it",
            ion=False,
            custom=False,
            dma_buf=True,
            deferred=False,
        ),
        Personality(
            "high-error-bits", "bits above the low 16 set in every error", error_bits=0x7E57_0000_0000
        ),
        Personality("float-only", "FLOAT_32 operators only", data_types=frozenset({int(DataType.FLOAT_32)})),
        Personality(
            "quantised-only",
            "UFIXED_POINT_8 operators only",
            data_types=frozenset({int(DataType.UFIXED_POINT_8)}),
        ),
        Personality("identity-by-number", "memory is known by its descriptor's number", by_number=True),
        Personality("no-overlap", "tensors in one buffer must not overlap", overlap=False),
        Personality("context-first", "a context is looked at before the arrays", context_first=True),
        Personality("empty-calls", "registering or deregistering nothing succeeds", empty_calls=True),
        Personality("device-takes-contexts", "deviceFree frees the device's contexts", parents_wait=False),
        Personality("no-spill-fill", "no graph needs spill-fill memory", spill_fill=False),
        Personality(
            "late-limits",
            "lists of binaries and extended udma; what excludes deferring is refused by contextFinalize",
            early_limits=False,
            lists=True,
            udma64=True,
        ),
        Personality("lists-of-binaries", "contexts are made from lists of binaries as well", lists=True),
        Personality("asynchronous", "graphs execute asynchronously as well", asynchronous=True),
        Personality("binary-sections", "weights can be updated by sections of binaries", sections=True),
        Personality("retrieve-raw", "data of STATIC tensors is fetched by a callback", retrieve_raw=True),
        Personality("environments", "execution environments of both kinds", environments=True),
        Personality("io-in-one-piece", "one mapping holds a graph's IO buffers", one_piece=True),
        Personality("provided-pieces", "binaries come piece by piece as well, in memory kept", pieces="kept"),
        Personality(
            "pieces-given-back", "binaries come piece by piece, in memory given back at once", pieces="read"
        ),
        Personality("other-codes", "the other code wherever several are allowed", codes=_OTHER_CODES),
        Personality(
            "too-large-is-mapping",
            "what does not fit a buffer cannot be mapped; an empty shapeConfig is none",
            empty_config=True,
            codes=tuple((fault, int(Error.MEM_ERROR_MAPPING)) for fault in _OVER),
        ),
        Personality(
            "too-large-is-shape",
            "what does not fit a buffer is an invalid shape; NULL is a missing argument",
            null_context=True,
            codes=tuple((fault, int(Error.MEM_ERROR_INVALID_SHAPE)) for fault in _OVER),
        ),
        Personality(
            "external-size-from-offset",
            "the size of external memory counts from its offset",
            size_from_offset=True,
            codes=(("external-small", int(Error.MEM_ERROR_MAPPING)),),
        ),
        Personality(
            "external-codes",
            "external memory that will not do is refused with other codes of the memory family",
            codes=(
                ("external-small", int(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)),
                ("external-misaligned", int(Error.MEM_ERROR_MAPPING)),
                ("external-taken", int(Error.MEM_ERROR_MAPPING)),
            ),
        ),
        Personality("rounds-half-even", "halves are rounded to even", rounding="half-even"),
        Personality("rounds-down", "quantised results are cut, not rounded", rounding="down"),
        Personality(
            "null-memory",
            "no QnnMem functions, which are NULL in the table",
            memory=False,
            ion=False,
            custom=False,
            deferred=False,
            null=_MEMORY,
        ),
        Personality(
            "null-features",
            "functions of features that there are not are NULL in the table",
            binaries=False,
            deferred=False,
            null=_BINARIES | _ABSENT,
        ),
        Personality("no-external-needs", "no context needs external memory", spill_fill=False, weights=False),
        Personality("arenas", "the first graph of the process maps memory for all", arenas=True),
        Personality("gives-back-later", "a thread gives mappings of registered memory back", worker=True),
        Personality("no-finalize", "contextFinalize is not supported at all", deferred=False, finalize=False),
        Personality(
            "own-tensor-codes",
            "an unknown memory type has a code of another family",
            codes=(("mem-type", int(Error.COMMON_ERROR_INVALID_ARGUMENT)),),
        ),
        Personality(
            "types-at-finalize", "an unknown memory type is refused by graphFinalize", types_at_finalize=True
        ),
        Personality("small-reused-handles", "handles 1, 2, 3, ..., reused at once", reuse_handles=True),
    )
}
"""By name, as in the target specification ``reference:NAME``."""
