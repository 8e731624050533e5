"""The templates of a harness task as templates of ours, where they hold nothing but text and expressions.

What stands between double braces becomes a hole of that name, and every item a field of that name with what the harness
puts there; so the text of the protocol is the text of the task file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from choicewise.interchange.tasks.templates import TaskTemplates

_TAKEN = frozenset({"question", "options", "subject", "letter", "choice"})
"""Holes that mean something else in our templates."""

_SHOT_KEYS = ("doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix")
"""What few-shot examples may have of their own."""


class Inexpressible(Exception):
    """A task whose requests no protocol of ours renders, and why."""


@dataclass(frozen=True)
class TaskTemplate:
    """How a task asks, as axes, and the expressions that fill its holes.

    ``asked``: the hole that is the item's question; None where there are several, so that the whole query is.
    ``fields``: further hole → the template that fills it.
    """

    header: str
    question: str
    answer: str
    continuation: str
    separator: str
    choices: int | None
    asked: str | None
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def axes(self) -> dict[str, Any]:
        """What of a protocol follows from it."""
        return {
            "header": self.header,
            "question": self.question,
            "option": "",
            "answer": self.answer,
            "continuation": self.continuation,
            "separator": self.separator,
            "choices": self.choices,
        }


def task_template(task: Any) -> TaskTemplate:
    """The templates of ``task``; raises Inexpressible where it has code, statements, or a shape of its own."""
    config, shots = task.config, task.fewshot_cfg
    if task.multiple_input:
        raise Inexpressible("its choices are contexts")
    if not isinstance(config.doc_to_text, str):
        raise Inexpressible("doc_to_text is no template")
    if config.gen_prefix is not None:
        raise Inexpressible("it has a gen_prefix")
    for key in _SHOT_KEYS:
        if getattr(shots, key) != getattr(config, key):
            raise Inexpressible(f"its shots have a {key} of their own")
    pieces = _pieces(config.doc_to_text, task.features)
    before = _pieces(config.description or "", task.features)
    holes = list(dict.fromkeys(text for text, is_hole in pieces if is_hole))
    asked = "question" if "question" in holes else holes[0] if len(holes) == 1 else None
    names = {hole: f"doc.{hole}" if hole in _TAKEN else hole for hole in holes}
    header_names = {text: f"doc.{text}" if text in _TAKEN else text for text, is_hole in before if is_hole}
    question_names = names if asked is None else {**names, asked: "question"}
    fields = {name: hole for hole, name in {**names, **header_names}.items() if hole != asked or hole in header_names}
    delimiter = "" if task.OUTPUT_TYPE == "loglikelihood" else config.target_delimiter
    return TaskTemplate(
        header=_spelled(before, header_names),
        question=_spelled(pieces, question_names),
        answer=_escaped(shots.target_delimiter) + "{choice}",
        continuation=_escaped(delimiter) + "{choice}",
        separator=shots.fewshot_delimiter,
        choices=1 if task.OUTPUT_TYPE == "loglikelihood" else None,
        asked=asked,
        fields={name: "{{" + hole + "}}" for name, hole in fields.items()},
    )


def fill_fields(
    template: TaskTemplate, docs: Sequence[Mapping[str, Any]], templates: TaskTemplates
) -> list[tuple[str | None, dict[str, str]]]:
    """For each of ``docs`` the question, None where the whole query is it, and the fields."""
    names = list(template.fields)
    asked = [] if template.asked is None else ["{{" + template.asked + "}}"]
    filled = templates.fill_all([*asked, *(template.fields[name] for name in names)], docs)
    if not asked and not names:
        return [(None, {}) for _ in docs]
    rest = len(asked)
    return [(texts[0] if asked else None, dict(zip(names, texts[rest:], strict=True))) for texts in filled]


def _pieces(template: str, features: Iterable[str]) -> list[tuple[str, bool]]:
    """(text, False) for plain text and (expression, True) for what stands between double braces."""
    from jinja2 import Environment, TemplateSyntaxError

    if template in features:
        return [(template, True)]
    pieces: list[tuple[str, bool]] = []
    try:
        tokens = list(Environment(keep_trailing_newline=True).lex(template))
    except TemplateSyntaxError as error:
        raise Inexpressible(f"a template is no valid Jinja ({error.message})") from error
    expression: list[str] | None = None
    for _, kind, text in tokens:
        if kind == "data":
            pieces.append((text, False))
        elif kind == "variable_begin" and text == "{{":
            expression = []
        elif kind == "variable_end" and text == "}}" and expression is not None:
            spelled = "".join(expression).strip()
            if "{" in spelled or "}" in spelled or not spelled:
                raise Inexpressible(f"a hole can't be called {spelled!r}")
            pieces.append((spelled, True))
            expression = None
        elif expression is not None:
            expression.append(text)
        else:
            raise Inexpressible(f"a template has more than text and expressions ({text.strip()!r})")
    return pieces


def _spelled(pieces: Iterable[tuple[str, bool]], names: Mapping[str, str]) -> str:
    return "".join("{" + names[text] + "}" if is_hole else _escaped(text) for text, is_hole in pieces)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
