"""The files beside a delegate's case: its graphs as models, and the contents of the inputs."""

from __future__ import annotations

import io

import numpy as np

from pytest_qnn.core.case_file import CaseFile
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.file import DelegateCaseFile, DomainCaseFile, PluginCaseFile, ScriptCaseFile
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.models import models_of
from pytest_qnn.tflite.domain.table import made
from pytest_qnn.tflite.graph.model import emit


def models(content: CaseFile) -> dict[str, bytes]:
    """The files by name; none for a case of another half."""
    if isinstance(content, DelegateCaseFile):
        return {"model.tflite": emit(content.case.graph), "inputs.npz": _inputs(content.case)}
    if isinstance(content, PluginCaseFile):
        return {"model.tflite": emit(content.case.graph)}
    if isinstance(content, DomainCaseFile):
        return {
            f"model{number}.tflite": made(cell).model for number, cell in enumerate(content.case.cells[:8])
        }
    if isinstance(content, ScriptCaseFile):
        return {f"model{number}.tflite": model for number, model in enumerate(models_of(content.case))}
    return {}


def _inputs(case: DelegateCase) -> bytes:
    """The inputs' contents in numpy's format, each under its tensor's name in the model."""
    buffer = io.BytesIO()
    arrays = dict(zip((f"t{index}" for index in case.graph.inputs), inputs_of(case), strict=True))
    np.savez(buffer, **arrays)
    return buffer.getvalue()
