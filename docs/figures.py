"""Draw figures again, without a training: `python docs/figures.py`.

The method diagram, and figures of results/ that need only the published numbers and the weights in the package.
"""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

from tdvae import saved
from tdvae.cli import Bench, parse
from tdvae.storage.files import read_json
from tdvae_paper import composition
from tdvae_paper.bench import bench
from tdvae_paper.oscillator import experiment as oscillator_experiment
from tdvae_paper.oscillator import figure as oscillator

ROOT = Path(__file__).resolve().parents[1]
RESULTS, FIGURES = ROOT / "results", ROOT / "docs" / "figures"
# The colour of lines and text, of what is observed, and of what is not
THEMES = {"light": ("#222222", "#6b7280"), "dark": ("#e6e6e6", "#9aa3b2")}
BELIEF, JUMP, SMOOTHING = "#3f7fc1", "#e08a1e", "#3a9d6e"
T1, T2 = 3.0, 7.2  # places of the two times on the diagram


def redraw(folder: Path) -> None:
    """Draw the figures of published results into a folder."""
    measures = read_json(RESULTS / "composition.json")["measures"]
    composition.draw(measures, folder / "composition.png")
    found = saved.load_saved("oscillator")  # seed 0 of the published runs
    settings = oscillator_experiment.settings_of(found)
    measures = read_json(RESULTS / "oscillator.json")["measures"]
    oscillator.draw(
        found.model, settings, 0, measures, folder / "oscillator.png"
    )
    content = read_json(RESULTS / "bench.json")
    command = parse(shlex.split(content["command"])[1:])
    assert isinstance(command, Bench)
    ratios = content["measures"]["time_to_loss_ratio"]
    bench.draw(ratios, command.minutes, folder / "bench.png")


def method(path: Path, theme: str) -> None:
    """The four distributions between two times: belief, jump, decoding, smoothing."""
    import matplotlib.pyplot as plt

    ink, grey = THEMES[theme]
    with plt.rc_context({"text.color": ink, "mathtext.fontset": "cm"}):
        figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
        axes.set(xlim=(-0.3, 9.6), ylim=(-0.75, 3.9), aspect="equal")
        axes.axis("off")
        _observations(axes, ink, grey)
        for place, name in ((T1, "1"), (T2, "2")):
            time = f"t_{name}"
            _node(axes, place, 3.2, rf"$z_{{{time}}}$", BELIEF, ink)
            _arrow(axes, (place, 1.85), (place, 2.8), BELIEF)
        axes.text(
            T1 - 0.12,
            2.2,
            "belief  $p_B$",
            color=BELIEF,
            fontsize=13,
            ha="right",
        )
        _arrow(axes, (T1 + 0.45, 3.3), (T2 - 0.45, 3.3), JUMP, width=3)
        middle = (T1 + T2) / 2
        axes.text(
            middle,
            3.45,
            "jump of δt steps  $p_T$",
            color=JUMP,
            fontsize=13,
            ha="center",
        )
        bend = "arc3,rad=-0.2"
        _arrow(
            axes,
            (T2 - 0.4, 3.0),
            (T1 + 0.4, 3.0),
            SMOOTHING,
            style=bend,
            dashed=True,
        )
        axes.text(
            middle,
            2.2,
            "smoothing  $q_S$",
            color=SMOOTHING,
            fontsize=13,
            ha="center",
        )
        axes.text(
            middle,
            1.87,
            "in training only",
            color=grey,
            fontsize=10,
            ha="center",
        )
        _arrow(
            axes,
            (T2 + 0.35, 2.9),
            (T2 + 0.3, 0.35),
            JUMP,
            style="arc3,rad=-0.5",
        )
        axes.text(T2 + 1.08, 1.6, "decoding\n$p_D$", color=JUMP, fontsize=13)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160, transparent=True)
        plt.close(figure)


def _observations(axes: Any, ink: str, grey: str) -> None:
    """The observations, and the belief network that reads them."""
    places = (0.2, 1.6, T1, 5.1, T2)
    names = ("x_1", "x_2", "x_{t_1}", "", "x_{t_2}")
    for place, name in zip(places, names, strict=True):
        code = name.replace("x", "b")
        if not name:
            axes.text(
                place, 0, "…", color=grey, fontsize=18, ha="center", va="center"
            )
            axes.text(
                place,
                1.5,
                "…",
                color=grey,
                fontsize=18,
                ha="center",
                va="center",
            )
            continue
        _node(axes, place, 0, f"${name}$", grey, ink)
        box = {
            "boxstyle": "round,pad=0.35",
            "fc": "none",
            "ec": grey,
            "lw": 1.5,
        }
        axes.text(
            place,
            1.5,
            f"${code}$",
            fontsize=15,
            ha="center",
            va="center",
            bbox=box,
        )
        _arrow(axes, (place, 0.38), (place, 1.15), grey)
    for first, second in pairwise(places):
        _arrow(axes, (first + 0.4, 1.5), (second - 0.4, 1.5), grey)
    axes.text(0.0, -0.68, "observation", color=grey, fontsize=11)
    axes.text(0.0, 2.05, "belief code", color=grey, fontsize=11)
    axes.text(0.0, 3.15, "state", color=grey, fontsize=11)


def _node(
    axes: Any, x: float, y: float, text: str, edge: str, ink: str
) -> None:
    from matplotlib.patches import Circle

    axes.add_patch(Circle((x, y), 0.37, fc="none", ec=edge, lw=1.8))
    axes.text(x, y, text, color=ink, fontsize=15, ha="center", va="center")


def _arrow(
    axes: Any,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str,
    width: float = 1.6,
    style: str = "arc3",
    dashed: bool = False,
) -> None:
    shape = {
        "arrowstyle": "-|>",
        "color": colour,
        "lw": width,
        "connectionstyle": style,
        "mutation_scale": 15,
        "ls": "--" if dashed else "-",
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axes.annotate("", end, start, arrowprops=shape)


if __name__ == "__main__":
    redraw(RESULTS)
    for theme in THEMES:
        method(FIGURES / f"method_{theme}.png", theme)
