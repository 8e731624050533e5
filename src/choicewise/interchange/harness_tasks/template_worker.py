"""The process that fills the templates of task files, within :mod:`choicewise.util.isolate`.

Answers ``{"templates", "docs"}`` with ``{"texts"}``, a list for each document.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from choicewise.tokens.chat_worker import CHARACTERS, TOO_LONG
from choicewise.util.isolate import Record, serve


def regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    """The filter that the harness adds (lm_eval/utils.py, 0.4.13)."""
    return re.sub(pattern, repl, string, count=count)


def make_environment() -> Any:
    """The harness's environment, in a sandbox: what begins with an underscore, and so reaches code, is refused."""
    from jinja2 import BaseLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(loader=BaseLoader(), undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["regex_replace"] = regex_replace
    return environment


def filler() -> Callable[[Record], Record]:
    """The function that answers."""
    environment, compiled = make_environment(), dict[str, Any]()

    def answer(question: Record) -> Record:
        texts, size = [], 0
        for template in question["templates"]:
            if template not in compiled:
                compiled[template] = environment.from_string(template)
        for doc in question["docs"]:
            texts.append([compiled[template].render(**doc) for template in question["templates"]])
            size += sum(map(len, texts[-1]))
            if size > CHARACTERS:
                return {"failed": TOO_LONG}
        return {"texts": texts}

    return answer


if __name__ == "__main__":
    serve(filler)
