"""How each reading asks: one file per reading, named like it, with its ``ASKER``."""

from functools import cache
from importlib import import_module
from typing import cast

from choicewise.requests.readings.asker import Asker


@cache
def asker(reading: str) -> Asker:
    """The asker of the reading of that name (:data:`choicewise.protocols.readings.READINGS`)."""
    return cast(Asker, import_module(f"{__name__}.{reading.replace('-', '_')}").ASKER)
