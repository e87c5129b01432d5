"""The noisy harmonic oscillator (paper, section of that name, Fig. 4), and the ablations of its recipe."""

from tdvae.experiments.oscillator.ablations import OscillatorAblations
from tdvae.experiments.oscillator.experiment import Oscillator

EXPERIMENT = Oscillator()
ABLATIONS = OscillatorAblations()
