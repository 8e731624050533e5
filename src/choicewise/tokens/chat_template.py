"""Render chats as text: by the template of a model, in a process of its own, or as messages for a
server.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from choicewise.errors import ModelError, install_line
from choicewise.thoughts import TAGS, left_open, may_begin
from choicewise.util.cache import BoundedCache
from choicewise.util.isolate import BoundedProcess, Limits, Record, Unavailable, serve
from choicewise.util.jsonio import exact_json, json_digest
from choicewise.util.text import has_half_character

# The most of one text; windows of millions of tokens are shorter.
CHARACTERS = 10_000_000
TOO_LONG = f"gives more than {CHARACTERS} characters"

TEMPLATES = Limits(seconds=5, wait=30.0, memory=512 << 20, answer=12 * CHARACTERS)
"""The limits of a template.

A busy machine may delay a text.  A character takes at most 12 bytes in JSON.
"""

_FAULTS = ("SecurityError", "TemplateSyntaxError")
"""Errors of a template that are no answer to the messages: it reaches out of its sandbox, or is
none.
"""

_TODAY = datetime(2024, 7, 26)
"""The day that templates are given, so that an item has the same text on every day.

It is the default of the template of Llama 3.1.
"""

_MARK = "some words of the system"
_SAID = "some words of the user"
_THOUGHT = "some words of a thought"
_ANSWER = "some words of the answer"

SWITCHES = ("enable_thinking", "thinking")
"""Arguments that tell templates not to think: of Qwen3 and most others.

Of Granite and DeepSeek-V3.1.
"""

Arguments = Mapping[str, Any]
"""The named arguments of a template."""

NONE: Arguments = {}


class Message(NamedTuple):
    """One turn of a chat.  ``role``: ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


REMEMBERED = 4096
"""Rendered texts that are kept: requests of a block are rendered when they are fitted, and some
again when sent.
"""


