"""PRE: what IO tensors may come with when they are created."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_pre_01(judge: Judge) -> None:
    """A tensor of memory type MEMHANDLE has a NULL memHandle at creation."""
    judge("PRE-01")


def test_pre_02(judge: Judge) -> None:
    """A tensor of memory type RAW has NULL data at creation."""
    judge("PRE-02")


def test_pre_03(judge: Judge) -> None:
    """A STATIC tensor has its data at creation; the client's memory is free for other use afterwards."""
    judge("PRE-03")


def test_pre_04(judge: Judge) -> None:
    """MEMHANDLE with a NULL handle at creation is the hint: it is taken and has its effect."""
    judge("PRE-04")


def test_pre_05(judge: Judge) -> None:
    """A NATIVE tensor may carry memory type MEMHANDLE."""
    judge("PRE-05")


def test_pre_06(judge: Judge) -> None:
    """An IO tensor of a memory type that is none is refused when it is created."""
    judge("PRE-06")


def test_pre_07(judge: Judge) -> None:
    """A creation writes nothing but the id, and ids are unique within the context."""
    judge("PRE-07")


def test_pre_08(judge: Judge) -> None:
    """The same holds for tensors of version 1 and of version 2."""
    judge("PRE-08")


def test_pre_09(judge: Judge) -> None:
    """The memory type of a tensor is that of its creation, whatever the node's structs say."""
    judge("PRE-09")
