"""The blame matrix: who fails for each fault, ``python -m benchmarks.blame --update docs/measured/blame.md``.

Each fault is judged by all rules of its half (profile ``quick``, nothing shrunk, with owners as in a run).
Its own rules should find it; any other MUST rule that fails accuses the target of what is not wrong. Faults
are the mutants, and those of tests/faults in C libraries, which are judged in children. Rows are appended to
``results.jsonl`` as they come, with the day and the digests of the rules and of the fault; a fault with a row
is not judged again, but for ``--only`` and ``--stale``: the latter judges it by those rules whose cases,
checks or controls have changed since (`benchmarks.blame.rows`), and ``--left`` says how much that is.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import multiprocessing
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.blame import rows as blame_rows
from benchmarks.blame.rows import Left, Row, rules_now
from benchmarks.gallery.results import Rules
from benchmarks.timing import cpu_seconds
from pytest_qnn.core import engine
from pytest_qnn.core.engine import InternalError
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import NothingToJudge, Rule, Subject
from pytest_qnn.core.target import Target, TargetLost
from pytest_qnn.core.verdict import Level, Outcome
from pytest_qnn.effort import profile as planned
from pytest_qnn.mutants import opened
from pytest_qnn.mutants.digests import mutant_digest
from pytest_qnn.qnn.mutants import table as qnn_mutants
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.mutants import table as delegate_mutants
from pytest_qnn.tflite.target import open_delegate_target
from tests.faults import faults as in_c

PLACES = {"delegate": "tflite_runtime", "memory": "reference"}
RESULTS = Path(__file__).with_name("results.jsonl")
PROFILE = dataclasses.replace(PROFILES["quick"], shrink_seconds=0.0, repeats=1)
_QUIET = (Outcome.PASS, Outcome.UNSUPPORTED)
MEASURED = ("LEAK-", "QLEAK-", "THR-", "QTHR-", "RSZ-05", "OWN-02", "OWN-03")
"""Rules that measure or run for a while: they cost more than all others, and judge one mutant in eight."""
_MEASURED_IN = 8
WILD = (
    "claims-twice",
    "custom-ends-with-delegate",
    "keeps-first-plan",
    "keeps-nodes",
    "packs-weights",
    "plugin-no-prepare",
    "rows-of-each-operand",
    "rpc-short",
    "writes-elsewhere",
)
"""Mutants that write where other rules' cases keep conditions of loops: these are judged in children."""
EXPLAINED: dict[str, tuple[str, str]] = {
    "aborts-on-mismatch": (
        "DOM-01 HOS-02",
        "what its shapes refuse is a mismatch to it: a CONCATENATION of rank 0, an absent operand",
    ),
    "appends-when-redone": ("LIFE-05", "what every Prepare adds is kept until the delegate is destroyed"),
    "async-dead-handles": ("DRG-10", "it keeps the memory of every handle that was deregistered"),
    "cap-hint-refused": ("PRE-04", "of an operator that is accepted, a graph with the hint is not finalised"),
    "cap-invalid-for-unsupported": ("REG-07", "what looks like a failed registration leaves its handle"),
    "claims-in-turns": ("RSZ-03", "prepared again after a resize, it claims other nodes"),
    "claims-kernels": (
        "DOM-01 PART-04 PREC-03 PREC-09 XNN-02",
        "it claims every node: such as it cannot compute, kernels of the probe and of XNNPACK",
    ),
    "claims-unread": ("ERR-01", "it asks again for a plan that it was refused, and reports no error"),
    "compares-totals": (
        "PART-12",
        "it knows no limit but its own, so that max_delegated_partitions has no effect",
    ),
    "counts-frames": ("CTRL-01", "it knows the kernels of all subgraphs as one list"),
    "counts-once": (
        "CTRL-01",
        "tensors of subgraphs have the same indices, and it keeps their sizes by these",
    ),
    "ctx-orphans-live": ("EXT-22", "handles outlive their contexts, those of external memory too"),
    "custom-ends-with-delegate": (
        "TFL-08",
        "an interpreter that lives on writes to memory that is gone",
    ),
    "custom-prefetches": (
        "TFL-10 TFL-13 TFL-18",
        "what is written to custom memory after it was assigned is not read there either",
    ),
    "declares-half-uses-bfloat": ("NUM-02", "sums have the precision of bfloat16, too"),
    "depends-on-the-process": (
        "NUM-02 NUM-03 NUM-04 NUM-10",
        "numbers of each kind are off in their low byte",
    ),
    "disowns": (
        "BUF-04 DET-04 LIFE-05",
        "a read goes through a delegate that is not there: nothing is written, and no buffer is given back",
    ),
    "dma-takes-ion": ("CAP-04", "ION memory is of a type whose key is not supported, as CAP-04 says of all"),
    "dma-twice": ("DRG-11 REG-08 REG-22", "DMA_BUF memory is registered twice, in each of their situations"),
    "drg-crashes-on-stale": (
        "EXE-04 EXE-05 QMG-11",
        "an execute with an invalid handle ends the process, where each demands a refusal",
    ),
    "drg-keeps-dma": ("CTX-01", "it keeps the memory of handles whose context is freed, too"),
    "execute-bound-for-ever": ("EXE-09", "the handle of an output is refused as an input of the next graph"),
    "exit-with-kernels": ("ABI-08", "delegates are kept for the process's end, and what they have with them"),
    "exits-without-preview": (
        "ERR-01 ERR-02",
        "it ends the process where a preview fails, and they have previews fail",
    ),
    "external-stale": ("EXT-34", "memory that was taken back stays mapped for good"),
    "external-survives": ("EXT-34", "external memory outlives its context, and stays mapped"),
    "fails-on-nothing": ("XNN-02", "it fails where XNNPACK has left no node"),
    "finalise-clears": ("EXT-20", "a graph that it takes away is executed behind the refusal"),
    "first-constant-is-zero": (
        "NUM-03 NUM-10",
        "their graphs have constants as first operands too, and are out of these bounds",
    ),
    "forgets-odd-tail": ("NUM-02 NUM-05 PART-03", "numbers of each kind are wrong in the last element"),
    "forgets-ranges": (
        "NUM-04 NUM-05",
        "inside a partition nothing is clamped, and what comes of it is out of its bounds",
    ),
    "frees-nothing": ("LIFE-05", "buffers of interpreters that are gone stay until the delegate's end"),
    "flattens-results": ("DOM-01", "a node gives its result in another shape than its operator does"),
    "frees-twice": ("MEM-15", "memory is freed twice, as MEM-15 says"),
    "frees-with-kernel": (
        "BUF-06 CTRL-01 RSZ-01",
        "buffers end with a kernel that is made again, in loops and after resizes too",
    ),
    "halves-large-partitions": (
        "NUM-02 NUM-10",
        "element-wise nodes and sums of such partitions are out of their bounds",
    ),
    "handle-output-off": ("QMG-12", "each output goes through memory of its own"),
    "has-fixed-capacity": (
        "DOM-01 PART-04",
        "it claims nodes that are too large for it, and fails in invoke",
    ),
    "has-one-kernel": (
        "CTRL-01",
        "kernels of subgraphs have nodes of the same indices, and it tells them apart by these",
    ),
    "hint-changes-codes": ("EXE-03 EXE-04 EXE-05 EXE-13", "their codes are wrong in graphs with the hint"),
    "hint-ignored": ("OFF-02", "a graph out of a binary has IO buffers for hinted tensors as well"),
    "hinted-refuses-raw": ("QMG-05", "one of the four combinations cannot be executed"),
    "hinted-rounds-down": ("OFF-05 QMG-01 QMG-03", "graphs out of binaries differ by the hint, too"),
    "if-last-context": (
        "CTX-04 CTX-06 EXT-25 OFF-07 REG-06",
        "each says of one call what IF-10 says of the others: an unknown context is refused",
    ),
    "if-swapped": ("CTX-08 IF-10", "deviceFree frees no device, and answers with codes of logs"),
    "ignores-zero-points": ("DOM-01", "a node whose operand has a zero point gives wrong numbers"),
    "input-snapshot": ("QMG-12", "each input is copied to memory of its own"),
    "input-stale-line": ("QMG-12", "each input is copied to memory of its own"),
    "io-lazy": ("OFF-02 QMG-08", "no IO buffer is allocated at preparation, nor for a graph out of a binary"),
    "ion-undeclared": ("CAP-04", "ION memory is of a type whose key is not supported, as CAP-04 says of all"),
    "keeps-a-block": ("LEAK-01 OWN-02", "the first shape is a change of shapes, and leaves its block too"),
    "keeps-every-scratch": ("LIFE-05", "scratch memory of a kernel that was freed is kept"),
    "keeps-preview": (
        "ERR-01 PART-04",
        "it goes on where the preview is refused, and its kernels fail in invoke",
    ),
    "keeps-stated-shapes": (
        "DYN-03 HOS-05",
        "a result keeps its stated shape also where that depends on data, or has dimensions that overflow",
    ),
    "keeps-scratch": ("DET-02", "what it adds to a result is that of an earlier invoke"),
    "knows-two-dimensions": (
        "DOM-01 NUM-02 NUM-03 NUM-04 NUM-05 NUM-10",
        "numbers are wrong from the third dimension on; FULLY_CONNECTED has more than two in cells only",
    ),
    "leaks-at-init": ("LEAK-01 OWN-02", "what a kernel keeps is in use after the delegate's end too"),
    "leaks-at-prepare": ("LEAK-01 OWN-02", "what a kernel keeps is in use after the delegate's end too"),
    "makes-in-create": ("ABI-08", "what create takes and destroy leaves is this rule's as well"),
    "never-stale": ("DET-04", "an output that is not written keeps what was in its memory"),
    "no-copy": ("DET-04", "an output that nobody copies keeps what was in its memory"),
    "output-late": ("QMG-12", "each output waits in memory of its own"),
    "packs-weights": (
        "ERR-03 MEM-07",
        "Prepare changes constants of the model, and they stay so if it fails",
    ),
    "plugin-reads-first-key": (
        "ABI-16",
        "it reads the first of no keys, which is behind the end of the array",
    ),
    "plugin-mixes": ("ABI-08 ABI-11", "its callbacks stay for good, and its registration is an ordinary one"),
    "own-every-second": ("TFL-20", "what has no backend_type is created second, and is NULL"),
    "raw-copied-once": (
        "EXE-21",
        "a second raw execute has the output of the first, whatever its inputs are",
    ),
    "reads-absent": ("DOM-01", "a node without the operand that may be absent gives wrong numbers"),
    "refuses-second-model": ("HOS-02", "the interpreter that is made next is refused, too"),
    "reg-batch-code": (
        "CAP-04 REG-14 REG-21 REG-22",
        "each names the code of a bad descriptor of its kind, which may stand behind good ones",
    ),
    "reg-never-too-small": (
        "EXT-07 EXT-08 SHB-04 SHB-05 SHB-06",
        "no size is looked at, of whatever kind the memory is",
    ),
    "reg-null-handle": ("IF-09 REG-02 SHB-07", "each handle is NULL, so that two do not differ"),
    "reg-same-again": (
        "DRG-11 EXT-13 EXT-16 REG-08 REG-22 SHB-15",
        "memory that is registered is registered again, in each of their situations",
    ),
    "reg-same-handle": ("SHB-07", "offsets of one call get one handle, where each must get its own"),
    "reg-unique-everywhere": (
        "EXT-15 EXT-26",
        "memory of no use is taken in a second context, spill-fill memory neither",
    ),
    "reg-wants-shape-config": ("CAP-03 REG-01 REG-17", "no plain registration succeeds"),
    "register-after-finalise": ("CAP-03 REG-01", "no registration succeeds in a context without a graph"),
    "resumes-failed": ("CTRL-01", "it knows the kernels of all subgraphs as one list"),
    "rounds-constants": (
        "DOM-01 ERR-03 LIFE-10 NUM-10",
        "Prepare changes constants of the model, which nodes compute with; they stay so if it fails",
    ),
    "rounds-wrongly-at-the-edge": (
        "NUM-04",
        "what is clamped to an end of the range is rounded down as well",
    ),
    "rows-of-each-operand": (
        "DYN-03",
        "a result whose shape depends on data is written as long as the operands are, beyond its memory",
    ),
    "rpc-short": (
        "RPC-05 RPC-09 RPC-10 RPC-14 SHB-07",
        "only the first page can be written, whoever writes",
    ),
    "rpc-one-fd": ("RPC-10 RPC-14", "through the descriptor of a buffer another one's bytes are read"),
    "runtime-hides-kernels": ("PART-16", "the plan before an application is not shown as that behind it"),
    "runtime-keeps-shapes": ("HOS-02 RSZ-01", "after a resize outputs have the shape that they had before"),
    "runtime-reverses-plan": ("PART-16", "an application that claims nothing turns the plan round"),
    "runtime-steals": ("PART-05", "nodes of one kernel are in another one too"),
    "shared-end-late": ("EXT-07 REG-15", "no end of a buffer is looked at, of whatever use the memory is"),
    "shared-never-unmapped": (
        "CTX-01 CTX-10 DRG-10 EXT-34 QLEAK-01 QLEAK-02 REG-28",
        "shared buffers stay mapped, however their handles end",
    ),
    "shared-padded-output": ("EXE-10", "bytes behind an output in a shared buffer are changed"),
    "shb-rpcmem-only": ("EXT-35", "memory that rpcmem did not allocate is refused, of whatever use it is"),
    "shb-trusts-size": ("EXT-07 EXT-08", "a size is believed, of whatever use the memory is"),
    "shb-types-apart": ("EXT-16", "memory that is weights is taken for a tensor"),
    "stale-handle-executes": (
        "CTX-01 CTX-10 DRG-10 EXT-34 SHB-13",
        "it keeps the memory of every handle that was deregistered, which these rules forbid",
    ),
    "stale-without-handle": ("BUF-03", "data that a kernel has written is marked as stale"),
    "takes-raw-integers": (
        "DOM-01 NUM-04 NUM-05 PART-03",
        "numbers of int8 are out of their bounds, and no scale or zero point is applied",
    ),
    "thread-freed-graphs": ("IF-10 QMG-09", "graphs that are gone execute, and their IO buffers stay"),
    "truncates": ("NUM-04", "what is clamped to 127 becomes 124"),
    "tunes": (
        "NUM-02 NUM-03 NUM-04 NUM-10",
        "with every second delegate numbers of each kind are off in their low byte",
    ),
    "waits-for-upload": (
        "NUM-02 NUM-03 NUM-04 NUM-10",
        "it computes from inputs that are not the case's, so that all numbers are wrong",
    ),
    "works-in-pairs": (
        "DOM-01 NUM-04 PART-03",
        "numbers of each kind are wrong in the last element of a row, also where only these rules look",
    ),
    "wraps-around": ("NUM-03 PART-03", "results that leave the range are out of their bounds too"),
    "writes-elsewhere": ("MEM-10", "the tensor that it writes to may be one without memory"),
    "writes-tail": ("MEM-01", "behind an output in the arena there may be another tensor"),
    "xnn-prepares-once": ("CTRL-02", "kernels in the body of a loop are prepared more than once"),
    "rpc-unaligned": ("REG-15 RPC-10", "memory begins 16 bytes into its file, which is 16 bytes longer"),
    "copies-half": ("BUF-04 DET-04", "an output of which half is copied keeps what was in the other half"),
    "halves-long-sums": ("NUM-10", "element-wise nodes of such rows are out of their bounds"),
    "keeps-old-shapes": ("DYN-03", "shapes of outputs are not set at each invoke"),
    "writes-terminal-outputs": ("PART-10", "not all outputs that are given are written"),
    "reg-lazy-map": ("EXT-09", "what cannot be mapped is no DMA buffer either"),
    "cap-flips": ("CAP-02 CAP-06", "every second key says no to what works"),
    "device-refused": ("IF-14", "NULL for the result has the code of configurations, too"),
    "rpc-cuts-size": ("RPC-11", "what is to fail is allocated, and so nobody frees it"),
    "shared-unmapped-first": ("SHB-03", "a buffer's size is forgotten with its mapping"),
    "cap-any-environment": ("IF-14", "an environment with NULL in it is one of those that succeed"),
    "graph-one-per-context": ("IF-14", "of a second graph NULL for the result has the code of that, too"),
    "graph-refused": ("IF-14", "NULL for the result has the code of names, too"),
    "if-zero-handle": ("IF-14", "NULL for configurations is refused where the handle is taken for none"),
    "log-deadlock": ("IF-11", "with a log every execute fails, of one thread too"),
    "section-any-handle": ("IF-14", "NULL for a section's memory is a handle that is unknown, too"),
    "shared-ascending": ("REG-02", "a handle is that of another one's memory, and ends that"),
}
"""By fault: the rules that it was not made for and whose sentences it breaks as well, and how."""


