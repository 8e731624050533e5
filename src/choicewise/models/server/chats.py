"""Questions about messages: which ones the tokens of a question spell."""

from __future__ import annotations

from choicewise.questions import Ids
from choicewise.tokens.served_chat import ServedChat
from choicewise.tokens.tokenizer import Tokenizer


class Chats:
    """Reads the messages back that :class:`~choicewise.tokens.served_chat.ServedChat` made a text of."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def messages(self, context: Ids) -> list[dict[str, str]] | None:
        """The messages that ``context`` spells, as a server takes them; None where it is no chat."""
        if not isinstance(self._tokenizer.chat, ServedChat):
            return None
        messages = ServedChat.messages(self._tokenizer.decode(context).removeprefix(" "))
        return None if messages is None else [message._asdict() for message in messages]

    def objection(self, context: Ids) -> str | None:
        """Why a chat endpoint can't be asked about ``context``; None where it can."""
        messages = self.messages(context)
        if messages is None:
            return "the server takes chats only, and this is none; ask it as a chat"
        if messages[-1]["role"] != "user":
            return "the server's chat does not go on with what the assistant has begun to say"
        return None
