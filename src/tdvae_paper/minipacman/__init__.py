"""MiniPacman (paper, section "Partially observed MiniPacman"): sequential TD-VAE against two state-space models.

All three share the belief network, the decoder, the size of the state and the number of parameters, and are trained by
the same loop on the same recordings. What differs is the objective: Eq. 5 for TD-VAE, Eq. 1 for the others. A next-step
predictor with the same belief network and decoder, whose −log p(x) is exact, shows how much can be known at all.

`OBSERVED_STATE` repeats the comparison with the observation as part of every model's state, `MAP` with a map of what
was seen. `JUMPS` and `SHARED_FUTURES` train TD-VAE on more than single steps.
"""

from tdvae_paper.minipacman.experiment import (
    MiniPacman,
    MiniPacmanJumps,
    MiniPacmanLivingMap,
    MiniPacmanMap,
    MiniPacmanObservedState,
    MiniPacmanSharedFutures,
)

EXPERIMENT = MiniPacman()
OBSERVED_STATE = MiniPacmanObservedState()
JUMPS = MiniPacmanJumps()
MAP = MiniPacmanMap()
LIVING_MAP = MiniPacmanLivingMap()
SHARED_FUTURES = MiniPacmanSharedFutures()
