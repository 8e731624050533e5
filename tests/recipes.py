"""Protocols for tests."""

from typing import Any

from choicewise.protocols.protocol import Protocol


def mmlu_protocol(**axes: Any) -> Protocol:
    """A protocol of the benchmark MMLU; axes that are left out have their defaults."""
    return Protocol(**{"benchmark": "mmlu", **axes})