class Fault(NamedTuple):
    """What is judged."""

    name: str
    subject: Subject
    what: str
    kills: tuple[str, ...]
    """The rules that it breaks."""
    is_mutant: bool


FALSE: dict[str, tuple[str, str]] = {
    "copies-more": (
        "BUF-08",
        "an input that is an output as well is changed when another output is copied",
    ),
    "has-one-kernel": (
        "PREC-09",
        "it tells kernels apart by the index of their first node, and finds another one's",
    ),
    "keeps-first-plan": (
        "PREC-07",
        "what it claims changes with an array that is freed; a claim that changes has no control",
    ),
    "packs-weights": (
        "DOM-01 ERR-01 ERR-02",
        "it changes shapes and axes that are constants, so that nodes of the CPU cannot be prepared",
    ),
    "plugin-no-prepare": (
        "ABI-16",
        "it dies where it is applied, and not behind the options: not each such death is put down to ABI-09",
    ),
    "section-size-untold": (
        "MSC-04",
        "without a size no section is asked for, and so its refusal is not seen",
    ),
}
"""Accusations that are wrong, and how they came about."""


def faults() -> dict[str, Fault]:
    """All of them by name: those in C, then the mutants."""
    found = [Fault(name, each.subject, each.what, (each.owner,), False) for name, each in in_c.FAULTS.items()]
    both = delegate_mutants() | qnn_mutants()
    found += [Fault(name, each.subject, each.fault, each.kills, True) for name, each in both.items()]
    return {each.name: each for each in found}


