"""The process that fills the templates of task files: it imports Jinja and the limits of chat templates.

It reads lines of JSON, ``{"templates", "docs"}``, and answers each with ``{"texts"}``, a list for each document; or
with ``{"failed"}`` and the reason.
"""

import json
import re
import sys
from typing import Any

from choicewise.tokens.chat_worker import CHARACTERS, MEMORY, TOO_LONG, limit_process, limit_time, send


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


def answer(environment: Any, compiled: dict[str, Any], line: str) -> dict[str, Any]:
    """The answer to one line."""
    question = json.loads(line)
    try:
        texts, size = [], 0
        for template in question["templates"]:
            if template not in compiled:
                compiled[template] = environment.from_string(template)
        for doc in question["docs"]:
            texts.append([compiled[template].render(**doc) for template in question["templates"]])
            size += sum(map(len, texts[-1]))
            if size > CHARACTERS:
                return {"failed": TOO_LONG}
    except MemoryError:
        return {"failed": f"takes more than {MEMORY >> 20} MB of memory"}
    except RecursionError:
        return {"failed": "calls itself without end"}
    except Exception as error:
        return {"failed": f"fails ({type(error).__name__}: {str(error)[:200]})"}
    return {"texts": texts}


def main() -> None:
    """Answer every line, until there are no more."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    environment, compiled = make_environment(), dict[str, Any]()
    limit_process()
    send({"ready": "yes"}, answers)
    for line in sys.stdin:
        limit_time()
        try:
            reply = answer(environment, compiled, line)
        except MemoryError:
            reply = {"failed": f"takes more than {MEMORY >> 20} MB of memory"}
        send(reply, answers)


if __name__ == "__main__":
    main()
