"""Data sets: sequences from arrays and files, windows of recordings, and simulated oscillators."""

from tdvae.data.arrays import from_arrays, from_npz, split
from tdvae.data.oscillator import OscillatorRecord, OscillatorSettings, simulate
from tdvae.data.recording import Recording
from tdvae.data.windows import FrameWindows, split_windows, windows

__all__ = [
    "FrameWindows",
    "OscillatorRecord",
    "OscillatorSettings",
    "Recording",
    "from_arrays",
    "from_npz",
    "simulate",
    "split",
    "split_windows",
    "windows",
]
