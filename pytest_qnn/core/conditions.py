"""The conditions, besides property keys, that a rule's gate can name: what a target must offer, or be.

``no X`` in a gate wants that X does not hold.
"""

from __future__ import annotations

CONDITIONS = {
    "HTP": "the backend is the HTP's (id 6)",
    "absent environment": "property key 317 or 318 is not supported",
    "absent memory type": "property key 1102, 1103 or 1104 is not supported",
    "one IO buffer for all": "one mapping holds all IO buffers of a graph",
    "separate IO buffers": "each IO buffer of a graph has a mapping of its own",
    "spill-fill": "a graph needs spill-fill memory: context property 2 is not 0",
    "own process": "cases run in processes of their own, at least those in which the process ends",
    "XNNPACK nodes": "nodes that XNNPACK takes are left to the runtime",
    "backend type": "the delegate has TfLiteQnnDelegateCreate, or was given the option backend_type",
    "buffers": "results are kept in buffer handles",
    "custom memory": "the delegate has TfLiteQnnDelegateAllocCustomMem",
    "declared float16": "float32 graphs are declared to be computed in float16",
    "dynamic tensors": "the first delegate allows dynamic tensors",
    "empty tensors": "nodes of tensors without elements are claimed",
    "float32": "float32 operators are claimed, whose results can be empty, NaN or infinite",
    "float32 sums": "float32 sums of products are claimed",
    "fused activations": "nodes with a fused activation are claimed",
    "int8": "int8 arithmetic is claimed",
    "max_delegated_partitions": "the delegate has this option",
    "min_nodes_per_partition": "the delegate has this option",
    "node lookups": "the delegate looks up nodes in the init of a kernel",
    "nodes in subgraphs": "nodes of subgraphs that others call are claimed",
    "opaque": "the delegate is an opaque one (opaque_delegate_builder)",
    "optional inputs": "nodes whose optional input is absent are claimed",
    "own interface": "the delegate has TfLiteQnnDelegateCreate and custom memory",
    "plugin interface": "the delegate is made by tflite_plugin_create_delegate",
    "previews": "the delegate calls PreviewDelegatePartitioning",
    "propagated shapes": "the delegate requires propagated shapes",
    "refusals": "what the one delegate requests is seen: a library in its own process, or the reference",
    "registration": "the delegate's QNN backend registers shared memory",
    "subgraphs": "the first delegate acquires contexts of other subgraphs",
}
"""Name -> what is true where the condition holds."""


def parted(condition: str) -> tuple[str, bool]:
    """A gate's condition as the property key or name, and whether it is to hold."""
    name = condition.removeprefix("no ")
    return name, name == condition


def closed(gate: tuple[str, ...], holding: frozenset[str]) -> tuple[str, ...]:
    """The conditions of the gate that are not met where ``holding`` (keys and names) hold."""
    parts = ((condition, *parted(condition)) for condition in gate)
    return tuple(condition for condition, name, wanted in parts if (name in holding) is not wanted)
