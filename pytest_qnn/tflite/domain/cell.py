"""Cell: the coordinates of one model of one node."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

DType = Literal["float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"]
Size = Literal["", "ones", "zero", "odd"]
Activation = Literal["NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"]
Quantisation = Literal["", "shifted", "channel"]

DTYPES: tuple[DType, ...] = get_args(DType)
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
"""In the order of the schema's ActivationFunctionType."""
QUANTISED = ("int8", "uint8", "int16")
MOST_RANK = 8


class Cell(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One model of one node."""

    op: Annotated[str, Meta(max_length=40)]
    dtype: DType
    rank: Annotated[int, Meta(ge=0, le=MOST_RANK)]
    """Of its first operand."""
    size: Size = ""
    """``ones``: every dimension is 1; ``zero``: the first is 0; ``odd``: the last is 17; else small ones."""
    activation: Activation = "NONE"
    quantisation: Quantisation = ""
    """``shifted``: zero points that are not in the middle; ``channel``: weights with a scale per channel.
    Else int8 and int16 have zero points of 0, and uint8 of 128."""
    form: Annotated[str, Meta(max_length=40)] = ""
    """What else is special: ``constant``, ``broadcast first``, an option of the operator."""

    def __str__(self) -> str:
        """As a reader would say it: ``ADD float32 rank 2 RELU``."""
        words = [
            self.op,
            self.dtype,
            f"rank {self.rank}",
            {"": "", "zero": "size 0"}.get(self.size, self.size),
        ]
        words += [self.activation if self.activation != "NONE" else ""]
        words += ["per channel" if self.quantisation == "channel" else self.quantisation, self.form]
        return " ".join(filter(None, words))
