"""PART: claims and partitions. A delegate is judged; self-checks judge the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_part_01(judge: Judge) -> None:
    """@@Every node index that Prepare passes to ReplaceNodeSubsetsWithDelegateKernels is in the current execution plan."""
    judge("PART-01")


def test_part_02(judge: Judge) -> None:
    """A delegate never claims a node whose builtin code is DELEGATE (51) or that another delegate owns."""
    judge("PART-02")


def test_part_04(judge: Judge) -> None:
    """@@A node that the delegate does not support is left to the CPU; it does not fail in Prepare, in kernel prepare or in invoke."""
    judge("PART-04")


def test_part_05(judge: Judge) -> None:
    """@@Every node of the original plan is carried out by exactly one entry of the plan: the CPU's node or one kernel that replaces it."""
    judge("PART-05")


def test_part_06(judge: Judge) -> None:
    """Each entry of the plan reads only what earlier entries write, graph inputs and constants."""
    judge("PART-06")


def test_part_07(judge: Judge) -> None:
    """@@A kernel's input_tensors are the tensors that its nodes read and do not produce: sorted, unique, constants included, absent optional ones not."""
    judge("PART-07")


def test_part_08(judge: Judge) -> None:
    """@@A kernel's output_tensors are the tensors its nodes write that are read outside it or are graph outputs: sorted and unique."""
    judge("PART-08")


def test_part_09(judge: Judge) -> None:
    """@@Partitions and plan are those of the runtime's documented algorithm (greedy, in the order of the plan)."""
    judge("PART-09")


def test_part_10(judge: Judge) -> None:
    """@@A kernel computes from nodes_to_replace, input_tensors and output_tensors as given, not from an assumed order or number of them."""
    judge("PART-10")


def test_part_11(judge: Judge) -> None:
    """A tensor that is read inside a partition and also outside it, or is a graph output, is written."""
    judge("PART-11")


def test_part_15(judge: Judge) -> None:
    """A delegate has no more kernels than the runtime makes of its claim as a whole: it does not split it."""
    judge("PART-15")


def test_part_16(judge: Judge) -> None:
    """@@On a graph without a node that it supports, Prepare succeeds and claims nothing; the plan stays as it was and the results are the CPU's."""
    judge("PART-16")
