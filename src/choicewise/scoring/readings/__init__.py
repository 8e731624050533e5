"""How each reading's observations are combined: one file per reading, named like it, with its ``COMBINER``."""

from functools import cache
from importlib import import_module
from typing import cast

from choicewise.scoring.readings.combiner import Combiner


@cache
def combiner(reading: str) -> Combiner:
    """The combiner of the reading of that name (:data:`choicewise.protocols.readings.READINGS`)."""
    return cast(Combiner, import_module(f"{__name__}.{reading.replace('-', '_')}").COMBINER)
