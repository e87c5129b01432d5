"""The switching oscillator (paper, section "Noisy harmonic oscillator", last paragraph): memory of the belief.

Belief networks with the same LSTM are compared: trained with the TD-VAE loss, or to predict the next step. A probe of
the belief just before the last interval classifies which of the first two frequencies was larger.

`EXPERIMENT` trains on one fixed interval, as the paper does, with and without the place of the last switch.
`SEMI_GRADIENT` gives TD-VAE's jumps semi-gradients and trains for longer.
`CURRICULUM` trains on intervals of many lengths, from short to long.
"""

from tdvae_paper.switching.curriculum.experiment import SwitchingCurriculumGrid
from tdvae_paper.switching.fixed.experiment import Switching
from tdvae_paper.switching.semi import SwitchingSemiGradient

EXPERIMENT = Switching()
SEMI_GRADIENT = SwitchingSemiGradient()
CURRICULUM = SwitchingCurriculumGrid()
