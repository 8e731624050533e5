"""Write the requests of decision endpoints in six formats, and refuse what a format does not have.

The first question of a request has the id ``q``, those beside it ``q2``, ``q3`` and so on.  Nothing
is sent or received here, and :mod:`choicewise.extensions.endpoints.decisions.answers` reads the
answers.

Sources: typesafe-sdk 0.7.5 (``_schemas/models.py``), openai 3.54.0 (``types/decision*.py``),
SGLang 0.5.23 (``srt/entrypoints/openai/protocol.py``), google-genai 3.4.0
(``_gaos/types/decisions``), EvalScope 1.14.1 (``models/utils/decision.py``: AutoTrust), and the
documentation of Cloudflare's Clef.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from choicewise.data.decisions import NOUL
from choicewise.extensions.endpoints.decisions.answers import QUESTION, AnswerFormat, option_keys
from choicewise.questions import TypedQuestion
from choicewise.util.jsonio import exact_json
from choicewise.util.text import listed, short

_KINDS = {"choice": "choice", "noul": "noul", "score": "score"}
_OPENAI_KINDS = {"choice": "choice", "noul": "predicate", "score": "score"}
_SGLANG_KINDS = {"choice": "choice", "noul": "yes_no", "score": "score"}

# The limits of OpenAI's input_json.
_MOST_LEVELS = 32
_MOST_VALUES = 10_000
_MOST_BYTES = 2**18


@dataclass(frozen=True, kw_only=True)
class Dialect(AnswerFormat):
    """Describe one format of requests and answers.

    ``route``: the path after the base URL.  ``sizes``: the fewest and the most options or levels of
    a kind, without a noul, which has 2.  ``request``: the fields of a request's body, as JSON
    texts.  ``described``: the kinds whose options have descriptions, with ``any`` JSON or ``text``
    alone.  ``owner``: the prefix of a model's name without a slash.  ``instructed``: True if
    instructions are required.  ``one_line``: True if names with control characters or spaces around
    them are refused.  ``state``: a function that returns why the endpoint does not take a state, or
    None.
    """

    route: str
    sizes: Mapping[str, tuple[int, int]]
    request: Callable[[TypedQuestion, str], Mapping[str, str]]
    described: Mapping[str, str]
    owner: str = ""
    instructed: bool = False
    one_line: bool = False
    state: Callable[[Any], str | None] = lambda state: None

    def path(self, model: str) -> str:
        """Return the path after the base URL, without a slash at its beginning."""
        # Cloudflare's names of models have both signs, and its paths keep them.
        return self.route.format(model=quote(self._full_name(model), safe="@/"))

    def objection(self, question: TypedQuestion) -> str | None:
        """Return why ``question`` can't be sent, with what to do instead; None if it can."""
        return next(self._objections(question), None)

    def body(self, question: TypedQuestion, model: str) -> bytes:
        """Return the body of a request to ``model``, for a question without :meth:`objection`.

        It is UTF-8 JSON that contains state and descriptions byte for byte, and the options in the
        order of the question.
        """
        return _object(self.request(question, self._full_name(model))).encode()

    def _full_name(self, model: str) -> str:
        return model if "/" in model else self.owner + model

    def _objections(self, question: TypedQuestion) -> Iterator[str]:
        if question.beside and self.answers == "body":
            yield f"the dialect {self.name} takes one question per request; remove the others"
        for other in question.beside:
            for objection in self._objections(other):
                yield f"another question of the request: {objection}"
        if question.kind not in self.wire:
            kinds = listed(list(self.wire))
            yield f"{self.name} has no questions of kind {question.kind!r}; it has {kinds}"
            return
        noun = "levels" if question.kind == "score" else "options"
        yield from self._count_objections(question, noun)
        yield from self._name_objections(question, noun)
        yield from self._description_objections(question, noun)
        if self.instructed and not question.instructions.strip():
            yield f"the dialect {self.name} needs instructions; add them"
        yield from self._state_objections(question)
        try:
            self.body(question, "")
        except UnicodeEncodeError:
            yield "it holds half of a surrogate pair, which UTF-8 can't encode; correct the text"

    def _count_objections(self, question: TypedQuestion, noun: str) -> Iterator[str]:
        few, most = self.sizes.get(question.kind, (2, 2))
        count = len(question.names)
        if not few <= count <= most:
            bound = str(few)
            if few != most:
                bound = f"{few} to {most}"
            size = f"{bound} {noun} in the dialect {self.name}, not {count}"
            yield f"a {question.kind} has {size}; leave the item out"
        if question.kind == "noul" and question.names != tuple(NOUL):
            names = list(question.names)
            yield f"a noul has the choices yes and no, in this order, not {names}"

    def _name_objections(self, question: TypedQuestion, noun: str) -> Iterator[str]:
        if not all(name.strip() for name in question.names):
            yield f"one of the {noun} has an empty name; fill it in, or use letters as names"
        seen = set()
        for name in self.keys(question):
            folded = name.strip().casefold()
            if folded in seen:
                yield (
                    f"two options are called {short(name, 60)!r}, apart from case and outer "
                    "spaces; use letters as names"
                )
            seen.add(folded)
        if not self.one_line or question.kind != "choice":
            return
        for name in question.names:
            categories = {unicodedata.category(char) for char in name}
            if name != name.strip() or not categories.isdisjoint(("Cc", "Zl", "Zp")):
                yield (
                    f"the dialect {self.name} refuses {short(name, 60)!r} as a name: it has "
                    "line breaks, control characters or outer spaces; use letters as names"
                )

    def _description_objections(self, question: TypedQuestion, noun: str) -> Iterator[str]:
        descriptions = [text for text in question.descriptions if text is not None]
        accepted = self.described.get(question.kind)
        if descriptions and accepted is None:
            yield (
                f"the dialect {self.name} takes no descriptions of the {noun} of a "
                f"{question.kind}; leave them out, or write them into the instructions"
            )
        elif accepted == "text" and not all(text.startswith('"') for text in descriptions):
            yield (
                f"the dialect {self.name} takes descriptions as text, and one is an object, a list "
                "or a number"
            )

    def _state_objections(self, question: TypedQuestion) -> Iterator[str]:
        try:
            state = json.loads(question.state)
        except (ValueError, RecursionError):
            yield "the state is not JSON; put a text in quotes"
            return
        if not isinstance(state, str | dict | list):
            yield "the state must be a text, an object or a list"
        objection = self.state(state)
        if objection is not None:
            yield objection


