"""A run's directory: whose it is, and where its numbers were computed."""

from typing import Any

import jax

from jtransformer import records
from jtransformer.spec import RunSpec, SpecError, to_tree
from jtransformer.training.environment import check_same_environment, environment
from jtransformer.training.optimizer import decayed


def claim(files: records.RunFiles, spec: RunSpec, data_sha256: str, identity: str) -> None:
    """Makes a run's directory, or refuses one that belongs to another run."""
    files.directory.mkdir(parents=True, exist_ok=True)
    if files.spec.exists():
        found = records.read_json(files.spec)["fingerprint"]
        if found != identity:
            raise SpecError(
                "",
                f"{files.directory} belongs to another run (fingerprint {found[:8]}, this run is "
                f"{identity[:8]}); use another work directory.",
            )
        return
    about = {
        "schema": records.SCHEMA,
        "fingerprint": identity,
        "data_sha256": data_sha256,
        "spec": to_tree(spec),
    }
    records.write_json(files.spec, about)


def record_environment(files: records.RunFiles, parameters: Any, accept: bool) -> None:
    """Writes where a run is computed, or refuses another place than it was begun in."""
    present = environment()
    if files.environment.exists():
        recorded = records.read_json(files.environment)
        if accept and any(recorded.get(name) != value for name, value in present.items()):
            event = {"event": "continued in another environment", "before": recorded}
            records.append_row(files.events, event)
        elif not accept:
            check_same_environment(recorded, present)
            return
    names = [
        "/".join(entry.key for entry in path)
        for path, is_decayed in jax.tree_util.tree_leaves_with_path(decayed(parameters))
        if is_decayed
    ]
    records.write_json(files.environment, present | {"decayed_parameters": names})
