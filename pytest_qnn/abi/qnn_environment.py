"""Execution environments: QnnGraph.h, QnnGraph_ExecuteEnvironmentOption_t. No behaviour."""

from __future__ import annotations

from enum import IntEnum


class EnvironmentOption(IntEnum):
    """QnnGraph_ExecuteEnvironmentOption_t."""

    BIND_MEM_HANDLES = 0
    POPULATE_CLIENT_BUFS = 1
