"""Tables of the first-person experiment: measures by δt, then R² of the pose regression."""

from __future__ import annotations

from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key, cell

LABELS = {
    "tdvae": "TD-VAE, one jump",
    "step_by_step": "trained on single steps, rolled out",
    "last_frame": "last frame",
    "marginal": "marginal",
    "mean_frame": "mean frame",
}
SOURCES = {
    "tdvae, belief": "belief b_t of TD-VAE",
    "step_by_step, belief": "belief of the model trained on single steps",
    "tdvae, frame": "last frame alone, as TD-VAE encodes it",
    "step_by_step, frame": "last frame alone, as the other encodes it",
    "pixels": "pixels of the last frame",
}


def futures(measures: Measures) -> list[Block]:
    """Return densities, times, spreads and motion by δt; the spread of the present; R² of the pose by source."""
    rows = [
        *_by_model("bits per dimension", measures["bits_per_dim"]),
        *_by_model("ms per predicted frame", measures["milliseconds"]),
        ("… ratio", measures["time_ratio"]),
        ("spread of futures, across z / within z", measures["future_spread_ratio"]),
        *_by_model("change per jump, distance", measures["motion_distance"]),
    ]
    poses = ((label, measures["pose_probe"][source]) for source, label in SOURCES.items())
    return [
        by_key(rows, "δt = {}"),
        f"Spread of the present across z / of real frames: {cell(measures['present_spread_ratio'])}.",
        by_key(poses, corner="R², read linearly from"),
    ]


def _by_model(label: str, measures: Measures) -> list[tuple[str, Measures]]:
    return [(f"{label}: {LABELS[model]}", by_jump) for model, by_jump in measures.items()]
