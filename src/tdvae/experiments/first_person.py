"""First-person worlds (paper, section "DeepMind Lab environment"): the models' sizes.

The data say how many actions there are: ``replace(MODELS["cpu"], actions=…)``.
"""

from __future__ import annotations

from tdvae.models import ConvTDVAEConfig

MODELS = {
    # The sizes that the paper states; how large z, the canvas and the encoder are, it does not.
    "paper": ConvTDVAEConfig(
        encoder=(32, 64, 128, 256), belief=512, belief_layers=4, layers=16, channels=256, latent=16, canvas=64
    ),
    # A step with 16 windows of 20 frames and 4 pairs each takes about three quarters of a second of one core.
    "cpu": ConvTDVAEConfig(
        encoder=(16, 32, 64, 32),
        belief=256,
        belief_layers=1,
        shown=1,
        layers=4,
        channels=32,
        latent=8,
        canvas=32,
        log_sigma=-1.0,  # one try on ViZDoom frames: learns a little sooner than from 0
    ),
    "smoke": ConvTDVAEConfig(
        event_shape=(3, 32, 32), encoder=(8, 8, 8), belief=16, belief_layers=1, layers=2, channels=8, latent=4, canvas=8
    ),
}
