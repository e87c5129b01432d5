"""Windows of a recording as training data, read from the file when a batch is selected."""

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

    ``x`` is (N, T, 3, size, size) in [0, 1], with the channels first, as convolutions expect. ``actions`` are one-hot
    and describe the action that led to each frame. They are all zeros for the first frame of an episode, but not for
    the first frame of a window within an episode. ``rewards`` arrived with the frame.
    """

    recording: Recording
    length: int
    starts: Tensor  # (n,) int64, index of each window's first frame in the file
    with_actions: bool = False
    with_rewards: bool = False

    def __post_init__(self) -> None:
        if self.starts.ndim != 1 or self.starts.dtype != torch.int64 or len(self.starts) < 1:
            given = f"shape {tuple(self.starts.shape)} of {self.starts.dtype}"
            raise InputError(f"starts: expected one axis of torch.int64 with at least 1 value, got {given}")

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Tensor:
        return torch.full((len(self),), self.length)

    def select(self, index: Tensor | slice) -> Sequences:
        """The windows at ``index``."""
        spans = self._spans(index)
        frames = np.stack([self.recording.frames(*span) for span in spans])
        # Permuted as bytes, before the conversion to float: this moves a quarter of the memory.
        x = torch.from_numpy(frames).permute(0, 1, 4, 2, 3).contiguous().float().div_(255)
        return Sequences(
            x,
            torch.full((len(x),), self.length),
            actions=self._actions(spans) if self.with_actions else None,
            rewards=self._rewards(spans) if self.with_rewards else None,
        )

    def pose(self, index: Tensor | slice) -> Tensor:
        """The poses of the windows at ``index``, for probes: (N, T, 3) x, y and heading in radians."""
        return torch.from_numpy(np.stack([self.recording.pose(*span) for span in self._spans(index)]))

    def _spans(self, index: Tensor | slice) -> list[tuple[int, int]]:
        if isinstance(index, Tensor) and len(index) and (index.min() < -len(self) or index.max() >= len(self)):
            raise InputError(f"index: expected windows from 0 to {len(self) - 1}, got {index.min()} to {index.max()}")
        starts = self.starts[index].tolist()
        if not starts:
            raise InputError("index: expected at least 1 window, got none")
        return [(start, start + self.length) for start in starts]

    def _actions(self, spans: list[tuple[int, int]]) -> Tensor:
        actions = np.stack([self.recording.actions(*span) for span in spans]).astype(np.int64)
        # "No action" is -1: shifted by one it is class 0, whose column is removed.
        return one_hot(torch.from_numpy(actions) + 1, len(self.recording.action_names) + 1)[..., 1:].float()

    def _rewards(self, spans: list[tuple[int, int]]) -> Tensor:
        return torch.from_numpy(np.stack([self.recording.rewards(*span) for span in spans]))


def windows(
    recording: Recording,
    length: int,
    stride: int | None = None,
    episodes: Sequence[int] | None = None,
    with_actions: bool = False,
    with_rewards: bool = False,
) -> FrameWindows:
    """The windows of ``length`` frames that start every ``stride`` frames of an episode, in file order.

    The default ``stride`` is ``length``, so that windows are adjacent and do not overlap. The default for ``episodes``
    is all episodes. No window contains frames of two episodes; frames at the end of an episode that do not fill a
    window are not used.
    """
    stride = length if stride is None else stride
    for name, value in (("length", length), ("stride", stride)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name}: expected an integer of at least 1, got {value!r}")
    chosen = range(len(recording.starts)) if episodes is None else [int(number) for number in episodes]
    if len(chosen) and not 0 <= min(chosen) <= max(chosen) < len(recording.starts):
        raise InputError(
            f"episodes: expected numbers from 0 to {len(recording.starts) - 1}, got {min(chosen)} to {max(chosen)}"
        )
    starts = [
        int(recording.starts[number]) + torch.arange(0, int(recording.lengths[number]) - length + 1, stride)
        for number in chosen
        if recording.lengths[number] >= length
    ]
    if not starts:
        longest = max((int(recording.lengths[number]) for number in chosen), default=0)
        raise InputError(f"length: expected at most {longest}, the longest of {len(chosen)} episodes, got {length}")
    return FrameWindows(recording, length, torch.cat(starts), with_actions, with_rewards)


def split_windows(
    recording: Recording,
    length: int,
    seed: int,
    stride: int | None = None,
    shares: tuple[float, float, float] = SHARES,
    with_actions: bool = False,
    with_rewards: bool = False,
) -> tuple[FrameWindows, FrameWindows, FrameWindows]:
    """Training, validation and test windows; each episode is in exactly one part, so no frame is shared.

    ``shares`` are shares of the episodes that are at least as long as a window; shorter ones are not used. The other
    arguments are those of :func:`windows`.
    """
    check_shares(shares)
    long_enough = torch.from_numpy(recording.lengths >= length).nonzero().flatten()
    if len(long_enough) < 3:
        raise InputError(
            f"length: expected at least 3 episodes of {length} frames to split into three parts, "
            f"got {len(long_enough)} in {recording.path}"
        )
    order = long_enough[torch.randperm(len(long_enough), generator=torch.Generator().manual_seed(seed))]
    parts = torch.split(order, list(share_sizes(len(order), shares)))
    train, validation, test = (
        windows(recording, length, stride, sorted(part.tolist()), with_actions, with_rewards) for part in parts
    )
    return train, validation, test
