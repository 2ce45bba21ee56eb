"""What is seen of a `pytest_qnn.qnn.cases.case.MemoryCase`."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from pytest_qnn.core.evidence import ControlChange
from pytest_qnn.core.target import Death
from pytest_qnn.qnn.facts import MemoryFacts


class Counts(msgspec.Struct, frozen=True, gc=False, tag_field="of", omit_defaults=True):
    """Numbers that the steps of one family leave; the tag ``of`` names the family."""


class ProviderCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="providers"):
    """Of `Providers`."""

    count: int = 0
    """The count after the call, 0x55555555 if untouched."""
    listed: bool = False
    """The list pointer is not NULL afterwards."""


class Versions(Counts, frozen=True, gc=False, omit_defaults=True, tag="versions"):
    """Of `Interface` and `Version`: major, minor and patch."""

    core: tuple[int, int, int] = (0, 0, 0)
    backend: tuple[int, int, int] = (0, 0, 0)


class AllocCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="alloc"):
    """Of `Alloc` and `AllocNeeded`: the bytes that can be written (both are 0 afterwards)."""

    first_writable: bool = False
    last_writable: bool = False


class ArrayCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="array"):
    """Of `Register` and `Deregister`."""

    changed: bool = False
    """What the call was given to read was written to: the descriptors, or the array of handles."""


class PrepareCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="prepare"):
    """Of `Prepare`."""

    tensor_bytes_changed: int = 0
    """Bytes that creations wrote to watched structs beside the id."""
    refused: int = 0
    """Calls with a mistake that were refused (`Prepare.mistakes`)."""


class ExecuteCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="execute"):
    """Of `Execute`; where it is asynchronous, as it was at the first notification."""

    inputs_changed: int = 0
    """Inputs whose bytes differ afterwards."""
    output_overrun: int = 0
    """Bytes written behind a raw output."""
    tensors_changed: int = 0
    """Watched arrays of structs that differ afterwards."""
    new: int | None = None
    """Of a measured execute: bytes of pages that were new to the process, those given back since included.

    The memory of the client's tensors is not counted here and below, wherever it is mapped. None: it was not
    measured, or cannot be.
    """
    used: int | None = None
    """Bytes of pages that were used and are still there."""
    buffers: tuple[tuple[str, int], ...] = ()
    """The same of each live buffer of the client's, wherever it is mapped."""
    mapped_late: int = 0
    """Of a measured execute: bytes of the tensors whose buffers only the client had mapped before the call.

    A target that maps them while it executes makes so many bytes new to the process.
    """


class AsyncCounts(ExecuteCounts, frozen=True, gc=False, omit_defaults=True, tag="async"):
    """Of an asynchronous `Execute`."""

    notified: int = 0
    """How often for the last call."""
    silent: int = 0
    """Calls of which no notification came in time."""
    queued_amiss: int = 0
    """Calls before the last that failed or were not notified of success once."""
    strange_notifications: int = 0
    """Notifications with a parameter that was never given."""
    late_writes: int = 0
    """Bytes that are not what the client wrote after a notification."""


class ListCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="listed"):
    """Of a `ContextFromBinary` by a list: notifications up to 20 ms after its call, or its last context."""

    accepted: bool = False
    """The call answered 0."""
    notified: int = 0
    """Notifications with a parameter of the list."""
    twice: int = 0
    """Contexts of which there was more than one."""
    silent: int = 0
    """Contexts of which there was none in time."""
    strange: int = 0
    """Notifications with a parameter that no list was given."""


class WrittenCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="written"):
    """Of `GetBinary` and `GetSection`."""

    overrun: int = 0
    """Bytes written behind the memory that was given."""
    touched: int = 0
    """Bytes written to the buffer of a binary by a call that failed."""


class InspectCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="inspect"):
    """Of `Inspect`: how many there are in the binary."""

    version: int = 0
    """That of the information."""
    graphs: int = 0
    inputs: int = 0
    outputs: int = 0
    data: int = 0
    """Tensors whose data pointer is not NULL."""


class PieceCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="pieces"):
    """Of `Pieces`; of `ContextWithCallback` the size of the binary only."""

    binary: int = 0
    """Its bytes."""
    given: int = 0
    released: int = 0
    """Pieces that were given back once or more."""
    released_again: int = 0
    released_wrongly: int = 0
    """With memory, a descriptor or a size that no piece has."""
    other_parameter: int = 0
    """Calls with a parameter that was never given."""
    changed: int = 0
    """Bytes of pieces that are not what the client put there."""
    mapped: int = 0
    """Mappings of memory that was given back."""


class ProcessCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="process"):
    """Of `Observe`: the whole process."""

    fds: int = 0
    mappings: int = 0
    memfds: int = 0
    """Mappings of memfds."""
    vm: int = 0
    """Of looks for regions: bytes that were mapped at one and not at the one before, of all so far."""
    rss: int = 0
    """Resident bytes."""
    regions: int = 0
    """Mappings of the wanted size; those of the client's own memory are not among them."""
    kept: int = 0
    """Of ``vm``: bytes of the mappings with large pieces of the trace."""
    mapped: tuple[int, ...] = ()
    """Mappings of each buffer that was asked for, the client's own among them; -1: there is none."""


class GrowthCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="growth"):
    """Of `Churn` and `Executes`: by how much the process grew."""

    rounds: int = 0
    """That were carried out."""
    fds: int = 0
    mappings: int = 0
    vm: int = 0
    rss: int = 0
    heap: int = 0
    """Bytes that malloc has given out; 0 without glibc."""


class FirstCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="first"):
    """Of a `WholeSession` that is the first of its process: bytes of private memory that was written to."""

    taken: int = 0
    """From before the backend was made until its graph was executed."""
    left: int = 0
    """Of these what is there when the backend is freed, or a second later if that is less."""


class RefusalCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="refusals"):
    """Of `FailedAllocation`: the first call behind whose refusal something is not as it is without."""

    calls: tuple[str, ...] = ()
    """Empty: everything is. Several: with none of them alone it is so."""
    code: int = 0
    """What it answered; of several what the first answered that failed, 0 where none did."""
    failed: str = ""
    """What failed behind it, the same call made again or another one; empty: an output differs."""
    failed_code: int = 0


class LivedCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="lived"):
    """Of `Lived`."""

    rounds: int = 0
    """Those that were carried out without a surprise."""


class ThreadCounts(Counts, frozen=True, gc=False, omit_defaults=True, tag="threads"):
    """Of `Parallel`."""

    threads: int = 0
    rounds: int = 0


class LogCounts(ThreadCounts, frozen=True, gc=False, omit_defaults=True, tag="logs"):
    """Of `Parallel` of kind ``logs``: calls of the client's log callback."""

    messages: int = 0
    from_threads: int = 0
    """The different threads that they came from."""
    loud: int = 0
    """Those with a level above what the log wanted at the time."""
    loudest: int = 0
    """The highest of these levels."""
    strange: int = 0
    """Those with a level below ERROR."""
    null_formats: int = 0
    late: int = 0
    """Those after logFree had returned."""


AnyCounts = (
    ProviderCounts
    | Versions
    | AllocCounts
    | ArrayCounts
    | PrepareCounts
    | ExecuteCounts
    | AsyncCounts
    | ListCounts
    | WrittenCounts
    | InspectCounts
    | PieceCounts
    | ProcessCounts
    | FirstCounts
    | GrowthCounts
    | RefusalCounts
    | LivedCounts
    | ThreadCounts
    | LogCounts
)
CountsT = TypeVar("CountsT", bound=Counts)


class WrongBytes(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An output that was not right, of a step that executes many times."""

    client: int
    """Number of the context or the thread that it was in, from 0."""
    wanted: bytes
    """What raw memory and a context of its own give; where they give nothing, what the suite computes."""
    seen: bytes
    turn: int | None = None
    """Number of the round, from 0; None: that is not known."""


class StepSeen(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one step of a `MemoryCase` gave; its handler in `pytest_qnn.qnn.runner` has the details."""

    code: int | None = None
    """The Qnn_ErrorHandle_t as returned, all 64 bits; None: no QNN call was made."""
    calls: tuple[tuple[str, int], ...] = ()
    """Of steps of several calls: each with its code, in order (the last one is the failed one, if any)."""
    values: tuple[int, ...] = ()
    """Handle values, pointers, descriptors.

    0x5555555555555555: the call did not write this handle.
    """
    data: tuple[bytes, ...] = ()
    """Bytes read: outputs of an execute, or of a Read."""
    counts: AnyCounts | None = None
    """Numbers of the step's family; None: it left none."""
    wrong: WrongBytes | None = None
    """The first wrong output of a step that executes many times; None: there was none."""
    regions: tuple[tuple[int, int], ...] = ()
    """Observe: (address, resident bytes) of each mapping of the wanted size."""
    skipped: str = ""
    """Why the step was not carried out."""
    lacking: bool = False
    """It was not carried out because an object it needs was never made."""
    absent: str = ""
    """It was not carried out because this function is NULL in the interface table."""

    def counted(self, kind: type[CountsT]) -> CountsT:
        """The numbers of the step's family; all are 0 where it left none.

        Raises:
            TypeError: the step is of another family.
        """
        if self.counts is None:
            return kind()
        if not isinstance(self.counts, kind):
            raise TypeError(f"the step left {type(self.counts).__name__}, not {kind.__name__}")
        return self.counts


class PlainRun(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a target computes where no memory API takes part: raw memory, a session and a context of its own.

    Carried out after a case, for the executes whose output is not that of the suite's own arithmetic.
    """

    op: str
    dtype: str
    shape: tuple[int, ...]
    relay: bool = False
    """With a NATIVE tensor in between, as in Prepare."""
    weights: int | None = None
    """Seed of the STATIC input; None: there is none."""
    updatable: bool = False
    """The weights can be updated."""
    narrow: int = 0
    """As in Prepare, as is the next."""
    terms: int = 0
    inputs: tuple[bytes, ...] = ()
    """Without the weights."""
    output: bytes = b""
    """Empty: it could not be carried out."""


class MemoryTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `MemoryCase`."""

    session: tuple[tuple[str, int], ...] = ()
    """Codes of opening the session, in order, up to the first failure."""
    steps: tuple[StepSeen, ...] = ()
    closing: tuple[tuple[str, int], ...] = ()
    """Codes of closing it."""
    ended: bool = False
    """The process ended in good order after the last step, as the case asked for."""
    death: Death | None = None
    plain: tuple[PlainRun, ...] = ()
    """The target's own plain runs of graphs whose outputs are not those of the suite's arithmetic."""
    control_words: tuple[ControlChange, ...] | None = None
    """What calls, or loading the library, have changed; None: it was not watched."""
    heap: tuple[int, int] = (0, 0)
    """Blocks that the target requested behind a `CheckHeap`, and mappings that it unmapped there."""
    facts: MemoryFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""
