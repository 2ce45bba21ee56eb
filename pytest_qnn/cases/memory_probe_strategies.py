"""Cases of the rules about what a target says of itself, and about calls on what is no object (IF, CAP).

As in `pytest_qnn.cases.memory_graph_strategies`, each function of `MemoryFacts` is the strategy of one rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from pytest_qnn.cases.memory import (
    BOGUS,
    NULL,
    AnyStep,
    Capability,
    ContextFree,
    GetBinary,
    MemoryCase,
    Providers,
)
from pytest_qnn.cases.memory_graph_scene import any_memory, execute, graph, load
from pytest_qnn.cases.memory_probes import (
    FREED,
    Environment,
    Interface,
    Message,
    Misuse,
    Version,
)
from pytest_qnn.cases.memory_scene import Scene, Tape, scenes
from pytest_qnn.cases.misuses import NULL_IS_GOOD, TAKES, Misused
from pytest_qnn.core.drawing import decoded
from pytest_qnn.facts import MemoryFacts

Cases = st.SearchStrategy[MemoryCase]
_BYTES = 12
_CALLS: tuple[Misused, ...] = tuple(TAKES)
_MISUSE_BYTES = 5
_CACHING = 202
"""QNN_PROPERTY_CONTEXT_SUPPORT_CACHING."""
PLACES: tuple[Misused, ...] = (
    "backendFree",
    "contextFree",
    "contextGetBinarySize",
    "graphRetrieve",
    "graphExecute",
    "memDeRegister",
    "deviceFree",
    "logFree",
    "profileFree",
)
"""Calls, from the table's beginning to its end, that no known library answers to NULL by crashing."""
CODES = (8000, 8001, 8002, 8003, 8004, 8005)
UNKNOWN_CODES = (999, 1, 20_000, 0xFFFF, 8099)
KEYS = (1101, 1102, 1103, 1104, 502, 202, 215, 217, 304, 317, 318, 1001, 2, 2999)


def _listed(choices: Sequence[AnyStep], first: AnyStep) -> Cases:
    """``first``, then any of ``choices`` in any order; zero bytes: nothing more."""

    def decode(data: bytes) -> MemoryCase:
        acts = (byte % (len(choices) + 1) for byte in data)
        return MemoryCase((first, *(choices[act - 1] for act in acts if act)))

    return decoded(_BYTES, decode)


def interfaces(facts: MemoryFacts) -> Cases:
    """IF-03: looks at the interface, with objects made and freed in between."""

    def core(scene: Scene, tape: Tape) -> None:
        scene.add(Interface())
        for _ in range(1 + tape.below(4)):
            act = tape.below(4)
            if act == 1:
                scene.free_context(scene.context())
            elif act == 2:
                scene.add(Misuse("backendFree", FREED))
            elif act == 3:
                scene.add(Providers())
            scene.add(Interface())

    return scenes(facts, core)


def table(facts: MemoryFacts) -> Cases:
    """IF-04: the versions, and calls all over the table."""
    del facts
    calls: list[AnyStep] = [*(Misuse(call) for call in PLACES), Message(8000, null=True)]
    return _listed([Version(), Interface(), *calls], Interface()).map(
        lambda case: MemoryCase((Version(), *case.steps))
    )


def versions(facts: MemoryFacts) -> Cases:
    """IF-07: the version and the build id before anything else, and NULL."""
    del facts
    asked = [Version(), Version(null=True), Version("build"), Version("build", null=True)]
    return st.integers(0, 3).flatmap(lambda first: _listed(asked, asked[first]))


def messages(facts: MemoryFacts) -> Cases:
    """IF-08: the codes of QnnMem, unknown ones right behind them, and NULL."""
    del facts
    known = [Message(code) for code in CODES]
    unknown = [Message(code) for code in UNKNOWN_CODES]
    return _listed([*known, *unknown, Message(CODES[0], null=True)], known[0])


def anything(facts: MemoryFacts) -> Cases:
    """IF-06, IF-09: things that are in order, and calls of every component."""

    def core(scene: Scene, tape: Tape) -> None:
        scene.add(Version())
        scene.add(Capability(tape.pick(KEYS)))
        if name := graph(scene, tape):
            execute(scene, name, None)
        else:
            scene.context()

    return scenes(facts, core)


def misuses(facts: MemoryFacts) -> Cases:
    """IF-10: every call, on NULL, on a value never given out, and maybe on what was freed just before.

    There is little to vary, and what one case does not show takes many to find. Before them a graph is made
    and its context written to a binary, where there are binaries, for the calls that want them.
    """

    def core(scene: Scene, tape: Tape) -> None:
        start = tape.below(len(_CALLS))
        if (name := graph(scene, Tape(b""))) and facts.supports(_CACHING):
            scene.add(GetBinary(scene.graphs[name].context, "f0"))
        for position in range(len(_CALLS)):
            act = tape.cut(_MISUSE_BYTES)
            call = _CALLS[(start + position) % len(_CALLS)]
            if call not in NULL_IS_GOOD:
                scene.add(Misuse(call, NULL))
            scene.add(Misuse(call, BOGUS))
            if act.below(2):
                scene.add(Misuse(call, _gone(scene, act, call)))

    length = 1 + _MISUSE_BYTES * len(_CALLS)
    return scenes(facts, core, core_bytes=length, before=1, after=0)


def _gone(scene: Scene, tape: Tape, call: Misused) -> str:
    """The name of an object of the kind that the call takes, which is gone; BOGUS where there can be none."""
    kind = TAKES[call]
    if kind == "error":
        return BOGUS
    if kind not in ("context", "graph"):
        return FREED
    if kind == "context":
        context = scene.context()
        scene.free_context(context)
        return context
    name = graph(scene, tape)
    if not name:
        return BOGUS
    scene.free_context(scene.graphs[name].context)
    return name


def hinted_raw(facts: MemoryFacts) -> Cases:
    """CAP-05: a graph prepared memhandle and executed raw; then with handles, where there can be any."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape, (1, 1, 1))):
            return
        execute(scene, name, None, seed=tape.below(16))
        if facts.supports(502) and facts.supports(1101):
            memory = any_memory(scene, tape, name)
            load(scene, name, memory, 3)
            execute(scene, name, memory)

    return scenes(facts, core)


def environments(facts: MemoryFacts) -> Cases:
    """CAP-07: execution environments of both kinds."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := graph(scene, tape):
            for _ in range(1 + tape.below(2)):
                scene.add(Environment(name, tape.below(2)))

    return scenes(facts, core)


def repeated_keys(facts: MemoryFacts) -> Cases:
    """CAP-08: the same keys early, between other things, and late."""

    def core(scene: Scene, tape: Tape) -> None:
        keys = [tape.pick(KEYS) for _ in range(1 + tape.below(3))]
        early = [Capability(key, early=True) for key in keys] if tape.below(2) else []
        scene.steps[:0] = early
        for _ in range(1 + tape.below(3)):
            for key in keys:
                scene.add(Capability(key))
            act = tape.below(3)
            if act == 1:
                scene.around(tape.cut(8))
            elif act == 2 and scene.contexts:
                scene.add(ContextFree(scene.contexts.pop()))
            else:
                scene.context()
        for key in keys:
            scene.add(Capability(key))

    return scenes(facts, core, before=1)
