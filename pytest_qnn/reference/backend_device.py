"""What a client finds of the device itself: the performance controls of the HTP infrastructure.

Clients of backend id 6 call through this table without asking for it first: ONNX Runtime sets a power mode
before and after every session. Power has no meaning here, so every setting is taken and has no effect.
"""

from __future__ import annotations

import ctypes
import itertools
from ctypes import CFUNCTYPE, POINTER, c_uint32, c_void_p
from typing import Any

from pytest_qnn.abi.qnn import ErrorHandle
from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.reference.backend_core import Core
from pytest_qnn.reference.backend_objects import QnnError

_PERFORMANCE = 0
"""QnnHtpDevice_InfrastructureType_t."""
_CreatePowerConfigId = CFUNCTYPE(ErrorHandle, c_uint32, c_uint32, POINTER(c_uint32))
_DestroyPowerConfigId = CFUNCTYPE(ErrorHandle, c_uint32)
_SetPowerConfig = CFUNCTYPE(ErrorHandle, c_uint32, c_void_p)
_SetMemoryConfig = CFUNCTYPE(ErrorHandle, c_uint32, c_uint32, c_void_p)


class Infrastructure(ctypes.Structure):
    """QnnHtpDevice_Infrastructure_t: a type, and the four functions of QnnHtpDevice_PerfInfrastructure_t."""

    _fields_ = (
        ("infraType", c_uint32),
        ("createPowerConfigId", _CreatePowerConfigId),
        ("destroyPowerConfigId", _DestroyPowerConfigId),
        ("setPowerConfig", _SetPowerConfig),
        ("setMemoryConfig", _SetMemoryConfig),
    )


class Devices(Core):
    """QnnDevice beyond creation."""

    def __init__(self, *arguments: Any) -> None:
        self._power_ids = itertools.count(1)
        super().__init__(*arguments)
        self._infrastructure = Infrastructure(
            infraType=_PERFORMANCE,
            createPowerConfigId=self._guard("createPowerConfigId", _CreatePowerConfigId, self._power_id),
            destroyPowerConfigId=self._guard("destroyPowerConfigId", _DestroyPowerConfigId, _take),
            setPowerConfig=self._guard("setPowerConfig", _SetPowerConfig, _take),
            setMemoryConfig=self._guard("setMemoryConfig", _SetMemoryConfig, _take),
        )

    def device_get_infrastructure(self, out: Any) -> None:
        """QnnDevice_getInfrastructure: the same table for every device; 1004 for NULL."""
        if not out:
            raise QnnError(Error.DEVICE_ERROR_INVALID_ARGUMENT)
        out[0] = ctypes.addressof(self._infrastructure)

    def _power_id(self, device: int, core: int, out: Any) -> None:
        del device, core
        if not out:
            raise QnnError(Error.DEVICE_ERROR_INVALID_ARGUMENT)
        out[0] = next(self._power_ids)


def _take(*_arguments: Any) -> None:
    """Every setting is fine."""
