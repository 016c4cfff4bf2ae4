"""The parts of `suite.py`: what is measured, the processes that measure, and the page."""
