"""The real catalogue, targets and a runtime, loaded once for pytest runs in this process.

pytester forgets what such a run imported; but a runtime cannot be imported twice, nor a rule be entered
twice. So everything that a run may load is loaded here, before the first of them.
"""

from __future__ import annotations

from pytest_qnn.mutants import table
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.runtime.runtime import load_runtime

SUITE = ("--pyargs", "pytest_qnn.conformance", "--qnn-profile=quick", "-p", "no:cacheprovider")
RULES = catalogue()

table()
load_runtime("auto")
open_memory_target("reference", "emulated", "off", 10.0).close()
