"""Windows that slide over the inner axes of (batch, spatial..., channels), for convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_qnn.qnn.reference.operators.values import Values


def padded(values: Values, amounts: Sequence[int], filling: float) -> Values:
    """The tensor, padded by (before, after) of each spatial axis, flat in ``amounts``; ValueError below 0."""
    pairs = np.reshape(amounts, (values.ndim - 2, 2)).tolist()
    return np.pad(values, [(0, 0), *pairs, (0, 0)], constant_values=filling)


def sliding(values: Values, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Values:
    """Every window, as a view of shape (batch, positions..., channels, size...).

    Raises:
        ValueError: there are not as many numbers as spatial axes, one is not positive, or no window fits.
    """
    spatial = values.ndim - 2
    if not len(size) == len(stride) == len(dilation) == spatial or min(*size, *stride, *dilation) < 1:
        raise ValueError("sizes, strides and dilations are positive, one for each spatial axis")
    spans = [(count - 1) * step + 1 for count, step in zip(size, dilation, strict=True)]
    axes: Any = tuple(range(1, spatial + 1))
    windows = np.lib.stride_tricks.sliding_window_view(values, spans, axes)
    positions = [slice(None, None, step) for step in stride]
    inside = [slice(None, None, step) for step in dilation]
    result: Values = windows[(slice(None), *positions, slice(None), *inside)]
    return result
