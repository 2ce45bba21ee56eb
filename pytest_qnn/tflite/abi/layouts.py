"""TensorFlow Lite's C structures as laid out on Linux x86-64, for tflite-runtime 2.14 and ai-edge-litert 2.3.

Source: tensorflow/lite/core/c/common.h and builtin_op_data.h. The two runtimes agree byte for byte. The
private offsets at the end have no header: they hold only where the canary has confirmed them
(`pytest_qnn.tflite.runtime.runtime`).
"""

from __future__ import annotations

import ctypes as c
from typing import Final

OK: Final = 0
ERROR: Final = 1
DELEGATE_ERROR: Final = 2

KERNEL_INIT_FAILED: Final = (1 << 64) - 1
"""TfLiteKernelInitFailed, ``(void*)-1``: runtimes older than July 2025 take it for ordinary user data."""

NO_BUFFER_HANDLE: Final = -1
OPTIONAL_TENSOR: Final = -1
BUILTIN_DELEGATE: Final = 51
"""kTfLiteBuiltinDelegate: the builtin_code of a node that is a delegate's kernel."""

FLAG_ALLOW_DYNAMIC_TENSORS: Final = 1
FLAG_REQUIRE_PROPAGATED_SHAPES: Final = 2
FLAG_PER_OPERATOR_PROFILING: Final = 4
FLAG_HINT_FULLY_DELEGATED: Final = 8

TYPE_FLOAT32: Final = 1
TYPE_INT32: Final = 2
TYPE_INT8: Final = 9

ALLOCATION_MMAP_RO: Final = 1
"""kTfLiteMmapRo: the tensor is a constant of the model."""
ALLOCATION_DYNAMIC: Final = 4

QUANTIZATION_AFFINE: Final = 1

pointer = c.c_void_p

KernelInit = c.CFUNCTYPE(pointer, pointer, pointer, c.c_size_t)
"""(context, TfLiteDelegateParams*, 0) -> user data."""
KernelFree = c.CFUNCTYPE(None, pointer, pointer)
"""(context, user data)."""
KernelCall = c.CFUNCTYPE(c.c_int, pointer, pointer)
"""prepare and invoke: (context, TfLiteNode*) -> status."""


class Registration(c.Structure):
    """TfLiteRegistration; passed by value to Replace."""

    _fields_ = [
        ("init", pointer),
        ("free", pointer),
        ("prepare", pointer),
        ("invoke", pointer),
        ("profiling_string", pointer),
        ("builtin_code", c.c_int32),
        ("custom_name", pointer),
        ("version", c.c_int),
        ("registration_external", pointer),
        ("async_kernel", pointer),
        ("inplace_operator", c.c_uint64),
    ]


DelegatePrepare = c.CFUNCTYPE(c.c_int, pointer, pointer)
"""(context, delegate) -> status."""
CopyBufferHandle = c.CFUNCTYPE(c.c_int, pointer, pointer, c.c_int, pointer)
FreeBufferHandle = c.CFUNCTYPE(None, pointer, pointer, pointer)
GetExecutionPlan = c.CFUNCTYPE(c.c_int, pointer, pointer)
"""(context, TfLiteIntArray**) -> status."""
GetNodeAndRegistration = c.CFUNCTYPE(c.c_int, pointer, c.c_int, pointer, pointer)
"""(context, node index, TfLiteNode**, TfLiteRegistration**) -> status."""
ReplaceNodeSubsets = c.CFUNCTYPE(c.c_int, pointer, Registration, pointer, pointer)
"""(context, registration, TfLiteIntArray*, delegate) -> status."""
PreviewPartitioning = c.CFUNCTYPE(c.c_int, pointer, pointer, pointer, pointer)
"""(context, TfLiteIntArray*, TfLiteDelegateParams**, int*) -> status."""
AddTensors = c.CFUNCTYPE(c.c_int, pointer, c.c_int, pointer)
"""(context, count, int* first) -> status."""
ReportError = c.CFUNCTYPE(None, pointer, c.c_char_p, c.c_char_p)
"""(context, format, text). Variadic in C; on x86-64 Linux a call with one text argument is the same."""
ReportHook = c.CFUNCTYPE(None, pointer, c.c_char_p, pointer)
"""The same as it arrives: (context, format, first argument), whatever that is."""
AnyOfContext = c.CFUNCTYPE(c.c_int, pointer)
"""Any function (context, ...) -> status that looks at nothing but the context."""
AcquireSubgraph = c.CFUNCTYPE(c.c_int, pointer, c.c_int, pointer)
"""(context, index, TfLiteContext**) -> status."""
ReleaseSubgraph = c.CFUNCTYPE(c.c_int, pointer, c.c_int)
"""(context, index) -> status."""
PluginCreate = c.CFUNCTYPE(pointer, pointer, pointer, c.c_size_t, pointer)
"""(keys, values, count, report_error) -> TfLiteDelegate*; external_delegate_interface.h."""
PluginDestroy = c.CFUNCTYPE(None, pointer)
"""(TfLiteDelegate*)."""
PluginReport = c.CFUNCTYPE(None, c.c_char_p)
"""report_error: (text)."""
OpaquePrepare = c.CFUNCTYPE(c.c_int, pointer, pointer, pointer)
"""(context, delegate, data) -> status."""


