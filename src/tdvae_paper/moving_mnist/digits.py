"""Recognise decoded frames: the digit by a classifier, its position by registration with the true digit."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.storage import checkpoint
from tdvae.training.config import derive_seed
from tdvae_paper.moving_mnist.mnist import SIDE, Digits
from tdvae_paper.moving_mnist.moving_digits import MovingDigits, draw_sequences

BATCH, RATE, SMOOTHING = 128, 3e-3, 0.05


class Classifier(nn.Module):
    """Two convolutions and two dense layers. Columns are padded circularly because the moving digits wrap around."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 5, stride=2), nn.Conv2d(16, 32, 3)
        self.hidden, self.out = nn.Linear(32 * 6 * 7, 128), nn.Linear(128, 10)

    def forward(self, frames: Tensor) -> Tensor:
        """Return the logits (N, 10) of frames (N, 28, 28)."""
        h = F.pad(F.pad(frames[:, None], (2, 2, 0, 0), mode="circular"), (0, 0, 2, 2))
        h = F.relu(self.first(h))
        h = F.relu(self.second(F.pad(h, (1, 1, 0, 0), mode="circular")))
        return self.out(F.relu(self.hidden(F.max_pool2d(h, 2).flatten(1))))

    @torch.no_grad()
    def predict(self, frames: Tensor) -> Tensor:
        """Return the most likely digit of each frame (..., 28, 28)."""
        parts = frames.reshape(-1, SIDE, SIDE).split(1000)
        return torch.cat([self(part).argmax(-1) for part in parts]).view(frames.shape[:-2])


def classifier(folder: Path, settings: MovingDigits, digits: Digits, steps: int, seed: int) -> Classifier:
    """Load the classifier from ``folder``. If there is none, train it on frames of ``digits`` and save it there."""
    torch.manual_seed(derive_seed(seed))
    network = Classifier()
    if (folder / checkpoint.MANIFEST).exists():
        network.load_state_dict(checkpoint.load(folder).tensors["weights"])
        return network.eval()
    single = MovingDigits(length=1, binarised=settings.binarised)
    frames = draw_sequences(single, digits, steps * BATCH, derive_seed(seed, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for rows in torch.arange(len(frames)).split(BATCH):
        loss = F.cross_entropy(network(frames.select(rows).x[:, 0]), frames.labels[rows], label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    checkpoint.save(folder, {"weights": network.state_dict()}, {"steps": steps, "seed": seed})
    return network.eval()


def register(frames: Tensor, still: Tensor) -> Tensor:
    """Return the shift to the right of each frame (..., N, 28, 28) relative to its digit ``still`` (N, 28, 28).

    This is the circular shift with the largest correlation. All shifts of an image have the same norm, so the
    correlation needs no normalisation. A frame that does not show the digit gets a shift, too.
    """
    spectrum = torch.fft.rfft(frames, dim=-1) * torch.fft.rfft(still, dim=-1).conj()
    return torch.fft.irfft(spectrum.sum(-2), n=SIDE).argmax(-1)


def displacement(shifts: Tensor) -> Tensor:
    """Return the shift of each frame from the previous one along the first axis, in −13 … 14 pixels."""
    half = SIDE // 2
    return (shifts.diff(dim=0) + half - 1) % SIDE - half + 1
