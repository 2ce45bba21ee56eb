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
    if values.dtype.kind in "iub" and result.values.dtype.kind in "iub":
        right = values == result.values
        if isinstance(result.error, int) and result.error:
            right = np.abs(values.astype(np.int64) - result.values.astype(np.int64)) <= result.error
    else:
        with np.errstate(all="ignore"):
            seen, expected = values.astype(np.float64), result.values.astype(np.float64)
            right = (np.abs(seen - expected) <= result.error) | (seen == expected)
            right |= np.isnan(seen) & np.isnan(expected)
    if np.all(right):
        return ""
    place = np.unravel_index(int(np.argmin(right)), values.shape) if values.shape else ()
    within = np.broadcast_to(result.error, values.shape)[place]
    at = f" at {[int(each) for each in place]}" if place else ""
    bound = f" (within {float(within):.3g})" if within else ""
    return f"{values[place].item():.9g}{at}, not {result.values[place].item():.9g}{bound}"