def open_fault(fault: Fault, folder: Path) -> Target[Any, Any]:
    """The target with the fault, to be closed; libraries are built into the folder."""
    if fault.is_mutant:
        mutant = (qnn_mutants() | delegate_mutants())[fault.name]
        if fault.name in WILD:
            mutant = dataclasses.replace(mutant, deadly=True, timeout=1.0)
        return opened(mutant, PLACES[fault.subject])
    return open_library(in_c.built(fault.name, folder), fault.subject, in_c.FAULTS[fault.name].timeout)


def open_library(library: Path, subject: Subject, timeout: float) -> Target[Any, Any]:
    """A library as a target in children; ``timeout`` in seconds."""
    if subject == "memory":
        return open_memory_target(str(library), "emulated", "fork", timeout)
    return open_delegate_target([(str(library), {})], PLACES[subject], "fork", timeout)


class Failures(msgspec.Struct):
    """What was said of one target."""

    seen: dict[str, str] = {}
    """By rule that failed, what it saw."""
    by: dict[str, list[str]] = {}
    """By rule in whose cases something failed: the rules of which that is a finding."""
    blocked: list[str] = []
    left_open: list[str] = []
    """Rules that are inconclusive for another reason."""
    unjudged: list[str] = []
    """Rules in which the suite itself failed, or that have nothing to judge with."""


