"""The protocols of text that a model wrote: a letter by every published rule that reads texts of the log's form."""

from string import ascii_uppercase

from choicewise.interchange.logs.log import Log
from choicewise.protocols.consistency import NEUTRAL
from choicewise.protocols.protocol import Protocol

UNLIMITED = 1_000_000
"""Tokens that a model may write where its log names no limit."""


def text_protocols(log: Log, requests: str) -> dict[str, Protocol]:
    """By name what the rules of ``log`` make of its text; ``requests``: the digest of what was asked (64 hex)."""
    limit = log.settings.get("max_tokens", "")
    return {
        f"{log.task}:{rule}": Protocol(
            benchmark=log.task,
            split="test",
            requests=requests,
            **{**NEUTRAL, "letters": ascii_uppercase},
            reading="generate",
            new_tokens=int(limit) if limit.isdecimal() and int(limit) else UNLIMITED,
            score="none",
            decision=rule,
            ties="none",
            metric="exact_match",
        )
        for rule in log.rules
    }
