"""Fixed intervals again, with semi-gradients for TD-VAE's jumps and a longer training for both sides.

Full gradients through jumps make p_B wide, and a wide belief forgets. With `SemiGradient`, only consecutive pairs train
the belief at t2; for longer jumps the states that it draws are fixed targets. Neither side is told where the last
switch is; the models, the sequences and the optimiser are those of `Switching`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tdvae.jumps import Jumps, SemiGradient
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block
from tdvae_paper.experiment import Task, TrainedRun
from tdvae_paper.switching.fixed.experiment import Switching
from tdvae_paper.switching.fixed.methods import METHODS, Method, placeless_jumps
from tdvae_paper.switching.fixed.presets import PRESETS, Preset
from tdvae_paper.switching.grid import table_of_cells


def semi_gradient_jumps(interval: int) -> Jumps:
    """Half consecutive pairs, half jumps of any length, whose states at t2 are fixed targets."""
    return SemiGradient(placeless_jumps(interval))


_CPU = replace(PRESETS["cpu"], train=replace(PRESETS["cpu"].train, steps=8_000), runs=5, sizes=(40,))


class SwitchingSemiGradient(Switching):
    """TD-VAE with semi-gradients and the next-step predictor, both with the switch unknown, trained for longer."""

    name = "switching_semi_gradient"
    title = "switching, semi-gradients"
    results_name = "switching"
    block = "semi_gradient"
    presets = {"smoke": PRESETS["smoke"], "cpu": replace(_CPU, intervals=(20, 100))}  # noqa: RUF012
    methods: dict[str, Method] = {  # noqa: RUF012
        "tdvae": replace(
            METHODS["tdvae_placeless"], label="TD-VAE, semi-gradients, switch unknown", jumps=semi_gradient_jumps
        ),
        "next_step": METHODS["next_step"],
    }

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        replicates = self.by_run(preset, measures)
        for of_run in replicates:
            tdvae, next_step = of_run["accuracy_tdvae"], of_run["accuracy_next_step"]
            of_run["difference"] = {cell: tdvae[cell] - next_step[cell] for cell in tdvae}
        return replicates

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        labels = {f"accuracy_{name}": method.label for name, method in self.methods.items()}
        labels |= {"accuracy_bayes": "exact limit", "difference": "TD-VAE − next-step"}
        return {self.name: [table_of_cells(content["measures"], labels)]}

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        return []
