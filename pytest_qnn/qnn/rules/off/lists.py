"""OFF-12: whom QnnContext_createFromBinaryListAsync notifies, and that it is nobody once it was refused."""

from __future__ import annotations

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Hung, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error, low
from pytest_qnn.qnn.cases.case import MOST_AHEAD, PATIENCE, ContextFromBinary, Damage, MemoryCase
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.rules.binaries import require_binaries
from pytest_qnn.qnn.strategies.binaries import saved
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import ListCounts, MemoryTrace

_CALL = "contextCreateFromBinaryListAsync"
_DAMAGES: tuple[Damage, ...] = ("truncated", "garbage", "zeros", "empty")


def _listed(scene: Scene, tape: Tape) -> None:
    """A list in order, as a sign that there is the call; lists whose last binary is damaged; one in order."""
    made = saved(scene, tape.cut(8), hints=())
    if made is None:
        return
    scene.add(ContextFromBinary(scene.name("c"), made.binary, by="list"))
    for _ in range(1 + tape.below(2)):
        damage, ahead = tape.pick(_DAMAGES), tape.below(MOST_AHEAD + 1)
        scene.add(ContextFromBinary(scene.name("c"), made.binary, damage=damage, by="list", ahead=ahead))
    if tape.chance(2):
        ahead = 1 + tape.below(MOST_AHEAD)
        scene.add(ContextFromBinary(scene.name("c"), made.binary, by="list", ahead=ahead))


@rule(
    "OFF-12",
    Level.SHOULD,
    "QnnContext_createFromBinaryListAsync notifies of each context once, with the parameter of its entry, "
    "and of none where the call is refused, also later.",
    source="QnnContext.h: QnnContext_createFromBinaryListAsync (notifyFunc of each entry); "
    "onnxruntime-qnn#839 (a client frees what a refused call was given)",
    subject="memory",
    cases=embedded(_listed, before=0, after=0),
    gate=("202", "212"),
    weight=0.3,
)
def off_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Lists of one to three contexts of one binary, the last of them damaged or not.

    Notifications are counted until 20 ms after a refusal, and until 5 ms after the last one of a success.
    With which code a damaged binary is answered, and whether by the call or its notification, is left open.
    """
    require_binaries(case, trace)
    count = 0
    offered = final = False
    answers: list[str] = []
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, ContextFromBinary) or not step.by.startswith("list"):
            continue
        if not isinstance(seen.counts, ListCounts):
            answers.append(f"{_CALL} is NULL" if seen.absent else seen.skipped)
            final |= bool(seen.absent)
            continue
        counts = seen.counted(ListCounts)
        offered |= counts.accepted
        if not step.damage and not counts.accepted:
            answers.append(f"{_CALL} answers {named(seen.code or 0)}")
            final |= low(seen.code or 0) == Error.COMMON_ERROR_NOT_SUPPORTED
        _demand_notifications(step, counts, f"step {index}, {_CALL}")
        count += 1
    if answers and not offered:
        raise Unsupported(answers[0], final=final)
    return Examined(count, "lists of binaries")


def _demand_notifications(step: ContextFromBinary, counts: ListCounts, where: str) -> None:
    """Raises Hung or Violation where they are not one for each context of the list, or none at all."""
    if counts.strange:
        raise Violation("notifications with the parameters of the list", "another parameter", where)
    if not counts.accepted and counts.notified:
        raise Violation("no notification, for the call was refused", str(counts.notified), where)
    if counts.twice:
        wanted = f"one notification of each of the {step.ahead + 1} contexts"
        raise Violation(wanted, str(counts.notified), where)
    if counts.silent:
        wanted = "a notification of each context of the list"
        raise Hung(wanted, f"none of {counts.silent} within {PATIENCE:g} s", where)
