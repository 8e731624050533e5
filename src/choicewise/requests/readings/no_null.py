"""Readings whose scores never compare with a null context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from choicewise.errors import ProtocolError
from choicewise.protocols.protocol import Protocol
from choicewise.requests.request import Request

if TYPE_CHECKING:
    from choicewise.requests.prepared_block import Answerer, PreparedBlock


class NoNull:
    """Refuses null contexts, which no score of these readings names."""

    def ask_null(
        self, block: PreparedBlock, protocol: Protocol, null: str, requests: Sequence[Request], model: Answerer
    ) -> None:
        """Raises ProtocolError."""
        raise ProtocolError(f"reading {protocol.reading} has no score that compares with a null context")
