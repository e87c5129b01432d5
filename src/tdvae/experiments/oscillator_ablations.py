"""What the oscillator's recipe owes to each of its parts: the demo preset, one thing changed at a time."""

from __future__ import annotations

from dataclasses import replace

from tdvae.experiments.oscillator import HORIZONS, PRESETS, Preset, curriculum
from tdvae.experiments.report import Measures
from tdvae.jumps import Widening, paper_mixture

_RECIPE = PRESETS["demo"]


def _with_model(**changes: object) -> Preset:
    return replace(_RECIPE, model=replace(_RECIPE.model, **changes))  # type: ignore[arg-type]


VARIANTS = {
    "recipe": _RECIPE,
    "app_d": replace(_RECIPE, model=PRESETS["paper"].model, train=replace(_RECIPE.train, optimizer="adam")),
    "lstm": _with_model(belief_network="lstm", belief=64),
    "free_smoothing": _with_model(smoothing="free"),
    "drift_stays": _with_model(drift="stay"),
    "no_drift": _with_model(drift="none"),
    "gated_maps": _with_model(maps="gated"),
    "dt_as_number": _with_model(dt="number"),
    "learned_sigma": _with_model(noise="learned"),
    "adam": replace(_RECIPE, train=replace(_RECIPE.train, optimizer="adam")),
    "paper_jumps_only": replace(_RECIPE, jumps=curriculum().first),
    "sharp_from_start": replace(_RECIPE, jumps=Widening(curriculum().then, start=2, until=0.34)),
    "no_curriculum": replace(_RECIPE, jumps=paper_mixture()),
}

TABLE = {f"information_share_dt{dt}": f"share, δt = {dt}" for dt in HORIZONS}  # coverages: see the results file


def by_variant(measures: dict[str, Measures]) -> Measures:
    """Measures of one δt, nested by variant."""
    return {
        f"{measure}_dt{dt}": {name: values[measure][str(dt)] for name, values in measures.items()}
        for measure in ("information_share", "coverage_90")
        for dt in HORIZONS
    }
