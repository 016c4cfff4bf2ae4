"""One row per run: what `results.csv` and `timings.csv` hold."""

from typing import Any

import pandas

from jtransformer.records import RunRecord, SweepRecord
from jtransformer.stats.selection import choose, count, is_chosen

_COUNTS = ("steps", "tokens", "best_step", "diverged_at", "parameters", "training_flops_per_token")


def results_table(record: SweepRecord) -> pandas.DataFrame:
    """Tabulates every run in the manifest's order, with nothing of the clock in it.

    Losses are in the unit of the manifest, and once in bits. The test loss stands only at an
    arm's chosen setting, once all runs of the arm are finished; a run's `parameters` and
    `training_flops_per_token` are those of its arm.

    Returns:
        One row per cell. Counts are nullable integers and losses floats, so that the table's CSV
        is the same text whenever the runs are the same.
    """
    manifest = record.manifest
    scientific = list(dict.fromkeys(path for arm in manifest["arms"] for path in arm["factors"]))
    nuisance = list(dict.fromkeys(p for run in record.runs for p in run.cell["nuisance"]))
    extra = _extra_columns(record)
    bits_name = f"validation_bits_per_{manifest['data']['loss_unit'].removeprefix('nats/')}"
    heading = _headings([*scientific, *nuisance], extra | {bits_name})
    arms = {arm["name"]: arm for arm in manifest["arms"]}
    final = {name: _final_choice(record, name) for name in arms}
    rows = []
    for run in record.runs:
        cell, arm = run.cell, arms[run.cell["arm"]]
        rows.append(
            {"arm": cell["arm"]}
            | ({"scale": arm["scale"]} if "scale" in extra else {})
            | {heading[path]: arm["factors"].get(path) for path in scientific}
            | {heading[path]: cell["nuisance"].get(path) for path in nuisance}
            | ({"rung": cell["rung"]["number"]} if "rung" in extra else {})
            | _outcome(run, arm, is_chosen(run, final[cell["arm"]]), bits_name)
            | {"fingerprint": cell["fingerprint"]}
        )
    table = pandas.DataFrame(rows)
    return table.astype({name: "Int64" for name in _COUNTS if name in table})


def timings_table(record: SweepRecord) -> pandas.DataFrame:
    """Tabulates the clock's part of every run: seconds and tokens per second."""
    keys = ("wall_seconds", "tokens_per_second")
    rows = []
    for run in record.runs:
        timing = run.status["timing"] if run.status else {}
        device = (run.environment or {}).get("device_kind")
        rows.append(
            {"arm": run.cell["arm"], "directory": run.cell["directory"], "state": run.state}
            | {key: timing.get(key) for key in keys}
            | {"device_kind": device}
        )
    return pandas.DataFrame(rows).astype(dict.fromkeys(keys, "float64"))


def _outcome(run: RunRecord, arm: dict[str, Any], selected: bool, bits_name: str) -> dict[str, Any]:
    result = run.status["result"] if run.status else {}
    losses = ("train_nll", "validation_nll", bits_name, "best_validation_nll")
    values = {key: _number(result.get(key)) for key in (*losses, "test_nll")}
    values[bits_name] = bits(values["validation_nll"])
    return {
        "seed": run.cell["seed"],
        "state": run.state,
        "selected": selected,
        "parameters": arm["parameters"],
        "training_flops_per_token": arm["training_flops_per_token"],
        "steps": result.get("steps"),
        "tokens": result.get("tokens"),
        **{key: values[key] for key in losses},
        "best_step": result.get("best_step"),
        "test_nll": values["test_nll"] if selected else float("nan"),
        "diverged_at": result.get("diverged_at"),
    }


def bits(nats: float) -> float:
    """Converts nats to bits."""
    # The divisor is ln 2 as a double: a literal keeps the CSV free of any maths library's rounding.
    return nats / 0.6931471805599453


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _final_choice(record: SweepRecord, arm: str):
    runs = [run for run in record.runs if run.cell["arm"] == arm]
    return choose(runs) if count(runs).complete else None


def _extra_columns(record: SweepRecord) -> set[str]:
    """Returns the columns that only some sweeps have."""
    scales = {"scale"} if record.manifest.get("scales") else set()
    return scales | {"rung" for run in record.runs if "rung" in run.cell}


def _headings(paths: list[str], extra: set[str]) -> dict[str, str]:
    """Names columns by the last component of a path, or by all of it where that is taken."""
    fixed = {"arm", "seed", "state", "selected", "fingerprint", "train_nll", "validation_nll"}
    fixed |= extra | {"best_validation_nll", "test_nll", *_COUNTS}
    last = [path.rsplit(".", 1)[-1] for path in paths]
    taken = fixed | {name for name in last if last.count(name) > 1}
    return {path: path if name in taken else name for path, name in zip(paths, last, strict=True)}
