"""Memory that a client gives to a context for its weights, or as spill-fill: seed 002, external buffers.

Faults of a descriptor of these types, with the rules that give their codes: ``not-dma`` EXT-09,
``external-small`` EXT-07, ``external-misaligned`` EXT-08, ``weights-shared`` EXT-13, ``second-external``
EXT-14, ``other-use`` EXT-16 (of any descriptor), ``not-open`` EXT-24 (with whatever code). Notes of a
Register: ``weights``, ``spill``, ``spill-shared`` (EXT-15). Of a Deregister: the fault ``fixed-handle``
EXT-21, with whatever code (unsettled after a finalise that failed), and the note ``taken-back`` EXT-23.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_qnn.abi.qnn_codes import Error, HtpContextOption, HtpMemType, Property
from pytest_qnn.cases.memory import Descriptor, Register
from pytest_qnn.oracle.memory_state import PAGE, Context, Identity, role_of

if TYPE_CHECKING:
    from pytest_qnn.oracle.memory import Model

Faults = dict[str, frozenset[int]]

WEIGHTS = int(HtpMemType.WEIGHTS_BUFFER)
SPILL = int(HtpMemType.SHARED_SPILLFILL_BUFFER)
NEEDED = {WEIGHTS: HtpContextOption.WEIGHTS_BUFFER_SIZE, SPILL: HtpContextOption.MAX_SPILLFILL_BUFFER_SIZE}
"""Type of memory -> the property of a context that says how much is needed."""
_ARGUMENT = int(Error.MEM_ERROR_INVALID_ARGUMENT)
_UNFIT = frozenset({_ARGUMENT, int(Error.MEM_ERROR_INVALID_SHAPE)})
_TAKEN = frozenset({_ARGUMENT, int(Error.MEM_ERROR_ALREADY_REGISTERED)})
_UNMAPPABLE = frozenset({_ARGUMENT, int(Error.MEM_ERROR_MAPPING)})


def external_faults(
    model: Model, context: str, descriptor: Descriptor, before: Sequence[Identity], faults: Faults
) -> bool:
    """Enter what is wrong with a weights or spill-fill descriptor; True if documents leave it open."""
    key = Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM
    if model.facts.capabilities.get(key, 0) != 0:
        faults["type-unsupported"] = frozenset({int(Error.MEM_ERROR_UNSUPPORTED_MEMTYPE)})
    owner = model.contexts.get(context)
    if owner is None or not owner.live:
        return False
    if not owner.pending:
        faults["not-open"] = frozenset()
        return False
    if owner.failed or descriptor.fd == "readonly":
        return True
    if descriptor.fd not in ("buffer", "dup"):
        faults["not-dma"] = _UNMAPPABLE
        return False
    buffer = model.buffers.get(descriptor.buffer)
    if buffer is None or not buffer.live:
        return True
    vague = any(earlier[1] == descriptor.buffer for earlier in before)
    vague = _fit_faults(owner, descriptor, buffer.size, faults) or vague
    return _use_faults(model, context, descriptor, faults) or vague


def _fit_faults(owner: Context, descriptor: Descriptor, true: int, faults: Faults) -> bool:
    size = true if descriptor.size is None else descriptor.size
    needed = owner.said.get(NEEDED[descriptor.htp_type])
    alignment = owner.said.get(HtpContextOption.BUFFER_START_ALIGNMENT)
    if needed is not None and descriptor.offset + needed > size:
        faults["external-small"] = _UNFIT
    # Where the mapping begins is not ours to know, but that it begins at a page.
    if alignment and descriptor.offset % min(alignment, PAGE):
        faults["external-misaligned"] = _UNFIT
    asked = needed is not None and bool(alignment)
    return not asked or (alignment or 0) > PAGE or size > true


def _use_faults(model: Model, context: str, descriptor: Descriptor, faults: Faults) -> bool:
    for found in model.live().values():
        here = found.context == context
        same = found.descriptor.buffer == descriptor.buffer
        if found.role == descriptor.htp_type and here:
            faults["second-external"] = _TAKEN
        elif same and found.role != descriptor.htp_type:
            faults["other-use"] = _TAKEN
        elif same and descriptor.htp_type == WEIGHTS:
            faults["weights-shared"] = _TAKEN
    unsure = model.unsure.values()
    return any(found.descriptor.buffer == descriptor.buffer or found.context == context for found in unsure)


def taken_faults(model: Model, descriptor: Descriptor, faults: Faults) -> bool:
    """Enter that memory for IO tensors is some context's external memory; True if that is not known."""
    for found in model.live().values():
        if found.role and found.descriptor.buffer == descriptor.buffer:
            faults["other-use"] = _TAKEN
    return any(found.role and found.descriptor.buffer == descriptor.buffer for found in model.unsure.values())


def register_notes(model: Model, step: Register) -> set[str]:
    """What is special about the external memory in a call."""
    roles = {role_of(descriptor) for descriptor in step.descriptors} - {0}
    notes = {"weights" if role == WEIGHTS else "spill" for role in roles}
    if SPILL in roles:
        buffers = {descriptor.buffer for descriptor in step.descriptors if role_of(descriptor) == SPILL}
        for found in model.live().values():
            elsewhere = found.role == SPILL and found.context != step.context
            if elsewhere and found.descriptor.buffer in buffers:
                notes.add("spill-shared")
    return notes
