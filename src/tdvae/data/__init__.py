"""Data: sequences from arrays and files, and the simulated oscillator."""

from tdvae.data.arrays import from_arrays, from_npz, split
from tdvae.data.oscillator import OscillatorRecord, OscillatorSettings, simulate

__all__ = ["OscillatorRecord", "OscillatorSettings", "from_arrays", "from_npz", "simulate", "split"]
