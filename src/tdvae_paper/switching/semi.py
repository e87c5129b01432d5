"""Fixed intervals again, with semi-gradients for TD-VAE's jumps and a longer training for both sides.

Full gradients through jumps make p_B wide, and a wide belief forgets. With `SemiGradient`, only consecutive pairs train
the belief at t2; for longer jumps the states that it draws are fixed targets. The models, the sequences, the pairs and
the optimiser are those of `Switching`.
"""

from __future__ import annotations

from dataclasses import replace

from tdvae_paper.switching.fixed.experiment import Switching
from tdvae_paper.switching.fixed.methods import METHODS, with_semi_gradients
from tdvae_paper.switching.fixed.presets import PRESETS

_CPU = PRESETS["cpu"]


class SwitchingSemiGradient(Switching):
    """TD-VAE with semi-gradients and the next-step predictor, trained for longer, in the cells of the large LSTM."""

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
            intervals=(20, 100),
        ),
    }
    methods = {name: with_semi_gradients(method) for name, method in METHODS.items()}  # noqa: RUF012
