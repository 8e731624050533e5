"""Chats as text: by the template of a model, rendered in a process of its own, or by the server."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from choicewise.data.items import has_half_character
from choicewise.errors import ModelError, install_line
from choicewise.util.cache import BoundedCache
from choicewise.util.isolate import BoundedProcess, Limits, Record, Unavailable, serve
from choicewise.util.jsonio import exact_json, json_digest

CHARACTERS = 10_000_000  # of one text at most; windows of millions of tokens are shorter
TOO_LONG = f"gives more than {CHARACTERS} characters"

TEMPLATES = Limits(seconds=5, wait=30.0, memory=512 << 20, answer=12 * CHARACTERS)
"""Of a template; a busy machine may delay a text.  A character takes at most 12 bytes in JSON."""

_FAULTS = ("SecurityError", "TemplateSyntaxError")
"""Errors of a template that are no answer to the messages: it reaches out of its sandbox, or is none."""

_TODAY = datetime(2024, 7, 26)
"""The day that templates are told, so that the same question has the same text on every day.

It is the one that the template of Llama 3.1 takes where it is told none.
"""

_MARK = "some words of the system"
_SAID = "some words of the user"


class Message(NamedTuple):
    """One turn of a chat.  ``role``: ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


REMEMBERED = 4096
"""Texts that are remembered: the prompts of a block are rendered when they are fitted, and some again when asked."""


class ChatTemplate(BoundedProcess):
    """The Jinja template ``text`` of a model, with the ``special`` tokens that it may name (``bos_token``: text).

    It comes from whoever made the model, so it runs in a process of its own, with bounded time and memory
    (:mod:`choicewise.tokens.chat_template`), through the sandbox of transformers.  ``digest`` (64 hex) identifies both.
    """

    module, limits = "choicewise.tokens.chat_template", TEMPLATES
    called = "the model's chat template"
    remedy = "read it (chat_template in tokenizer_config.json, or chat_template.jinja), or ask without a chat"
    error = ModelError

    def __init__(self, text: str, special: Mapping[str, str]) -> None:
        super().__init__()
        self.text = text
        self.special = dict(special)
        self.digest = json_digest([text, self.special])
        self._texts = BoundedCache[tuple[Message, ...], str](REMEMBERED)

    def render(self, messages: Sequence[Message]) -> str:
        """The text of ``messages`` up to where the assistant speaks, or goes on with the last message if that is its.

        A template that refuses a system text gets the other messages without it, as in lm-evaluation-harness
        (``HFLM.apply_chat_template``, lm_eval/models/huggingface.py at 4e7e0d4); :attr:`takes_system` says so.  Raises
        ModelError, with the reason, when it refuses those too, fails, or needs more time or memory than any template
        has use for.
        """
        key = tuple(messages)
        if (known := self._texts.get(key)) is not None:
            return known
        text, refused = self._rendered(*key)
        if refused is not None and key[0].role == "system":
            text, refused = self._rendered(*key[1:])
        if refused is not None:
            remedy = "ask without a chat, or in the other form of it: turns or message"
            raise ModelError(f"the model's chat template refuses the messages ({refused}); {remedy}")
        if not self._shows_the_user:
            raise ModelError("the model's chat template leaves out what the user says; ask without a chat")
        if has_half_character(text):
            raise ModelError("the model's chat template gives halves of characters (surrogates); ask without a chat")
        self._texts.put(key, text)
        return text

    @cached_property
    def takes_system(self) -> bool:
        """Whether a system text is part of what the model reads."""
        return _MARK in self.render((Message("system", _MARK), Message("user", "Hello")))

    @cached_property
    def _shows_the_user(self) -> bool:
        """Whether the model reads what it is asked; a template that refuses to be tried is not judged."""
        text, refused = self._rendered(Message("user", _SAID))
        return refused is not None or _SAID in text

    def _rendered(self, *messages: Message) -> tuple[str, str | None]:
        """The text of ``messages``, or why the template itself refuses them."""
        asked = [message._asdict() for message in messages]
        answer = self._ask({"template": self.text, "special": self.special, "messages": asked})
        return answer.get("text", ""), answer.get("refused")


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
        return exact_json([[message.role, message.content] for message in messages])

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


def _prepare_rendering() -> Callable[[Record], Record]:
    """What the process does: ``{"text"}`` or ``{"refused"}`` for ``{"template", "special", "messages"}``."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # nothing here needs it, and it is slow to import
    try:
        from jinja2.exceptions import TemplateError
        from transformers.utils import chat_template_utils
    except ImportError as error:
        raise Unavailable(f"can't be rendered here, {error}: {install_line('hf')}") from error
    chat_template_utils.datetime = type("Today", (), {"now": staticmethod(lambda: _TODAY)})

    def answer(question: Record) -> Record:
        messages = question["messages"]
        continued = messages[-1]["role"] == "assistant"
        random.seed(0)  # a template that draws at random gives the same text every time
        try:
            texts, _ = chat_template_utils.render_jinja_template(
                conversations=[messages],
                chat_template=question["template"],
                add_generation_prompt=not continued,
                continue_final_message=continued,
                **question["special"],
            )
        except TemplateError as error:
            name, reason = type(error).__name__, str(error)[:200]
            if name in _FAULTS:
                return {"failed": f"can't be used ({name}: {reason})"}
            return {"refused": reason}
        return {"text": texts[0]} if len(texts[0]) <= CHARACTERS else {"failed": TOO_LONG}

    return answer


if __name__ == "__main__":
    serve(_prepare_rendering)