def _object(fields: Mapping[str, str]) -> str:
    """Return an object of JSON texts, in their order."""
    # Joined by hand, so that state and descriptions keep their bytes.
    pairs = [f"{exact_json(name)}: {text}" for name, text in fields.items()]
    return f"{{{', '.join(pairs)}}}"


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(texts)}]"


def _instructions(question: TypedQuestion, name: str = "instructions") -> Mapping[str, str]:
    return {name: exact_json(question.instructions)} if question.instructions else {}


def _yes_no(question: TypedQuestion, names: Sequence[str]) -> Mapping[str, str]:
    """Return the descriptions of yes and no by these ``names``, if they have one."""
    pairs = zip(names, question.descriptions, strict=True)
    return {name: text for name, text in pairs if text is not None}


def _described(question: TypedQuestion, name: str) -> str:
    """Return a list of options, with their names as the field ``name``."""
    options = []
    for option, description in zip(question.names, question.descriptions, strict=True):
        fields = {name: exact_json(option)}
        if description is not None:
            fields["description"] = description
        options.append(_object(fields))
    return _list(options)


def _by_id(question: TypedQuestion) -> Iterator[tuple[str, TypedQuestion]]:
    """Yield the questions of a request with their ids, in its order."""
    yield QUESTION, question
    for number, other in enumerate(question.beside, start=2):
        yield f"{QUESTION}{number}", other


def _systemone(question: TypedQuestion, model: str) -> Mapping[str, str]:
    questions = _systemone_questions(question, yes_no=("true", "false"), undescribed="null")
    return {"model": exact_json(model), "state": question.state, "questions": questions}


def _google(question: TypedQuestion, model: str) -> Mapping[str, str]:
    state = question.state
    # It takes a text alone: of an object its JSON.
    if not state.startswith('"'):
        state = exact_json(state)
    names = ("true_description", "false_description")
    questions = _systemone_questions(question, yes_no=names, undescribed='""')
    return {"model": exact_json(model), "input": state, "questions": questions}


def _systemone_questions(question: TypedQuestion, yes_no: Sequence[str], undescribed: str) -> str:
    questions = {}
    for id, part in _by_id(question):
        fields = {"type": exact_json(part.kind), **_instructions(part)}
        if part.kind == "choice":
            criteria = {}
            for name, description in zip(part.names, part.descriptions, strict=True):
                criteria[name] = undescribed if description is None else description
            fields["criteria"] = _object(criteria)
        elif part.kind == "score":
            fields["criteria"] = exact_json(part.names)
        elif descriptions := _yes_no(part, yes_no):
            fields["criteria"] = _object(descriptions)
        questions[id] = _object(fields)
    return _object(questions)


def _openai(question: TypedQuestion, model: str) -> Mapping[str, str]:
    state = question.state
    if not state.startswith('"'):
        content = _object({"type": exact_json("input_json"), "data": state})
        state = _list([_object({"role": exact_json("user"), "content": _list([content])})])
    questions = []
    for name, part in _by_id(question):
        fields = {"type": exact_json(_OPENAI_KINDS[part.kind]), "name": exact_json(name)}
        fields |= _instructions(part)
        if part.kind == "choice":
            fields["choices"] = _described(part, "value")
        elif part.kind == "score":
            fields["levels"] = _described(part, "label")
        questions.append(_object(fields))
    return {"model": exact_json(model), "input": state, "questions": _list(questions)}


