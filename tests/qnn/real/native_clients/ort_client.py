"""ONNX Runtime on a QNN backend library: one addition, whose result goes to standard output as JSON.

    python ort_client.py MODEL BACKEND [OPTION=VALUE ...]

MODEL is ``u8`` or ``float``. BACKEND is a library's path, or ``cpu`` for ONNX Runtime's own kernels. With a
library, falling back to the CPU is an error. Each further argument is an option of the execution provider,
or, if it begins with ``session.`` or ``ep.``, of the session; ``model=PATH`` loads a model from a file.
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
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 4, 4, 8)
PROVIDER = "QNNExecutionProvider"


def quantised() -> onnx.ModelProto:
    """c = a + b on uint8, with scales 0.1, 0.1 and 0.2."""
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "a_scale", "zero"], ["a_real"]),
        helper.make_node("DequantizeLinear", ["b", "b_scale", "zero"], ["b_real"]),
        helper.make_node("Add", ["a_real", "b_real"], ["c_real"]),
        helper.make_node("QuantizeLinear", ["c_real", "c_scale", "zero"], ["c"]),
    ]
    scales = {"a_scale": 0.1, "b_scale": 0.1, "c_scale": 0.2}
    constants = [numpy_helper.from_array(np.float32(value), name) for name, value in scales.items()]
    return _model(nodes, TensorProto.UINT8, [*constants, numpy_helper.from_array(np.uint8(0), "zero")])


def floating() -> onnx.ModelProto:
    """c = a + b on float32."""
    return _model([helper.make_node("Add", ["a", "b"], ["c"])], TensorProto.FLOAT, [])


def _model(nodes: list[Any], dtype: int, constants: list[Any]) -> onnx.ModelProto:
    a, b, c = (helper.make_tensor_value_info(name, dtype, SHAPE) for name in "abc")
    graph = helper.make_graph(nodes, "addition", [a, b], [c], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def session(model: bytes | str, backend: str, options: dict[str, str]) -> Any:
    """An inference session, on the backend or nowhere."""
    settings = onnxruntime.SessionOptions()
    if backend == "cpu":
        return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
    device = next(each for each in onnxruntime.get_ep_devices() if each.ep_name == PROVIDER)
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for name in [name for name in options if name.startswith(("session.", "ep."))]:
        settings.add_session_config_entry(name, options.pop(name))
    settings.add_provider_for_devices([device], {"backend_path": backend, **options})
    return onnxruntime.InferenceSession(model, settings)


def main() -> None:
    kind, backend, *words = sys.argv[1:]
    options = dict(word.split("=", 1) for word in words)
    made = {"u8": quantised, "float": floating}[kind]()
    model = options.pop("model", "") or made.SerializeToString()
    dtype = np.dtype("u1" if kind == "u8" else "f4")
    count = np.arange(np.prod(SHAPE))
    inputs = {"a": count, "b": 2 * (count % 50) + (0 if kind == "u8" else 0.25)}
    feed = {name: values.reshape(SHAPE).astype(dtype) for name, values in inputs.items()}
    run = session(model, backend, options)
    (result,) = run.run(None, feed)
    print(json.dumps({"providers": run.get_providers(), "c": result.ravel().tolist()}), flush=True)
    os._exit(0)  # QNN libraries do not survive the order in which an interpreter takes itself down


if __name__ == "__main__":
    main()
