"""Do jumps compose? Forecasts 20 steps ahead by one jump, by two of 10 and by twenty of 1.

With the observation in the state, a rollout draws an observation after each jump. This experiment compares what
composition costs with and without that option, on a pendulum with hidden velocity and on the noisy oscillator.
"""

from tdvae.experiments.composition.experiment import Composition

EXPERIMENT = Composition()
