"""Composition of jumps: forecasts 20 steps ahead by one jump of 20, by two of 10 and by twenty of 1.

With the observation in the state, a rollout samples an observation after each jump. This experiment measures the cost
of composition with and without that option, on a pendulum with hidden velocity and on the noisy oscillator.
"""

from tdvae_paper.composition.experiment import Composition

EXPERIMENT = Composition()
