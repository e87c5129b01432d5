"""The switching oscillator (paper, section "Noisy harmonic oscillator", last paragraph): memory of the belief.

Two belief networks with the same LSTM are compared: one trained with the TD-VAE loss, one to predict the next step. A
probe of the belief just before the last interval classifies which of the first two frequencies was larger.

Both are trained on separating intervals of many lengths. The observations before the last interval do not depend on
the length of the separating interval. One training therefore serves all intervals of the grid: the belief is probed
after 20 + interval observations.
"""

from tdvae.experiments.switching.experiment import Switching

EXPERIMENT = Switching()