class ChatTemplate(BoundedProcess):
    """The Jinja template ``text`` of a model, with the ``special`` tokens that it may name
    (``bos_token``: text).

    It comes from whoever made the model, so it runs in a process of its own, with bounded time and
    memory, through the sandbox of transformers.  ``digest`` (64 hex) identifies both.
    """

    module = "choicewise.tokens.chat_template"
    limits = TEMPLATES
    called = "the model's chat template"
    remedy = (
        "check chat_template in tokenizer_config.json or chat_template.jinja, or leave out the chat"
    )
    error = ModelError
    is_served: ClassVar[bool] = False
    """True if a server renders the messages."""

    def __init__(self, text: str, special: Mapping[str, str]) -> None:
        super().__init__()
        self.text = text
        self.special = dict(special)
        self.digest = json_digest([text, self.special])
        self._texts = BoundedCache[tuple[str, tuple[Message, ...]], str](REMEMBERED)
        self._closings: dict[str, str] = {}

    def render(self, messages: Sequence[Message], arguments: Arguments = NONE) -> str:
        """Return the text of ``messages`` up to where the assistant speaks, or goes on with its
        last message.

        ``arguments``: named arguments of the template, such as ``enable_thinking``.  One that
        refuses a system text gets the other messages without it, as in lm-evaluation-harness
        (``HFLM.apply_chat_template``, lm_eval/models/huggingface.py at 4e7e0d4);
        :attr:`takes_system` says so.  Raises ModelError, with the reason, if it refuses those too,
        fails, or needs more time or memory than any template has use for.
        """
        key = exact_json(dict(arguments)), tuple(messages)
        rendered = self._texts.get(key)
        if rendered is not None:
            return rendered
        turns = [message._asdict() for message in messages]
        text, refusal = self._rendered(turns, arguments)
        if refusal is not None and messages[0].role == "system":
            text, refusal = self._rendered(turns[1:], arguments)
        if refusal is not None:
            remedy = "leave out the chat, or use its other form: turns or message"
            raise ModelError(
                f"the model's chat template refuses the messages ({refusal}); {remedy}"
            )
        if not self._shows_the_user:
            raise ModelError("the model's chat template drops the user's text; leave out the chat")
        if has_half_character(text):
            raise ModelError(
                "the model's chat template writes broken characters (surrogates); leave out the "
                "chat"
            )
        self._texts.put(key, text)
        return text

    @cached_property
    def takes_system(self) -> bool:
        """Return whether the template puts a system text into the prompt."""
        return _MARK in self.render((Message("system", _MARK), Message("user", "Hello")))

    @property
    def may_think(self) -> bool:
        """Return whether its model may begin with a thought."""
        return may_begin(self.text)

    def opens(self, arguments: Arguments = NONE, begun: str = "") -> str:
        """Return the tag of the thought in which a prompt ends, or an empty text if it ends in
        none.

        ``begun``: the first words of the assistant, which stand in that thought, too.
        """
        messages = [Message("user", _SAID)]
        if begun:
            messages.append(Message("assistant", begun))
        return left_open(self.render(messages, arguments).removesuffix(begun))

    def closing(self, arguments: Arguments = NONE) -> str:
        """Return the text that the template itself writes between a thought and an answer.

        It is the text by which it closes an open thought that it is told not to have, else the one
        that it shows in a turn of the assistant's.  Raises ModelError if it shows neither.
        """
        key = exact_json(dict(arguments))
        if key not in self._closings:
            self._closings[key] = self._closing(arguments)
        return self._closings[key]

    def unthought(self, arguments: Arguments = NONE) -> str:
        """Return the text that the template itself writes between a prompt and an answer without a
        thought.

        If it has no way of leaving thoughts out: the tag that begins one, and the text that closes
        it.  Raises ModelError as :meth:`closing`.
        """
        closing = self.closing(arguments)
        if self.opens(arguments):
            return closing
        user = [Message("user", _SAID)]
        prompt = self.render(user, arguments)
        for switch in SWITCHES:
            # A template may refuse the switch.
            with suppress(ModelError):
                added = self.render(user, {**arguments, switch: False}).removeprefix(prompt)
                if added.strip().endswith(_CLOSING) and left_open(added.partition("</")[0]):
                    return added
        return next(tag for tag, end in TAGS.items() if end in closing) + closing

    def _closing(self, arguments: Arguments) -> str:
        user = {"role": "user", "content": _SAID}
        if self.opens(arguments):
            prompt, _ = self._rendered([user], arguments)
            for switch in SWITCHES:
                text, refusal = self._rendered([user], {**arguments, switch: False})
                added = text.removeprefix(prompt)
                if refusal is None and text.startswith(prompt) and _closes_thought(added):
                    return added
        turn = {"role": "assistant", "content": _ANSWER, "reasoning_content": _THOUGHT}
        text, refusal = self._rendered([user, turn], arguments, ended=True)
        _, _, after_thought = text.partition(_THOUGHT)
        between, answer, _ = after_thought.partition(_ANSWER)
        if refusal is None and answer and _closes_thought(between):
            return between
        raise ModelError(
            "the chat template does not show how a thought ends; turn thinking off (axis "
            "template), or use a protocol that generates an answer"
        )

    @cached_property
    def _shows_the_user(self) -> bool:
        """Return whether the model reads the user's message.

        A template that refuses to be tried is not judged.
        """
        text, refusal = self._rendered([{"role": "user", "content": _SAID}], NONE)
        return refusal is not None or _SAID in text

    def _rendered(
        self, messages: Sequence[Mapping[str, str]], arguments: Arguments, ended: bool = False
    ) -> tuple[str, str | None]:
        """Return the text of ``messages``, or why the template refuses them.

        ``ended``: whether the chat is over.
        """
        order = {"messages": list(messages), "arguments": dict(arguments), "ended": ended}
        answer = self._ask({"template": self.text, "special": self.special, **order})
        return answer.get("text", ""), answer.get("refused")


