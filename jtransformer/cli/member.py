"""One of several processes that train a run; `jtransformer train` starts it and nobody else.

usage: python -m jtransformer.cli.member JOIN FOLDER ERRORS [what follows `jtransformer train`]
"""

import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from jtransformer import records
from jtransformer.cli.joins import AUTO, LOOPBACK, Join
from jtransformer.cli.main import FAILED_RUN, REQUEUE, outcome, quiet_libraries
from jtransformer.spec import SpecError

HEARTBEAT_SECONDS = 20
"""After so long without a word from a process it counts as lost, and the others end."""
END_SECONDS = 60
PARENT_SECONDS = 1.0


def main() -> None:
    """Runs the process and ends it, without a word of the libraries that are shut down by that."""
    join, folder = Join(*json.loads(sys.argv[1])), Path(sys.argv[2])
    # Heard once training has begun: all have to stop at the same update.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, args=(os.getppid(),), daemon=True).start()
    # Gloo prints to standard output, from C++: what Python prints goes another way.
    shown = os.dup(1), int(sys.argv[3])
    os.dup2(2, 1)
    quiet_libraries()
    log = open(2, "w", buffering=1, closefd=False)
    logging.basicConfig(stream=log)
    threading.excepthook = lambda failure: traceback.print_exception(failure.exc_value, file=log)
    sentence: str | None = None
    try:
        code, sentence = outcome(lambda: _train(join, folder, shown))
    # The boundary of the process: what it is goes to the log, and the parent says that it is.
    except BaseException:
        traceback.print_exc(file=log)
        code = FAILED_RUN
    if sentence is not None:
        records.write_json(folder / "said", {"sentence": sentence})
    if code in (0, REQUEUE):
        import jax

        jax.distributed.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # An ordinary end would wait for processes that may be lost.
    os._exit(code)


def _train(join: Join, folder: Path, shown: tuple[int, int]) -> int:
    import jax

    from jtransformer.cli import train
    from jtransformer.cli.progress import say_to

    _join(join)
    number, count = jax.process_index(), jax.process_count()
    records.write_json(folder / "begun", {"process": number, "processes": count})
    if number == 0:
        # Libraries tell of a failure by the page; what this one says of itself is shown.
        sys.stdout, remarks = (open(stream, "w", buffering=1) for stream in shown)
        say_to(remarks)
        logging.getLogger("jtransformer").addHandler(logging.StreamHandler(remarks))
    return train.run(sys.argv[4:])


def _join(join: Join) -> None:
    """Comes to the other processes.

    Raises:
        SpecError: If they are not to be found.
    """
    import jax

    where = AUTO if join.address is None else join.address
    try:
        jax.distributed.initialize(
            coordinator_address=join.address,
            num_processes=join.processes,
            process_id=join.process,
            local_device_ids=join.devices,
            cluster_detection_method=None if join.address is None else "deactivate",
            coordinator_bind_address=join.address if _is_local(join) else None,
            initialization_timeout=join.seconds,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=END_SECONDS,
        )
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        if join.address is None:
            remedy = "start them by Slurm's srun or on the hosts of a TPU, or give HOST:PORT,N,I"
        else:
            remedy = "give the host of process 0, with a port that is free there"
        raise SpecError(
            "--distributed", f"= {where} finds no other processes ({reason}); {remedy}."
        ) from error


def _is_local(join: Join) -> bool:
    return join.address is not None and join.address.startswith(f"{LOOPBACK}:")


def _follow_parent(parent: int) -> None:
    """Asks this process to stop when the one that started it has gone."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PARENT_SECONDS)


if __name__ == "__main__":
    main()
