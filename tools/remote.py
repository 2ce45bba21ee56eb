"""Whether cases give the same traces on another machine, and what the way there costs: docs/how-to/remote.md.

    python -m tools.remote --on exec:COMMAND [--cases N] [--kinds memory,delegate,...] [--runtimes ...]

The same cases are carried out here, in children, and there. They are drawn from all rules in turn, for the
embedded references.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from pytest_qnn.core.forms import HERE
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.core.search import Search
from pytest_qnn.isolation.target import OpenTarget
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import StepSeen
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.cases.plugin import PluginCase
from pytest_qnn.tflite.cases.script import ScriptCase
from pytest_qnn.tflite.target import open_delegate_target

KINDS: dict[str, type[Any]] = {
    "memory": MemoryCase,
    "delegate": DelegateCase,
    "script": ScriptCase,
    "plugin": PluginCase,
    "domain": DomainCase,
}
RUNTIMES = ("tflite_runtime", "ai_edge_litert")
MEASURED = {
    "ProcessCounts": ("fds", "mappings", "vm", "rss", "kept", "regions"),
    "PluginSeen": ("in_use",),
    "GrowthCounts": ("fds", "mappings", "vm", "rss", "heap"),
    "ExecuteCounts": ("new", "used", "buffers"),
    "AsyncCounts": ("new", "used", "buffers"),
    "MeasureCounts": ("malloc", "fds", "threads", "mappings", "virtual"),
    "StepSeen": ("regions",),
}
"""By structure: fields of what is measured of a process, in bytes of pages or the like."""
_ADDRESSES_FROM, _ADDRESSES_TO = 1 << 36, 1 << 48
"""Of mappings and of the heap: programs are at higher addresses than this; user space ends there at last."""
_HANDLES_FROM = 1 << 20
"""Of fields that hold handles and addresses: handles of the reference, codes and descriptors are smaller."""
_ROUNDING = 1e-5
_AGAIN = 60
"""Runs here of a case whose trace is another one there."""
_TOGETHER = 30
"""Cases that are asked for at once, as by the engine."""


class Difference(NamedTuple):
    """Something that two traces of one case have not in common."""

    place: str
    """``MemoryTrace.steps.counts.vm``: where, without numbers of places."""
    here: Any
    there: Any
    kind: Literal["measured", "rounding", "other"]
    """Of the process, by `MEASURED`; the last bits of a computed number; anything else."""


class Result(NamedTuple):
    """What one kind of case gave."""

    cases: int
    same: int
    """Traces that are the same up to addresses."""
    measured: int
    """Those that are so but for what was measured of the process."""
    rounding: int
    """Those that are so but for that and the last bits of numbers."""
    varies: int
    """Cases with threads and the like, whose traces here differ from run to run as much."""
    differences: list[tuple[Any, list[Difference]]]
    """The other cases, with all that differs."""
    seconds: tuple[float, float]
    """Here, and there."""


def differences(here: Any, there: Any) -> list[Difference]:
    """What two traces have not in common but addresses."""
    return list(_differences(_canonical(here), _canonical(there), type(here).__name__, measured=False))


def _canonical(part: Any, low: int = _ADDRESSES_FROM) -> Any:
    """The same with a word for each address, and structures as pairs of name and fields."""
    if isinstance(part, int) and low <= part < _ADDRESSES_TO:
        return "address"
    if isinstance(part, bytes):
        return _without_addresses(part)
    if isinstance(part, tuple | list):
        return tuple(_canonical(one, low) for one in part)
    if isinstance(part, msgspec.Struct) and not isinstance(part, Array):
        fields = {name: _field(part, name) for name in part.__struct_fields__}
        return (type(part).__name__, fields)
    return part


def _field(part: msgspec.Struct, name: str) -> Any:
    handles = isinstance(part, StepSeen) and name == "values"
    return _canonical(getattr(part, name), _HANDLES_FROM if handles else _ADDRESSES_FROM)


def _without_addresses(content: bytes) -> bytes:
    """C structures have an address at a multiple of 8 bytes."""
    made = bytearray(content)
    for at in range(0, len(content) - 7, 8):
        (word,) = struct.unpack_from("<Q", content, at)
        if _ADDRESSES_FROM <= word < _ADDRESSES_TO:
            made[at : at + 8] = bytes(8)
    return bytes(made)


def _differences(here: Any, there: Any, place: str, *, measured: bool) -> Iterator[Difference]:
    if here == there or repr(here) == repr(there):  # NaN is not equal to itself
        return
    if isinstance(here, Array) and isinstance(there, Array):
        kind: Literal["rounding", "other"] = "rounding" if _is_rounding(here, there) else "other"
        yield Difference(place, here, there, kind)
    elif _is_struct(here) and _is_struct(there) and here[0] == there[0]:
        for name, value in here[1].items():
            counted = measured or name in MEASURED.get(here[0], ())
            yield from _differences(value, there[1][name], f"{place}.{name}", measured=counted)
    elif isinstance(here, tuple) and isinstance(there, tuple) and len(here) == len(there):
        for one, other in zip(here, there, strict=True):
            yield from _differences(one, other, place, measured=measured)
    else:
        yield Difference(place, here, there, "measured" if measured else "other")


def _is_struct(part: Any) -> bool:
    return isinstance(part, tuple) and len(part) == 2 and isinstance(part[1], dict)


def _is_rounding(here: Array, there: Array) -> bool:
    """Whether the elements differ by no more than `_ROUNDING` of the largest, or, of whole numbers, by 1."""
    if (here.dtype, here.shape) != (there.dtype, there.shape):
        return False
    one, other = here.numpy().astype(float), there.numpy().astype(float)
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return False
    finite = np.isfinite(one)
    most = np.abs(one[finite]).max(initial=0.0) * _ROUNDING if "float" in here.dtype else 1.0
    return bool(np.abs(one[finite] - other[finite]).max(initial=0.0) <= most)


def drawn(kind: str, facts: Any, count: int, seed: int) -> list[Any]:
    """So many cases of a kind, of all rules in turn."""
    wanted = KINDS[kind]
    subject = "memory" if kind == "memory" else "delegate"
    searches = []
    for rule in catalogue().values():
        if rule.subject == subject and not rule.self_check:
            with contextlib.suppress(NothingToJudge):
                searches.append(iter(Search(rule.cases(facts), 4 * count, seed)))
    found: list[Any] = []
    while searches and len(found) < count:
        for search in list(searches):
            case = next((case for case in itertools.islice(search, 5) if isinstance(case, wanted)), None)
            if case is None:
                searches.remove(search)
            else:
                found.append(case)
    return found[:count]


def opened(kind: str, runtime: str, on: str, timeout: float) -> OpenTarget:
    """The reference of the kind's half, in children here or there."""
    if kind == "memory":
        return open_memory_target("reference", "emulated", "fork", timeout, (), on)
    return open_delegate_target([("reference", {})], runtime, "fork", timeout, on=on)


