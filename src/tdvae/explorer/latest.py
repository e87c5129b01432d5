"""One worker that computes answers. A newer request of the same page replaces an older one, so none pile up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from tdvae.explorer.futures import Stop

T = TypeVar("T")
MOST_WAITING = 64  # requests of all pages


class SupersededError(Exception):
    """A newer request of the same page has taken the place of this one, or its reader has gone."""


class BusyError(Exception):
    """Too many requests are waiting."""


@dataclass
class Ticket:
    """One request. Its work asks `check` now and then whether it is still wanted."""

    cancelled: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        if self.cancelled.is_set():
            raise SupersededError


class Latest:
    """Runs work in one thread, since the models share one random state and the machine may have one core."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="explorer")
        self._newest: dict[str, Ticket] = {}
        self._waiting = 0

    async def run(self, key: str, work: Callable[[Stop], T]) -> T:
        """Run ``work``, unless another with the same key comes before it has ended. An empty key is never replaced."""
        if self._waiting >= MOST_WAITING:
            raise BusyError
        ticket = Ticket()
        if key:
            older = self._newest.get(key)
            if older is not None:
                older.cancelled.set()
            self._newest[key] = ticket
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, _run, ticket, work)
        except asyncio.CancelledError:
            ticket.cancelled.set()
            raise
        finally:
            self._waiting -= 1
            if key and self._newest.get(key) is ticket:
                del self._newest[key]

    def close(self) -> None:
        for ticket in list(self._newest.values()):
            ticket.cancelled.set()
        self._worker.shutdown(wait=True, cancel_futures=True)


def _run(ticket: Ticket, work: Callable[[Stop], T]) -> T:
    ticket.check()
    return work(ticket.check)
