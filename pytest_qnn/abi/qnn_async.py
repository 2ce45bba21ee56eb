"""C layouts of asynchronous execution: QnnGraph.h, Qnn_NotifyFn_t. No behaviour."""

from __future__ import annotations

import ctypes
from ctypes import c_void_p
from typing import Any

from pytest_qnn.abi.qnn import ErrorHandle


class NotifyStatus(ctypes.Structure):
    """Qnn_NotifyStatus_t, 8 bytes, passed by value."""

    _fields_ = (("error", ErrorHandle),)


NotifyFn: Any = ctypes.CFUNCTYPE(None, c_void_p, NotifyStatus)
"""Qnn_NotifyFn_t: the client's parameter, and how the execution ended."""
