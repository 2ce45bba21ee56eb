"""Types of QNN memory, as the plain numbers that cases hold."""

from __future__ import annotations

from pytest_qnn.qnn.abi.codes import HtpContextOption, HtpMemType, MemType

ION, CUSTOM, DMA_BUF = int(MemType.ION), int(MemType.CUSTOM), int(MemType.DMA_BUF)
"""Qnn_MemType_t."""
WEIGHTS, SPILL = int(HtpMemType.WEIGHTS_BUFFER), int(HtpMemType.SHARED_SPILLFILL_BUFFER)
"""QnnHtpMem_Type_t of the memory that a context with deferred initialisation takes from its client."""
ALIGNMENT = int(HtpContextOption.BUFFER_START_ALIGNMENT)
SPILL_SIZE = int(HtpContextOption.MAX_SPILLFILL_BUFFER_SIZE)
WEIGHTS_SIZE = int(HtpContextOption.WEIGHTS_BUFFER_SIZE)
"""QnnHtpContext_PropertyOption_t."""
NEEDED = {WEIGHTS: WEIGHTS_SIZE, SPILL: SPILL_SIZE}
"""Type of memory -> the property of a context that says how much of it is needed."""
