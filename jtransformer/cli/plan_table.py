"""A planned sweep as a table for the terminal."""

from typing import Any

from jtransformer.cli.progress import console


def print_plan(manifest: dict[str, Any]) -> None:
    """Prints the arms of a sweep with their sizes, and what is tuned."""
    from rich.table import Table

    arms = manifest["arms"]
    table = Table(title=f"{len(arms)} arms, {len(manifest['cells'])} runs")
    for heading in ("arm", "solved", "parameters", "mismatch", "training MFLOP/token"):
        table.add_column(heading, justify="left" if heading in ("arm", "solved") else "right")
    for arm in arms:
        solved = ", ".join(
            f"{path.split('.')[-1]} {value}" for path, value in arm["matched"].items()
        )
        name = arm["name"] + (" (baseline)" if arm["name"] == arm["baseline"] else "")
        flops = arm["training_flops_per_token"] / 1e6
        table.add_row(
            name, solved, f"{arm['parameters']:,}", f"{arm['residual']:+.3%}", f"{flops:.3f}"
        )
    console().print(table)
    search = {part: value for part, value in manifest["search"].items() if value is not None}
    print(f"tuned per arm: {manifest['nuisance']}; search: {search}; seeds: {manifest['seeds']}")
