"""How long a browser takes to open a report of 150 findings: docs/measured/benchmarks.md.

python -m benchmarks.page [--repeat N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pytest_qnn import rules
from pytest_qnn.core.evidence import Call, Evidence, Frame
from pytest_qnn.core.fingerprint import Fingerprint
from pytest_qnn.core.rule import Demand
from pytest_qnn.core.verdict import Finding, Outcome, Verdict
from pytest_qnn.report import document
from pytest_qnn.report.explain.stored import Example, examples
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.partition import picture

FINDINGS = 150
_TARGETS = {"delegate": "/opt/judged/libdelegate.so", "memory": "/opt/judged/libQnnBackend.so"}
_HEADER = {
    "schema": document.SCHEMA,
    "complete": True,
    "halves": ["delegate", "memory"],
    "not_judged": [],
    "tool": dict.fromkeys(document.TOOLS, "1.0.0"),
    "python": "3.11.7",
    "platform": "Linux-6.1-x86_64",
    "started": "2026-11-24T09:00:00+00:00",
    "finished": "2026-11-24T09:10:00+00:00",
    "seed": 1,
    "profile": "default",
    "options": {
        "qnn_backend": _TARGETS["memory"],
        "qnn_rpcmem": "emulated",
        "tflite_delegate": [{"spec": _TARGETS["delegate"], "options": {}}],
        "tflite_runtime": "auto",
        "tflite_delegate_precision": "float32",
        "qnn_sandbox": "auto",
        "qnn_on": "here",
        "qnn_timeout": 10.0,
        **{key: [] for key in ("qnn_env", "qnn_rule", "qnn_area", "qnn_level")},
        **dict.fromkeys(("qnn_matrix_target", "qnn_shard", "qnn_corpus", "qnn_expect"), None),
        "qnn_blocks": 1,
        "qnn_strict": False,
    },
    "extra": {},
}
_OPENED = (
    """() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"""
)


def report() -> dict[str, Any]:
    """A report in which 150 rules are broken, by the smallest violations of their pages; the others pass."""
    shown = dict(sorted(examples().items())[:: max(1, len(examples()) // FINDINGS)][:FINDINGS])
    verdicts = [
        _verdict(rule, shown.get(rule.id), number) for number, rule in enumerate(rules.listed().values())
    ]
    described = {
        (subject, spec): {"options": [], "provenance": {"path": spec}} for subject, spec in _TARGETS.items()
    }
    found = document.Found(frozenset(_TARGETS), described, verdicts, {}, 1)
    catalogue = {"rules": len(rules.listed()), "sha256": document.fingerprint()}
    return {**_HEADER, "catalogue": catalogue, "targets": document.targets(found)}


def _verdict(rule: Demand, example: Example | None, number: int) -> Verdict:
    spec = _TARGETS[rule.subject]
    return Verdict(
        rule=rule.id,
        area=rule.area,
        level=rule.level,
        sentence=rule.sentence,
        source=rule.source,
        subject=rule.subject,
        self_check=rule.self_check,
        target=spec,
        outcome=Outcome.PASS if example is None else Outcome(example.file.verdict),
        examples=20,
        examined=40,
        what="calls",
        seconds=0.1 + number / 100,
        seed=1,
        finding=None if example is None else _finding(example, number),
        replay="" if example is None else f"pytest --qnn-replay=.pytest-qnn/target/{rule.id}",
    )


def _finding(example: Example, number: int) -> Finding:
    file = example.file
    case: dict[str, Any] = msgspec.to_builtins(file.case)
    return Finding(
        expected=file.expected,
        seen=file.seen,
        where=file.where,
        picture=_picture(case),
        evidence=_evidence(number) if file.verdict in ("crash", "hang") or number % 10 == 0 else Evidence(),
        case=msgspec.json.encode(case).decode(),
        fingerprint=Fingerprint(seen=file.seen),
    )


def _picture(case: dict[str, Any]) -> str:
    """The partitioning of a delegate's case, everything in one kernel but its last node."""
    try:
        graph = msgspec.convert(case.get("graph"), Graph)
    except msgspec.ValidationError:
        return ""
    last = len(graph.nodes) - 1
    in_kernel = (picture.Entry(last + 1, 0, tuple(range(last))),) if last > 0 else ()
    seen = (*in_kernel, picture.Entry(last, -1, (last,)))
    expected = (picture.Entry(last + 1, 0, tuple(range(last + 1))),)
    return picture.draw(graph, (), seen, expected, last)


def _evidence(number: int) -> Evidence:
    """What a process leaves that dies: 40 frames, 60 calls, 40 lines."""
    return Evidence(
        during="QnnGraph_execute",
        fault="SEGV_MAPERR at 0x0",
        stderr="".join(f"[backend] line {line} of rule {number}\n" for line in range(40)),
        frames=tuple(
            Frame("/opt/judged/libbackend.so", frame, f"libbackend.so+{frame:#x} (compute)")
            for frame in range(40)
        ),
        calls=tuple(Call(name="QnnMem_register", step=step, status=0, result="") for step in range(60)),
    )


def figures(path: Path, repetitions: int) -> Iterator[float]:
    """Seconds from the start of the navigation until the page is laid out and its script has run.

    Args:
        path: of the page.
        repetitions: each in a browser context of its own, after one that is not counted.
    """
    # Elsewhere than in this benchmark and the tests of pages there is no browser.
    from tests.browser.browsers import chromium

    with chromium() as browser:
        for _ in range(repetitions + 1):
            context = browser.new_context()
            page = context.new_page()
            page.goto(path.as_uri())
            yield page.evaluate(_OPENED) / 1000
            context.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=15, help="how often the page is opened")
    options = parser.parse_args()
    from pytest_qnn.report.html import render

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        made = report()
        before = time.perf_counter()
        path.write_text(render.page(made))
        writing = time.perf_counter() - before
        _, *times = figures(path, options.repeat)
        size = path.stat().st_size
    print(f"page of {FINDINGS} findings: {size / 1e6:.1f} MB, written in {writing:.2f} s")
    print(f"opened {len(times)} times: min {min(times):.2f} s, median {statistics.median(times):.2f} s")


if __name__ == "__main__":
    main()
