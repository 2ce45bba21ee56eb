"""RPC: The rpcmem provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_rpc_02(judge: Judge) -> None:
    """rpcmem_alloc gives writable memory of at least the size asked for, or NULL."""
    judge("RPC-02")


def test_rpc_03(judge: Judge) -> None:
    """The pointer that rpcmem_alloc gives is at the start of a page."""
    judge("RPC-03")


def test_rpc_04(judge: Judge) -> None:
    """rpcmem_alloc of a size of 0 or below gives NULL."""
    judge("RPC-04")


def test_rpc_05(judge: Judge) -> None:
    """rpcmem_alloc2 takes sizes that no int holds, and cuts none of them short."""
    judge("RPC-05")


def test_rpc_06(judge: Judge) -> None:
    """rpcmem_to_fd of a live allocation is a descriptor, always the same, and opens no new one."""
    judge("RPC-06")


def test_rpc_07(judge: Judge) -> None:
    """rpcmem_to_fd of a pointer that is NULL, unknown, freed or inside an allocation is -1."""
    judge("RPC-07")


def test_rpc_08(judge: Judge) -> None:
    """rpcmem_free ignores a pointer that is NULL, unknown, freed already or inside an allocation."""
    judge("RPC-08")


def test_rpc_09(judge: Judge) -> None:
    """Live allocations are disjoint and have distinct descriptors."""
    judge("RPC-09")


def test_rpc_10(judge: Judge) -> None:
    """The descriptor refers to the same memory: another mapping of it sees what the client wrote."""
    judge("RPC-10")


def test_rpc_11(judge: Judge) -> None:
    """rpcmem_free unmaps and closes: descriptors and mappings return to where they were."""
    judge("RPC-11")


def test_rpc_13(judge: Judge) -> None:
    """rpcmem_alloc, rpcmem_to_fd and rpcmem_free may be called from several threads."""
    judge("RPC-13")
