"""The templates of task files, filled in a process of their own in place of the harness's environment."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from choicewise.errors import ProtocolError
from choicewise.tokens.bounded_process import BoundedProcess
from choicewise.tokens.chat_renderer import TEMPLATES

REMEMBERED = 20_000
"""Texts that are remembered: the harness fills the same template with the same row several times."""

PORTION = 50
"""Rows that are sent at once."""


class TaskTemplates(BoundedProcess):
    """Fills Jinja templates as the harness does, but in a sandbox and within the bounds of its base.

    The same texts come out but for templates that reach for Python's insides, which fail, and for rows with values that
    JSON does not know (pictures, times), which a template can't see.
    """

    module, limits = "choicewise.interchange.tasks.template_worker", TEMPLATES
    called = "a template of the task"
    remedy = "correct the template, or the rows that it is filled with"
    error = ProtocolError

    def __init__(self) -> None:
        super().__init__()
        self.filters: dict[str, Any] = {}
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()

    def from_string(self, template: str) -> FilledTemplate:
        """The template, as an environment of Jinja gives it."""
        return FilledTemplate(self, template)

    def fill(self, template: str, doc: Mapping[str, Any]) -> str:
        """``template`` filled with the fields of ``doc``.  Raises ProtocolError where it fails or exceeds a bound."""
        spelled = _spelled(doc)
        key = template, spelled
        if key in self._texts:
            self._texts.move_to_end(key)
            return self._texts[key]
        try:
            ((text,),) = self._ask({"templates": [template], "docs": [json.loads(spelled)]})["texts"]
        except ProtocolError as error:
            raise ProtocolError(f"{error.message} (template {template[:80]!r})") from error
        self._texts[key] = text
        if len(self._texts) > REMEMBERED:
            self._texts.popitem(last=False)
        return str(text)

    def fill_all(self, templates: Sequence[str], docs: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
        """The texts of all ``templates`` for each of ``docs``."""
        for start in range(0, len(docs), PORTION):
            portion = [json.loads(_spelled(doc)) for doc in docs[start : start + PORTION]]
            yield from self._ask({"templates": list(templates), "docs": portion})["texts"]


class FilledTemplate:
    """One template, to be filled with the fields of a row."""

    def __init__(self, templates: TaskTemplates, text: str) -> None:
        self._templates, self._text = templates, text

    def render(self, **doc: Any) -> str:
        """The text."""
        return self._templates.fill(self._text, doc)


@contextmanager
def bounded_templates(templates: TaskTemplates) -> Iterator[None]:
    """While this lasts, the harness fills all its templates by ``templates``."""
    from lm_eval import utils

    before = utils.env
    utils.env = templates
    try:
        yield
    finally:
        utils.env = before


def _spelled(doc: Mapping[str, Any]) -> str:
    """The row as JSON, without the fields that it can't hold."""
    try:
        return json.dumps(dict(doc))
    except (TypeError, ValueError):
        return json.dumps({name: value for name, value in doc.items() if _fits(value)})


def _fits(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
