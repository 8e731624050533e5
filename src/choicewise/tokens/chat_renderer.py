"""The process that renders a chat template, seen from outside."""

from collections.abc import Mapping, Sequence

from choicewise.errors import ModelError
from choicewise.tokens import chat_worker
from choicewise.tokens.bounded_process import BoundedProcess

WAIT = 30.0
"""Seconds until a text is given up that neither comes nor uses the processor, or that a busy machine delays so long."""


class ChatRenderer(BoundedProcess):
    """Renders the chat template ``text``, which may name the ``special`` tokens, within the bounds of its base."""

    called = "the model's chat template"
    remedy = "read it (chat_template in tokenizer_config.json, or chat_template.jinja), or ask without a chat"
    error = ModelError

    def __init__(self, text: str, special: Mapping[str, str]) -> None:
        super().__init__(chat_worker.__file__, {"template": text, "special": dict(special)})

    def render(self, messages: Sequence[Mapping[str, str]]) -> tuple[str, str | None]:
        """The text of ``messages`` (``role`` and ``content`` each), or why the template itself refuses them.

        Raises ModelError when the template fails or exceeds a limit; the process has then ended.
        """
        answer = self._ask({"messages": list(messages)}, WAIT)
        if (refused := answer.get("refused")) is not None:
            return "", refused
        return answer["text"], None
