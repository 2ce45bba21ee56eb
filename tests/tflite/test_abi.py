from __future__ import annotations

import ctypes

import numpy as np
import pytest

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.observe.guard_pages import Guarded

_SIZES = {
    layouts.Context: 200,
    layouts.Tensor: 112,
    layouts.Node: 80,
    layouts.Registration: 88,
    layouts.Delegate: 56,
    layouts.DelegateParams: 32,
    layouts.ConvParams: 28,
    layouts.FullyConnectedParams: 16,
    layouts.ConcatenationParams: 8,
    layouts.ReducerParams: 1,
    layouts.ArithmeticParams: 4,
}
_OFFSETS = {
    layouts.Context: {
        "tensors_size": 0,
        "GetExecutionPlan": 8,
        "tensors": 16,
        "impl_": 24,
        "ReportError": 40,
        "GetNodeAndRegistration": 56,
        "ReplaceNodeSubsetsWithDelegateKernels": 64,
        "recommended_num_threads": 72,
        "allow_fp32_relax_to_fp16": 96,
        "profiler": 104,
        "PreviewDelegatePartitioning": 152,
        "GetModelMetadata": 176,
        "ReleaseSubgraphContext": 192,
    },
    layouts.Tensor: {
        "type": 0,
        "data": 8,
        "dims": 16,
        "scale": 24,
        "zero_point": 28,
        "allocation_type": 32,
        "bytes": 40,
        "name": 56,
        "delegate": 64,
        "buffer_handle": 72,
        "data_is_stale": 76,
        "is_variable": 77,
        "quantization_type": 80,
        "quantization_params": 88,
        "dims_signature": 104,
    },
    layouts.Node: {
        "inputs": 0,
        "outputs": 8,
        "temporaries": 24,
        "user_data": 32,
        "builtin_data": 40,
        "custom_initial_data_size": 56,
        "delegate": 64,
        "might_have_side_effect": 72,
    },
    layouts.Registration: {
        "init": 0,
        "free": 8,
        "prepare": 16,
        "invoke": 24,
        "builtin_code": 40,
        "custom_name": 48,
        "version": 56,
        "registration_external": 64,
        "async_kernel": 72,
        "inplace_operator": 80,
    },
    layouts.Delegate: {
        "data_": 0,
        "Prepare": 8,
        "CopyFromBufferHandle": 16,
        "FreeBufferHandle": 32,
        "flags": 40,
        "opaque_delegate_builder": 48,
    },
}


@pytest.mark.parametrize("structure", _SIZES, ids=lambda structure: structure.__name__)
def test_each_structure_has_the_size_of_its_header(structure: type[ctypes.Structure]) -> None:
    assert ctypes.sizeof(structure) == _SIZES[structure]


@pytest.mark.parametrize("structure", _OFFSETS, ids=lambda structure: structure.__name__)
def test_each_member_lies_where_its_header_puts_it(structure: type[ctypes.Structure]) -> None:
    wanted = _OFFSETS[structure]
    assert {name: getattr(structure, name).offset for name in wanted} == wanted


def test_node_and_registration_make_up_the_stride_of_the_node_vector() -> None:
    assert ctypes.sizeof(layouts.Node) + ctypes.sizeof(layouts.Registration) == layouts.NODE_STRIDE


def test_an_int_array_is_read_back_as_it_was_written() -> None:
    array = peek.int_array((3, -1, 7))
    assert peek.integers(ctypes.addressof(array)) == (3, -1, 7)


def test_a_null_int_array_reads_as_empty() -> None:
    assert peek.integers(0) == ()


def test_a_view_shares_memory_with_what_it_views() -> None:
    array = np.arange(6, dtype=np.float32)
    view = peek.array(array.ctypes.data, "float32", (2, 3))
    view[1, 2] = 9
    assert array[5] == 9


def test_a_view_of_no_elements_reads_no_memory() -> None:
    assert peek.array(0, "float32", (0, 3)).shape == (0, 3)


def test_a_pointer_is_stored_where_it_is_read() -> None:
    slot = ctypes.c_void_p()
    peek.set_pointer(ctypes.addressof(slot), 0x1234)
    assert slot.value == 0x1234
    assert peek.pointer(ctypes.addressof(slot)) == 0x1234


def test_a_pointer_is_replaced_in_a_page_that_is_only_read() -> None:
    pages = Guarded(64)
    try:
        pages.readonly = True
        pages.arm()
        peek.replace_pointer(pages.address, 7)
        assert peek.pointer(pages.address) == 7
    finally:
        pages.close()
