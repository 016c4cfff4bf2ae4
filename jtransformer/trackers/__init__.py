"""Runs in the tools that others look at them with, fed from the records and never from training.

A tracker can be fed while runs are trained, later, again, or elsewhere: what it is given is a
function of the records alone, and it is given each row once.
"""

from jtransformer.trackers.feeding import TRACKERS, check_tracker, feed, kept_fed
from jtransformer.trackers.runs import Fed, TrackedRun, tracked_runs

__all__ = [
    "TRACKERS",
    "Fed",
    "TrackedRun",
    "check_tracker",
    "feed",
    "kept_fed",
    "tracked_runs",
]
