"""The steps of a case of QNN memory, each as a sentence in plain words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_qnn.qnn.abi.codes import Property
from pytest_qnn.qnn.cases import case as steps
from pytest_qnn.qnn.cases.case import FLIPPED_BYTES, Binding, Descriptor, MemoryCase
from pytest_qnn.report.explain.telling import Phrase, Told, plain, sentence, shape

_UNKNOWN = re.compile(rf"(?:handle )?\b{steps.BOGUS}\b")
"""The name of a value that was never handed out."""
_MAPPED = re.compile(rf"(?:handle )?\b{steps.MAPPED}\b")
"""The same of a value that is the address of memory."""
_MEM_TYPES = {1: "ION", 2: "CUSTOM", 3: "DMA_BUF"}
_TENSOR_TYPES = {0: "RAW", 1: "MEMHANDLE"}
_HTP_TYPES = {0: "QURT", 1: "SHARED_BUFFER", 2: "WEIGHTS_BUFFER", 3: "SHARED_SPILLFILL_BUFFER"}
_FDS = {
    "minus-one": "with -1 for its file descriptor",
    "closed": "with a file descriptor that is closed",
    "pipe": "with the file descriptor of a pipe",
    "socket": "with the file descriptor of a socket",
    "directory": "with the file descriptor of a directory",
    "file": "with the file descriptor of an ordinary file",
    "readonly": "with a file descriptor that allows reading only",
    "dup": "with a duplicate of its file descriptor",
}
_PROPERTIES = {1: "the start alignment", 2: "the size of spill-fill memory", 3: "the size of the weights"}
_DAMAGE = {
    "empty": "of no bytes",
    "truncated": "without its second half",
    "trailing": "with one byte too many",
    "garbage": "whose bytes are all others",
    "zeros": "whose first half is zeros",
    "flipped": "with one bit changed in the middle",
    "flipped-end": "with one bit changed in the last byte",
}
_DAMAGE |= {way: f"with one byte changed in its part {n} of 16" for n, way in enumerate(FLIPPED_BYTES, 1)}
_SECTIONS = {
    "handle": "in memory given by a handle",
    "short": "in memory given by a handle that is one byte too short",
    "null": "with NULL for the memory handle",
    "unknown": "with a memory handle that was never given out",
    "dead": "with a memory handle that was deregistered",
}


def _of(names: Mapping[Any, str]) -> Any:
    return lambda value: names.get(value, f"the unknown value {value}")


def _mem_type(value: int) -> str:
    return f"{_MEM_TYPES.get(value, f'an unknown type ({value})')} memory"


def _tensor_types(value: Sequence[int]) -> str:
    return ", ".join(_TENSOR_TYPES.get(one, f"the unknown memory type {one}") for one in value)


def _deferred(value: bool) -> str:
    return f"the option DEFER_GRAPH_INIT is given and {'true' if value else 'false'}"


def _descriptor(one: Descriptor) -> str:
    """``b0 as [8] of UFIXED_POINT_8, ION memory``, and what is special in it."""
    words = [f"{one.buffer} as {shape(one.shape)} of {one.dtype}, {_mem_type(one.mem_type)}"]
    if one.mem_type == 2:
        words.append(_HTP_TYPES.get(one.htp_type, f"HTP type {one.htp_type}"))
        words.append(f"offset {one.offset}")
    if one.size is not None:
        words.append(f"stated size {one.size}")
    if one.data_type is not None:
        words.append(f"data type {one.data_type:#x}")
    if one.shape_config is not None:
        words.append(f"shapeConfig {one.shape_config!r}")
    words += [_FDS[one.fd]] if one.fd != "buffer" else []
    words += [f"NULL for its {one.null}"] if one.null else []
    words += ["other bytes behind the fd"] if one.junk else []
    words += [f"a {one.pointer} client pointer"] if one.pointer != "own" else []
    return ", ".join(words)


def _descriptors(value: Sequence[Descriptor]) -> str:
    return "; ".join(map(_descriptor, value)) or "no descriptor"


def _binding(one: Binding) -> str:
    words = [f"handle {one.handle}" if one.kind == "handle" else "raw memory"]
    words += [f"{one.short} bytes too short"] if one.short else []
    words += [f"dataSize {one.data_size}"] if one.data_size is not None else []
    words += [f"memory type {one.mem_type}"] if one.mem_type is not None else []
    words += [f"with the tensor id of {one.of}"] if one.of else []
    return " ".join(words)


def _bindings(value: Sequence[Binding]) -> str:
    return ", ".join(map(_binding, value)) or "no tensor"


def _key(value: int) -> str:
    known = {int(one): f"QNN_PROPERTY_{one.name}" for one in Property}
    return f"{value} ({known[value]})" if value in known else str(value)


def _pointer(value: str) -> str:
    return f"with {'NULL' if value == 'null' else f'an {value} pointer'}"


_BESIDE = "custom HTP context options {} are switched on"
_CREATED: dict[str, Phrase] = {"defer": _deferred, "beside": _BESIDE}
_MEMORY: dict[str, Phrase] = {"memory": _of(_SECTIONS), "mem_type": _mem_type}
_OWN = "from memory of the client's own and not from rpcmem"
_LIVED: dict[str, Phrase] = {
    "rounds": "{} times",
    "context": "in {}",
    "kept": "the last {} stay",
    "mem_type": lambda value: _mem_type(value) if value else "nothing is registered",
    "op": "graphs of {}",
    "dtype": "of {}",
}
_PREPARED: dict[str, Phrase] = {
    "mem_types": lambda value: f"memory types of its IO tensors: {_tensor_types(value)}",
    "preset": lambda value: f"tensors created with memory or a handle already there: {_positions(value)}",
    "weights": "its second input is STATIC, contents of seed {}",
    "relay": "its result is NATIVE, and a Reshape of it is the output",
    "relay_mem_type": lambda value: f"that NATIVE tensor is {_tensor_types((value,))}",
    "narrow": "the weights are broadcast along dimension -{}",
    "terms": "{} inputs behind a Reshape each are combined from the last to the first",
    "weights_as": "the client's bytes of the weights are {}",
    "version": lambda value: f"tensor structs of version {'1 and 2 in turns' if value == 3 else value}",
    "node_mem_types": lambda value: f"memory types in the structs of the node: {_tensor_types(value)}",
    "finalise": lambda _: "it is not finalised",
    "watch": "",
    "mistakes": lambda value: f"beside the right calls, refused ones with a mistake: {plain(value)}",
    "shape": "",
    "op": "",
    "dtype": "",
}


def _positions(value: Sequence[bool]) -> str:
    return ", ".join(str(position) for position, one in enumerate(value) if one)


TOLD: Mapping[type, Told] = {
    steps.Providers: Told(
        "QnnInterface_getProviders lists the interfaces of the library",
        {"null_list": lambda _: "NULL is given for the list", "null_count": lambda _: "NULL for the count"},
    ),
    steps.Interface: Told("Every byte of the first interface in the list of providers is looked at"),
    steps.Version: Told(
        "The version ({call}) of the backend is asked for, before there is one",
        {"null": lambda _: "NULL is given for the result"},
    ),
    steps.Capability: Told(
        "QnnProperty_hasCapability is asked for key {key}",
        {"early": lambda _: "before any backend is created"},
        {"key": _key},
    ),
    steps.Message: Told(
        "QnnError_getMessage is asked for the text of code {error}",
        {"null": lambda _: "NULL is given for the result"},
    ),
    steps.Misuse: Told("{call} is called with {handle} for its handle, all else as good as it can be"),
    steps.BadArgument: Told(
        "{call} is called with {argument} that leads nowhere, all else as good as it can be",
        {
            "context": "in context {}",
            "graph": "of graph {}",
            "op": "composing {}",
            "dtype": "with elements {}",
        },
    ),
    steps.Environment: Told(
        "QnnGraph_prepareExecutionEnvironment of {graph} is called, and its release if it succeeds",
        {"option": "environment option {}"},
    ),
    steps.FreeParent: Told("The session's {what} is freed, whatever stands on it"),
    steps.Restart: Told("The subsystem behind the backend restarts"),
    steps.Churn: Told(
        "The same is done {rounds} times with {buffer}: {what}", _LIVED | {"tensors": "{} tensors"}
    ),
    steps.CheckHeap: Told("From here on what the backend requests of the system is checked"),
    steps.WholeSession: Told(
        "A session is opened, {op} with weights of shape {shape} is executed in it, and it is closed",
        {"dtype": "with elements {}", "first": "it is the first of its process"},
    ),
    steps.FailedAllocation: Told(
        "Ordinary calls, of which the system refuses a request of the backend's during: {calls}",
        {
            "what": "it is for: {}",
            "nth": "it is number {} (counted from 1, and around)",
            "lasting": lambda _: "every one after it is refused too",
            "rounds": "the same {} times",
            "op": "graphs of {}",
            "dtype": "of {}",
            "use": "what is done with graphs: {}",
            "mem_type": _LIVED["mem_type"],
        },
    ),
    steps.Parallel: Told(
        "{threads} threads at once, each {rounds} times: {what}",
        {
            "mem_type": _LIVED["mem_type"],
            "op": "graphs of {}",
            "dtype": "of {}",
            "level": "log level {}",
            "lowered": "lowered to {} halfway",
            "calls": lambda calls: "; ".join(
                f"thread {number}: {', '.join(own)}" for number, own in enumerate(calls)
            ),
            "ops": lambda ops: f"thread by thread graphs of {', '.join(ops)}",
            "own": lambda _: "each has a backend of its own",
            "shared": lambda _: "the first tensor of all is in one memory",
        },
    ),
    steps.Lived: Told("Ordinary use before the case: {what}", _LIVED),
    steps.Logged: Told(
        "The session is opened with a log at level {level}",
        {
            "log": "its kind is {}",
            "profile": lambda _: "each execute gets a profile",
            "beside": lambda _: "beside another backend, whose log has a callback",
        },
    ),
    steps.UpdateWeights: Told(
        "The updatable weights of {graph} get the contents of seed {weights}, and it is finalised again"
    ),
    steps.GetSection: Told(
        "The binary section {section} of {graph} in {context} is fetched",
        _MEMORY | {"size_of": "into memory of the size that the section of {} has"},
    ),
    steps.ApplySection: Told("The binary section {section} is applied to {graph} in {context}", _MEMORY),
    steps.ContextWithCallback: Told(
        "QnnContext_createFromBinaryWithCallback makes {context} from {binary}, piece by piece",
        {
            "memory": "the pieces are {} memory",
            "fails": "request number {} is answered with 1002 and no memory",
            "start": "each piece begins {} bytes into its memory",
            "defer": _deferred,
        },
    ),
    steps.Pieces: Told("The client counts which pieces for {context} it has been given back"),
    steps.ContextCreate: Told("QnnContext_create makes the context {context}", _CREATED),
    steps.GetBinary: Told(
        "The size of the binary of {context} is asked for, and the binary {binary} is written",
        {
            "missing": "the buffer is {} bytes too small",
            "null": "NULL is given for the argument: {}",
            "keep": "",
        },
    ),
    steps.ContextFromBinary: Told(
        "QnnContext_createFromBinary makes the context {context} from {binary}",
        _CREATED
        | {
            "switching": lambda _: "graph switching is asked for",
            "damage": lambda value: f"the binary is one {_DAMAGE[value]}",
            "by": "by the call for: {}",
            "ahead": "behind {} of the same binary in the list",
        },
    ),
    steps.ReleaseBinary: Told(
        "The client overwrites the binary and the configuration that {context} was created from"
    ),
    steps.ContextFinalize: Told(
        "QnnContext_finalize of {context} is called",
        {"descriptors": "only {} more files can be opened during the call"},
    ),
    steps.ContextProperty: Told(
        "QnnContext_getProperty of {context} is asked for {options}",
        {"null_list": lambda _: "NULL is given for the list"},
        {"options": lambda value: " and ".join(_PROPERTIES.get(one, f"option {one}") for one in value)},
    ),
    steps.Retrieve: Told(
        "QnnGraph_retrieve finds in {context} the graph prepared as {source}; it is {graph}"
    ),
    steps.Inspect: Told("The System interface is asked what is in {binary}"),
    steps.NewProcess: Told(
        "The process ends, and all that follows happens in a new one",
        {"killed": lambda _: "it is killed, with all that it has alive"},
    ),
    steps.Carry: Told("The client has the binary {binary} from an earlier process"),
    steps.ContextFree: Told("QnnContext_free of {context}"),
    steps.Alloc: Told(
        "rpcmem_alloc gives the buffer {buffer} of {size} bytes",
        {
            "wide": lambda _: "by rpcmem_alloc2",
            "own": lambda _: _OWN,
            "heap": "heap {}",
            "flags": "flags {}",
        },
    ),
    steps.AllocNeeded: Told(
        "The buffer {buffer} is allocated as large as {context} says of {option}",
        {"extra": "and {} bytes more", "own": lambda _: _OWN},
        {"option": _of(_PROPERTIES)},
    ),
    steps.Free: Told("rpcmem_free of {buffer} is called", {"pointer": _pointer}),
    steps.ToFd: Told("rpcmem_to_fd of {buffer} is asked for the file descriptor", {"pointer": _pointer}),
    steps.Write: Told(
        "The client writes {size} bytes into {buffer}",
        {"offset": "at offset {}", "seed": "contents of seed {}", "dtype": "as {}"},
    ),
    steps.Fill: Told(
        "The client fills {buffer} with the byte {byte}", values={"byte": lambda value: f"{value:#04x}"}
    ),
    steps.Read: Told(
        "The client reads {buffer}", {"via": lambda _: "through a second mapping of its file descriptor"}
    ),
    steps.Register: Told(
        "QnnMem_register in {context} of {descriptors}; the handles are called {handles}",
        {
            "null_descriptors": lambda _: "NULL is given for the descriptors",
            "null_handles": lambda _: "NULL is given for the handles",
            "count": "the stated count is {}",
            "scribble": lambda _: "the client overwrites the descriptors afterwards",
            "keep": "",
        },
        {"descriptors": _descriptors, "handles": lambda value: plain(value) or "nothing"},
    ),
    steps.Deregister: Told(
        "QnnMem_deRegister of {handles}",
        {"null_handles": lambda _: "NULL is given for the handles", "count": "the stated count is {}"},
        {"handles": lambda value: plain(value) or "no handle"},
    ),
    steps.Prepare: Told(
        "The graph {graph} of one {op} of {dtype} {shape} is composed and finalised in {context}",
        _PREPARED,
        {"shape": shape},
    ),
    steps.Miscompose: Told(
        "A graph is composed in {context} with a mistake: {mistake}", {"op": "of {}", "dtype": "of {}"}
    ),
    steps.Execute: Told(
        "QnnGraph_execute of {graph} with, for its tensors in order: {bindings}",
        {
            "inputs": "the array of inputs has the positions {}",
            "outputs": "the array of outputs has the positions {}",
            "asynchronous": "by QnnGraph_executeAsync, as the last of {} calls",
            "watch": "",
            "measured": lambda _: "the memory that the call touches besides is counted",
            "freed": lambda _: "the graph's context is freed while the calls wait",
        },
        {"bindings": _bindings},
    ),
    steps.Executes: Told(
        "{rounds} times QnnGraph_execute of {graph}, with for its tensors: {bindings}",
        {"refused": lambda _: "each is to be refused"},
        {"bindings": _bindings},
    ),
    steps.Observe: Told(
        "The suite counts file descriptors and mappings of the process",
        {
            "region": "and writable mappings of about {} bytes",
            "patient": "",
            "buffers": "and the mappings of {}",
        },
    ),
}
"""By type of step. A test holds that every type and every field of it is told."""


def lines(case: MemoryCase) -> list[str]:
    """A sentence for each step, in order."""
    told = [sentence(step, TOLD[type(step)]) for step in case.steps]
    told += ["The process ends in good order, with all that is live"] if case.ends else []
    told = [_UNKNOWN.sub("an unknown handle", text) for text in told]
    return [_MAPPED.sub("the address of memory of the client's for a handle", text) for text in told]