class Context(c.Structure):
    """TfLiteContext. Function pointers are kept as addresses: they are swapped while a delegate prepares."""

    _fields_ = [
        ("tensors_size", c.c_size_t),
        ("GetExecutionPlan", pointer),
        ("tensors", pointer),
        ("impl_", pointer),
        ("ResizeTensor", pointer),
        ("ReportError", pointer),
        ("AddTensors", pointer),
        ("GetNodeAndRegistration", pointer),
        ("ReplaceNodeSubsetsWithDelegateKernels", pointer),
        ("recommended_num_threads", c.c_int),
        ("GetExternalContext", pointer),
        ("SetExternalContext", pointer),
        ("allow_fp32_relax_to_fp16", c.c_bool),
        ("profiler", pointer),
        ("AllocatePersistentBuffer", pointer),
        ("AllocateBufferForEval", pointer),
        ("RequestScratchBufferInArena", pointer),
        ("GetScratchBuffer", pointer),
        ("ResizeTensorExplicit", pointer),
        ("PreviewDelegatePartitioning", pointer),
        ("GetTensor", pointer),
        ("GetEvalTensor", pointer),
        ("GetModelMetadata", pointer),
        ("AcquireSubgraphContext", pointer),
        ("ReleaseSubgraphContext", pointer),
    ]


class Tensor(c.Structure):
    """TfLiteTensor."""

    _fields_ = [
        ("type", c.c_int),
        ("data", pointer),
        ("dims", pointer),
        ("scale", c.c_float),
        ("zero_point", c.c_int32),
        ("allocation_type", c.c_int),
        ("bytes", c.c_size_t),
        ("allocation", pointer),
        ("name", pointer),
        ("delegate", pointer),
        ("buffer_handle", c.c_int),
        ("data_is_stale", c.c_bool),
        ("is_variable", c.c_bool),
        ("quantization_type", c.c_int),
        ("quantization_params", pointer),
        ("sparsity", pointer),
        ("dims_signature", pointer),
    ]


class Node(c.Structure):
    """TfLiteNode."""

    _fields_ = [
        ("inputs", pointer),
        ("outputs", pointer),
        ("intermediates", pointer),
        ("temporaries", pointer),
        ("user_data", pointer),
        ("builtin_data", pointer),
        ("custom_initial_data", pointer),
        ("custom_initial_data_size", c.c_int),
        ("delegate", pointer),
        ("might_have_side_effect", c.c_bool),
    ]


class Delegate(c.Structure):
    """TfLiteDelegate."""

    _fields_ = [
        ("data_", pointer),
        ("Prepare", pointer),
        ("CopyFromBufferHandle", pointer),
        ("CopyToBufferHandle", pointer),
        ("FreeBufferHandle", pointer),
        ("flags", c.c_int64),
        ("opaque_delegate_builder", pointer),
    ]


class OpaqueDelegateBuilder(c.Structure):
    """TfLiteOpaqueDelegateBuilder."""

    _fields_ = [
        ("data", pointer),
        ("Prepare", pointer),
        ("CopyFromBufferHandle", pointer),
        ("CopyToBufferHandle", pointer),
        ("FreeBufferHandle", pointer),
        ("flags", c.c_int64),
    ]


class DelegateParams(c.Structure):
    """TfLiteDelegateParams: what a kernel's init is given."""

    _fields_ = [
        ("delegate", pointer),
        ("nodes_to_replace", pointer),
        ("input_tensors", pointer),
        ("output_tensors", pointer),
    ]


class AffineQuantization(c.Structure):
    """TfLiteAffineQuantization."""

    _fields_ = [("scale", pointer), ("zero_point", pointer), ("quantized_dimension", c.c_int32)]


class ConvParams(c.Structure):
    """TfLiteConvParams."""

    _fields_ = [
        ("padding", c.c_int),
        ("stride_width", c.c_int),
        ("stride_height", c.c_int),
        ("activation", c.c_int),
        ("dilation_width_factor", c.c_int),
        ("dilation_height_factor", c.c_int),
        ("quantized_bias_type", c.c_int),
    ]


class FullyConnectedParams(c.Structure):
    """TfLiteFullyConnectedParams."""

    _fields_ = [
        ("activation", c.c_int),
        ("weights_format", c.c_int),
        ("keep_num_dims", c.c_bool),
        ("asymmetric_quantize_inputs", c.c_bool),
        ("quantized_bias_type", c.c_int),
    ]


class ConcatenationParams(c.Structure):
    """TfLiteConcatenationParams."""

    _fields_ = [("axis", c.c_int), ("activation", c.c_int)]


class ReducerParams(c.Structure):
    """TfLiteReducerParams."""

    _fields_ = [("keep_dims", c.c_bool)]


class ArithmeticParams(c.Structure):
    """TfLiteAddParams, TfLiteSubParams and TfLiteMulParams, as far as they agree."""

    _fields_ = [("activation", c.c_int)]


PADDING_SAME: Final = 1
PADDING_VALID: Final = 2

# Private: C++ members without a header. Equal in tflite-runtime 2.14 and ai-edge-litert 2.3.
INTERPRETER_CONTEXT: Final = 0x00
INTERPRETER_HANDLE_OUTPUT: Final = 0x30
"""allow_buffer_handle_output_, a bool."""
SUBGRAPH_STATE: Final = 0x20
SUBGRAPH_NODES: Final = 0x108
"""std::vector of pairs (TfLiteNode, TfLiteRegistration)."""
NODE_STRIDE: Final = 168
SUBGRAPH_PLAN: Final = 0x188
SUBGRAPH_PLAN_BEFORE_DELEGATION: Final = 0x1A0
SUBGRAPH_DELEGATES: Final = 0x1B8
