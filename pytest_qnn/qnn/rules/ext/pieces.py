"""EXT-32: contexts whose binary the client provides piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Contradiction, Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error, Property
from pytest_qnn.qnn.cases.case import ContextFree, ContextWithCallback, MemoryCase, Pieces
from pytest_qnn.qnn.cases.sizes import PAGE
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.expected import Walked, walk
from pytest_qnn.qnn.rules.binaries import judge_flow, require_binaries
from pytest_qnn.qnn.rules.judging import demand_code, facts_of, place
from pytest_qnn.qnn.strategies.binaries import Saved, saved
from pytest_qnn.qnn.strategies.external import executed
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace, PieceCounts

_UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
_KEY = Property.CONTEXT_SUPPORT_CREATE_FROM_BINARY_WITH_CALLBACK
"""Counts that must be nought, and what each says."""


def _creations(case: MemoryCase, trace: MemoryTrace) -> list[Walked]:
    """The calls.

    Raises:
        Unsupported: each answers 1000, and so does key 220.
        Contradiction: each answers 1000, and key 220 says supported.
    """
    found = [walked for walked in walk(case, trace) if isinstance(walked.step, ContextWithCallback)]
    if not found or {walked.code for walked in found} != {_UNSUPPORTED}:
        return found
    if not facts_of(trace).supports(_KEY):
        key = f"property key {int(_KEY)} is not supported"
        raise Unsupported(f"contextCreateFromBinaryWithCallback answers 1000, and {key}")
    for walked in found:
        if walked.allowed.valid:
            wanted = f"success: property key {int(_KEY)} says supported"
            raise Contradiction(wanted, named(_UNSUPPORTED), place(walked))
    return found


def _demand_within(walked: Walked, binary: int, asked: Sequence[int]) -> None:
    """Raise Violation for a request (offset, size) that no client can satisfy."""
    for offset, size in zip(asked[::2], asked[1::2], strict=True):
        if size == 0 or offset + size > binary:
            wanted = f"requests of one byte or more, within the binary's {binary}"
            raise Violation(wanted, f"{size} at {offset}", place(walked))


def _demand_outcome(walked: Walked) -> None:
    """Without a piece that was asked for there is no context; with all of them there is one."""
    _demand_within(walked, walked.seen.counted(PieceCounts).binary, walked.seen.values[1:])
    refused = [code for call, code in walked.seen.calls if call == "dataProvide" and code]
    if refused and walked.code == 0:
        wanted = f"a refusal, with any code: the client answered a request with {named(refused[0])}"
        raise Violation(wanted, named(0), place(walked))
    if walked.allowed.valid:
        demand_code(walked, {0}, "the client has provided every piece")


def _demand_sound(walked: Walked, *, over: bool) -> int:
    """An account is in order, and if the context is over, balanced; gives the pieces."""
    counts = walked.seen.counted(PieceCounts)
    _demand_within(walked, counts.binary, walked.seen.values)
    _demand_in_order(walked, counts)
    if over and counts.released != counts.given:
        wanted = f"all {counts.given} pieces given back when there is no context any more"
        raise Violation(wanted, f"{counts.released}", place(walked))
    return counts.given


def _demand_in_order(walked: Walked, counts: PieceCounts) -> None:
    for counted, found, wanted in (
        ("other parameter", counts.other_parameter, "calls of the client's functions with its own parameter"),
        (
            "released wrongly",
            counts.released_wrongly,
            "memory given back as it was given: address, descriptor and size",
        ),
        ("released again", counts.released_again, "each piece given back once"),
        ("changed", counts.changed, "pieces that nobody writes to"),
        ("mapped", counts.mapped, "no mapping of memory that was given back"),
    ):
        if found:
            raise Violation(wanted, f"{counted}: {found}", place(walked))


_MOST_REQUESTS = 3
"""The last request that is answered with an error; a target that asks for fewer pieces never meets it."""


def _provided(scene: Scene, tape: Tape, made: Saved) -> str:
    name = scene.name("c")
    raw = tape.chance(4)
    fails = 1 + tape.below(_MOST_REQUESTS) if tape.chance(3) else 0
    start = PAGE if tape.chance(4) else 0
    scene.add(ContextWithCallback(name, made.binary, "raw" if raw else "dma", fails, start))
    scene.add(Pieces(name))
    executed(scene, made, name, tape.below(16))
    return name


def _core(scene: Scene, tape: Tape) -> None:
    """One context, or two at a time; each is looked at while it lives, and when it is gone or not made."""
    made = saved(scene, tape.cut(12), count=1 + tape.below(2))
    if made is None:
        return
    contexts = [_provided(scene, tape, made) for _ in range(1 + tape.below(2))]
    for context in contexts:
        scene.add(ContextFree(context))
        scene.add(Pieces(context))


provided = embedded(_core, before=1)


@rule(
    "EXT-32",
    Level.MAY,
    "A client may provide a binary in pieces, through a callback, in memory of its own: each piece is given "
    "back once.",
    source="QnnContext.h: QnnContext_createFromBinaryWithCallback, Qnn_ContextBinaryCallback_t",
    subject="memory",
    cases=provided,
    gate=("202", "220"),
    weight=0.5,
)
def ext_32(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """DMA buffers and raw memory, the latter if the target takes them.

    Requests lie within the binary. What was given is not written to, and is given back as it was, with the
    client's parameter: by contextFree at the latest, or when the call fails, as it does where the client has
    an error instead of a piece. Then no mapping of it is left. The graphs compute what is right.
    """
    require_binaries(case, trace)
    creations = _creations(case, trace)
    over: dict[str, bool] = {}
    count = 0
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, ContextWithCallback):
            over[step.context] = walked.code != 0
        elif isinstance(step, ContextFree) and walked.code == 0:
            over[step.context] = True
        elif isinstance(step, Pieces):
            count += _demand_sound(walked, over=over.get(step.context, False))
    for walked in creations:
        _demand_outcome(walked)
    judge_flow(case, trace, "the client has provided every piece")
    return Examined(count, "pieces of binaries")
