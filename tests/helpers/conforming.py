"""Every conforming target that there is to judge, and what holds of it, in the words of the rules' gates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from kept import keep

from pytest_qnn.core.rule import Subject
from pytest_qnn.mutants import RUNTIMES
from pytest_qnn.qnn.reference.personalities import DEFAULT, PERSONALITIES, Personality
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.facts import Precision
from pytest_qnn.tflite.reference import personalities
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

CHAINS = (("reference",), ("xnnpack",), ("reference", "xnnpack"), ("xnnpack", "reference"))
WITHOUT_MEMORY = ("reference:no-memory", "reference:no-custom")
BACKENDS = ("reference", "reference:high-error-bits", "reference:small-reused-handles", *WITHOUT_MEMORY)
"""Of qnn-reference."""
CLAIMED = {
    *("float32", "float32 sums", "fused activations", "int8", "optional inputs"),
    *("empty tensors", "node lookups", "nodes in subgraphs"),
}
"""By a delegate that computes everything."""
REFERENCE = CLAIMED | {"plugin interface", "refusals", "subgraphs"}
QNN_REFERENCE = {
    "backend type",
    "own interface",
    "empty tensors",
    "nodes in subgraphs",
    "XNNPACK nodes",
    "custom memory",
    "float32",
    "own process",
    "previews",
    "subgraphs",
}
"""It claims float32 element-wise operators; cases that end their process run in a child (sandbox auto)."""
VARIANTS: dict[str, set[str]] = {
    "device-buffers": REFERENCE | {"buffers"},
    "dynamic": REFERENCE | {"dynamic tensors"},
    "float-only": REFERENCE - {"int8"},
    "half": REFERENCE | {"declared float16"},
    "int8-only": REFERENCE - {"float32", "float32 sums"},
    "large-tensors": REFERENCE - {"empty tensors"} | {"XNNPACK nodes"},
    "largest-partition": REFERENCE | {"previews"},
    "limited": REFERENCE | {"previews", "max_delegated_partitions", "min_nodes_per_partition"},
    "long-partitions": REFERENCE | {"previews"},
    "main-only": REFERENCE - {"nodes in subgraphs"},
    "many-partitions": REFERENCE | {"XNNPACK nodes"},
    "one-operator": REFERENCE - CLAIMED
    | {"empty tensors", "float32", "node lookups", "nodes in subgraphs", "XNNPACK nodes"},
    "preview": REFERENCE | {"previews"},
    "rank-4": REFERENCE - {"optional inputs"} | {"XNNPACK nodes"},
    "propagated": REFERENCE | {"dynamic tensors", "propagated shapes"},
}
"""Of the reference delegate: what holds of each that is not as the others."""


@dataclasses.dataclass(frozen=True)
class Conforming:
    """A target that no rule may accuse."""

    name: str
    subject: Subject
    holding: frozenset[str]
    """Property keys and conditions (`pytest_qnn.core.conditions`)."""
    open: Callable[[], DelegateTarget | MemoryTarget] = dataclasses.field(compare=False)
    idle: bool = False
    """It claims nothing: a rule about a delegate's work may see none of it."""


def _when(**conditions: bool) -> set[str]:
    return {name for name, holds in conditions.items() if holds}


def holding_memory(personality: Personality) -> frozenset[str]:
    """What holds of the reference backend with this personality."""
    it = personality
    answers = {
        "202": it.binaries,
        "212": it.lists,
        "213": it.sections,
        "506": it.sections,
        "215": it.deferred,
        "217": it.deferred,
        "220": bool(it.pieces),
        "304": it.asynchronous,
        "317": it.environments,
        "318": it.environments,
        "1102": it.ion,
        "1103": it.custom,
        "1104": it.dma_buf,
        "502": it.memory,
        "1101": it.memory,
        "absent environment": not it.environments,
        "absent memory type": not (it.ion and it.custom and it.dma_buf),
        "one IO buffer for all": it.one_piece,
        "separate IO buffers": not it.one_piece,
        "spill-fill": it.spill_fill,
    }
    return frozenset({"1001", "HTP"} | _when(**answers))


def holding_chain(chain: tuple[str, ...], runtime: str) -> frozenset[str]:
    """What holds of the reference delegate and XNNPACK, alone or together."""
    first_is_xnnpack = chain[0] == "xnnpack"
    found = CLAIMED | _when(**{
        "XNNPACK nodes": "xnnpack" not in chain,
        "dynamic tensors": first_is_xnnpack and runtime == "ai_edge_litert",
        "plugin interface": "reference" in chain,
        "refusals": chain == ("reference",),
        "subgraphs": not first_is_xnnpack,
    })  # fmt: skip
    # The XNNPACK of tflite-runtime 2.14 claims no int8 node by default.
    return frozenset(found - ({"int8"} if (*chain, runtime) == ("xnnpack", "tflite_runtime") else set()))


