"""Views of pictures: frames seen, states of the belief decoded, and their futures as strips."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from tdvae.explorer.futures import Clock, Stop, actions_of, belief_samples, jump, seeded, single_steps
from tdvae.explorer.requests import Query
from tdvae.explorer.subjects import Subject
from tdvae.forecasting.predictors import compose

COLUMNS = 12  # frames of a strip
LARGE, QUALITY = 48, 90  # pictures of so many rows and more are sent as JPEG of this quality, smaller ones unchanged


def jump_view(subject: Subject, query: Query, stop: Stop) -> dict[str, Any]:
    """One jump: decoded states of the belief, and each of them after the jump."""
    clock = Clock()
    with seeded(query):
        state = belief_samples(subject, query, query.samples)
        with clock.of("jump"):
            end = jump(subject, state, query.dt, actions_of(subject, query, query.dt))
            arrived = subject.model.decode(end).mean
        now = subject.model.decode(state).mean
    return {
        "now": _packed(subject, now[:, 0]),
        "end": _packed(subject, arrived[:, 0]),
        "evaluations": len(compose(query.dt, subject.longest_jump)) if subject.dt_given else 1,
        "futures": query.samples,
        "milliseconds": clock.spent,
        "projected": (state, end),
    }


def steps_view(subject: Subject, query: Query, stop: Stop) -> dict[str, Any]:
    """The same step by step, or by jumps one after another if the model is not told how long they are."""
    clock = Clock()
    with seeded(query):
        state = belief_samples(subject, query, query.samples)
        actions = actions_of(subject, query, query.dt)
        with clock.of("steps"):
            states = single_steps(subject, state, query.dt, actions, stop)
            frames = [subject.model.decode(states[step - 1]).mean[:, 0] for step in _columns(query.dt)]
    return {
        "columns": _columns(query.dt),
        "strips": _packed(subject, torch.stack(frames, dim=1).flatten(0, 1)),
        "evaluations": query.dt,
        "futures": query.samples,
        "milliseconds": clock.spent,
    }


def sequence_view(subject: Subject, sequence: int) -> dict[str, Any]:
    """All frames of a sequence."""
    if subject.frames is not None:
        return {"frames": packed(subject.frames[sequence])}
    x = subject.sequences.x[sequence, : subject.length(sequence)]
    return {"frames": _packed(subject, x)}


def packed(pixels: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """Pictures (count, height, width, colours) below each other in one image file, as text."""
    count, height, width, colours = pixels.shape
    sheet = Image.fromarray(pixels.reshape(count * height, width, colours).squeeze(2 if colours == 1 else ()))
    file, kind = io.BytesIO(), "PNG" if height < LARGE else "JPEG"
    sheet.save(file, kind, quality=QUALITY, compress_level=1)
    text = base64.b64encode(file.getvalue()).decode()
    return {"count": count, "height": height, "width": width, "type": f"image/{kind.lower()}", "image": text}


def _columns(dt: int) -> list[int]:
    """At most COLUMNS steps from 1 to dt, evenly spaced, with both ends."""
    return sorted({round(each) for each in np.linspace(1, dt, min(dt, COLUMNS))})


def _packed(subject: Subject, x: Tensor) -> dict[str, Any]:
    assert subject.picture is not None
    return packed(subject.picture.bytes_of(x))
