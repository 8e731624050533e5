"""Which split a protocol that names none is about."""

from __future__ import annotations

from dataclasses import replace

from choicewise.data.dataset import Dataset
from choicewise.protocols.protocol import Protocol


def with_split(protocol: Protocol, dataset: Dataset) -> Protocol:
    """``protocol`` with the split it tests on ``dataset`` named: its own, or the one the dataset is evaluated on.

    A signature that is stored with numbers always names the split.  Raises DataError when the dataset leaves a choice.
    """
    return protocol if protocol.split is not None else replace(protocol, split=dataset.evaluated)