def judged_by(
    rules: Iterable[Rule[Any, Any, Any]], target: Target[Any, Any], seed: int, *, whole: bool = False
) -> Failures:
    """Judge the target by the rules in their order, and close it; ``whole``: in profile `default`."""
    found = Failures()
    # Of QNN backends as many as of a vendor's, which is in children: in this process, where the ordinary life
    # before a case is Python's, 20 examples of each rule took two minutes for a mutant.
    examples = PROFILE.isolated_examples if target.subject == "memory" else PROFILE.in_process_examples
    profile = dataclasses.replace(PROFILE, in_process_examples=examples)
    if whole:
        profile = dataclasses.replace(planned("default"), shrink_seconds=0.0, repeats=1)
    controlled: dict[bytes, Sequence[engine.Cause]] = {}
    with closing(target):
        for rule in rules:
            try:
                verdict, owners = engine.blame(
                    rule, target, profile, seed, catalogue().__getitem__, controlled
                )
            except (NothingToJudge, InternalError, TargetLost) as error:
                found.unjudged.append(f"{rule.id} ({type(error).__name__})")
                continue
            for owner in owners:
                found.seen.setdefault(owner, f"handed over by {rule.id}")
                found.by.setdefault(rule.id, []).append(owner)
            if verdict.is_blocked:
                found.blocked.append(rule.id)
            elif verdict.outcome is Outcome.INCONCLUSIVE:
                found.left_open.append(rule.id)
            elif verdict.outcome not in _QUIET:
                finding = verdict.finding
                found.seen[rule.id] = f"{finding.seen} @ {finding.where}"[:300] if finding else verdict.reason
                found.by.setdefault(rule.id, []).append(rule.id)
    return found


