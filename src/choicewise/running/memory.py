"""Memory that allocators keep for themselves."""

import ctypes
import gc
from contextlib import suppress

import pyarrow as pa


def give_memory_back() -> None:
    """Return freed memory to the system, so that what follows a run does not need its own on top.

    After millions of small objects the C library keeps hundreds of megabytes; other C libraries than glibc do it by
    themselves, or not at all.
    """
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
