"""NNSmith's cost of a model, measured in an environment of its own: ``PYTHON nnsmith.py NODES MODELS``.

Run by `benchmarks.peer`; imports nothing of this project. Prints a line of JSON for each model: its nodes,
and CPU and wall seconds of its generation (a graph of symbolic shapes, and their solution) and of its
materialisation (TensorFlow's network with weights, as ``nnsmith.model_gen`` makes it before it is saved).

NNSmith: https://github.com/ise-uiuc/nnsmith (ASPLOS 2023, https://doi.org/10.1145/3575693.3575707).
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = "1"


def timed(function: Callable[[], Any]) -> tuple[Any, list[float]]:
    """The result, CPU seconds and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = function()
    return result, [time.process_time() - cpu, time.perf_counter() - wall]


def main(nodes: int, models: int) -> None:
    """Generate and materialise ``models`` models of ``nodes`` nodes."""
    from nnsmith.abstract.extension import activate_ext  # noqa: PLC0415
    from nnsmith.graph_gen import model_gen  # noqa: PLC0415
    from nnsmith.materialize import Model  # noqa: PLC0415

    logging.disable(logging.CRITICAL)
    kind = Model.init("tensorflow", backend_target="cpu")
    operators = kind.operators()
    activate_ext(opset=operators, factory=None)
    for seed in range(models):
        generate = partial(
            model_gen, operators, method="symbolic-cinit", seed=seed, max_nodes=nodes, timeout_ms=60_000
        )
        generated, generation = timed(generate)
        graph, materialisation = timed(partial(materialised, kind, generated))
        figures = {"generation": generation, "materialisation": materialisation}
        print(json.dumps({"nodes": graph.n_compute_inst(), **figures}), flush=True)


def materialised(kind: Any, generated: Any) -> Any:
    """The graph with the solution's shapes, once its model has been made."""
    graph = generated.make_concrete()
    kind.from_gir(graph).refine_weights()
    return graph


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
