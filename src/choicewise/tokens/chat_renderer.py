"""The process that renders a chat template, seen from outside."""

from collections.abc import Mapping, Sequence

from choicewise.errors import ModelError
from choicewise.tokens.bounded_process import BoundedProcess
from choicewise.tokens.bounded_worker import Limits
from choicewise.tokens.chat_worker import CHARACTERS

TEMPLATES = Limits(seconds=5, wait=30.0, memory=512 << 20, answer=12 * CHARACTERS)
"""Of a template; a busy machine may delay a text.  A character takes at most 12 bytes in JSON."""


class ChatRenderer(BoundedProcess):
    """Renders the chat template ``text``, which may name the ``special`` tokens, within the bounds of its base."""

    module, limits = "choicewise.tokens.chat_worker", TEMPLATES
    called = "the model's chat template"
    remedy = "read it (chat_template in tokenizer_config.json, or chat_template.jinja), or ask without a chat"
    error = ModelError

    def __init__(self, text: str, special: Mapping[str, str]) -> None:
        super().__init__()
        self._template = {"template": text, "special": dict(special)}

    def render(self, messages: Sequence[Mapping[str, str]]) -> tuple[str, str | None]:
        """The text of ``messages`` (``role`` and ``content`` each), or why the template itself refuses them.

        Raises ModelError when the template fails or exceeds a limit; the process has then ended.
        """
        answer = self._ask({**self._template, "messages": list(messages)})
        if (refused := answer.get("refused")) is not None:
            return "", refused
        return answer["text"], None