def rules_of(subject: Subject) -> list[Rule[Any, Any, Any]]:
    """All that judge targets of this half."""
    return [rule for rule in catalogue().values() if rule.subject == subject and not rule.self_check]


def row(name: str, seed: int, only: Sequence[str] = (), *, measured: bool = False) -> Row:
    """Judge one fault by all rules of its half, or by those that are named.

    Args:
        name: of the fault.
        seed: of the cases.
        only: ids of rules; none: all.
        measured: rules that measure judge it too, whether or not it is in their sample.
    """
    fault = faults()[name]
    judging = [rule for rule in rules_of(fault.subject) if not only or rule.id in only]
    left_out = [rule.id for rule in judging if not (only or measured) and _left_out(rule, fault)]
    started = cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        target = open_fault(fault, Path(folder))
        found = judged_by((rule for rule in judging if rule.id not in left_out), target, seed)
    rules = catalogue()
    others = sorted(set(found.seen).difference(fault.kills))
    accused = [rule for rule in others if rules[rule].level is Level.MUST]
    return Row(
        name=name,
        owners=sorted(set(found.seen).intersection(fault.kills)),
        missed=sorted(set(fault.kills).difference(found.seen)),
        accused=accused,
        advised=[rule for rule in others if rules[rule].level is not Level.MUST],
        blocked=sorted(found.blocked),
        seconds=round(cpu_seconds() - started, 1),
        seed=seed,
        seen={rule: found.seen[rule] for rule in accused},
        unjudged=sorted([*left_out, *found.unjudged]),
        by=found.by,
        left_open=found.left_open,
        rules=[rule.id for rule in judging] if only else [],
    )


