"""IF-10: calls on handles that stand for nothing."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import low
from pytest_qnn.cases import memory_probe_strategies as strategies
from pytest_qnn.cases.memory import BOGUS, NULL, AnyStep, ContextCreate, ContextFree, MemoryCase, Prepare
from pytest_qnn.cases.memory_probes import FREED, Misuse
from pytest_qnn.cases.misuses import NULL_IS_GOOD
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported
from pytest_qnn.rules.iface_calls import demand, pairs
from pytest_qnn.rules.iface_codes import invalid, not_offered
from pytest_qnn.trace import MemoryTrace, StepSeen


class _Gone:
    """Contexts and graphs by name: which are gone, and whose value was not given out again."""

    def __init__(self) -> None:
        self.contexts: dict[str, int] = {}
        self.graphs: dict[str, tuple[str, int]] = {}
        self.live: set[str] = set()

    def follow(self, step: AnyStep, seen: StepSeen) -> None:
        if isinstance(step, ContextCreate) and seen.code == 0:
            self.contexts[step.context] = seen.values[0]
            self.live.add(step.context)
        elif isinstance(step, ContextFree) and seen.code == 0:
            self.live.discard(step.context)
        elif isinstance(step, Prepare) and seen.values:
            self.graphs[step.graph] = (step.context, seen.values[0])

    def stands_for_nothing(self, name: str) -> bool:
        if name in (NULL, BOGUS, FREED):
            return True
        if name in self.graphs:
            context, value = self.graphs[name]
            again = {mine for of, mine in self.graphs.values() if of in self.live}
            return context not in self.live and value not in again
        again = {self.contexts[each] for each in self.live}
        return name in self.contexts and self.contexts[name] not in again


@rule(
    "IF-10",
    Level.MUST,
    "A call on a handle that is NULL, unknown or freed fails with the code for that, without a crash.",
    source="headers of every component: ..._ERROR_INVALID_HANDLE",
    subject="memory",
    cases=strategies.misuses,
)
def if_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """4011, 5002, 6001, 7001, 8001, 9003, 11004, 12000, 14000, as the call's own component has it.

    `pytest_qnn.rules.iface_codes` says where a header lists more. What answers 1000 is not offered at all,
    and NULL is no misuse where it may be given.
    """
    count = 0
    unsupported = ""
    gone = _Gone()
    for where, step, seen in pairs(case, trace):
        gone.follow(step, seen)
        if not isinstance(step, Misuse) or seen.code is None or not gone.stands_for_nothing(step.handle):
            continue
        null = step.handle == NULL
        if null and step.call in NULL_IS_GOOD:
            continue
        if low(seen.code) in not_offered(step.call):
            unsupported = f"{step.call} answers {low(seen.code)}"
            continue
        codes = invalid(step.call, null=null, freed=step.handle not in (NULL, BOGUS))
        demand(seen, codes, where, f"{step.call} on a handle that is {step.handle}")
        count += 1
    if unsupported and not count:
        raise Unsupported(unsupported)
    return Examined(count, "calls on handles that stand for nothing")
