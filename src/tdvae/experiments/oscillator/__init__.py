"""The noisy harmonic oscillator (paper, section "Noisy harmonic oscillator", Fig. 4) and ablations of its preset."""

from tdvae.experiments.oscillator.ablations import OscillatorAblations
from tdvae.experiments.oscillator.experiment import DemoSeeds, Oscillator

EXPERIMENT = Oscillator()
DEMO_SEEDS = DemoSeeds()
ABLATIONS = OscillatorAblations()
