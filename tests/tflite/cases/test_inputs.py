from __future__ import annotations

import numpy as np
import pytest

from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.tflite.cases.delegate import DelegateCase, Fill
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.graph.constants import EXTREME
from pytest_qnn.tflite.graph.graph import DType, Graph, Node, Tensor


def case(dtype: DType, shape: tuple[int, ...] = (3, 5), seed: int = 0, fill: Fill = "mixed") -> DelegateCase:
    quantisation = {"scales": (0.5,), "zero_points": (0,)} if dtype == "int8" else {}
    tensor = Tensor(shape, dtype, **quantisation)  # type: ignore[arg-type] # the two fields that int8 needs
    graph = Graph((tensor, tensor, tensor), (Node("ADD", (0, 1), (2,)),), (0, 1), (2,))
    return DelegateCase(graph, data_seed=seed, fill=fill)


@pytest.mark.parametrize("fill", ["ramp", "mixed", "extreme"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_inputs_have_the_tensors_shapes_and_dtypes(dtype: DType, fill: Fill) -> None:
    for seed in (0, 1, 2**31):
        for array in inputs_of(case(dtype, seed=seed, fill=fill)):
            assert array.shape == (3, 5)
            assert array.dtype == dtype
            assert np.isfinite(array.astype(float)).all()


def test_inputs_are_a_function_of_the_case_and_differ_between_inputs_and_seeds() -> None:
    one, two = inputs_of(case("float32", seed=7))
    again, _ = inputs_of(case("float32", seed=7))
    other, _ = inputs_of(case("float32", seed=8))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_seed_0_is_a_ramp_that_a_reader_can_follow() -> None:
    assert inputs_of(case("float32", (4,)))[0].tolist() == [1.0, -2.0, 3.0, -4.0]
    assert inputs_of(case("int8", (4,)))[0].tolist() == [8, -16, 24, -32]


def test_mixed_float_values_need_more_bits_than_half_precision_has() -> None:
    values = inputs_of(case("float32", (256,), seed=3))[0]
    assert (values.astype(np.float16) != values).mean() > 0.5
    assert np.abs(values).max() <= 8


def test_extreme_int8_takes_both_ends_and_nothing_else() -> None:
    assert set(inputs_of(case("int8", (64,), fill="extreme"))[0].tolist()) == {-128, 127}


def test_extreme_floats_are_large_small_and_within_the_limit() -> None:
    values = np.abs(inputs_of(case("float32", (256,), fill="extreme"))[0])
    assert EXTREME / 2 < values.max() <= EXTREME
    assert values.min() < 1e-2


def test_inputs_cannot_be_changed_by_a_caller() -> None:
    with pytest.raises(ValueError, match="read-only"):
        inputs_of(case("float32"))[0][0] = 1


@pytest.mark.parametrize("dtype", ["UFIXED_POINT_8", "FLOAT_32"])
@pytest.mark.parametrize("seed", [0, 5])
def test_contents_have_any_length_and_begin_alike(dtype: str, seed: int) -> None:
    whole = contents(dtype, seed, 64)
    for length in (0, 1, 3, 4, 13, 64):
        assert contents(dtype, seed, length) == whole[:length]


def test_contents_depend_on_the_seed() -> None:
    assert len({contents("UFIXED_POINT_8", seed, 16) for seed in range(20)}) == 20


def test_float_contents_add_and_multiply_exactly() -> None:
    one, two = (np.frombuffer(contents("FLOAT_32", seed, 4096), np.float32) for seed in (1, 2))
    assert np.array_equal(one + two, one.astype(np.float64) + two)
    assert np.array_equal(one * two, one.astype(np.float64) * two)
    assert len(np.unique(one)) > 100


def test_contents_of_an_unknown_dtype_are_refused() -> None:
    with pytest.raises(ValueError, match="INT_32"):
        contents("INT_32", 0, 4)
