"""What kind of library a file is by what it exports, for the sentence that refuses it as another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_KINDS: Final = (
    ("tflite_plugin_create_delegate", "a TensorFlow Lite delegate plugin, for --tflite-delegate=PATH"),
    (
        "TfLiteQnnDelegateCreate",
        "a QNN delegate with an interface of its own, for --tflite-delegate=direct:PATH",
    ),
    ("QnnInterface_getProviders", "a QNN backend, for --qnn-backend=PATH"),
    ("QnnSystemInterface_getProviders", "a QNN System library, which is found beside its backend"),
    (
        "LiteRtAcceleratorImpl",
        "a LiteRT accelerator, which makes its delegate for LiteRT's CompiledModel alone",
    ),
    (
        "LiteRtDispatchGetApi",
        "a LiteRT dispatch library, which runs what a compiler plugin has compiled and has no delegate",
    ),
    ("LiteRtCreateCompilerPlugin", "a LiteRT compiler plugin, which compiles models and has no delegate"),
    ("LiteRtCreateEnvironment", "the LiteRT runtime itself"),
)
"""An exported name, and what exports it. Sources: external_delegate_interface.h, QnnInterface.h,
QnnSystemInterface.h, seed 000; LiteRT's are those that the libraries of ai-edge-litert 2.3.0 export."""


def told(has: Callable[[str], bool]) -> str:
    """A remark in brackets, to stand behind a sentence; empty: no kind that is known exports what this does.

    Args:
        has: whether the library exports a name.
    """
    return next((f" ({name} says that it is {what})" for name, what in _KINDS if has(name)), "")
