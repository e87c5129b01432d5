"""Validate RGB images and resize them to squares for recordings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tdvae.errors import InputError

Bytes = npt.NDArray[np.uint8]


def check_image(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    """Raise an error unless the image is (height, width, 3) uint8; the message names the likely cause."""
    if np.dtype(dtype) == np.uint8 and len(shape) == 3 and shape[2] == 3 and min(shape) > 0:
        return
    hint = ""
    if len(shape) == 3 and shape[0] == 3:
        hint = "; the channels seem to be first, but must be last"
    elif len(shape) == 2 or (len(shape) == 3 and shape[2] == 1):
        hint = "; the image seems to be grey, but must have three colour channels"
    elif len(shape) == 3 and shape[2] == 4:
        hint = "; the image seems to have a fourth channel (depth or transparency), which must be removed"
    raise InputError(
        f"{name}: expected RGB of shape (height, width, 3) and dtype uint8, got {shape} of {np.dtype(dtype)}{hint}"
    )


def to_square(image: Bytes, size: int) -> Bytes:
    """Resize the whole image to (size, size, 3); each pixel is the mean of the area it covers.

    A wide image is squeezed and not cropped, because what an agent sees at the sides is part of its observation.
    """
    check_image("frame", image.shape, image.dtype)
    if image.shape[:2] == (size, size):
        return image
    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BOX))
