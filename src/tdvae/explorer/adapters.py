"""How each kind of saved model becomes a subject: its held-out sequences, its units and what is known about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tdvae.codes import encode_sequences
from tdvae.data import OscillatorSettings, from_arrays, simulate
from tdvae.errors import InputError
from tdvae.explorer.references import ExactOscillator
from tdvae.explorer.subjects import Input, PictureLayout, Subject, Units
from tdvae.explorer.worlds import corridors, minipacman, pendulum
from tdvae.forecasting.forecaster import Forecaster
from tdvae.forecasting.preparation import Covariate
from tdvae.saved import SavedModel, load_saved
from tdvae.training.config import derive_seed
from tdvae.types import Sequences
from tdvae_paper.moving_mnist.mnist import Digits
from tdvae_paper.moving_mnist.moving_digits import draw_sequences

SIGNALS, PICTURES = 64, 24  # held-out sequences of simulated data
MOST_STEPS = 2_000  # of a sequence
TEST = 103  # purpose of the seed of held-out oscillators, as in their evaluation
OSCILLATOR_JUMPS, DIGIT_JUMPS = 120, 4  # the longest jumps of the trainings
DIGITS = Path(__file__).with_name("digits.png")  # test digits of MNIST in a row, first two of each class


def open_subject(run_or_name: str | Path, name: str, data: Path | None = None) -> Subject:
    """Open a run folder, or a model that ships with the package. ``data`` is a file like those of the training."""
    found = load_saved(run_or_name)
    experiment = str(found.info.get("experiment"))
    if data is not None and experiment != "fit":
        raise InputError(f"--data: expected a run of `tdvae fit`, got {found.source} of {experiment}")
    if experiment == "fit":
        return _own_data(found, name, data)
    adapter = ADAPTERS.get(experiment)
    if adapter is None:
        raise InputError(
            f"run: expected a run of `tdvae fit` or one of {', '.join(ADAPTERS)}, got {found.source} of {experiment}, "
            "whose held-out sequences the explorer does not know"
        )
    return adapter(found, name)


def _oscillator(found: SavedModel, name: str) -> Subject:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in found.info["settings"].items()}
    settings = OscillatorSettings(**values)
    record = simulate(settings, SIGNALS, derive_seed(0, TEST))
    return Subject(
        name=name,
        title="Noisy oscillator",
        about="A wave of unknown frequency, amplitude and phase. Each measurement of it is noisy.",
        kind="signal",
        model=found.model,
        sequences=from_arrays(record.x),
        channels=("x",),
        units=Units.same(1),
        longest_jump=OSCILLATOR_JUMPS,
        quantities={
            "frequency": record.frequency.numpy(),
            "amplitude": record.state.norm(dim=-1).numpy(),
            "position without noise": record.state[..., 0].numpy(),
            "hidden velocity": record.state[..., 1].numpy(),
        },
        exact=ExactOscillator(settings),
    )


def _moving_mnist(found: SavedModel, name: str) -> Subject:
    digits = shipped_digits()
    moving = draw_sequences(digits, PICTURES, seed=0, length=found.info["frames"]["length"])
    moving = replace(moving, image=torch.arange(PICTURES) * 7 % len(digits))  # every digit, none twice in a row
    everything = torch.arange(PICTURES)
    given = bool(found.info["given_dt"])
    return Subject(
        name=name,
        title="Moving digits",
        about="A handwritten digit moves left or right by one pixel per frame, and comes back on the other side.",
        kind="picture",
        model=found.model,
        sequences=moving.select(everything),
        channels=("picture",),
        units=Units.same(28 * 28),
        longest_jump=DIGIT_JUMPS,
        dt_given=given,
        dt_note="" if given else "This model is not told how far a jump goes: each jump is 1 to 4 frames.",
        quantities={
            "position of the digit": moving.shift(everything).numpy(),
            "direction (1 right, -1 left)": moving.direction.numpy(),
            "digit": moving.labels.numpy(),
        },
        picture=PictureLayout(28, 28),
    )


def shipped_digits() -> Digits:
    """Some test digits of MNIST, which ship with the package."""
    with Image.open(DIGITS) as picture:
        pixels = np.array(picture)
    images = torch.from_numpy(pixels).unflatten(1, (-1, 28)).transpose(0, 1).contiguous()
    return Digits(images, torch.arange(len(images)) // (len(images) // 10))


def _own_data(found: SavedModel, name: str, data: Path | None) -> Subject:
    forecaster = Forecaster.of(found)
    own = forecaster.data
    encoding = own.encoding
    if encoding.kind not in ("vector", "picture"):
        raise InputError(f"run: expected measurements or pictures, got {encoding.kind} in {found.source}")
    held_out = own.test if data is None else own.held_out(data)
    pictures = encoding.kind == "picture"
    sequences = _limited(held_out.sequences, PICTURES if pictures else SIGNALS)
    layout = None
    if pictures:
        colours, rows, columns = sequences.x.shape[2:]
        if colours not in (1, 3):
            raise InputError(f"run: expected pictures with 1 or 3 channels, got {colours} in {found.source}")
        layout = PictureLayout(rows, columns, 3 if colours == 3 else 1, True, codec=encoding.codec)
    if encoding.codec is not None:
        sequences = encode_sequences(encoding.codec, sequences)
    units = Units.same(math.prod(sequences.x.shape[2:]))
    if encoding.scaling is not None:
        units = Units(encoding.scaling.shift.reshape(-1), encoding.scaling.scale.reshape(-1))
    source = "the test part of the run" if data is None else data.name
    about = f"Your own data: {source}. The model has not been trained on these sequences."
    if forecaster.stack is not None:
        about += f" States, jumps and steps are those of the TD-VAE ({(forecaster.info or {})['main']}) of the run."
    return Subject(
        name=name,
        title=name,
        about=about,
        kind="picture" if pictures else "signal",
        model=found.model,
        sequences=sequences,
        channels=tuple(encoding.channels) if not pictures else ("picture",),
        units=units,
        longest_jump=own.longest_jump,
        inputs=inputs_of(encoding.covariates),
        combination=forecaster.stack,
        picture=layout,
    )


def inputs_of(covariates: Sequence[Covariate]) -> tuple[Input, ...]:
    """The covariates that can be edited; those of the calendar follow from the time."""
    inputs: list[Input] = []
    column = 0
    for each in covariates:
        classes = each.classes or tuple(map(float, range(len(each.labels))))
        labels = each.labels or tuple(f"{value:g}" for value in classes)
        inputs.append(Input(each.name, column, classes, labels, each.shift, each.scale))
        column += each.size
    return tuple(inputs)


def _limited(sequences: Sequences, most: int) -> Sequences:
    """At most this many sequences, evenly chosen, of at most ``MOST_STEPS`` steps."""
    count = min(len(sequences), most)
    return sequences.select(torch.arange(count) * len(sequences) // count).until(MOST_STEPS)


def _composition(found: SavedModel, name: str) -> Subject:
    if found.info["data"] != "pendulum":
        raise InputError(f"run: expected the pendulum of the experiment composition, got {found.source}")
    return pendulum(found, name)


ADAPTERS: dict[str, Callable[[SavedModel, str], Subject]] = {
    "oscillator": _oscillator,
    "oscillator_demo_seeds": _oscillator,
    "moving_mnist": _moving_mnist,
    "minipacman": minipacman,
    "minipacman_observed_state": minipacman,
    "minipacman_map": minipacman,
    "minipacman_living_map": minipacman,
    "minipacman_shared_futures": minipacman,
    "minipacman_jumps": minipacman,
    "first_person_corridors": corridors,
    "composition": _composition,
}