def of_rules(name: str, seed: int, only: Mapping[str, Sequence[str]], measured: bool) -> Row:
    """The row of a fault, by the rules that are named for it; none: by all."""
    return row(name, seed, only.get(name, ()), measured=measured)


def again(name: str, seed: int) -> Row:
    """Of those rules of a fault that saw nothing in it, which do in profile `default`."""
    before = known()[name]
    started = cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        target = open_fault(faults()[name], Path(folder))
        found = judged_by([catalogue()[each] for each in before.missed], target, seed, whole=True)
    later = [rule for rule in before.missed if rule in found.seen]
    seconds = round(cpu_seconds() - started, 1)
    return Row(
        *(name, [], before.missed, [], [], [], seconds, seed),
        later=later,
        rules=before.missed,
        whole=True,
    )


def _left_out(rule: Rule[Any, Any, Any], fault: Fault) -> bool:
    """A measured rule, of a mutant that is neither its own nor in the sample."""
    in_sample = not fault.is_mutant or random.Random(fault.name).randrange(_MEASURED_IN) == 0
    return rule.id.startswith(MEASURED) and rule.id not in fault.kills and not in_sample


_Judge = Callable[[str, int], Row]
"""Makes the row of a fault, by its name and the seed."""


def measure(names: Iterable[str], seed: int, jobs: int, judge: _Judge = row) -> Iterator[Row]:
    """Judge all faults, several at a time. Rows come as they are done: a fault that hangs takes long."""
    left = list(names)
    while left:
        with contextlib.suppress(BrokenProcessPool):
            for done in _several(left, seed, jobs, judge):
                left.remove(done.name)
                yield done
        # Whose fault ended its process is not known: of the first that are left one at a time.
        first, left = left[: 2 * jobs], left[2 * jobs :]
        yield from (done for name in first for done in _alone(name, seed, judge))


def _alone(name: str, seed: int, judge: _Judge) -> list[Row]:
    """Its row, or none where the fault ends the process that judges it."""
    try:
        return list(_several([name], seed, 1, judge))
    except BrokenProcessPool:
        sys.stderr.write(f"{name}: the process ended\n")
        return []


def _several(names: Sequence[str], seed: int, jobs: int, judge: _Judge) -> Iterator[Row]:
    """As they are done; begun in their order. Each has a process of its own, as some write where others look.

    Raises:
        BrokenProcessPool: a process ended.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.blame"])
    with ProcessPoolExecutor(jobs, context, max_tasks_per_child=1) as pool:
        try:
            yield from (
                done.result() for done in as_completed([pool.submit(judge, name, seed) for name in names])
            )
        finally:
            pool.shutdown(cancel_futures=True)


def known() -> dict[str, Row]:
    """The rows so far, by fault: of a fault with several, each rule's last word."""
    kills = {name: each.kills for name, each in faults().items()}
    return {name: one.row(kills.get(name, ())) for name, one in blame_rows.known(RESULTS).items()}


def fault_digest(fault: Fault) -> str:
    """Of the mutant, or of the source in C."""
    if fault.is_mutant:
        return mutant_digest(fault.name)
    return hashlib.sha256(in_c.faulty(fault.name).encode()).hexdigest()[:16]


