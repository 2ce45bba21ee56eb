"""ONNX Runtime on a QNN backend library: small models (`ort_models`), each compared with the CPU provider.

    python ort_compare.py BACKEND [OPTION=VALUE ...] NAME [NAME ...]

Options are the provider's, or, if they begin with ``session.`` or ``ep.``, the session's; ``load=PATH`` runs
what an earlier process saved in the place of the model, ``against=PATH`` compares with that library in the
place of the CPU. ``%d`` in a value stands for the number of the model among those that are named, from 0 on.

One line of JSON goes to standard output for each model: ``difference``, the largest of its outputs, in steps
of fixed point or in units of its bound; or ``refused``, what ONNX Runtime says. To fall back to the CPU is an
error. ``values`` says how many different numbers the outputs hold.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime  # before any QNN library, whose own unwinder otherwise breaks C++ exceptions
import onnxruntime_qnn
from ort_models import AS_THE_LIBRARY, MODELS, Bound, inputs_of, margins

PROVIDER = "QNNExecutionProvider"
_NO_OPTIMISATION = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
"""For the CPU: real values between DequantizeLinear and QuantizeLinear, not kernels for eight bits."""


def on_cpu(model: onnx.ModelProto) -> dict[str, Any]:
    """What the CPU provider computes, by the name of the output."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = _NO_OPTIMISATION
    run = onnxruntime.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    names = [each.name for each in run.get_outputs()]
    return dict(zip(names, run.run(names, inputs_of(model)), strict=True))


def on_backend(model: onnx.ModelProto, given: dict[str, str], device: Any) -> dict[str, Any]:
    """What the backend computes, by the name of the output."""
    options = dict(given)
    saved = options.pop("load", "")
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for name in [name for name in options if name.startswith(("session.", "ep."))]:
        settings.add_session_config_entry(name, options.pop(name))
    settings.add_provider_for_devices([device], {"offload_graph_io_quantization": "0", **options})
    run = onnxruntime.InferenceSession(saved or model.SerializeToString(), settings)
    names = [each.name for each in run.get_outputs()]
    return dict(zip(names, run.run(names, inputs_of(model)), strict=True))


def difference(found: Any, wanted: Any, bound: Bound) -> float:
    """In steps where there are any; of ``rounded`` in units of 32 u of the largest value; else as it is."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    with np.errstate(invalid="ignore"):
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    unit = 32 * 2.0**-24 * max(float(np.abs(wanted).max()), 2.0**-100) if bound == "rounded" else 1.0
    return float(apart.max() / unit) if apart.size and not np.isnan(apart).any() else float("inf")


def compared(name: str, options: dict[str, str], device: Any) -> dict[str, Any]:
    """The answer for one model."""
    chosen = (MODELS | AS_THE_LIBRARY)[name]
    model, bound = chosen.make(), chosen.bound
    other = options.pop("against", "")
    wanted = on_backend(model, {"backend_path": other}, device) if other else on_cpu(model)
    answer: dict[str, Any] = {"name": name, "nodes": len(model.graph.node)}
    if name == "a network like MobileNet":
        answer["margins"] = margins(model, on_cpu)
    answer["values"] = len({*np.concatenate([each.ravel().astype(float) for each in wanted.values()])})
    try:
        found = on_backend(model, options, device)
    except Exception as error:
        return answer | {"refused": str(error)}
    worst = max(difference(found[each], wanted[each], bound) for each in wanted)
    return answer | {"difference": worst}


def main() -> None:
    backend, *words = sys.argv[1:]
    options = {"backend_path": backend} | dict(word.split("=", 1) for word in words if "=" in word)
    names = [word for word in words if "=" not in word]
    onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
    device = next(each for each in onnxruntime.get_ep_devices() if each.ep_name == PROVIDER)
    for number, name in enumerate(names):
        own = {key: value.replace("%d", str(number)) for key, value in options.items()}
        print(json.dumps(compared(name, own, device)), flush=True)
    os._exit(0)  # QNN libraries do not survive the order in which an interpreter takes itself down


if __name__ == "__main__":
    main()
