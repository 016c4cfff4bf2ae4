"""The command line. Each command imports what it needs when it is called."""

from jtransformer.cli.main import main

__all__ = ["main"]
