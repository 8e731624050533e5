"""Chats as text: by the template of a model, rendered in a process of its own, or by the server."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

from choicewise.errors import ModelError, install_line
from choicewise.thoughts import TAGS, left_open, may_begin
from choicewise.util.cache import BoundedCache
from choicewise.util.isolate import BoundedProcess, Limits, Record, Unavailable, serve
from choicewise.util.jsonio import exact_json, json_digest
from choicewise.util.text import has_half_character

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
_THOUGHT, _ANSWER = "some words of a thought", "some words of the answer"

SWITCHES: Final = ("enable_thinking", "thinking")
"""By which arguments templates are told not to think: Qwen3 and most others; Granite and DeepSeek-V3.1."""

Arguments = Mapping[str, Any]
"""What a template is told by name."""

NONE: Final[Arguments] = {}


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
        self._texts = BoundedCache[tuple[str, tuple[Message, ...]], str](REMEMBERED)
        self._closings: dict[str, str] = {}

    def render(self, messages: Sequence[Message], arguments: Arguments = NONE) -> str:
        """The text of ``messages`` up to where the assistant speaks, or goes on with the last message if that is its.

        ``arguments``: what the template is told besides, such as ``enable_thinking``.  One that refuses a system text
        gets the other messages without it, as in lm-evaluation-harness (``HFLM.apply_chat_template``,
        lm_eval/models/huggingface.py at 4e7e0d4); :attr:`takes_system` says so.  Raises ModelError, with the reason,
        when it refuses those too, fails, or needs more time or memory than any template has use for.
        """
        key = exact_json(dict(arguments)), tuple(messages)
        if (known := self._texts.get(key)) is not None:
            return known
        asked = [message._asdict() for message in messages]
        text, refused = self._rendered(asked, arguments)
        if refused is not None and messages[0].role == "system":
            text, refused = self._rendered(asked[1:], arguments)
        if refused is not None:
            remedy = "ask without a chat, or in the other form of it: turns or message"
            raise ModelError(
                f"the model's chat template refuses the messages ({refused}); {remedy}"
            )
        if not self._shows_the_user:
            raise ModelError(
                "the model's chat template leaves out what the user says; ask without a chat"
            )
        if has_half_character(text):
            raise ModelError(
                "the model's chat template gives halves of characters (surrogates); ask without a chat"
            )
        self._texts.put(key, text)
        return text

    @cached_property
    def takes_system(self) -> bool:
        """Whether a system text is part of what the model reads."""
        return _MARK in self.render((Message("system", _MARK), Message("user", "Hello")))

    @property
    def may_think(self) -> bool:
        """Whether its model may begin with a thought."""
        return may_begin(self.text)

    def opens(self, arguments: Arguments = NONE, begun: str = "") -> str:
        """What begins the thought in which a prompt ends, or in which what the assistant has ``begun`` to say stands.

        Empty for none.
        """
        messages = [Message("user", _SAID), *([Message("assistant", begun)] if begun else [])]
        return left_open(self.render(messages, arguments).removesuffix(begun))

    def closing(self, arguments: Arguments = NONE) -> str:
        """What the template itself writes between a thought and an answer.

        As it closes an open thought that it is told not to have, else as it shows one in a turn of the assistant's.
        Raises ModelError where it shows neither.
        """
        key = exact_json(dict(arguments))
        if key not in self._closings:
            self._closings[key] = self._closing(arguments)
        return self._closings[key]

    def unthought(self, arguments: Arguments = NONE) -> str:
        """What stands between a prompt and an answer without a thought, as the template itself writes it.

        Where it has no way of leaving thoughts out: the tag that begins one, and what closes it.  ModelError as
        :meth:`closing`.
        """
        closing = self.closing(arguments)
        if self.opens(arguments):
            return closing
        asked = [Message("user", _SAID)]
        for switch in SWITCHES:
            with suppress(ModelError):  # of a template that refuses the switch
                more = self.render(asked, {**arguments, switch: False}).removeprefix(
                    self.render(asked, arguments)
                )
                if any(more.strip().endswith(tag) for tag in _CLOSING) and left_open(
                    more.partition("</")[0]
                ):
                    return more
        return next(tag for tag, shut in TAGS.items() if shut in closing) + closing

    def _closing(self, arguments: Arguments) -> str:
        user = {"role": "user", "content": _SAID}
        if self.opens(arguments):
            prompt, _ = self._rendered([user], arguments)
            for switch in SWITCHES:
                text, refused = self._rendered([user], {**arguments, switch: False})
                if (
                    refused is None
                    and text.startswith(prompt)
                    and any(tag in text[len(prompt) :] for tag in _CLOSING)
                ):
                    return text[len(prompt) :]
        turn = {"role": "assistant", "content": _ANSWER, "reasoning_content": _THOUGHT}
        text, refused = self._rendered([user, turn], arguments, ended=True)
        between, shown, _ = text.partition(_THOUGHT)[2].partition(_ANSWER)
        if refused is None and shown and any(tag in between for tag in _CLOSING):
            return between
        raise ModelError(
            "the model's chat template does not show how it ends a thought, so none can be closed; tell it not to "
            "think (axis template), or use a protocol that generates an answer"
        )

    @cached_property
    def _shows_the_user(self) -> bool:
        """Whether the model reads what it is asked; a template that refuses to be tried is not judged."""
        text, refused = self._rendered([{"role": "user", "content": _SAID}], NONE)
        return refused is not None or _SAID in text

    def _rendered(
        self, messages: Sequence[Mapping[str, str]], arguments: Arguments, ended: bool = False
    ) -> tuple[str, str | None]:
        """The text of ``messages``, or why the template itself refuses them; ``ended``: whether nobody goes on."""
        asked = {"messages": list(messages), "arguments": dict(arguments), "ended": ended}
        answer = self._ask({"template": self.text, "special": self.special, **asked})
        return answer.get("text", ""), answer.get("refused")


_CLOSING = tuple(TAGS.values())


TOLD: Final = "template"
"""The role of what the template of a server is told by name; no message has it."""


class ServedChat(ChatTemplate):
    """The template of a model whose server takes messages: their text is the canonical JSON of them.

    :meth:`messages` reads it back.  What the server makes of them it does not say, so it is no part of the digest.
    """

    def __init__(self) -> None:
        super().__init__("", {})
        self.digest = hashlib.sha256(b"messages, as JSON").hexdigest()

    takes_system = True
    """A server takes any role; whether its model reads a system text it does not say."""

    may_think = True
    """Nor does it say whether its model thinks."""

    def render(self, messages: Sequence[Message], arguments: Arguments = NONE) -> str:
        """The messages as JSON, each ``[role, content]``; then ``arguments``, as if :data:`TOLD` said them."""
        told = [[TOLD, exact_json(dict(arguments))]] if arguments else []
        return exact_json([*([message.role, message.content] for message in messages), *told])

    def opens(self, arguments: Arguments = NONE, begun: str = "") -> str:
        """Nothing: what the server makes of the messages is not known."""
        return ""

    def closing(self, arguments: Arguments = NONE) -> str:
        """ModelError: so no thought can be closed."""
        raise ModelError(
            "the server renders the chat, so no thought can be closed here; tell its template not to think (axis "
            "template), or name the tokenizer of a model with a chat template"
        )

    @staticmethod
    def messages(text: str) -> list[Message] | None:
        """The messages of which ``text`` is the JSON, that of :data:`TOLD` included; None where it is none."""
        if not text.startswith('[["'):
            return None
        try:
            turns = json.loads(text)
            messages = [Message(role, content) for role, content in turns]
        except (ValueError, TypeError, RecursionError):
            return None
        return (
            messages
            if all(isinstance(each, str) for message in messages for each in message)
            else None
        )


class MessageAlone(ServedChat):
    """Where no model is named: what the user says in the only message, which every template puts into its own text."""

    def render(self, messages: Sequence[Message], arguments: Arguments = NONE) -> str:
        """The message; ModelError where there are several."""
        if [message.role for message in messages] != ["user"]:
            raise ModelError(
                "a chat of several messages needs the chat template of a model; name the model"
            )
        return messages[0].content


def _prepare_rendering() -> Callable[[Record], Record]:
    """What the process does: ``{"text"}`` or ``{"refused"}`` for a template with what it is told."""
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
                continue_final_message=continued and not question["ended"],
                **{**question["arguments"], **question["special"]},
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
