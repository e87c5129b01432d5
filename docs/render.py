"""Writes the tables of README and docs from results/*.json, between `<!-- table: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "docs/oscillator.md",
    "docs/switching.md",
    "docs/moving_mnist.md",
    "docs/first_person.md",
    "docs/minipacman.md",
)
ROWS = {
    "information_share": "share of attainable information",
    "coverage_50": "coverage of the 50 % interval",
    "coverage_90": "coverage of the 90 % interval",
    "nll": "NLL, nats",
    "nll_bayes": "NLL of exact inference (the limit)",
    "nll_marginal": "NLL of knowing nothing",
    "frequency_error": "frequency error of rollouts, rad/step",
    "frequency_error_exact": "… of the exact posterior's rollouts",
    "amplitude_error": "amplitude error of rollouts",
    "amplitude_error_exact": "… of the exact posterior's rollouts",
}


def _time(content: dict[str, Any]) -> str:
    """How long training took, as far as it is known: older runs that were interrupted did not count."""
    trainings = content["train_seconds"].values()
    known = [seconds for seconds in trainings if seconds is not None]
    which = "in all"
    if len(known) < len(trainings):
        which = f"for the {len(known)} of {len(trainings)} trainings whose time is known"
    return f"{sum(known) / 60:.0f} minutes of training {which}, at most {max(known) / 60:.0f} for one, on one core each"


def table(name: str) -> str:
    """A table as Markdown, and how its numbers were made."""
    source, render = TABLES[name]
    content: dict[str, Any] = json.loads((ROOT / "results" / f"{source}.json").read_text())
    return render(content)


def _ablations(content: dict[str, Any]) -> str:
    """A row for each variant: its shares and coverages by δt."""
    measures = content["measures"]
    lines = [
        "| variant | share at δt = 1 / 5 / 20 / 100 | coverage of the 90 % interval | minutes |",
        "|---|---|---|---|",
    ]
    for variant, seconds in content["train_seconds"].items():
        cells = []
        for measure in ("information_share", "coverage_90"):
            values = [measures[key][variant]["mean"] for key in measures if key.startswith(f"{measure}_dt")]
            cells.append(" / ".join(f"{round(value, 2) + 0:.2f}" for value in values))  # + 0: no -0.00
        lines.append(f"| `{variant}` | {cells[0]} | {cells[1]} | {'' if seconds is None else f'{seconds / 60:.1f}'} |")
    return "\n".join([*lines, "", f"`{content['command']}`, one seed each."])


def _by_jump(content: dict[str, Any]) -> str:
    """A row for each measure, mean ± spread over seeds."""
    measures = content["measures"]
    columns = list(measures["information_share"])
    lines = ["| | " + " | ".join(f"δt = {c}" for c in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for key, label in ROWS.items():
        cells = [_cell(measures[key].get(c)) for c in columns]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    seeds = ", ".join(map(str, content["seeds"]))
    lines.append("")
    lines.append(
        f"`{content['command']}`, seeds {seeds}: mean ± standard deviation; {_time(content)}. "
        f"The paper shows this experiment in a figure and gives no number."
    )
    return "\n".join(lines)


def _grid(content: dict[str, Any]) -> str:
    """A row for each cell of the switching grid."""
    measures = content["measures"]
    columns = {
        "accuracy_tdvae": "TD-VAE",
        "accuracy_next_step": "next-step predictor",
        "accuracy_tdvae_logistic": "TD-VAE, logistic probe",
        "accuracy_next_step_logistic": "next-step, logistic probe",
        "accuracy_bayes": "exact limit",
    }
    lines = ["| LSTM | interval | " + " | ".join(columns.values()) + " |", "|---" * (len(columns) + 2) + "|"]
    for cell in sorted(measures["accuracy_tdvae"], key=_numbers):
        values = [_cell(measures[name][cell]) for name in columns]
        lines.append("| " + " | ".join([*map(str, _numbers(cell)), *values]) + " |")
    runs = next(iter(measures["accuracy_tdvae"].values()))["n"]
    made = (
        f"`{content['command']}`: mean ± standard deviation over {runs} runs, whose weights, data and noise differ; "
        f"{_time(content)}. The limit's ± is its standard error. The paper shows "
        "this experiment in a figure and gives no number."
    )
    return "\n".join([*lines, "", made])


def _numbers(cell: str) -> tuple[int, int]:
    size, interval = (int(part.split("=")[1]) for part in cell.split(","))
    return size, interval


MODELS = {"tdvae": "TD-VAE", "filtering": "filtering model", "mean_field": "mean-field model"}
YARDSTICK = {"next_step": "next-step predictor (exact, no state)"}


def _models(content: dict[str, Any]) -> str:
    """The MiniPacman table: a row for each model, the paper's numbers beside ours."""
    columns = {
        "elbo": "−ELBO",
        "nll": "−log p(x)",
        "nll_joint": "−log p(x), joint",
        "elbo_ratio": "−ELBO / filtering",
        "nll_ratio": "−log p(x) / filtering",
    }
    told = {name: f"paper: {label}" for name, label in columns.items() if name in content["paper"]}
    return "\n".join([*_model_rows(content, columns, told), "", _made_by_models(content)])


