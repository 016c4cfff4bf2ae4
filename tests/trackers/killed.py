"""Feeds a tracker and dies of SIGKILL at a chosen moment, what it is writing torn.

usage: python killed.py WORKDIR TRACKER INTO MOMENT

A moment is the n-th time that something is made durable or renamed; 0 is never. Prints how many
there were.
"""

import os
import signal
import stat
import sys
from pathlib import Path

from jtransformer.trackers import feed

WORKDIR, TRACKER, INTO, MOMENT = sys.argv[1:]
passed = []


def dies_in_time(function):
    def call(*arguments, **options):
        passed.append(function.__name__)
        if len(passed) == int(MOMENT):
            if function is fsync and stat.S_ISREG(os.fstat(arguments[0]).st_mode):
                os.ftruncate(arguments[0], os.fstat(arguments[0]).st_size * 2 // 3)
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    return call


fsync = os.fsync
os.fsync, os.rename, os.replace = map(dies_in_time, (os.fsync, os.rename, os.replace))
feed(Path(WORKDIR), TRACKER, Path(INTO))
sys.stdout.write(str(len(passed)))
