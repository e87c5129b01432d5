"""Writes the tables of README and docs from results/*.json, between `<!-- table: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/oscillator.md")
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


def table(name: str) -> str:
    """An experiment's measures as Markdown, and how they were made."""
    content: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text())
    return _ablations(content) if name.endswith("ablations") else _by_jump(content)


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
            cells.append(" / ".join(f"{value:.2f}" for value in values))
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
    minutes = max(seconds or 0 for seconds in content["train_seconds"].values()) / 60
    seeds = ", ".join(map(str, content["seeds"]))
    lines.append("")
    lines.append(
        f"`{content['command']}`, seeds {seeds}: mean ± standard deviation; at most {minutes:.0f} minutes of training "
        f"per seed on one core. The paper shows this experiment in a figure and gives no number."
    )
    return "\n".join(lines)


def _cell(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    spread = "" if entry["spread"] is None else f" ± {entry['spread']:.3f}"
    return f"{entry['mean']:.3f}{spread}"


def rendered(text: str) -> str:
    """A page's text with its tables as the results say."""
    pattern = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{table(match[2])}\n{match[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(rendered(path.read_text()))