def left(now: Mapping[Subject, Rules], *, measured: bool = False) -> Left:
    """By fault, the rules that have not judged it as they are.

    Args:
        now: the rules of each half (`blame_rows.rules_now`).
        measured: rules that measure are to judge all mutants.
    """
    both, rules = faults(), catalogue()
    asked = {name: (fault_digest(each), now[each.subject]) for name, each in both.items()}
    return blame_rows.left(
        blame_rows.known(RESULTS),
        asked,
        lambda name, rule: not measured and _left_out(rules[rule], both[name]),
    )


def in_turn(seed: int) -> list[str]:
    """The faults in C, then the mutants as the seed shuffles them: any beginning of these is a sample."""
    both = faults()
    mutants = sorted(name for name, each in both.items() if each.is_mutant)
    random.Random(seed).shuffle(mutants)
    return [*(name for name, each in both.items() if not each.is_mutant), *mutants]


def document(rows: dict[str, Row], waiting: Left) -> str:
    """The matrix as Markdown; ``waiting``: what has not been judged by the rules as they are (`left`)."""
    both = faults()
    rows = {name: each for name, each in rows.items() if name in both}
    judged = [name for name in rows if both[name].is_mutant]
    missing = [f"`{name}`" for name in sorted(both.keys() - rows.keys())]
    head = {
        "missing": ", ".join(missing) or "none",
        "all_in_c": len(in_c.FAULTS),
        "day": date.today().isoformat(),
        "seed": ", ".join(sorted({str(each.seed) for each in rows.values()})),
        "cpu": f"{sum(each.seconds for each in rows.values()) / 60:.0f}",
        "in_c": len(rows) - len(judged),
        "judged": len(judged),
        "measured": ", ".join(MEASURED),
        "mutants": sum(each.is_mutant for each in both.values()),
        "rows": len(rows),
        "current": len(rows.keys() - waiting.keys()),
        "undated": sum(not each.digests for each in rows.values()),
        "pairs": sum(map(len, waiting.values())),
        "waiting": len(waiting),
        "one_in": _MEASURED_IN,
        "all_rules": sum(_by_all(rows[name]) for name in judged),
    }
    parts = [_HEAD.format(**head)]
    for title, is_mutant in (("Faults in C libraries", False), ("Mutants", True)):
        own = [rows[name] for name in sorted(rows) if both[name].is_mutant is is_mutant]
        false = [each for each in own if unexplained(each)]
        unseen = [each for each in own if not each.owners and not each.later]
        late = sum(not each.owners and bool(each.later) for each in own)
        parts.append(
            f"\n## {title}: {len(own)} judged, {len(false)} with an accusation that is not explained, "
            f"{late} whose owner needed the cases of `default`, {len(unseen)} whose owner saw nothing\n\n"
            f"{_COLUMNS}{''.join(map(_line, own))}"
        )
    for title, said in (("Explained", EXPLAINED), ("False", FALSE)):
        told = ((name, _of(rows.get(name), rules), why) for name, (rules, why) in sorted(said.items()))
        lines = [f"* `{name}` ({rules}): {why}\n" for name, rules, why in told if rules]
        parts += [f"\n## {title}\n\n", *lines] if lines else []
    return "".join(parts)


def _of(found: Row | None, rules: str) -> str:
    """Those of the rules that accuse in the row; no row has none."""
    return " ".join(each for each in rules.split() if found and each in found.accused)


def _by_all(found: Row) -> bool:
    """No rule was left out of the row."""
    return not any(" " not in each for each in found.unjudged)


def unexplained(found: Row) -> list[str]:
    """MUST rules that failed, and of which nobody says why the fault breaks them."""
    rules, _ = EXPLAINED.get(found.name, ("", ""))
    return [rule for rule in found.accused if rule not in rules.split()]


