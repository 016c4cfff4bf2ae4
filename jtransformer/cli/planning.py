"""From a config file to the plan of its sweep, also as the continuation of what there is."""

from pathlib import Path
from typing import Any

from jtransformer import records
from jtransformer.cli.arguments import Experiment
from jtransformer.cli.corpora import Corpora
from jtransformer.sweep import (
    Plan,
    adopt,
    check_continuation,
    judged_before,
    make_plan,
    manifest,
    read_declaration,
)


def read_plan(experiment: Experiment, corpora: Corpora) -> Plan:
    """Returns the plan of a config file that has a get_sweep(), held against its data.

    Raises:
        SpecError: For whatever is wrong with it.
    """
    plan = make_plan(
        experiment.tree,
        read_declaration(experiment.sweep),
        corpora.sha256,
        start_sha256=corpora.starts.sha256,
        touched=experiment.touched,
        inherited=experiment.inherited,
    )
    corpora.check(plan)
    return plan


def continued(plan: Plan, workdir: Path, about: dict[str, Any]) -> tuple[Plan, dict[str, Any], int]:
    """Returns a plan as the continuation of what a work directory has; writes nothing.

    Args:
        plan: The plan.
        workdir: The work directory; it may hold no sweep.
        about: As `manifest` takes it.

    Returns:
        The plan, its manifest, and by how many runs the sweep there grows.

    Raises:
        SpecError: If the sweep there is no part of the plan.
    """
    old = records.load_manifest(workdir)
    if old is None:
        return plan, manifest(plan, about), 0
    plan = adopt(plan, old)
    new = manifest(plan, about)
    grown = check_continuation(old, new, workdir)
    return plan, judged_before(old, new, workdir), grown