def _models_in_full(content: dict[str, Any]) -> str:
    """What else is measured of the models: parts and other estimates, the frame's cost by class, what probes read."""
    measures = content["measures"]
    terms = measures["elbo_terms"]
    measures["frame"] = {model: terms[model]["reconstruction"] for model in terms}
    measures["state"] = {
        model: {
            "mean": sum(part["mean"] for name, part in terms[model].items() if name != "reconstruction"),
            "spread": None,
        }
        for model in terms
    }
    columns = {
        "elbo": "−ELBO",
        "frame": "… of which the frame given z",
        "state": "… and the state",
        "elbo_first_frame": "−ELBO of the first frame",
        "nll": "−log p(x), frame by frame",
        "nll_joint": "−log p(x), joint, whole games",
        "elbo_per_dimension": "−ELBO per RGB dimension",
    }
    lines = [*_model_rows(content, columns, {}), ""]
    classes = measures["frame_by_class"]["tdvae"]
    lines += [
        "| the frame given z, by what cells show | " + " | ".join(classes) + " |",
        "|---" * (len(classes) + 1) + "|",
    ]
    for model, label in (MODELS | YARDSTICK).items():
        costs = [_cell(measures["frame_by_class"][model][cell]) for cell in classes]
        lines.append("| " + " | ".join([label, *costs]) + " |")
    lines += ["", "| read from | the ghost's cell, nats | food eaten, nats per cell |", "|---|---|---|"]
    for source in dict.fromkeys([*measures["ghost_probe"], *measures["food_probe"]]):
        values = [_cell(measures[name].get(source)) for name in ("ghost_probe", "food_probe")]
        lines.append("| " + " | ".join([_source(source), *values]) + " |")
    return "\n".join([*lines, "", _made_by_models(content)])


def _model_rows(content: dict[str, Any], columns: dict[str, str], told: dict[str, str]) -> list[str]:
    measures, paper = content["measures"], content["paper"]
    lines = ["| | " + " | ".join([*columns.values(), *told.values()]) + " | parameters |"]
    lines.append("|---" * (len(columns) + len(told) + 2) + "|")
    for model, label in (MODELS | YARDSTICK).items():
        ours = [_cell(measures[name].get(model)) for name in columns]
        theirs = [f"{paper[name][model]:.3g}" if model in paper[name] else "" for name in told]
        lines.append("| " + " | ".join([label, *ours, *theirs, f"{content['parameters'][model]:,}"]) + " |")
    return lines


def _made_by_models(content: dict[str, Any]) -> str:
    return (
        f"`{content['command']}`, seeds {', '.join(map(str, content['seeds']))}: nats per frame (the paper states no "
        f"unit), mean ± standard deviation over seeds; {_time(content)}."
    )


def _source(name: str) -> str:
    model, _, part = name.partition(", ")
    return f"{MODELS[model]}'s {part}" if part else f"no model: {name}"


FLAT = {
    "direction_kept": "direction kept: none of six jumps goes the other way",
    "forward_jumps": "jumps that go the true way (the others stand still or go back)",
    "digit_kept": "digit kept after {} jumps",
    "classifier_accuracy": "the classifier on real test frames",
    "displacement_tv": "displacement per jump: total variation from uniform on 1 … 4",
    "displacement_law": "share of jumps that move {} pixels",
    "nats_per_frame": "nats per frame, {}",
    "exact_displacement": "with δt given: jumps of exactly δt",
    "direction_kept_given_dt": "with δt given: direction kept",
    "digit_kept_given_dt": "with δt given: digit kept after {} jumps",
    "nats_per_frame_given_dt": "with δt given: nats per frame, {}",
    "sequences_per_second_ratio": "sequences per second with the same gradients / plain baseline",
    "pairs_per_second_ratio": "training pairs per second / plain baseline",
    "gradient_difference": "largest difference of those gradients",
    "held_out_loss_plain": "held-out loss of the plain baseline at the end of its time, nats per frame",
    "time_to_loss_ratio": "time to that loss / the baseline's time: {}",
    "peak_megabytes": "peak memory of the whole benchmark, MB",
    "step_milliseconds": "ms per step of the plain model with 8 pairs, batch 64, T = 20, but {}",
    "pairs_step_ratio": "oscillator: step with 32 pairs per sequence / with 1, preset {}",
    "jump_ratio": "oscillator, 100 steps ahead: 100 transitions / one jump, preset {}",
}


