"""Where workers run: every launcher starts `jtransformer worker` and nothing else."""

from jtransformer.sweep.launchers.choice import launcher
from jtransformer.sweep.launchers.protocol import LOST, Handle, Launcher

__all__ = ["LOST", "Handle", "Launcher", "launcher"]
