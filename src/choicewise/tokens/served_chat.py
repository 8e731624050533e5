"""Chats of which a server makes the text itself: the messages are what it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from choicewise.tokens.chat_template import ChatTemplate, Message


class ServedChat(ChatTemplate):
    """The template of a model whose server takes messages: their text is the canonical JSON of them.

    :meth:`messages` reads it back.  What the server makes of them it does not say, so it is no part of the digest.
    """

    def __init__(self) -> None:
        super().__init__("", {})
        self.digest = hashlib.sha256(b"messages, as JSON").hexdigest()

    takes_system = True
    """A server takes any role; whether its model reads a system text it does not say."""

    def render(self, messages: Sequence[Message]) -> str:
        """The messages as JSON, each ``[role, content]``."""
        return json.dumps([[message.role, message.content] for message in messages], ensure_ascii=False)

    @staticmethod
    def messages(text: str) -> list[Message] | None:
        """The messages of which ``text`` is the JSON; None where it is none."""
        if not text.startswith('[["'):
            return None
        try:
            turns = json.loads(text)
            messages = [Message(role, content) for role, content in turns]
        except (ValueError, TypeError, RecursionError):
            return None
        return messages if all(isinstance(each, str) for message in messages for each in message) else None
