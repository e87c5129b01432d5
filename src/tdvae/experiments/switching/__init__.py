"""The switching oscillator (paper, section "Noisy harmonic oscillator", last paragraph): memory of the belief.

Two belief networks with the same LSTM are compared: one trained with the TD-VAE loss, one to predict the next step. A
probe of the belief just before the last interval classifies which of the first two frequencies was larger.

Both are trained on separating intervals of many lengths. Up to any time in the separating
interval, the observations do not depend on its final length. One training therefore serves all intervals of the grid:
the belief is probed after 20 + interval observations.
"""

from tdvae.experiments.switching.experiment import Switching

EXPERIMENT = Switching()
