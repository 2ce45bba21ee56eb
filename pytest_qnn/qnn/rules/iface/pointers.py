"""IF-14 and IF-15: a call with an argument that leads nowhere, and what the headers of API 2.32 say of it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from pytest_qnn.core.drawing import Decoder, decoder_of, listed, strings
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error, Property, low
from pytest_qnn.qnn.cases.arguments import (
    ARGUMENTS,
    COMPOSING,
    IN_CONTEXTS,
    NO_VALUE,
    NO_VERSION,
    OF_ENUMERATIONS,
    OF_SECTIONS,
    ON_GRAPHS,
    WITHOUT_SESSION,
    Argument,
    PointedCall,
)
from pytest_qnn.qnn.cases.case import BadArgument, GetBinary, MemoryCase
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.rules.iface.rules import pairs
from pytest_qnn.qnn.rules.judging import require_session
from pytest_qnn.qnn.strategies.binaries import updatable
from pytest_qnn.qnn.strategies.graphs import graph
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace

Cases = st.SearchStrategy[MemoryCase]
Pointer = tuple[PointedCall, Argument]
_DEVICE = Error.DEVICE_ERROR_INVALID_ARGUMENT
_BACKEND = Error.BACKEND_ERROR_INVALID_ARGUMENT
_CONTEXT = Error.CONTEXT_ERROR_INVALID_ARGUMENT
_GRAPH = Error.GRAPH_ERROR_INVALID_ARGUMENT
_PROFILE = Error.PROFILE_ERROR_INVALID_ARGUMENT
DOCUMENTED: dict[Pointer, Error] = {
    ("logCreate", "logger"): Error.LOG_ERROR_INVALID_ARGUMENT,
    ("errorGetMessage", "errorMessage"): Error.ERROR_INVALID_ARGUMENT,
    ("errorGetVerboseMessage", "errorMessage"): Error.ERROR_INVALID_ARGUMENT,
    ("backendRegisterOpPackage", "packagePath"): _BACKEND,
    ("backendRegisterOpPackage", "interfaceProvider"): _BACKEND,
    ("backendGetSupportedOperations", "numOperations"): _BACKEND,
    ("backendGetSupportedOperations", "operations"): _BACKEND,
    ("deviceCreate", "device"): _DEVICE,
    ("deviceGetInfo", "platformInfo"): _DEVICE,
    ("deviceGetPlatformInfo", "platformInfo"): _DEVICE,
    ("deviceFreePlatformInfo", "platformInfo"): _DEVICE,
    ("deviceGetInfrastructure", "deviceInfra"): _DEVICE,
    ("contextCreate", "context"): _CONTEXT,
    ("contextGetBinarySize", "binaryBufferSize"): _CONTEXT,
    ("contextGetBinary", "binaryBuffer"): _CONTEXT,
    ("contextGetBinary", "writtenBufferSize"): _CONTEXT,
    ("contextValidateBinary", "binaryBuffer"): _CONTEXT,
    ("contextCreateFromBinary", "binaryBuffer"): _CONTEXT,
    ("contextCreateFromBinary", "context"): _CONTEXT,
    ("contextCreateFromBinaryWithSignal", "binaryBuffer"): _CONTEXT,
    ("contextCreateFromBinaryWithSignal", "context"): _CONTEXT,
    ("contextCreateFromBinaryListAsync", "contextParams[0]"): _CONTEXT,
    ("contextCreateFromBinaryListAsync", "contextParams.binaryBuffer"): _CONTEXT,
    ("contextCreateFromBinaryListAsync", "contextParams.notifyFunc"): _CONTEXT,
    ("contextGetIncrementalBinary", "binaryBuffer"): _CONTEXT,
    ("contextGetIncrementalBinary", "startOffset"): _CONTEXT,
    ("contextGetIncrementalBinary", "writtenBufferSize"): _CONTEXT,
    ("contextGetBinarySectionSize", "binaryBufferSize"): _CONTEXT,
    ("contextGetBinarySection", "binaryBuffer"): _CONTEXT,
    ("contextGetBinarySection", "binaryBuffer.version"): _CONTEXT,
    ("contextGetBinarySection", "binaryBuffer.data"): _CONTEXT,
    ("contextGetBinarySection", "writtenBufferSize"): _CONTEXT,
    ("contextApplyBinarySection", "binaryBuffer"): _CONTEXT,
    ("graphCreate", "graphName"): Error.GRAPH_ERROR_INVALID_NAME,
    ("graphCreate", "graphHandle"): _GRAPH,
    ("graphCreateSubgraph", "graphName"): Error.GRAPH_ERROR_INVALID_NAME,
    ("graphCreateSubgraph", "subgraphHandle"): _GRAPH,
    ("graphGetProperty", "properties"): _GRAPH,
    ("graphRetrieve", "graphName"): Error.GRAPH_ERROR_INVALID_NAME,
    ("graphRetrieve", "graphHandle"): Error.GRAPH_ERROR_INVALID_NAME,
    ("graphExecute", "inputs"): _GRAPH,
    ("graphExecute", "outputs"): _GRAPH,
    ("graphExecuteAsync", "inputs"): _GRAPH,
    ("graphExecuteAsync", "outputs"): _GRAPH,
    ("graphPrepareExecutionEnvironment", "envs.option"): _GRAPH,
    ("graphPrepareExecutionEnvironment", "envs.tensorSet.version"): _GRAPH,
    ("graphPrepareExecutionEnvironment", "envs.tensorSet.inputs"): _GRAPH,
    ("graphPrepareExecutionEnvironment", "envs.tensorSet.outputs"): _GRAPH,
    ("graphReleaseExecutionEnvironment", "envs"): _GRAPH,
    ("graphReleaseExecutionEnvironment", "envs[0]"): _GRAPH,
    ("profileCreate", "profile"): _PROFILE,
    ("profileGetEvents", "profileEventIds"): _PROFILE,
    ("profileGetEvents", "numEvents"): _PROFILE,
    ("profileGetSubEvents", "subEventIds"): _PROFILE,
    ("profileGetSubEvents", "numSubEvents"): _PROFILE,
    ("profileGetEventData", "eventData"): _PROFILE,
    ("profileGetExtendedEventData", "eventData"): _PROFILE,
    ("signalCreate", "signal"): Error.SIGNAL_ERROR_INVALID_ARGUMENT,
    ("contextReleaseIncrementalBinary", "binaryBuffer"): _CONTEXT,
    ("globalConfigSet", "config"): Error.SUCCESS,
    ("backendSetConfig", "config"): Error.SUCCESS,
    ("deviceSetConfig", "config"): Error.SUCCESS,
    ("contextSetConfig", "config"): Error.SUCCESS,
    ("graphSetConfig", "config"): Error.SUCCESS,
    ("profileSetConfig", "config"): Error.SUCCESS,
    ("signalSetConfig", "config"): Error.SUCCESS,
}
"""The code that the header of the call lists for NULL in this place, or for an invalid argument; success,
where it says that NULL is allowed."""
_OR: dict[Pointer, Error] = {
    ("contextReleaseIncrementalBinary", "binaryBuffer"): Error.CONTEXT_ERROR_INCREMENT_INVALID_BUFFER,
}
"""A second code of the same list that says as much: no backend has allocated a piece that is NULL."""
_WITHOUT: frozenset[Pointer] = frozenset(
    {
        ("graphAddNode", "opConfig.name"),
        ("tensorCreateGraphTensor", "tensor.name"),
        ("tensorCreateContextTensor", "tensor.name"),
        ("contextCreateFromBinaryWithCallback", "callback.dataRelease"),
        ("contextCreateFromBinaryWithCallback", "binaryBuffer"),
        ("contextFreeBinarySectionUpdate", "binarySectionUpdate.data"),
        *(
            (call, argument)
            for call, arguments in ARGUMENTS.items()
            for argument in arguments
            if argument in ("config.customConfig", "properties.customProperty", "opConfig.params")
        ),
    }
)
"""Of those without a code: what a backend may do without, so that success is in order too. The operators
have no parameters; a binary that comes in pieces need not lie in memory, and who keeps them releases none; of
an update without memory there is nothing to free."""
SILENT: tuple[Pointer, ...] = tuple(
    (call, argument)
    for call, arguments in ARGUMENTS.items()
    for argument in arguments
    if (call, argument) not in DOCUMENTED
)
"""What the headers list no code for."""
_NOT_OFFERED = int(Error.COMMON_ERROR_NOT_SUPPORTED)
_NOT_OFFERED_OF_BACKENDS: dict[PointedCall, int] = {
    "backendRegisterOpPackage": int(Error.BACKEND_ERROR_NOT_SUPPORTED),
    "backendSetConfig": int(Error.BACKEND_ERROR_NOT_SUPPORTED),
}
"""QnnBackend.h has a code of its own for what a backend need not offer; of these calls, for these."""
_RECORDED = 4950
"""QNN_SAVER_ERROR_DUMMY_RETVALUE: the call was written down, and the answer means nothing (QnnSaver.h)."""
_OF_UPDATABLE = OF_SECTIONS | {"tensorUpdateGraphTensors"}
_GROUPS = 4
"""Cases in which all arguments are."""


def _pointers(facts: MemoryFacts, pointers: tuple[Pointer, ...]) -> Cases:
    """First a few cases with all arguments, then one for each alone, which no other call's death hides.

    What is drawn else, the past of the process among it, is the same in each run.
    """
    sections = facts.supports(Property.CONTEXT_SUPPORT_BINARY_UPDATES)
    offered = tuple(each for each in pointers if sections or each[0] not in OF_SECTIONS)
    if facts.session_failure is not None:
        offered = tuple(each for each in offered if each[0] in WITHOUT_SESSION)

    def decoder(chosen: Sequence[Pointer]) -> Decoder:
        core = functools.partial(_bad_arguments, chosen, sections=sections)
        made = decoder_of(scenes(facts, core, core_bytes=2, before=0, after=0))
        assert made is not None
        return made

    groups = filter(None, (offered[at::_GROUPS] for at in range(_GROUPS)))
    decoders = list(map(decoder, (*groups, *((each,) for each in offered))))
    drawn = strings(max((each.size for each in decoders), default=0), 0)
    return listed([each.decode(data) for each, data in zip(decoders, drawn, strict=False)])


def _bad_arguments(chosen: Sequence[Pointer], scene: Scene, tape: Tape, *, sections: bool) -> None:
    """One step for each argument.

    The graph is there for the calls that want a finalised one, and its binary for those that read one.
    """
    name = graph(scene, Tape(b""))
    context = scene.graphs[name].context if name else scene.context()
    if name and scene.facts.supports(Property.CONTEXT_SUPPORT_CACHING):
        scene.add(GetBinary(context, "f0"))
    operator = tape.pick(scene.operators) if scene.operators else ()
    quantised = next((each for each in scene.operators if "UFIXED_POINT_8" in each), operator)
    own = elsewhere = ""
    if sections and any(call in _OF_UPDATABLE for call, _ in chosen):
        elsewhere = scene.context()
        own = updatable(scene, Tape(b""), elsewhere)
        if own and any(call == "contextGetBinarySectionUpdate" for call, _ in chosen):
            scene.add(GetBinary(elsewhere, "f1"))
    for call, argument in chosen:
        step = BadArgument(call, argument)
        if call in OF_SECTIONS or (own and call in _OF_UPDATABLE):
            step = BadArgument(call, argument, elsewhere, own)
        elif call in ON_GRAPHS:
            step = BadArgument(call, argument, graph=name or "")
        elif call in COMPOSING:
            composed = quantised if argument == "tensor.axisScaleOffset" else operator
            step = BadArgument(call, argument, context, "", *composed)
        elif call in IN_CONTEXTS:
            step = BadArgument(call, argument, context)
        scene.add(step)


def documented(facts: MemoryFacts) -> Cases:
    """IF-14: arguments for which a header lists a code."""
    return _pointers(facts, tuple(DOCUMENTED))


def silent(facts: MemoryFacts) -> Cases:
    """IF-15: the others."""
    return _pointers(facts, SILENT)


def _answers(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[str, BadArgument, int]]:
    """Where, what, and the low 16 bits of the answer, of calls that the target offers."""
    for where, step, seen in pairs(case, trace):
        if isinstance(step, BadArgument) and seen.code is not None and low(seen.code) != _RECORDED:
            yield where, step, low(seen.code)


def _require_session(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Unsupported where no session opens and every call of the case needs one."""
    calls = {step.call for step in case.steps if isinstance(step, BadArgument)}
    if not calls & WITHOUT_SESSION:
        require_session(trace)