def _memory(personality: str) -> Conforming:
    def opened() -> MemoryTarget:
        return keep(open_memory_target(f"reference:{personality}", "emulated", "off", 10.0))

    return Conforming(personality, "memory", holding_memory(PERSONALITIES[personality]), opened)


def _memory_in_children() -> Conforming:
    def opened() -> MemoryTarget:
        return keep(open_memory_target("reference", "emulated", "fork", 10.0))

    return Conforming("in-children", "memory", holding_memory(DEFAULT) | {"own process"}, opened)


def _delegate(
    name: str, runtime: str, holding: frozenset[str], *chain: str, sandbox: str = "off", **options: str
) -> Conforming:
    declared: Precision = "float16" if chain == ("reference:half",) else "float32"

    def opened() -> DelegateTarget:
        timeout = 60.0 if options else 10.0
        specs = [(spec, options) for spec in chain]
        return keep(open_delegate_target(specs, runtime, sandbox, timeout, declared))

    return Conforming(f"{name}-{runtime}", "delegate", holding, opened, idle=chain == ("reference:nothing",))


def _chain(chain: tuple[str, ...], runtime: str) -> Conforming:
    return _delegate("+".join(chain), runtime, holding_chain(chain, runtime), *chain)


def _variant(name: str, runtime: str) -> Conforming:
    return _delegate(name, runtime, frozenset(VARIANTS.get(name, REFERENCE)), f"reference:{name}")


def _in_children(runtime: str) -> Conforming:
    holding = holding_chain(("reference",), runtime) | {"own process"}
    return _delegate("in-children", runtime, holding, "reference", sandbox="fork")


def _qnn(backend: str, runtime: str) -> Conforming:
    name = f"qnn-{backend.replace(':', '-')}"
    holding = QNN_REFERENCE | ({"registration"} if backend not in WITHOUT_MEMORY else set())
    return _delegate(name, runtime, frozenset(holding), "qnn-reference", sandbox="auto", backend=backend)


MEMORY = (*map(_memory, PERSONALITIES), _memory_in_children())
DELEGATES = tuple(
    target
    for runtime in RUNTIMES
    for target in (
        *(_chain(chain, runtime) for chain in CHAINS),
        *(_variant(name, runtime) for name in personalities.PERSONALITIES),
        *(_qnn(backend, runtime) for backend in BACKENDS),
        _in_children(runtime),
    )
)
TARGETS: dict[str, Conforming] = {target.name: target for target in (*MEMORY, *DELEGATES)}


DELEGATE_RULES = {rule.id for rule in catalogue().values() if rule.subject == "delegate"}
MEMORY_RULES = {rule.id for rule in catalogue().values() if rule.subject == "memory"}

# What the examples (examples/) do not offer, so that rules about it are unsupported there.
DELEGATE_LACKS = {"PART-12", "PART-13", "PART-14"}
"""The delegate has no options that would limit its partitions."""
DELEGATE_LACKS |= {rule for rule in DELEGATE_RULES if rule.startswith("TFL-")}
"""It offers no custom memory."""
DELEGATE_LACKS |= {"ABI-03", "ABI-05", "ABI-11"}
"""It is given no options, and is not opaque."""
DELEGATE_LACKS |= {rule for rule in DELEGATE_RULES if rule.startswith("BUF-")} - {"BUF-03"}
"""It keeps no results in buffers of its own."""
DELEGATE_LACKS |= {"CTRL-03", "DYN-02", "DYN-03", "PART-20"}
"""It acquires no subgraph contexts, allows no dynamic tensors, and previews no partitions."""
DELEGATE_LACKS |= {"NOM-02"}
"""It is in C, and asks for nothing by operator new."""

_OFFERED = {"1101", "1102", "502", "absent memory type", "absent environment", "own process"}
"""The parts of gates that the backend opens: QnnMem, ION memory, tensors of memory handles."""


def _lacks() -> Iterator[str]:
    for rule in catalogue().values():
        if rule.subject == "memory" and not _OFFERED.issuperset(rule.gate):
            yield rule.id


BACKEND_LACKS = {*_lacks(), "OOM-02", "QTHR-04", "SSR-01"}
"""It is in C, tells a log nothing, and has no subsystem that could restart."""
