"""Whether a result is what is expected."""

from __future__ import annotations

import numpy as np

from pytest_qnn.tflite.domain.node import Result, Values


def is_right(result: Result, values: Values) -> bool:
    """Type, shape and every element are as expected; NaN where NaN is expected."""
    return not wrong(result, values)


def wrong(result: Result, values: Values) -> str:
    """What is wrong with the values, in words; empty: nothing is."""
    if values.dtype.name != result.dtype:
        return f"type {values.dtype.name}, not {result.dtype}"
    if values.shape != result.values.shape:
        return f"shape {list(values.shape)}, not {list(result.values.shape)}"
    if np.all(_right(result, values)):
        return ""
    place, within = first_wrong(result, values)
    at = f" at {list(place)}" if place else ""
    bound = f" (within {within:.3g})" if within else ""
    return f"{values[place].item():.9g}{at}, not {result.values[place].item():.9g}{bound}"


def first_wrong(result: Result, values: Values) -> tuple[tuple[int, ...], float]:
    """Where the first wrong element is, of values of the right type and shape; how far it may be off."""
    right = _right(result, values)
    place = np.unravel_index(int(np.argmin(right)), values.shape) if values.shape else ()
    within = np.broadcast_to(result.error, values.shape)[place]
    return tuple(int(each) for each in place), float(within)


def _right(result: Result, values: Values) -> Values:
    """Of each element whether it is right."""
    if values.dtype.kind in "iub" and result.values.dtype.kind in "iub":
        right = values == result.values
        if isinstance(result.error, int) and result.error:
            right = np.abs(values.astype(np.int64) - result.values.astype(np.int64)) <= result.error
    else:
        with np.errstate(all="ignore"):
            seen, expected = values.astype(np.float64), result.values.astype(np.float64)
            right = (np.abs(seen - expected) <= result.error) | (seen == expected)
            right |= np.isnan(seen) & np.isnan(expected)
    return np.asarray(right)
