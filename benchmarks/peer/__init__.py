"""A peer that also generates models: NNSmith, in an environment of its own (docs/measured/benchmarks.md)."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.delegates import batch, cases
from benchmarks.timing import QUICK, Effort, Row, drawn, figure, repeated
from pytest_qnn.tflite.graph.model import emit

NODES = (5, 20)
_SCRIPT = Path(__file__).with_name("nnsmith.py")


def rows(effort: Effort, python: str) -> Iterator[Row]:
    """Milliseconds of a model: NNSmith's generation and materialisation, and this project's draw and file.

    Repetitions of NNSmith's figures are models, which differ; of ours, as everywhere, batches of cases.
    """
    for nodes in NODES:
        measured = _models(python, nodes, 5 if effort is QUICK else 30)
        for stage in ("generation", "materialisation"):
            yield Row(f"NNSmith {nodes}", stage, "ms", _figure(measured, (stage,)).times(1000))
        theirs = _figure(measured, ("generation", "materialisation"))
        yield Row(f"NNSmith {nodes}", "both", "ms", theirs.times(1000))
        yield Row(f"NNSmith {nodes}", "nodes, median", "nodes", value=_nodes(measured))
        count = batch(nodes)
        ours = repeated(partial(_own, nodes, count), effort, count)
        yield Row(f"pytest-qnn {nodes}", "draw and file", "ms", ours.times(1000))
        yield Row(f"NNSmith/pytest-qnn {nodes}", "both", "ratio", theirs.over(ours))


def _own(nodes: int, count: int, number: int) -> None:
    for case in drawn(cases(nodes), count, number):
        emit(case.graph)


def _nodes(measured: list[dict[str, Any]]) -> float:
    return float(statistics.median(model["nodes"] for model in measured))


def _figure(measured: list[dict[str, Any]], stages: tuple[str, ...]) -> Any:
    """Of all models; the first is left out, since it imports and fills caches."""
    sums = [[sum(model[stage][place] for stage in stages) for place in (0, 1)] for model in measured[1:]]
    return figure([cpu for cpu, _ in sums], [wall for _, wall in sums])


def _models(python: str, nodes: int, count: int) -> list[dict[str, Any]]:
    command = [python, str(_SCRIPT), str(nodes), str(count + 1)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]