def _flat(content: dict[str, Any]) -> str:
    """One number a row; what nests has a row for each entry."""
    lines = ["| | |", "|---|---|"]
    for name, label in FLAT.items():
        entry = content["measures"].get(name, {})
        rows = {"": entry} if "mean" in entry else entry
        lines += [f"| {label.format(key)} | {_cell(value)} |" for key, value in rows.items()]
    return "\n".join([*lines, "", f"`{content['command']}`; {_how(content)}"])


def _layers(content: dict[str, Any]) -> str:
    """A row for each number of layers: what a step costs."""
    measures = content["measures"]
    lines = ["| layers | parameters | s per step | … checkpointing | MB | … checkpointing |", "|---" * 6 + "|"]
    for layers, parameters in measures["parameters"].items():
        times = [f"{measures[name][layers]['mean']:.2f}" for name in ("seconds", "seconds_checkpointing")]
        memory = [f"{measures[name][layers]['mean']:.0f}" for name in ("megabytes", "megabytes_checkpointing")]
        lines.append("| " + " | ".join([layers, f"{parameters['mean']:,}", *times, *memory]) + " |")
    return "\n".join([*lines, "", f"`{content['command']}`, preset `{content['preset']}`: {content['note']}."])


WAYS = {
    "tdvae": "TD-VAE, one jump",
    "step_by_step": "trained on single steps, rolled out",
    "last_frame": "last frame",
    "marginal": "marginal",
    "mean_frame": "mean frame",
}
READ = {
    "tdvae, belief": "belief b_t of TD-VAE",
    "step_by_step, belief": "belief of the model trained on single steps",
    "tdvae, frame": "last frame alone, as TD-VAE encodes it",
    "step_by_step, frame": "last frame alone, as the other encodes it",
    "pixels": "pixels of the last frame",
}


def _futures(content: dict[str, Any]) -> str:
    """What is measured of a first-person world: a column for each δt, then what is read from beliefs."""
    measures = content["measures"]
    jumps = list(measures["time_ratio"])
    rows = {
        **{f"bits per dimension: {WAYS[way]}": by_jump for way, by_jump in measures["bits_per_dim"].items()},
        **{f"ms per predicted frame: {WAYS[way]}": by_jump for way, by_jump in measures["milliseconds"].items()},
        "… ratio": measures["time_ratio"],
        "spread of futures, across z / within z": measures["future_spread_ratio"],
        **{f"change per jump, distance: {WAYS[way]}": by_jump for way, by_jump in measures["motion_distance"].items()},
    }
    lines = ["| | " + " | ".join(f"δt = {dt}" for dt in jumps) + " |", "|---" * (len(jumps) + 1) + "|"]
    lines += [
        f"| {label} | " + " | ".join(_cell(by_jump[dt]) for dt in jumps) + " |" for label, by_jump in rows.items()
    ]
    lines += ["", f"Spread of the present across z / of real frames: {_cell(measures['present_spread_ratio'])}."]
    asked = measures["pose_probe"]["pixels"]
    lines += ["", "| R², read linearly from | " + " | ".join(asked) + " |", "|---" * (len(asked) + 1) + "|"]
    for source, label in READ.items():
        read = measures["pose_probe"][source]
        lines.append(f"| {label} | " + " | ".join(_cell(read[what]) for what in asked) + " |")
    made = (
        f"`{content['command']}`, seed {', '.join(map(str, content['seeds']))}: {_time(content)}. "
        "The paper shows pictures and gives no number."
    )
    return "\n".join([*lines, "", made])


def _how(content: dict[str, Any]) -> str:
    if content["experiment"] == "bench":
        return f"{content['note']}."
    seeds = ", ".join(map(str, content["seeds"]))
    return f"seeds {seeds}: mean ± standard deviation; {_time(content)}. The paper shows pictures and gives no number."


def _cell(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    spread = "" if entry["spread"] is None else f" ± {entry['spread']:.3f}"
    mean = entry["mean"]
    return f"{mean:.1e}{spread}" if 0 < abs(mean) < 5e-4 else f"{mean:.3f}{spread}"


# name of the table → results/<file>.json, and what writes it
TABLES = {
    "oscillator": ("oscillator", _by_jump),
    "oscillator_ablations": ("oscillator_ablations", _ablations),
    "switching": ("switching", _grid),
    "moving_mnist": ("moving_mnist", _flat),
    "bench": ("bench", _flat),
    "minipacman": ("minipacman", _models),
    "minipacman_in_full": ("minipacman", _models_in_full),
    "conv_costs": ("conv_costs", _layers),
    "first_person": ("first_person", _futures),
}


def rendered(text: str) -> str:
    """A page's text with its tables as the results say."""
    pattern = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{table(match[2])}\n{match[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(rendered(path.read_text()))
