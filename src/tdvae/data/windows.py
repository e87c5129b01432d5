"""Windows of a recording as training data: read from the file when a batch asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tdvae.data.arrays import check_shares, share_sizes
from tdvae.data.recording import Recording
from tdvae.errors import InputError
from tdvae.types import Sequences

SHARES = (0.8, 0.1, 0.1)


@dataclass(frozen=True, eq=False)
class FrameWindows:
    """A ``SequenceSource``: each sequence is ``length`` consecutive frames of one episode.

    ``x`` is (N, T, 3, size, size) in [0, 1], channels before rows and columns as convolutions take them. ``actions``
    are one-hot; an episode's first frame has none, all zeros. The first frame of a window within an episode keeps the
    action that led to it. Rewards came together with the frame.
    """

    recording: Recording
    length: int
    starts: Tensor  # (n,) int64, the place of each window's first frame in the file
    with_actions: bool = False
    with_rewards: bool = False

    def __post_init__(self) -> None:
        if self.starts.ndim != 1 or self.starts.dtype != torch.int64 or len(self.starts) < 1:
            given = f"shape {tuple(self.starts.shape)} of {self.starts.dtype}"
            raise InputError(f"starts: got {given}, expected at least one of torch.int64 along one axis")

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Tensor:
        return torch.full((len(self),), self.length)

    def select(self, index: Tensor | slice) -> Sequences:
        """The windows at ``index``."""
        spans = self._spans(index)
        frames = np.stack([self.recording.frames(*span) for span in spans])
        # Bytes are turned round before they become floats: four times less to move.
        x = torch.from_numpy(frames).permute(0, 1, 4, 2, 3).contiguous().float().div_(255)
        return Sequences(
            x,
            torch.full((len(x),), self.length),
            actions=self._actions(spans) if self.with_actions else None,
            rewards=self._rewards(spans) if self.with_rewards else None,
        )

    def pose(self, index: Tensor | slice) -> Tensor:
        """The truth behind the windows at ``index``, for probes: (N, T, 3) x, y and heading in radians."""
        return torch.from_numpy(np.stack([self.recording.pose(*span) for span in self._spans(index)]))

    def _spans(self, index: Tensor | slice) -> list[tuple[int, int]]:
        if isinstance(index, Tensor) and len(index) and (index.min() < -len(self) or index.max() >= len(self)):
            raise InputError(f"index: got {index.min()} to {index.max()}, expected windows from 0 to {len(self) - 1}")
        starts = self.starts[index].tolist()
        if not starts:
            raise InputError("index: got none, expected at least 1 window")
        return [(start, start + self.length) for start in starts]

    def _actions(self, spans: list[tuple[int, int]]) -> Tensor:
        taken = np.stack([self.recording.actions(*span) for span in spans]).astype(np.int64)
        # "No action" is -1: as class 0 of one more than there are, it is the column that is left out.
        return one_hot(torch.from_numpy(taken) + 1, len(self.recording.action_names) + 1)[..., 1:].float()

    def _rewards(self, spans: list[tuple[int, int]]) -> Tensor:
        return torch.from_numpy(np.stack([self.recording.rewards(*span) for span in spans]))


def windows(
    recording: Recording,
    length: int,
    step: int | None = None,
    episodes: Sequence[int] | None = None,
    with_actions: bool = False,
    with_rewards: bool = False,
) -> FrameWindows:
    """The windows of ``length`` frames that begin every ``step`` frames of an episode, in the file's order.

    Without ``step`` they lie end to end. Without ``episodes`` all are used. No window crosses from one episode into
    the next; what is left at the end of an episode, if shorter than a window, is not used.
    """
    step = length if step is None else step
    for name, value in (("length", length), ("step", step)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name}: got {value!r}, expected a whole number of at least 1")
    chosen = range(len(recording.starts)) if episodes is None else [int(number) for number in episodes]
    if len(chosen) and not 0 <= min(chosen) <= max(chosen) < len(recording.starts):
        raise InputError(
            f"episodes: got {min(chosen)} to {max(chosen)}, expected numbers from 0 to {len(recording.starts) - 1}"
        )
    starts = [
        int(recording.starts[number]) + torch.arange(0, int(recording.lengths[number]) - length + 1, step)
        for number in chosen
        if recording.lengths[number] >= length
    ]
    if not starts:
        longest = max((int(recording.lengths[number]) for number in chosen), default=0)
        raise InputError(f"length: got {length}, expected at most {longest}, the longest of {len(chosen)} episodes")
    return FrameWindows(recording, length, torch.cat(starts), with_actions, with_rewards)


def split_windows(
    recording: Recording,
    length: int,
    seed: int,
    step: int | None = None,
    shares: tuple[float, float, float] = SHARES,
    with_actions: bool = False,
    with_rewards: bool = False,
) -> tuple[FrameWindows, FrameWindows, FrameWindows]:
    """Training, validation and test windows: each episode is in exactly one of them, so none shares a frame.

    The shares are of the episodes that have room for a window.
    """
    check_shares(shares)
    long_enough = torch.from_numpy(recording.lengths >= length).nonzero().flatten()
    if len(long_enough) < 3:
        raise InputError(
            f"length: {len(long_enough)} episodes of {recording.path} have {length} frames; expected at least 3, "
            "to split them in three"
        )
    order = long_enough[torch.randperm(len(long_enough), generator=torch.Generator().manual_seed(seed))]
    parts = torch.split(order, list(share_sizes(len(order), shares)))
    train, validation, test = (
        windows(recording, length, step, sorted(part.tolist()), with_actions, with_rewards) for part in parts
    )
    return train, validation, test
