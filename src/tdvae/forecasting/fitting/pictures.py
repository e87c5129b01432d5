"""The codec of a user's pictures, trained on the training part before the networks, which see its codes only."""

from __future__ import annotations

import time
from pathlib import Path

from torch import Tensor

from tdvae.codec import CodecTraining, ConvCodec, ConvCodecConfig, fit_codec, load_codec, save_codec
from tdvae.codes import fit_codec_to
from tdvae.data.windows import FrameWindows
from tdvae.forecasting.preparation import OwnData
from tdvae.models.defaults import halvings

CHANNELS = (8, 24, 48, 96)
CODEC_BUDGET = 0.15  # share of a budget of minutes
TIMED, LEAST = 5, 50  # steps that are timed for a budget, and the least number of all


def trained_codec(
    data: OwnData, path: Path, steps: int, seed: int, seconds: float | None = None, save: bool = True
) -> ConvCodec:
    """Load the codec of a run that is resumed, or train one, with at most ``seconds`` of processor time."""
    if path.is_dir():
        return load_codec(path)
    channels, rows, columns = data.history.x.shape[2:]
    times = halvings(min(rows, columns))
    widths = (*CHANNELS, *[CHANNELS[-1]] * times)[:times]
    config = ConvCodecConfig((channels, rows, columns), channels=widths)
    if seconds is not None:
        begin = time.process_time()
        _fit(data, config, CodecTraining(TIMED, seed=seed))
        steps = max(LEAST, min(steps, int(seconds * TIMED / (time.process_time() - begin))))
    codec = _fit(data, config, CodecTraining(steps, warmup=min(50, steps // 10), seed=seed))
    if save:
        save_codec(codec, path)
    return codec


def _fit(data: OwnData, config: ConvCodecConfig, training: CodecTraining) -> ConvCodec:
    if isinstance(data.train, FrameWindows):
        return fit_codec_to(data.train, config, training)
    pictures: Tensor = data.history.x[data.history.mask]
    return fit_codec(config, lambda index: pictures[index], len(pictures), training)