_HEAD = """\
# The blame matrix

Written by `python -m benchmarks.blame --update docs/measured/blame.md`, last on {day}, seed {seed}: each
fault judged by all rules of its half, {in_c} of {all_in_c} faults in C libraries (tests/faults, in children)
and {judged} of {mutants} mutants. Without a row: {missing}. It took {cpu} minutes of processor time;
`benchmarks/blame/results.jsonl` keeps the rows, and the same command goes on with what has none.

Rows of the rules, controls and faults as they are on that day: {current} of {rows}. Left are {pairs} pairs of
a fault and a rule, of {waiting} faults; rows that do not say which rules they are of, from before 2026-11-30:
{undated}. `--left` counts these pairs, and `--stale` judges them. What cases meet afterwards (the
runner, the reference, the runtimes) is not looked at, and controls are only where something failed, since
nothing else meets them.

Profile `quick` (mutants of QNN with its 5 examples of libraries in children), nothing shrunk or repeated.
To make it cheap, a control is run once for each fault and not for each rule; of an owner it is only said
that it failed; a rule is searched around six causes at most, where a run has twelve; and the measured
rules (those whose ids begin with {measured})
judge one mutant in {one_in}, drawn by its name, beside their own and the faults in C: they run threads for a
while, or a case many times, and cost more than all other rules together. All rules have judged {all_rules}
of the mutants. `--measured` has these rules judge each.

The columns: rules that the fault breaks and that failed (of a fault in C its owner, which was named
from docs/reference/rules.md before it was judged); those that saw nothing in so few cases, with * where they
fail in profile `default` (`--owners` judges them again); other MUST rules that failed, each an accusation to
be explained or mended; other SHOULD and MAY rules; rules of which nothing was left to judge.
"""
_COLUMNS = (
    "| fault | own rules | saw nothing | other MUST rules | other SHOULD rules | blocked |\n"
    "|---|---|---|---|---|---|\n"
)
_MANY = 12


def _line(one: Row) -> str:
    missed = [f"{rule} *" if rule in one.later else rule for rule in one.missed]
    lists = (one.owners, missed, one.accused, one.advised)
    blocked = ", ".join(one.blocked) if len(one.blocked) <= _MANY else f"{len(one.blocked)} rules"
    cells = [f"`{one.name}`", *(", ".join(each) or "-" for each in lists), blocked or "-"]
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    """Judge what has no row yet, and write the matrix."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blame", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="faults that are judged at a time")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="again; repeatable")
    parser.add_argument("--minutes", type=float, default=40.0, help="CPU time after which none is begun")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the matrix")
    parser.add_argument(
        "--left", action="store_true", help="say how much the rules as they are have not judged"
    )
    parser.add_argument("--stale", action="store_true", help="judge that, by the rules in question")
    parser.add_argument("--measured", action="store_true", help="rules that measure judge all mutants")
    parser.add_argument("--owners", action="store_true", help="rules of their own that saw nothing, again")
    options = parser.parse_args()
    now = {subject: rules_now(subject) for subject in PLACES}
    if options.left:
        waiting = left(now, measured=options.measured)
        print(f"{len(waiting)} faults, {sum(map(len, waiting.values()))} pairs of a fault and a rule")
        return
    names, judge = _asked(options, now)
    digests = {name: fault_digest(each) for name, each in faults().items()}
    spent = 0.0
    for found in measure(names if options.minutes else (), options.seed, options.jobs, judge):
        rules = now[faults()[found.name].subject]
        day, fault = date.today().isoformat(), digests[found.name]
        one = msgspec.structs.replace(found, day=day, digests=rules.name, fault=fault)
        blame_rows.keep(RESULTS, one, rules)
        spent += one.seconds
        sys.stderr.write(f"{_line(one).strip()} {one.seconds:.1f} s {one.seen}\n")
        if spent > 60 * options.minutes:
            break
    rows = known()
    if options.update:
        options.update.write_text(document(rows, left(now)))
    sys.stderr.write(f"{len(rows)} faults have rows; {spent:.0f} s CPU\n")


def _asked(options: argparse.Namespace, now: Mapping[Subject, Rules]) -> tuple[list[str], _Judge]:
    """What is to be judged, in order, and how."""
    rows = known()
    if options.owners:
        missing = (name for name, one in rows.items() if one.missed and not one.later and name in faults())
        return options.only or [*missing], again
    if not options.stale:
        new = [name for name in in_turn(options.seed) if name not in rows]
        return options.only or new, functools.partial(of_rules, only={}, measured=options.measured)
    waiting = left(now, measured=options.measured)
    names = [name for name in in_turn(options.seed) if name in waiting]
    names = [name for name in names if not options.only or name in options.only]
    # By all rules: a new row in the place of the old one.
    some = {name: rules for name, rules in waiting.items() if not _is_all(name, rules, now, options)}
    return names, functools.partial(of_rules, only=some, measured=options.measured)


def _is_all(
    name: str, rules: Sequence[str], now: Mapping[Subject, Rules], options: argparse.Namespace
) -> bool:
    """Whether no other rule judges the fault."""
    fault, known_rules = faults()[name], catalogue()
    of_half = now[fault.subject].digests
    return {*rules} == {
        each for each in of_half if options.measured or not _left_out(known_rules[each], fault)
    }
