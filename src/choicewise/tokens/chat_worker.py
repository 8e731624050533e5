"""The process that renders chat templates, within :mod:`choicewise.util.isolate`.

Answers ``{"template", "special", "messages"}`` with ``{"text"}``, or with ``{"refused"}`` where the template raised an
error of its own.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from datetime import datetime

from choicewise.util.isolate import Record, Unavailable, serve

CHARACTERS = 10_000_000  # of one text at most; windows of millions of tokens are shorter
TOO_LONG = f"gives more than {CHARACTERS} characters"

_FAULTS = ("SecurityError", "TemplateSyntaxError")
"""Errors of a template that are no answer to the messages: it reaches out of its sandbox, or is none."""

_TODAY = datetime(2024, 7, 26)
"""The day that templates are told, so that the same question has the same text on every day.

It is the one that the template of Llama 3.1 takes where it is told none.
"""


def _renderer() -> Callable[[Record], Record]:
    sys.modules["torch"] = None  # type: ignore[assignment]  # nothing here needs it, and it is slow to import
    try:
        from jinja2.exceptions import TemplateError
        from transformers.utils import chat_template_utils
    except ImportError as error:
        raise Unavailable(f"can't be rendered here, {error}: pip install 'choicewise[hf]'") from error
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
    serve(_renderer)