def carried_out(target: OpenTarget, cases: Sequence[Any]) -> tuple[list[Any], float]:
    """The traces of the cases, without the target's facts, and the seconds that they took."""
    started = time.monotonic()
    traces = []
    for at in range(0, len(cases), _TOGETHER):
        for trace, _ in target.run_all(cases[at : at + _TOGETHER]):
            traces.append(msgspec.structs.replace(trace, facts=None))
    return traces, time.monotonic() - started


def compared(kind: str, runtime: str, on: str, count: int, seed: int, timeout: float) -> Result:
    """Carry out the cases of one kind here and there."""
    with contextlib.closing(opened(kind, runtime, HERE, timeout)) as target:
        cases = drawn(kind, target.facts, count, seed)
        here, seconds_here = carried_out(target, cases)
    with contextlib.closing(opened(kind, runtime, on, timeout)) as target:
        there, seconds_there = carried_out(target, cases)
    kinds: Counter[str] = Counter()
    others = []
    for case, one, other in zip(cases, here, there, strict=True):
        found = differences(one, other)
        seen = {difference.kind for difference in found}
        worst = next((kind for kind in ("other", "rounding", "measured") if kind in seen), "same")
        kinds[worst] += 1
        if worst == "other":
            others.append((case, found))
    steady = _steady(kind, runtime, others, timeout)
    seconds = (seconds_here, seconds_there)
    counts = (kinds["same"], kinds["measured"], kinds["rounding"], len(others) - len(steady))
    return Result(len(cases), *counts, steady, seconds)


def _steady(
    kind: str, runtime: str, others: list[tuple[Any, list[Difference]]], timeout: float
) -> list[tuple[Any, list[Difference]]]:
    """Of cases whose traces differ, those whose traces here are the same each time."""
    if not others:
        return []
    with contextlib.closing(opened(kind, runtime, HERE, timeout)) as target:
        return [one for one in others if not _varies(target, one[0])]


def _varies(target: OpenTarget, case: Any) -> bool:
    traces, _ = carried_out(target, [case] * _AGAIN)
    found = (differences(traces[0], trace) for trace in traces[1:])
    return any(one.kind == "other" for all_ in found for one in all_)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:120]}…"


def main() -> int:
    """Print a table; 1 where traces differ in more than what is measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--on", required=True, help="as --qnn-on; here: two runs on this machine")
    parser.add_argument("--cases", type=int, default=500, help="of each kind (default: 500)")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--runtimes", default=",".join(RUNTIMES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds of one case (default: 10)")
    given = parser.parse_args()
    head = ("kind", "runtime", "cases", "same", "measured", "rounding", "varies", "other", "here", "there")
    print(f"{head[0]:10}{head[1]:16}" + "".join(f"{word:>10}" for word in head[2:]))
    failed = False
    for kind in given.kinds.split(","):
        for runtime in ("",) if kind == "memory" else given.runtimes.split(","):
            found = compared(kind, runtime, given.on, given.cases, given.seed, given.timeout)
            numbers = (
                found.cases,
                found.same,
                found.measured,
                found.rounding,
                found.varies,
                len(found.differences),
            )
            rates = "".join(f"{found.cases / seconds:>8.1f}/s" for seconds in found.seconds)
            print(f"{kind:10}{runtime or '-':16}{''.join(f'{number:10}' for number in numbers)}{rates}")
            _print_differences(found)
            failed = failed or bool(found.differences)
    return int(failed)


def _print_differences(found: Result) -> None:
    """Each place where traces differ, with the first two values."""
    others = [one for _, all_ in found.differences for one in all_ if one.kind == "other"]
    for place, times in Counter(one.place for one in others).most_common():
        first = next(one for one in others if one.place == place)
        print(f"  {times:5} {place}: {_shown(first.here)} here, {_shown(first.there)} there")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
