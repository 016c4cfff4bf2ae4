"""Prints by how much each step of a finished sweep of config.py differs from the one before.

Command: python experiments/from_2017_to_today/steps.py --workdir runs/from_2017

The differences and their intervals are those of the page's arm + seed model, with the step before
as the baseline; p values are Holm's over all steps.
"""

import argparse
from pathlib import Path

from jtransformer import records, stats


def table(workdir: Path) -> str:
    """Returns the steps as a Markdown table, losses as the sweep measures them."""
    analysis = stats.analyse(records.load_sweep(workdir))
    losses = {arm.name: arm.choice.validation for arm in analysis.arms if arm.choice is not None}
    names = list(losses)
    steps = {
        after: stats.fit_additive(losses, before).differences[after]
        for before, after in zip(names, names[1:], strict=False)
    }
    raw = {name: step.p for name, step in steps.items() if step.p is not None}
    adjusted = stats.adjust(raw, len(steps), "holm")
    lines = [
        f"| step | validation NLL ({analysis.data['loss_unit']}) | "
        "difference to the step before | p (Holm) |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name in names:
        values = losses[name].values()
        cells = [name, f"{sum(values) / len(values):.4f}", "—", "—"]
        if name in steps:
            cells[2] = f"{steps[name].value:+.4f}"
        if name in adjusted:
            cells[2] += f" ± {steps[name].half_width:.4f}"
            cells[3] = f"{adjusted[name]:#.3g}"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What each step gains over the one before it.")
    parser.add_argument("--workdir", type=Path, required=True)
    print(table(parser.parse_args().workdir))
