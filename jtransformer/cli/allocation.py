"""Keeps the memory that a CPU's updates free, so that the next update need not ask for it again.

XLA takes the temporaries of an update in one piece and frees them behind it. The C library gives
pieces of more than 32 MiB back to the system, which then hands out every page anew: a sixth of the
processor time of an update of 250 MB. Where updates are dispatched ahead, as JAX does, two would
hold their temporaries at a time; one after another they fill the same pages. That costs half a
millisecond an update, which is more than a small model gains, and so it is left alone.
"""

import ctypes
import platform

from jtransformer import accounting
from jtransformer.spec import RunSpec

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Names of glibc's malloc.h."""
_NEVER = 2**31 - 1
_GIVEN_BACK = 32 * 2**20
"""Bytes of the largest piece that glibc keeps."""


def reuse_memory(spec: RunSpec) -> None:
    """Has a process that trains on a CPU reuse its memory; elsewhere nothing is changed.

    For commands, before JAX starts its backend. No number is moved by it.

    Args:
        spec: What is trained, or one of several runs of about one size.
    """
    if accounting.memory(spec).activations <= _GIVEN_BACK:
        return
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if jax.default_backend() != "cpu" or platform.libc_ver()[0] != "glibc":
        return
    library = ctypes.CDLL(None)
    library.mallopt(_MMAP_MAX, 0)
    library.mallopt(_TRIM_THRESHOLD, _NEVER)
