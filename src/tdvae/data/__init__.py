"""Data sets: sequences from arrays and files, episodes of agents, windows of recordings, simulated oscillators."""

from tdvae.data.arrays import from_arrays, from_npz, split
from tdvae.data.episodes import Episodes, Recorder, from_minari, record
from tdvae.data.oscillator import OscillatorRecord, OscillatorSettings, simulate
from tdvae.data.recording import Recording
from tdvae.data.windows import FrameWindows, split_windows, windows

__all__ = [
    "Episodes",
    "FrameWindows",
    "OscillatorRecord",
    "OscillatorSettings",
    "Recorder",
    "Recording",
    "from_arrays",
    "from_minari",
    "from_npz",
    "record",
    "simulate",
    "split",
    "split_windows",
    "windows",
]
