"""How a registration stands to what is registered already over the same buffer, in the same context.

A note is given where that relation is all that is special about the descriptor, so that a rule can say what
the answer may be. Documents settle none of them in a MUST (facts, section 7, point 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_qnn.abi.qnn_codes import MemType
from pytest_qnn.cases.memory import Descriptor, Register
from pytest_qnn.oracle.memory_state import Registration, identity, role_of, tensor_bytes

if TYPE_CHECKING:
    from pytest_qnn.oracle.memory import Model


def relations(model: Model, step: Register) -> set[str]:
    """Notes on a registration of one descriptor.

    ``same-fd`` (both ION, another tensor: ION-02), ``two-types`` (ION and shared buffer: SHB-14),
    ``same-offset`` (shared buffers, another tensor: SHB-11), ``overlap`` (shared buffers at other offsets:
    SHB-12), ``duplicate-fd`` (the same tensor through a dup of the fd: REG-25).
    """
    if len(step.descriptors) != 1 or step.count is not None:
        return set()
    (mine,) = step.descriptors
    this = identity(step.context, mine)
    if role_of(mine) or any(found.identity[:2] == this[:2] for found in model.unsure.values()):
        return set()
    beside = [
        found
        for found in model.live(step.context).values()
        if found.descriptor.buffer == mine.buffer and not role_of(found.descriptor)
    ]
    found = {_relation(mine, other) for other in beside}
    return {f"relation:{name}" for name in found if name}


def _relation(mine: Descriptor, other: Registration) -> str:
    theirs = other.descriptor
    same = identity(other.context, mine) == other.identity
    if mine.fd == "dup" or same:
        return "duplicate-fd" if same and mine.fd == "dup" and theirs.fd == "buffer" else ""
    kinds = {mine.mem_type, theirs.mem_type}
    if kinds == {MemType.ION, MemType.CUSTOM}:
        return "two-types"
    if kinds == {MemType.ION}:
        return "same-fd"
    if kinds != {MemType.CUSTOM} or mine.size != theirs.size:
        return ""
    if mine.offset == theirs.offset:
        return "same-offset"
    apart = (
        mine.offset + tensor_bytes(mine.shape, mine.dtype) <= theirs.offset
        or theirs.offset + other.bytes <= mine.offset
    )
    return "" if apart else "overlap"
