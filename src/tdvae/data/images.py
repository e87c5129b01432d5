"""Frames on their way into a recording: RGB bytes of any size become squares of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tdvae.errors import InputError

Bytes = npt.NDArray[np.uint8]


def check_image(name: str, shape: tuple[int, ...], kind: Any) -> None:
    """Refuse what is not (height, width, 3) bytes, and say what it looks like instead."""
    if np.dtype(kind) == np.uint8 and len(shape) == 3 and shape[2] == 3 and min(shape) > 0:
        return
    hint = ""
    if len(shape) == 3 and shape[0] == 3:
        hint = "; it seems to have its channels first: they belong last"
    elif len(shape) == 2 or (len(shape) == 3 and shape[2] == 1):
        hint = "; it seems to be grey: colours are needed"
    elif len(shape) == 3 and shape[2] == 4:
        hint = "; it seems to have a fourth channel (depth or transparency): leave that out"
    raise InputError(f"{name}: got shape {shape} of {np.dtype(kind)}, expected (height, width, 3) of uint8, RGB{hint}")


def to_square(image: Bytes, size: int) -> Bytes:
    """The whole image as (size, size, 3), each pixel the mean of the area it covers.

    Nothing is cut off at the sides: what an agent saw there is part of what it knows. So a wide image is squeezed.
    """
    check_image("frame", image.shape, image.dtype)
    if image.shape[:2] == (size, size):
        return image
    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BOX))
