"""MiniPacman's tables: a row for each model, the paper's numbers beside ours; parts, classes and probes."""

from __future__ import annotations

from typing import Any

from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, Table, by_key, cell
from tdvae_paper.minipacman.presets import LABELS

ROWS = LABELS | {"next_step": f"{LABELS['next_step']} (exact, no state)"}
NLL, JOINT = "−log p(x)", "−log p(x), joint"
COLUMNS = {
    "elbo": "−ELBO",
    "nll": NLL,
    "nll_joint": JOINT,
    "elbo_ratio": "−ELBO / filtering",
    "nll_ratio": f"{NLL} / filtering",
    "nll_over_next_step": f"{NLL} / next-step",
    "information_share": "share of attainable information",
}
LIMITS = {"limit": "exact limit", "limit_factorised": "exact limit of a model that scores cells independently"}
ALL_COLUMNS = {
    "elbo": "−ELBO",
    "frame": "… of which the frame given z",
    "state": "… and the state",
    "elbo_first_frame": "−ELBO of the first frame",
    "nll": f"{NLL}, frame by frame",
    "nll_joint": f"{JOINT}, whole games",
    "elbo_per_dimension": "−ELBO per RGB dimension",
}


def models(content: dict[str, Any]) -> list[Block]:
    """The paper's comparison: a row for each model, the paper's numbers beside ours."""
    columns = {name: label for name, label in COLUMNS.items() if name in content["measures"]}
    table = _by_model(content, content["measures"], columns, content["paper"])
    return [Table(table.columns, table.rows + _limit_rows(content["measures"], list(columns), len(table.columns)))]


def _limit_rows(measures: Measures, columns: list[str], width: int) -> list[list[str]]:
    """The limits and references, in the column of −log p(x)."""
    known = {label: measures[name] for name, label in LIMITS.items() if name in measures}
    rows = []
    for label, entry in (known | measures.get("references", {})).items():
        row = [label, *[""] * (width - 1)]
        row[1 + columns.index("nll")] = cell(entry)
        rows.append(row)
    return rows


def models_in_full(content: dict[str, Any]) -> list[Block]:
    """What else is measured of the models: parts and other estimates, the frame's cost by class, what probes read."""
    measures = content["measures"]
    by_class = by_key(
        ((label, measures["frame_by_class"][model]) for model, label in _rows(content).items()),
        corner="the frame given z, by what cells show",
    )
    sources = dict.fromkeys([*measures["ghost_probe"], *measures["food_probe"]])
    probes = Table(
        ["read from", "the ghost's cell, nats", "food eaten, nats per cell"],
        [
            [_source(source), *(cell(measures[name].get(source)) for name in ("ghost_probe", "food_probe"))]
            for source in sources
        ],
    )
    tables = [_by_model(content, measures | _parts(measures["elbo_terms"]), ALL_COLUMNS, {}), by_class, probes]
    if "ghost_by_age" in measures:
        ages = ((_source(source), of) for source, of in measures["ghost_by_age"].items())
        tables.append(by_key(ages, corner="the ghost's cell, nats, by steps since it was seen"))
    if "limit_parts" in measures:
        tables.append(by_key([("exact limit", measures["limit_parts"])], corner="nats per frame"))
    return [*tables]


def _parts(terms: Measures) -> Measures:
    """−ELBO in two parts: the frame given z, and all terms about z."""
    return {
        "frame": {model: terms[model]["reconstruction"] for model in terms},
        "state": {
            model: {
                "mean": sum(part["mean"] for name, part in terms[model].items() if name != "reconstruction"),
                "spread": None,
            }
            for model in terms
        },
    }


def _by_model(content: dict[str, Any], measures: Measures, columns: dict[str, str], paper: Measures) -> Table:
    """A row for each model: its measures, the paper's, and the number of its parameters."""
    told = {name: f"paper: {label}" for name, label in columns.items() if name in paper}
    rows = []
    for model, label in _rows(content).items():
        ours = [cell(measures[name].get(model)) for name in columns]
        theirs = [f"{paper[name][model]:.3g}" if model in paper[name] else "" for name in told]
        rows.append([label, *ours, *theirs, f"{content['parameters'][model]:,}"])
    return Table(["", *columns.values(), *told.values(), "parameters"], rows)


def _rows(content: dict[str, Any]) -> dict[str, str]:
    """The models that were trained, and their labels."""
    return {model: label for model, label in ROWS.items() if model in content["parameters"]}


def _source(name: str) -> str:
    model, _, part = name.partition(", ")
    return f"{LABELS[model]}'s {part}" if part else f"no model: {name}"
