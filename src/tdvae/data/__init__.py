"""Data: sequences from arrays and files, and the simulated oscillators."""

from tdvae.data.arrays import from_arrays, from_npz, split
from tdvae.data.oscillator import OscillatorRecord, OscillatorSettings, simulate
from tdvae.data.switching import SwitchingRecord, SwitchingSettings, simulate_switching

__all__ = [
    "OscillatorRecord",
    "OscillatorSettings",
    "SwitchingRecord",
    "SwitchingSettings",
    "from_arrays",
    "from_npz",
    "simulate",
    "simulate_switching",
    "split",
]
