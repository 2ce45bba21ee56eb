"""PART: claims and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_part_01(judge: Judge) -> None:
    """Every claimed or previewed node index is in the current execution plan."""
    judge("PART-01")


def test_part_02(judge: Judge) -> None:
    """A delegate never claims a node whose builtin code is DELEGATE (51) or that another delegate owns."""
    judge("PART-02")


def test_part_03(judge: Judge) -> None:
    """What a delegate claims of single nodes, whatever their parameters, it computes."""
    judge("PART-03")


def test_part_04(judge: Judge) -> None:
    """An unsupported node is left to the CPU instead of failing."""
    judge("PART-04")


def test_part_05(judge: Judge) -> None:
    """Every node of the original plan is carried out by exactly one entry of the plan."""
    judge("PART-05")


def test_part_06(judge: Judge) -> None:
    """Each entry of the plan reads only what earlier entries write, graph inputs and constants."""
    judge("PART-06")


def test_part_07(judge: Judge) -> None:
    """input_tensors are what the partition reads and does not produce."""
    judge("PART-07")


def test_part_08(judge: Judge) -> None:
    """output_tensors are what the partition writes for others or for the graph."""
    judge("PART-08")


def test_part_09(judge: Judge) -> None:
    """Partitions and plan are those of the runtime's documented algorithm."""
    judge("PART-09")


def test_part_10(judge: Judge) -> None:
    """A kernel computes from the nodes and tensors it is given."""
    judge("PART-10")


def test_part_11(judge: Judge) -> None:
    """A tensor that is read inside a partition and also outside it, or is a graph output, is written."""
    judge("PART-11")


def test_part_12(judge: Judge) -> None:
    """max_delegated_partitions bounds the number of kernels."""
    judge("PART-12")


def test_part_13(judge: Judge) -> None:
    """min_nodes_per_partition bounds the size of each kernel."""
    judge("PART-13")


def test_part_14(judge: Judge) -> None:
    """Of more partitions than max_delegated_partitions allows, the largest are delegated."""
    judge("PART-14")


def test_part_15(judge: Judge) -> None:
    """A delegate has no more kernels than the runtime makes of its claim as a whole: it does not split it."""
    judge("PART-15")


def test_part_16(judge: Judge) -> None:
    """On a graph without a supported node nothing is claimed and nothing fails."""
    judge("PART-16")


def test_part_17(judge: Judge) -> None:
    """The same graph is claimed alike each time, after a resize too."""
    judge("PART-17")


def test_part_19(judge: Judge) -> None:
    """Preview and Replace agree."""
    judge("PART-19")


def test_part_20(judge: Judge) -> None:
    """A preview is not used after Prepare."""
    judge("PART-20")


def test_part_21(judge: Judge) -> None:
    """An execution plan is not used once another was asked for."""
    judge("PART-21")


def test_part_18(judge: Judge) -> None:
    """Nodes with side effects, and those that the model's metadata put in order, keep their order."""
    judge("PART-18")
