"""`tdvae bench devices`: its measures from given times, and its timing in one process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tdvae import TDVAEConfig
from tdvae.errors import TDVAEError
from tdvae.models import LSTM, GatedMaps, Gaussian
from tdvae.reporting.tables import Table
from tdvae_paper.bench import bench, devices


def launched(times: dict[str, list[dict[str, float]]] | None) -> Any:
    """Stands for torchrun: writes these times, or fails."""

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if times is None:
            return subprocess.CompletedProcess(command, 1, "", "no port")
        Path(command[-1]).write_text(json.dumps(times))
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_speedup_and_share_of_communication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = {"whole": 1.5, "half": 0.8, "together": 1.0, "without_exchange": 0.75}
    fast = {"whole": 2.0, "half": 1.0, "together": 1.0, "without_exchange": 1.0}
    monkeypatch.setattr(subprocess, "run", launched({"128": [slow] * 3, "256": [fast] * 3}))
    bench.bench("devices", 3, 0.0, tmp_path)
    content = json.loads((tmp_path / "bench_devices.json").read_text())
    measures = content["measures"]
    assert {batch: entry["mean"] for batch, entry in measures["device_speedup"].items()} == {"128": 1.5, "256": 2.0}
    assert measures["communication_share"]["128"]["mean"] == 0.25
    assert measures["communication_share"]["256"]["mean"] == 0.0
    assert measures["device_speedup_without_exchange"]["128"]["mean"] == 2.0
    assert measures["half_batch_speedup"]["128"]["mean"] == 1.5 / 0.8
    assert measures["steps_per_second_1"]["128"]["mean"] == devices.STEPS / 1.5
    assert measures["steps_per_second_2"]["128"]["mean"] == devices.STEPS
    (table,) = devices.tables(content)
    assert isinstance(table, Table)
    assert table.columns[:4] == [
        "batch size",
        "steps per second, 1 process",
        "steps per second, 2 processes",
        "2 processes / 1",
    ]
    assert [row[0] for row in table.rows] == ["128", "256"]
    assert [row[3] for row in table.rows] == ["1.500", "2.000"]
    assert "share of" in capsys.readouterr().out
    monkeypatch.setattr(subprocess, "run", launched(None))
    with pytest.raises(TDVAEError, match="no port"):
        devices.measure(1)


def test_a_process_times_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "PROCESSES", 1)
    monkeypatch.setattr(devices, "BATCHES", (4, 8))
    monkeypatch.setattr(
        devices,
        "MODEL",
        TDVAEConfig(event_shape=(4,), latent=2, layers=1, belief=LSTM(4), decoder=Gaussian((4,)), maps=GatedMaps(4)),
    )
    devices.main(2, tmp_path / "times.json")
    times = json.loads((tmp_path / "times.json").read_text())
    assert list(times) == ["4", "8"]
    assert all(len(repeated) == 2 for repeated in times.values())
    for one in (one for repeated in times.values() for one in repeated):
        assert sorted(one) == ["half", "together", "whole", "without_exchange"]
        assert min(one.values()) > 0