def _given(argument: Argument) -> str:
    """What such an argument is."""
    if argument in OF_ENUMERATIONS:
        return f"the value 0x{NO_VALUE:x}"
    return f"version {NO_VERSION}" if argument.endswith(".version") else "NULL"


@rule(
    "IF-14",
    Level.MUST,
    "A call with NULL where it writes a result or reads what it cannot do without, or with a struct of a "
    "version or a value that there is not, fails with the code that its header lists for that, without a "
    "crash; NULL for configurations, which its header allows, is taken.",
    source="header of each component, error codes of each function: ..._ERROR_INVALID_ARGUMENT, "
    "QNN_GRAPH_ERROR_INVALID_NAME; ..._setConfig, QnnGlobalConfig_Set: NULL is allowed",
    subject="memory",
    cases=documented,
)
def if_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """What answers "not supported" is not offered at all, and says nothing."""
    count = 0
    unsupported = ""
    for where, step, code in _answers(case, trace):
        wanted = DOCUMENTED.get((step.call, step.argument))
        if wanted is None:
            continue
        if code in (_NOT_OFFERED, _NOT_OFFERED_OF_BACKENDS.get(step.call)):
            unsupported = f"{step.call} answers {named(code)}"
            continue
        if code not in (wanted, _OR.get((step.call, step.argument))):
            seen = f"{step.call} with {_given(step.argument)} for {step.argument} answers {named(code)}"
            raise Violation(named(wanted), seen, where)
        count += 1
    if unsupported and not count:
        raise Unsupported(unsupported)
    if not count:
        _require_session(case, trace)
    return Examined(count, "arguments that are NULL or none")


@rule(
    "IF-15",
    Level.SHOULD,
    "A call with NULL, or with a version or a value that there is not, where its header is silent about "
    "that or about the code, returns without a crash, and with an error unless it can do without the "
    "argument.",
    source="QnnBackend.h, QnnContext.h, QnnDevice.h, QnnGraph.h, QnnTensor.h, QnnTypes.h: Qnn_OpConfig_t, "
    "Qnn_Tensor_t, Qnn_AxisScaleOffset_t; options of configurations: ..._ERROR_INVALID_CONFIG, "
    "an option that is not valid is an error of QnnGraph_create, and ..._setConfig fails unless all "
    "configurations are supported",
    subject="memory",
    cases=silent,
)
def if_15(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Any error will do: nothing says which."""
    count = 0
    for where, step, code in _answers(case, trace):
        pointer = (step.call, step.argument)
        if pointer in DOCUMENTED:
            continue
        if code == 0 and pointer not in _WITHOUT:
            raise Violation(
                "an error", f"{step.call} with a bad {step.argument} answers {named(code)}", where
            )
        count += 1
    if not count:
        _require_session(case, trace)
    return Examined(count, "arguments that lead nowhere")
