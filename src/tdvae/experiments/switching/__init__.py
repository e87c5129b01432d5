"""The switching oscillator (paper, section "Noisy harmonic oscillator", last paragraph): does the belief remember?

Two belief networks with the same LSTM, one trained by the TD-VAE loss and one to predict the next step, are asked just
before the last interval which of the first two frequencies was the larger one.

Both train on separating intervals of many lengths. What a belief has seen just before the last interval does not depend
on what comes after, so one training serves all intervals of the grid: the probe asks after 20 + interval observations.
"""

from tdvae.experiments.switching.experiment import Switching

EXPERIMENT = Switching()
