"""Noise of a distributed training step: drawn by sequence, not by process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode


def noise_of_rank(rank: int, world_size: int) -> AbstractContextManager[Any]:
    """The context of a process's part of the loss, in which the noise is that of its rows of the whole batch."""
    return nullcontext() if world_size == 1 else _RowsOfBatch(rank, world_size)


class _RowsOfBatch(TorchFunctionMode):
    """Every process draws the noise of the whole batch from the same seed and takes the rows of its own sequences.

    A sequence then gets the same noise for any number of processes, and so does the loss. It applies to the functions
    that objectives draw with, whose first argument has the sequences as its first dimension, or flattened into it.
    """

    RANDOM: ClassVar[set[Callable[..., Any]]] = {torch.randn_like, torch.rand_like, torch.multinomial, torch.bernoulli}

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__()
        self.rank, self.world_size = rank, world_size

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in self.RANDOM:
            return func(*args, **kwargs)
        like, *rest = args
        whole = func(torch.cat([like.detach()] * self.world_size), *rest, **kwargs)
        return whole[self.rank * len(like) : (self.rank + 1) * len(like)]
