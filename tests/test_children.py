"""Tests for what ends the processes that tests start."""

import os
import signal
import subprocess
import sys

import children

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
LEFT: list[subprocess.Popen] = []


def test_a_paused_process_is_ended_and_its_pipes_are_closed():
    process = children.start(SLEEP, stdout=subprocess.PIPE)
    os.kill(process.pid, signal.SIGSTOP)
    children.end(process)
    assert process.returncode == -signal.SIGKILL and process.stdout.closed


def test_what_a_test_leaves_behind():
    LEFT.append(children.start(SLEEP, stdout=subprocess.PIPE))
    assert LEFT[0].poll() is None


def test_is_ended_before_the_next_one():
    assert [process.returncode for process in LEFT] in ([-signal.SIGKILL], [])