_CLOSING = tuple(TAGS.values())


def _closes_thought(text: str) -> bool:
    return any(tag in text for tag in _CLOSING)


TOLD = "template"
"""The role that holds the named arguments for the template of a server; no message has it."""


class ServedChat(ChatTemplate):
    """The template of a model whose server takes messages: their text is the canonical JSON of
    them.

    :meth:`messages` reads it back.  The server does not say which text it makes of them, so the
    digest does not know.
    """

    def __init__(self) -> None:
        super().__init__("", {})
        self.digest = hashlib.sha256(b"messages, as JSON").hexdigest()

    is_served = True
    takes_system = True
    """A server takes any role; whether its model reads a system text it does not say."""

    may_think = True
    """Nor does it say whether its model thinks."""

    def render(self, messages: Sequence[Message], arguments: Arguments = NONE) -> str:
        """Return the messages as JSON, each ``[role, content]``, and ``arguments`` as the content
        of :data:`TOLD`.
        """
        turns = [[message.role, message.content] for message in messages]
        if arguments:
            turns.append([TOLD, exact_json(dict(arguments))])
        return exact_json(turns)

    def opens(self, arguments: Arguments = NONE, begun: str = "") -> str:
        """Return an empty text, because the server does not say which text it makes of the
        messages.
        """
        return ""

    def closing(self, arguments: Arguments = NONE) -> str:
        """Raise ModelError: no thought can be closed in a text that the server makes."""
        raise ModelError(
            "the server renders the chat, so no thought can be closed here; turn thinking off "
            "(axis template), or name a tokenizer with a chat template"
        )

    @staticmethod
    def messages(text: str) -> list[Message] | None:
        """Return the messages of which ``text`` is the JSON, that of :data:`TOLD` included, None if
        it is none.
        """
        if not text.startswith('[["'):
            return None
        try:
            turns = json.loads(text)
            messages = [Message(role, content) for role, content in turns]
        except (ValueError, TypeError, RecursionError):
            return None
        for message in messages:
            if not (isinstance(message.role, str) and isinstance(message.content, str)):
                return None
        return messages


class MessageAlone(ServedChat):
    """The template of a model that is not named: the only message of the user, which any template
    shows.
    """

    def render(self, messages: Sequence[Message], arguments: Arguments = NONE) -> str:
        """Return the text of the message; ModelError if there are several."""
        if [message.role for message in messages] != ["user"]:
            raise ModelError(
                "a chat of several messages needs the chat template of a model; name the model"
            )
        return messages[0].content


def _prepare_rendering() -> Callable[[Record], Record]:
    """Return the function that answers with ``{"text"}``, ``{"refused"}`` or ``{"failed"}`` for a
    template.
    """
    # Nothing here needs torch, and it is slow to import.
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        from jinja2.exceptions import TemplateError
        from transformers.utils import chat_template_utils
    except ImportError as error:
        raise Unavailable(f"can't be rendered here, {error}: {install_line('hf')}") from error
    chat_template_utils.datetime = type("Today", (), {"now": staticmethod(lambda: _TODAY)})

    def answer(question: Record) -> Record:
        messages = question["messages"]
        continued = messages[-1]["role"] == "assistant"
        # A template that draws at random gives the same text every time.
        random.seed(0)
        try:
            texts, _ = chat_template_utils.render_jinja_template(
                conversations=[messages],
                chat_template=question["template"],
                add_generation_prompt=not continued,
                continue_final_message=continued and not question["ended"],
                **{**question["arguments"], **question["special"]},
            )
        except TemplateError as error:
            name = type(error).__name__
            reason = str(error)[:200]
            if name in _FAULTS:
                return {"failed": f"can't be used ({name}: {reason})"}
            return {"refused": reason}
        (text,) = texts
        if len(text) > CHARACTERS:
            return {"failed": TOO_LONG}
        return {"text": text}

    return answer


if __name__ == "__main__":
    serve(_prepare_rendering)
