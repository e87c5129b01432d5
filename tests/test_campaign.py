"""A short version of the campaign of faults (`python -m tests.campaign`): every case must end right or clear."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import commands, damage, loops
from tests.campaign.outcome import Hang, Tally, combined, in_process, limited
from tests.campaign.pages import judge
from tests.campaign.parts import PARTS, Part

CASES = {"kills": 6, "damaged_files": 60, "api_calls": 400, "command_lines": 12, "forged_runs": 20, "hostile_files": 4}
CASES |= {"online_beliefs": 1, "threads": 4, "workers": 1, "explorer": 10, "environments": 20, "rounds": 1}


@pytest.mark.parametrize(("part", "cases"), [(PARTS[name][0], cases) for name, cases in CASES.items()], ids=CASES)
def test_no_fault_ends_unclear(part: Part, cases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "UPDATES", 5_000)
    tally = Tally()
    part(tally, cases, random.Random("test"), tmp_path / "campaign")
    assert tally.measures["tried"] >= cases
    assert tally.problems == []
    assert tally.orphans == tally.outside_reads == 0


def test_every_part_has_a_short_version() -> None:
    assert CASES.keys() == PARTS.keys()


# What the campaign itself says about a case


def raising(error: BaseException) -> Any:
    def case() -> Any:
        raise error

    return case


def wait() -> Any:
    while True:
        pass


def sleep() -> Any:
    time.sleep(60)


def test_outcomes_of_cases() -> None:
    from tdvae import InputError

    assert limited(5, lambda: "right") == ("right", "")
    assert limited(5, lambda: "silent")[0] == "silent"
    assert limited(5, raising(InputError("x: wrong"))) == ("clear", "x: wrong")
    assert limited(5, raising(KeyError("x")))[0] == "foreign"
    assert limited(0.05, wait)[0] == "hang"
    assert limited(0.05, sleep)[0] == "hang"
    assert not issubclass(Hang, Exception)


def test_outcomes_of_processes() -> None:
    assert in_process(20, lambda: {"a": 1}) == ({"a": 1}, 0)
    assert in_process(20, raising(SystemExit(3)))[1] != 0
    assert in_process(0.1, wait) == (None, None)
    assert in_process(0.05, sleep) == (None, None)
    assert in_process(20, wait, delay=0.05) == (None, -9)


def test_outcomes_of_pages_and_seeds() -> None:
    assert [judge(200, text) for text in ('{"x": 1}', '{"x": NaN}', "<html>")] == ["right", "silent", "right"]
    assert [judge(status, "{}") for status in (400, 503, 500)] == ["clear", "clear", "foreign"]
    one, two = Tally(peak_memory=5), Tally(orphans=1, peak_memory=3)
    one.add("right", "")
    two.add("silent", "a")
    both = combined([one, two])
    assert (both.measures["tried"], both.problems, both.orphans, both.peak_memory) == (2, ["silent: a"], 1, 5)


def test_outcomes_of_commands() -> None:
    said = {"code": 2, "said": "tdvae: file: expected …"}
    assert commands.judge({"code": 0, "said": ""}, 0, must_fail=False) == "right"
    assert commands.judge({"code": 0, "said": ""}, 0, must_fail=True) == "silent"
    assert commands.judge(said, 0, must_fail=True) == "clear"
    assert commands.judge({**said, "said": "Traceback (most recent call last)"}, 0, must_fail=True) == "foreign"
    assert commands.judge({**said, "said": "tdvae: unexpected KeyError"}, 0, must_fail=True) == "foreign"
    assert commands.judge(None, -11, must_fail=True) == "foreign"
    assert commands.judge(None, None, must_fail=False) == "hang"


def test_damage_changes_a_file(tmp_path: Path) -> None:
    kinds = set()
    for seed in range(100):
        path = tmp_path / f"{seed}.json"
        path.write_bytes(b'{"step": 12345}')
        kind = damage.damage(path, random.Random(seed)).split()[0]
        kinds.add(kind)
        assert kind == "zeros" or not path.is_file() or path.is_symlink() or path.read_bytes() != b'{"step": 12345}'
    assert len(kinds) >= 8
