"""Making a request again while its fault may heal."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import local
from typing import TypeVar

import stamina
from stamina.instrumentation import RetryDetails, RetryHook, get_on_retry_hooks, set_on_retry_hooks

from choicewise.models.server.faults import Passing

T = TypeVar("T")
_ours = local()


def healed(
    request: Callable[[], T],
    patience: float,
    on_fault: Callable[[Passing], None] = lambda fault: None,
    stopped: Callable[[], bool] = lambda: False,
) -> T:
    """What ``request`` returns, made again with growing, jittered pauses where it raises :class:`Passing`.

    Where the server asks to wait (Retry-After), that long is waited.  No try begins later than ``patience`` seconds
    after the first, or once ``stopped()``.  ``on_fault`` is called with every fault.  Raises what becomes of the last.
    """
    _silence()
    begun, tried = time.monotonic(), 0

    def again(error: Exception) -> bool | float:
        if not isinstance(error, Passing) or stopped() or (error.tries is not None and tried >= error.tries):
            return False
        if time.monotonic() - begun + (error.wait or 0) > patience:
            return False
        return error.wait + random.random() if error.wait else True  # not all at the same moment

    _ours.retrying = True
    try:
        for attempt in stamina.retry_context(
            on=again, attempts=None, timeout=None, wait_initial=0.5, wait_max=20.0, wait_jitter=1.0
        ):
            with attempt:
                tried += 1
                try:
                    return request()
                except Passing as fault:
                    on_fault(fault)
                    raise
    except Passing as fault:
        unhealed = fault.unhealed(tried)
    finally:
        _ours.retrying = False
    raise unhealed


def _silence() -> None:
    """Call the hooks of stamina, which write to the log, for the retries of other programs alone."""
    hooks = get_on_retry_hooks()
    if not all(isinstance(hook, _Others) for hook in hooks):
        set_on_retry_hooks(hook if isinstance(hook, _Others) else _Others(hook) for hook in hooks)


class _Others:
    """A hook that is called for retries that are not ours."""

    def __init__(self, hook: RetryHook) -> None:
        self._hook = hook

    def __call__(self, details: RetryDetails) -> AbstractContextManager[None] | None:
        return None if getattr(_ours, "retrying", False) else self._hook(details)
