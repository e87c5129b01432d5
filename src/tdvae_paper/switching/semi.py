"""One fixed interval again, not told where the switch is, with semi-gradients for TD-VAE's jumps.

Full gradients through jumps make p_B wide, and a wide belief forgets. With `SemiGradient`, only consecutive pairs train
the belief at t2; for longer jumps the states that it draws are fixed targets. The models, the sequences, the jumps and
the optimiser are those of `Switching`; both trainings are longer.
"""

from __future__ import annotations

from dataclasses import replace

from tdvae_paper.switching.fixed.experiment import Switching
from tdvae_paper.switching.fixed.methods import METHODS, with_semi_gradients
from tdvae_paper.switching.fixed.presets import PRESETS

_CPU = PRESETS["cpu"]


class SwitchingSemiGradient(Switching):
    """TD-VAE with semi-gradients and the next-step predictor, in the cell of the large LSTM and the short interval."""

    name = "switching_semi_gradient"
    title = "switching, semi-gradients"
    results_name = "switching"
    block = "semi_gradient"
    presets = {  # noqa: RUF012
        "smoke": PRESETS["smoke"],
        "cpu": replace(
            _CPU,
            train=replace(_CPU.train, steps=8_000, validate_every=1_000),
            runs=3,
            pairs=60,
            sizes=(40,),
            intervals=(20,),
        ),
    }
    methods = {  # noqa: RUF012
        "tdvae_placeless": with_semi_gradients(METHODS["tdvae_placeless"]),
        "next_step": METHODS["next_step"],
    }
