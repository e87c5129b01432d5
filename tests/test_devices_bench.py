"""`tdvae bench devices`: its measures from given times, and its timing in one process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tdvae import TDVAEConfig
from tdvae.bench import bench, devices
from tdvae.errors import TDVAEError


def launched(times: list[dict[str, float]] | None) -> Any:
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
    times = [{"alone": 2.0, "together": 1.0, "without_sync": 0.75}] * 3
    monkeypatch.setattr(subprocess, "run", launched(times))
    bench.bench("devices", 3, 0.0, tmp_path)
    measures = json.loads((tmp_path / "bench_devices.json").read_text())["measures"]
    assert measures["device_speedup"]["mean"] == 2.0
    assert measures["communication_share"]["mean"] == 0.25
    assert measures["steps_per_second"]["2"]["mean"] == devices.STEPS
    assert "two processes / one" in capsys.readouterr().out
    monkeypatch.setattr(subprocess, "run", launched(None))
    with pytest.raises(TDVAEError, match="no port"):
        devices.measure(1)


def test_a_process_times_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "PROCESSES", 1)
    monkeypatch.setattr(devices, "BATCH", 4)
    monkeypatch.setattr(
        devices, "MODEL", TDVAEConfig(event_shape=(4,), belief=4, hidden=4, latent=2, decoder=(4,), layers=1)
    )
    devices.main(2, tmp_path / "times.json")
    times = json.loads((tmp_path / "times.json").read_text())
    assert len(times) == 2
    assert all(value > 0 for one in times for value in one.values())
