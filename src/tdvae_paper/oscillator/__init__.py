"""The noisy harmonic oscillator (paper, section "Noisy harmonic oscillator", Fig. 4) and ablations of its preset."""

from tdvae_paper.oscillator.ablations import OscillatorAblations
from tdvae_paper.oscillator.experiment import DemoSeeds, Oscillator

EXPERIMENT = Oscillator()
DEMO_SEEDS = DemoSeeds()
ABLATIONS = OscillatorAblations()
