"""Which split a protocol that names none is tested on."""

from dataclasses import replace

from choicewise.data.dataset import Dataset
from choicewise.protocols.protocol import Protocol


def with_split(protocol: Protocol, dataset: Dataset) -> Protocol:
    """``protocol`` with a named split: its own, or else the one that ``dataset`` is evaluated on.

    A signature that is stored with numbers always names the split.  Raises DataError where the dataset has no such one.
    """
    return protocol if protocol.split is not None else replace(protocol, split=dataset.evaluated)
