"""A sweep of twelve runs, and a trainer that only writes what training would."""

import json
import sys
from typing import NamedTuple

import children
from plan_fixture import ABOUT, FFN, plan_of, sha

from jtransformer import accounting, records
from jtransformer.spec import fingerprint
from jtransformer.sweep import Launch, Worker, cell_spec, manifest
from jtransformer.sweep.processes import this_process

LAUNCH = Launch(identity="first")
RATES = {"optimizer.learning_rate": (1e-3, 4e-3)}
SWEEP = manifest(plan_of(FFN, nuisance=RATES, seeds=(0, 1)), ABOUT)
CELLS = SWEEP["cells"]
EXECUTION = {"mode": "loop", "runs_at_once": 1, "steps_per_dispatch": 1}


class Ended(NamedTuple):
    place: int
    error: BaseException | None


class Trainer:
    """Writes a status with `changes`; `before` may do anything first."""

    def __init__(self, before=lambda spec, directory: None, changes=lambda: {}):
        self.before, self.changes, self.trained = before, changes, []

    def identify(self, spec):
        return fingerprint(spec, sha(spec), records.SCHEMA)

    def group_of(self, spec):
        return spec.model.ffn

    def choose(self, spec, *, runs, updates):
        return EXECUTION

    def train_group(self, cells, execution):
        for place, (spec, directory) in enumerate(cells):
            try:
                self.train(spec, directory)
            except BaseException as error:
                yield Ended(place, error)
            else:
                yield Ended(place, None)

    def train(self, spec, directory):
        self.trained.append((spec.model.ffn, spec.optimizer.learning_rate, spec.seed))
        self.before(spec, directory)
        status = status_of(spec, self.identify(spec))
        for part, values in self.changes().items():
            status[part] |= values
        records.RunFiles(directory).failure.unlink(missing_ok=True)
        assert records.create_json(records.RunFiles(directory).status, status), "completed twice"
        return status


def status_of(spec, identity):
    pairing = {"sampling": "s", "first_batch": f"f{spec.seed}", "last_batch": "l", "initial": {}}
    result = {"parameters": accounting.parameters(spec.model).total}
    status = {"fingerprint": identity, "state": "done", "result": result}
    return status | {"pairing": pairing, "timing": {}}


def work(workdir, trainer, launch=LAUNCH, should_stop=lambda: False):
    """Lets one worker work; returns whether it came to the end, what ended, how many failed."""
    ended = []
    one = Worker("one", workdir, SWEEP, launch)
    complete = one.work(
        trainer,
        on_done=lambda cell, state: ended.append((cell["directory"], state)),
        should_stop=should_stop,
    )
    return complete, ended, one.failed()


def failing(times, spec=None):
    """Returns what fails so often, for the first cell or that of a spec."""
    chosen = spec or cell_spec(SWEEP, CELLS[0])
    left = [times]

    def fail(spec, directory):
        if spec == chosen and left[0]:
            left[0] -= 1
            raise ValueError("no such luck")

    return fail


def vanished(workdir, cell, **content):
    """Writes the claim of a worker whose process has ended."""
    gone = children.start([sys.executable, "-c", ""])
    gone.wait()
    process = this_process() | {"pid": gone.pid, "started": 1}
    claims = workdir / cell["directory"] / "claims"
    claims.mkdir(parents=True)
    about = {"process": process, "released": False, "launch": LAUNCH.identity, **content}
    (claims / "1.json").write_text(json.dumps(about))


def failure(workdir, cell):
    return records.read_json(workdir / cell["directory"] / "failure.json")
