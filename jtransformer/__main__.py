"""`python -m jtransformer`: the command line, for whoever starts it by the interpreter's path."""

import sys

from jtransformer.cli import main

sys.exit(main())
