"""Memory that allocators keep for themselves, and that of a model whose work is done."""

import ctypes
import gc
from contextlib import suppress

import pyarrow as pa


def give_memory_back() -> None:
    """Return freed memory to the system, so that what follows a run does not need its own on top.

    After millions of small objects the C library keeps hundreds of megabytes; other C libraries than glibc do it by
    themselves, or not at all.  Garbage is not looked for: a run of any size leaves some dozens of objects in cycles,
    and beside torch the search takes a third of a second.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def give_model_back() -> None:
    """Return the memory of models that nobody uses any more, also of those whose parts refer to each other."""
    gc.collect()
    give_memory_back()
