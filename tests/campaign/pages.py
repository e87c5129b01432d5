"""The explorer: fuzzed requests, clients that never finish theirs, and a hundred requests at once."""

from __future__ import annotations

import json
import math
import random
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tdvae.explorer.answers import Explorer
from tests.campaign.outcome import Outcome, Tally, in_process
from tests.explorer_pages import served

LIMIT = 300.0
VIEWS = ("gallery", "model", "cloud", "sequence", "scores", "steps", "jump", "maze", "nothing", "..%2f", "")
NAMES = ("model", "of", "sequence", "t", "dt", "samples", "channel", "seed", "edits", "page", "foo")
VALUES = (
    "oscillator",
    "0",
    "1",
    "5",
    "20",
    "-1",
    "9999999",
    "1e9",
    "nan",
    "",
    "x",
    "../x",
    "%00",
    "é",
    "1:2:3:4",
    "a" * 3000,
)
PARALLEL, SLOW = 100, 30


def run(tally: Tally, requests: int, generator: random.Random, folder: Path) -> None:
    seed = generator.getrandbits(32)
    result, code = in_process(LIMIT, lambda: _session(requests, random.Random(seed)))
    if result is None:
        tally.add("hang" if code is None else "foreign", f"the explorer ended with {code}")
    for outcome, description in result or []:
        tally.add(outcome, description)


def _session(requests: int, generator: random.Random) -> list[tuple[Outcome, str]]:
    with served(Explorer.of("oscillator", None)) as address, httpx.Client(base_url=address, timeout=60.0) as client:
        found = [_asked(client, _query(generator)) for _ in range(requests)]
        host, port = address.removeprefix("http://").split(":")
        slow = [socket.create_connection((host, int(port))) for _ in range(SLOW)]
        for each in slow:
            each.sendall(b"GET /api/gallery HTTP/1.1\r\nHost: 127.0.0.1\r\n"[: generator.randrange(1, 40)])
        found.append(_asked(client, "/"))  # the others are answered meanwhile
        queries = [_query(generator) for _ in range(PARALLEL)]
        with ThreadPoolExecutor(PARALLEL) as pool:
            found += pool.map(lambda query: _asked(client, query), queries)
        for each in slow:
            each.close()
        found.append(_asked(client, "/"))
    return found


def _query(generator: random.Random) -> str:
    """A request with some values that are not valid."""
    values = {"model": "oscillator", "t": "20", "dt": "5"}
    for _ in range(generator.randint(0, 4)):
        values[generator.choice(NAMES)] = generator.choice(VALUES)
    return f"/api/{generator.choice(VIEWS)}?" + "&".join(f"{name}={value}" for name, value in values.items())


def _asked(client: httpx.Client, query: str) -> tuple[Outcome, str]:
    try:
        answer = client.get(query)
    except httpx.TimeoutException:
        return "hang", query[:200]
    except httpx.HTTPError as error:
        return "foreign", f"{query[:200]}: {error!r}"
    return judge(answer.status_code, answer.text), f"{query[:200]}: {answer.status_code} {answer.text[:200]}"


def judge(status: int, text: str) -> Outcome:
    """An answer has no NaN; a mistake of the request is one line, and so is a server that is too busy."""
    if status == 200:
        return "silent" if text.startswith(("{", "[")) and not _finite(text) else "right"
    if status in (400, 401, 404, 405, 409, 414, 421, 422, 503):
        return "clear"
    return "foreign"


def _finite(text: str) -> bool:
    numbers: list[float] = []

    def keep(name: str) -> Any:
        numbers.append(math.nan)
        return name

    json.loads(text, parse_constant=keep)
    return not numbers