def _sglang(question: TypedQuestion, model: str) -> Mapping[str, str]:
    questions = []
    for name, part in _by_id(question):
        fields = {"id": exact_json(name), "type": exact_json(_SGLANG_KINDS[part.kind])}
        fields |= _instructions(part, "question")
        if part.kind == "choice":
            fields["options"] = _described(part, "name")
        elif part.kind == "score":
            fields["levels"] = exact_json(part.names)
        else:
            fields |= _yes_no(part, ("yes", "no"))
        questions.append(_object(fields))
    return {"model": exact_json(model), "input": question.state, "questions": _list(questions)}


def _autotrust(question: TypedQuestion, model: str) -> Mapping[str, str]:
    """Return the fields that EvalScope sends.

    They name no model; an option is its description, and levels are in the instructions.
    """
    instructions = question.instructions
    if question.kind == "score":
        levels = [f"{level}: {text}" for level, text in enumerate(question.names)]
        instructions = "\n".join([f"{instructions}\nLevels:", *levels])
    fields = {
        "kind": exact_json(question.kind),
        "state": question.state,
        "question": exact_json(instructions),
        "thinking": exact_json("off"),
    }
    if question.kind == "choice":
        fields["options"] = exact_json(_autotrust_keys(question))
    return fields


def _autotrust_keys(question: TypedQuestion) -> Sequence[str]:
    if question.kind != "choice":
        return option_keys(question)
    pairs = zip(question.names, question.descriptions, strict=True)
    return [name if text is None else str(json.loads(text)) for name, text in pairs]


def _openai_state(state: Any) -> str | None:
    if isinstance(state, str):
        return None
    if isinstance(state, list) and not all(isinstance(entry, dict) for entry in state):
        return (
            "the dialect openai takes a text, an object or a list of objects as a state; write "
            "this one as a text"
        )
    levels = 0
    values = 0
    level: list[Any] = [state]
    while level:
        values += len(level)
        containers = [value for value in level if isinstance(value, dict | list)]
        levels += bool(containers)
        level = []
        for container in containers:
            level += container.values() if isinstance(container, dict) else container
    bytes = len(exact_json(state).encode(errors="surrogatepass"))
    if levels <= _MOST_LEVELS and values <= _MOST_VALUES and bytes <= _MOST_BYTES:
        return None
    return (
        f"the state has {levels} levels, {values:,} values and {bytes:,} bytes, but the dialect "
        "openai takes 32 levels, 10,000 values and 256 KiB; send it as a text"
    )


def _sglang_state(state: Any) -> str | None:
    is_blank = not state.strip() if isinstance(state, str) else not state
    if not is_blank:
        return None
    return "the dialect sglang refuses an empty state; write what the question is about"


DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        # TypeSafe, vLLM, transformers, SGLang, llama.cpp, OpenRouter, Perplexity: the widest limits
        # of any, as the address does not show whose it is.  A narrower server refuses the question.
        Dialect(
            name="systemone",
            route="systemone",
            wire=_KINDS,
            sizes={"choice": (2, 255), "score": (2, 26)},
            request=_systemone,
            described={"choice": "any", "noul": "any"},
        ),
        Dialect(
            name="openai",
            route="decisions",
            wire=_OPENAI_KINDS,
            sizes={"choice": (2, 255), "score": (2, 10)},
            request=_openai,
            described={"choice": "text", "score": "text"},
            parts="pairs",
            answers="list",
            yes="probability",
            instructed=True,
            state=_openai_state,
        ),
        Dialect(
            name="sglang",
            route="decisions",
            wire=_SGLANG_KINDS,
            sizes={"choice": (2, 26), "score": (2, 10)},
            request=_sglang,
            described={"choice": "any", "noul": "any"},
            instructed=True,
            one_line=True,
            state=_sglang_state,
        ),
        Dialect(
            name="google",
            route="decisions",
            owner="models/",
            wire=_KINDS,
            sizes={"choice": (2, 255), "score": (2, 255)},
            request=_google,
            described={"choice": "text", "noul": "text"},
            instructed=True,
            one_line=True,
        ),
        Dialect(
            name="cloudflare",
            route="ai/run/{model}",
            owner="@cf/cloudflare/",
            wire=_KINDS,
            sizes={"choice": (2, 255), "score": (2, 10)},
            request=lambda question, model: _systemone(question, model.rpartition("/")[2]),
            described={"choice": "any", "noul": "any"},
            envelope="result",
        ),
        Dialect(
            name="autotrust",
            route="decide",
            wire=_KINDS,
            sizes={"choice": (2, 255), "score": (6, 6)},
            request=_autotrust,
            described={"choice": "text"},
            parts="array",
            answers="body",
            keys=_autotrust_keys,
            instructed=True,
        ),
    )
}
"""Every dialect by its name.

None is guessed from an address: ``/v1/decisions`` alone has three of them.
"""
