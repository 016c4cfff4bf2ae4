"""A Slurm of one node on this machine: two partitions, the high one pre-empts by requeue."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import time

import children

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun")
CONFIGURATION = """ClusterName=tiny
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
KillWait=60
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=2000 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=high Nodes={host} State=UP PriorityTier=10 PreemptMode=OFF
"""


def is_installed():
    return os.geteuid() == 0 and all(map(shutil.which, PROGRAMS))


@contextlib.contextmanager
def running(folder: pathlib.Path):
    """Yields the environment in which Slurm's commands find it."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    text = CONFIGURATION.format(host=host, folder=folder, cores=os.cpu_count())
    (folder / "slurm.conf").write_text(text)
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    run = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = []
    try:
        if subprocess.run(["munge", "-n"], **run).returncode != 0:
            pathlib.Path("/run/munge").mkdir(exist_ok=True)
            shutil.chown("/run/munge", "munge", "munge")
            words = ["runuser", "-u", "munge", "--", "/usr/sbin/munged", "--foreground"]
            processes.append(subprocess.Popen(words, **run))
            time.sleep(1)
        for words in (["slurmctld", "-D", "-c"], ["slurmd", "-D"]):
            processes.append(subprocess.Popen(words, **run))
        end = time.monotonic() + 60
        while "idle" not in ask(environment, "sinfo", "--noheader", "--format=%T"):
            assert time.monotonic() < end, (folder / "slurmctld.log").read_text()
            time.sleep(0.2)
        yield environment
    finally:
        for process in reversed(processes):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)
            children.end(process)


def ask(environment, *words):
    return subprocess.run(words, env=environment, capture_output=True, text=True).stdout
