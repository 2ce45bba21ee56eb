"""The steps of a script on interpreters, and of calls of a plugin, each as a sentence in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_qnn.report.explain import graphs
from pytest_qnn.report.explain.telling import Told, plain, sentence, shape
from pytest_qnn.tflite.cases import edits, plugin, script
from pytest_qnn.tflite.cases.plugin import PluginCase
from pytest_qnn.tflite.cases.script import ScriptCase

_GUARDS = {
    "after": "",
    "before": "it begins at a page that must not be touched",
    "flush": "it ends at a page that must not be touched, whatever the alignment",
    "none": "no page beside it is guarded",
}


def _options(value: Sequence[tuple[Any, Any]]) -> str:
    return "with options " + ", ".join(f"{plain(key)}={plain(text)}" for key, text in value)


def _wrong(value: str) -> str:
    return "kTfLiteNullBufferHandle is passed" if value == "none" else "a number that is no handle is passed"


TOLD: Mapping[type, Told] = {
    script.MakeDelegate: Told(
        "The delegate {delegate} is made",
        {
            "who": lambda _: "it is one of the suite's own",
            "position": "number {} of its chain",
            "claim": lambda value: f"it claims {'nodes ' + plain(value) if value else 'no node'}",
            "fault": "the callback that fails: {}",
            "flags": "its flags are {}",
            "options": _options,
            "without": "without the options {}",
            "interface": lambda _: "by TfLiteQnnDelegateCreate",
        },
    ),
    script.DestroyDelegate: Told("The delegate {delegate} is destroyed"),
    script.Open: Told(
        "The interpreter {interpreter} of graph {graph} is made",
        {
            "resolver": "with the {} kernels",
            "threads": "with {} threads",
            "preserve": lambda _: "with experimental_preserve_all_tensors",
        },
    ),
    script.Apply: Told(
        "{delegate} is applied to {interpreter} by ModifyGraphWithDelegate",
        {"spied": lambda _: "nothing of the suite stands between them"},
    ),
    script.Place: Told(
        "The tensor t{tensor} of {interpreter} gets memory of the client's (SetCustomAllocationForTensor)",
        {
            "buffer": "the buffer {}",
            "guard": lambda value: _GUARDS[value],
            "extra": "{} bytes more than it needs",
            "misalign": "{} bytes from a multiple of 64",
            "readonly": lambda _: "writes to it are noticed",
            "skip_alignment_check": lambda _: "the check of its alignment is switched off",
            "seed": "contents of seed {}",
            "tail": "{} bytes behind it may be read",
        },
    ),
    script.Unallocate: Told(
        "Tensors inside partitions of {interpreter} point to memory that must not be touched"
    ),
    script.FreeBuffer: Told("The buffer {buffer} is given back"),
    script.Resize: Told(
        "Input {input} of {interpreter} is resized to {shape}",
        {"strict": lambda _: "strictly"},
        {"shape": shape},
    ),
    script.Allocate: Told("{interpreter} is allocated"),
    script.SetInputs: Told(
        "The inputs of {interpreter} are set", {"seed": "contents of seed {}", "fill": "of the kind {}"}
    ),
    script.Poison: Told(
        "The outputs of {interpreter} are filled with the byte {byte}",
        values={"byte": lambda value: f"{value:#04x}"},
    ),
    script.Invoke: Told("{interpreter} is invoked"),
    script.Read: Told("The outputs of {interpreter} are read", {"tensors": "the tensors {}"}),
    script.Sample: Told(
        "The inputs of {interpreter} are set, it is invoked, and elements of its output are looked at",
        {"seed": "contents of seed {}"},
    ),
    script.RemoveAll: Told("All delegates are removed from {interpreter}"),
    script.HandleOutput: Told(
        "{interpreter} may leave its outputs in buffer handles", {"allow": lambda _: "no longer"}
    ),
    script.CopyFrom: Told(
        "CopyFromBufferHandle is called for output {output} of {interpreter}", {"wrong": _wrong}
    ),
    script.CopyTo: Told(
        "CopyToBufferHandle is called for output {output} of {interpreter}, and it is copied back"
    ),
    script.Profile: Told("A profiler is attached to {interpreter}"),
    script.Cancel: Told(
        "{interpreter} gets a function that is asked whether to cancel",
        {"at": "it says yes when asked for time {}"},
    ),
    script.PassToConstructor: Told(
        "{delegate} is given to the constructor of an interpreter of graph {graph}, and kept nowhere else"
    ),
    script.Unload: Told("The library of the delegate is unloaded", {"position": "of number {} of the chain"}),
    script.Close: Told("{interpreter} is destroyed"),
    script.Measure: Told("The suite counts memory, descriptors, threads and mappings", {"where_kept": ""}),
    script.Refuse: Told(
        "The system refuses the delegate a request during the next step",
        {
            "what": "it is for: {}",
            "nth": lambda value: (
                f"it is number {value}, counted from 1, and around" if value else "none: they are counted"
            ),
            "lasting": lambda _: "every one after it is refused too",
        },
    ),
    script.AllocCustom: Told(
        "TfLiteQnnDelegateAllocCustomMem gives the buffer {buffer} of {bytes} bytes",
        {"alignment": "alignment {}", "position": "of number {} of the chain", "seed": "contents of seed {}"},
    ),
    script.InspectCustom: Told("The buffer {buffer} is looked at again"),
    script.FreeCustom: Told(
        "TfLiteQnnDelegateFreeCustomMem is called",
        {
            "buffer": "of {}",
            "what": lambda value: f"of {'NULL' if value == 'null' else 'an address that was never given'}",
            "position": "of number {} of the chain",
        },
    ),
    script.AssignCustom: Told("The tensor t{tensor} of {interpreter} is placed in {buffer}"),
    script.ReadCustom: Told("The tensor t{tensor} of {interpreter} is read through the client's own pointer"),
    script.ReadLog: Told("What {delegate} has written to its log is read"),
    plugin.Create: Told(
        "tflite_plugin_create_delegate makes {name}",
        {
            "options": _options,
            "null_arrays": lambda _: "with NULL for keys and values",
            "report": lambda _: "with NULL for report_error",
            "descriptors": "only {} more files can be opened during the call",
            "guarded": lambda _: "each array and each text ends where a page begins that nobody may touch",
            "name": "",
        },
    ),
    plugin.OverwriteArguments: Told("The caller overwrites what create was given for {name}"),
    plugin.Apply: Told(
        "{name} is applied to an interpreter, which is allocated, invoked, read and destroyed"
    ),
    plugin.Destroy: Told(
        "tflite_plugin_destroy_delegate of {name}", values={"name": lambda value: value or "NULL"}
    ),
    plugin.Cycle: Told("A delegate is created and destroyed, four times {times}", {"options": _options}),
    plugin.Copy: Told(
        "A copy of the library is loaded from another file, and makes {name}", {"options": _options}
    ),
}
"""By type of step. A test holds that every type and every field of it is told."""
UNTOLD = {script.Measure: ("like", "waits", "where_kept"), plugin.Create: ("name",)}
"""Fields that are of no concern to a reader."""


def _steps(given: Iterable[Any]) -> list[str]:
    found: list[str] = []
    for step in given:
        if isinstance(step, script.Repeat):
            found.append(f"{step.times} times: " + "; ".join(_steps(step.steps)))
        elif isinstance(step, script.Parallel):
            branches = ["; ".join(_steps(branch)) for branch in step.branches]
            found.append("At once, on a thread each: " + " | ".join(branches))
        else:
            found.append(sentence(step, TOLD[type(step)]))
    return found


EDITS: Mapping[type, Told] = {
    edits.StatedShape: Told(
        "The file of graph 0 states the shape {shape} of t{tensor}", values={"shape": shape}
    ),
    edits.StatedOperands: Told(
        "The file of graph 0 states the operands {inputs} of node {node}",
        values={"inputs": lambda value: ", ".join(f"t{one}" if one >= 0 else "absent" for one in value)},
    ),
    edits.CustomOperator: Told("In the file of graph 0, node {node} is the custom operator {name}"),
    edits.StatedEdges: Told(
        "The file of graph 0 has the control edges {edges}",
        values={"edges": lambda value: ", ".join(f"{first} before {then}" for first, then in value)},
    ),
    edits.NoNodes: Told(
        "The file of graph 0 has {where}",
        values={"where": lambda value: "no node" if value == "main" else "a further graph, without nodes"},
    ),
    edits.Copies: Told("The file of graph 0 holds its nodes {times} times, one behind the other"),
}
"""By type of edit."""


def _edits(given: Iterable[Any]) -> list[str]:
    return [sentence(edit, EDITS[type(edit)]) for edit in given]


def lines(case: ScriptCase | PluginCase) -> list[str]:
    """A sentence for each edit and each step, in order; the graphs are in `graphs.graph`."""
    edited = _edits(case.edits) if isinstance(case, ScriptCase) else []
    told = [*graphs.history(case.history), *edited, *_steps(case.steps)]
    if isinstance(case, ScriptCase) and case.ends:
        told.append("The process ends in good order, with all that is live")
    return told
