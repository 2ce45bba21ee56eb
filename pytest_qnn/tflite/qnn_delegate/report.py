"""What a QNN delegate says of itself at the level INFO, as users know it from the vendor's (seed 000)."""

from __future__ import annotations


class Report:
    """The lines; a mutant has one of them replaced."""

    def delegated(self, nodes: int, total: int, partitions: int) -> str:
        """A Prepare has claimed ``nodes`` of the ``total`` nodes of a plan, which became ``partitions``."""
        return (
            f"TfLiteQnnDelegate delegate: {nodes} nodes delegated out of {total} nodes with {partitions} "
            "partitions."
        )

    def registered(self, tensor: int) -> str:
        """A tensor's memory is registered with the backend."""
        return f"Tensor {tensor} is successfully registered to shared memory."
