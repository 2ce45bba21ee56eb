"""What can be wrong with one memory descriptor, and the codes that its refusal may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_qnn.abi.qnn_codes import Error, HtpMemType, MemType, Property
from pytest_qnn.cases.memory import Descriptor
from pytest_qnn.oracle.memory_codes import TYPE_KEYS
from pytest_qnn.oracle.memory_external import external_faults, taken_faults
from pytest_qnn.oracle.memory_state import (
    Buffer,
    Identity,
    Registration,
    identity,
    pages,
    role_of,
    tensor_bytes,
)

if TYPE_CHECKING:
    from pytest_qnn.oracle.memory import Model

Faults = dict[str, frozenset[int]]
"""Fault -> codes (low 16 bits) that the catalogue gives for it."""

_ARGUMENT = int(Error.MEM_ERROR_INVALID_ARGUMENT)
_TWICE = int(Error.MEM_ERROR_ALREADY_REGISTERED)
_MAPPING = int(Error.MEM_ERROR_MAPPING)
_SHAPE = int(Error.MEM_ERROR_INVALID_SHAPE)
_TYPE = int(Error.MEM_ERROR_UNSUPPORTED_MEMTYPE)

HUGE = 1 << 32
"""Offsets from here on are the business of SHB-06."""


def descriptor_faults(
    model: Model, context: str, descriptor: Descriptor, before: Sequence[Identity]
) -> tuple[Faults, bool]:
    """What is wrong with ``descriptor``, and whether documents leave the answer open.

    ``before`` are the identities of the earlier descriptors of the same call. Faults and the rules that
    give their codes: ``type-unknown`` REG-09, ``type-unsupported`` CAP-04, ``htp-type`` SHB-02,
    ``null-dimensions`` REG-10, ``bad-shape`` REG-11, ``data-type`` REG-12, ``shape-config`` REG-27,
    ``null-custom`` SHB-01, ``null-data`` DMA-01, ``fd-minus-one`` REG-13, ``fd-unmappable`` REG-14,
    ``small-buffer`` REG-15, ``past-end`` SHB-04, ``size-too-large`` SHB-05, ``huge-offset`` SHB-06,
    ``size-mismatch`` SHB-03, ``duplicate`` REG-21, ``duplicate-in-batch`` REG-22; and those of
    `pytest_qnn.oracle.memory_external`.
    """
    faults: Faults = {}
    if role_of(descriptor):
        vague = external_faults(model, context, descriptor, before, faults)
        return faults, vague or not model.facts.supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT)
    vague = _type_faults(model, descriptor, faults)
    _form_faults(descriptor, faults)
    if descriptor.null == "custom" and descriptor.mem_type == MemType.CUSTOM:
        return faults, vague
    if descriptor.fd not in ("buffer", "dup"):
        return faults, _fd_faults(descriptor, faults) or vague
    buffer = model.buffers.get(descriptor.buffer)
    if buffer is None or not buffer.live:
        return faults, True
    # Whether another number for the same memory repeats a registration, no document says.
    vague = _size_faults(descriptor, buffer, faults) or vague or descriptor.fd == "dup"
    vague = vague or (descriptor.pointer == "foreign" and descriptor.mem_type == MemType.DMA_BUF)
    vague = taken_faults(model, descriptor, faults) or vague
    if "other-use" in faults:
        return faults, vague
    if "size-too-large" not in faults:
        vague = _repeat_faults(model, context, descriptor, before, faults) or vague
    return faults, vague


def _type_faults(model: Model, descriptor: Descriptor, faults: Faults) -> bool:
    key = TYPE_KEYS.get(descriptor.mem_type)
    if key is None:
        faults["type-unknown"] = frozenset({_TYPE, _ARGUMENT})
    elif model.facts.capabilities.get(key, 0) != 0:
        faults["type-unsupported"] = frozenset({_TYPE})
    elif descriptor.mem_type == MemType.CUSTOM and descriptor.htp_type != HtpMemType.SHARED_BUFFER:
        faults["htp-type"] = frozenset({_ARGUMENT, _TYPE})
    return False


def _form_faults(descriptor: Descriptor, faults: Faults) -> None:
    """What is wrong with the descriptor whatever memory it is about."""
    if not descriptor.shape or 0 in descriptor.shape:
        faults["bad-shape"] = frozenset({_SHAPE, _ARGUMENT})
    if descriptor.null == "dimensions" and descriptor.shape:
        faults["null-dimensions"] = frozenset({_ARGUMENT, _SHAPE})
    if descriptor.shape_config is not None:
        faults["shape-config"] = frozenset({_SHAPE, _ARGUMENT})
    if descriptor.data_type is not None:
        faults["data-type"] = frozenset({_ARGUMENT})
    if descriptor.null == "custom" and descriptor.mem_type == MemType.CUSTOM:
        faults["null-custom"] = frozenset({_ARGUMENT})
    if descriptor.pointer == "null" and descriptor.mem_type == MemType.DMA_BUF:
        faults["null-data"] = frozenset({_ARGUMENT, _MAPPING})


def _fd_faults(descriptor: Descriptor, faults: Faults) -> bool:
    if descriptor.fd == "minus-one":
        faults["fd-minus-one"] = frozenset({_MAPPING, _ARGUMENT})
    elif descriptor.fd in ("readonly", "file"):
        return True  # Whether it will be an output is not known yet; and a plain file can be mapped.
    else:
        faults["fd-unmappable"] = frozenset({_MAPPING})
    return False


def _size_faults(descriptor: Descriptor, buffer: Buffer, faults: Faults) -> bool:
    needed = tensor_bytes(descriptor.shape, descriptor.dtype)
    if descriptor.mem_type != MemType.CUSTOM:
        # A descriptor of these types has no size: the backend sees whole pages.
        if needed > pages(buffer.size):
            faults["small-buffer"] = frozenset({_ARGUMENT, _MAPPING, _SHAPE})
        return buffer.size < needed <= pages(buffer.size)
    size = buffer.size if descriptor.size is None else descriptor.size
    vague = False
    if size > pages(buffer.size):
        faults["size-too-large"] = frozenset({_MAPPING, _ARGUMENT})
    elif size > buffer.size:
        vague = True
    if descriptor.offset >= HUGE:
        faults["huge-offset"] = frozenset({_ARGUMENT})
    elif descriptor.offset + needed > size:
        if descriptor.offset == 0 and size == buffer.size:
            faults["small-buffer"] = frozenset({_ARGUMENT, _MAPPING, _SHAPE})
        else:
            faults["past-end"] = frozenset({_ARGUMENT})
    return vague


def _repeat_faults(
    model: Model, context: str, descriptor: Descriptor, before: Sequence[Identity], faults: Faults
) -> bool:
    this = identity(context, descriptor)
    if this in before:
        faults["duplicate-in-batch"] = frozenset({_TWICE})
        return False
    vague = any(_relation(this, earlier, descriptor) for earlier in before)
    for found in model.live().values():
        if found.context != context:
            continue
        if found.descriptor.buffer == descriptor.buffer:
            vague = _clash(model, found, this, descriptor, faults) or vague
        elif (other := model.buffers.get(found.descriptor.buffer)) is not None and not other.live:
            vague = True  # Freed while registered: its number may be this one, and devices go by the number.
    return vague or any(found.identity[:2] == this[:2] for found in model.unsure.values())


def _clash(model: Model, found: Registration, this: Identity, descriptor: Descriptor, faults: Faults) -> bool:
    if found.identity == this:
        faults["duplicate"] = frozenset({_TWICE})
        return False
    both_shared = found.descriptor.mem_type == descriptor.mem_type == MemType.CUSTOM
    if both_shared:
        size = model.buffers[descriptor.buffer].size
        mine, theirs = (size if d.size is None else d.size for d in (descriptor, found.descriptor))
        if mine != theirs:
            faults["size-mismatch"] = frozenset({_ARGUMENT})
            return False
    return _relation(this, found.identity, descriptor)


def _relation(this: Identity, other: Identity, descriptor: Descriptor) -> bool:
    """Both use one buffer in a way of which documents do not say whether it is a repetition.

    Other shapes on one start (ION-02, SHB-11), overlap (SHB-12) and two memory types on one fd (SHB-14).
    """
    if this[:2] != other[:2]:
        return False
    if this[2] != MemType.CUSTOM or other[2] != MemType.CUSTOM:
        return True
    needed = tensor_bytes(descriptor.shape, descriptor.dtype)
    return this[3] < other[3] + tensor_bytes(other[4], other[5]) and other[3] < this[3] + needed
