"""What every kind of decision endpoint is sent and answers: six formats, declared in :data:`DIALECTS`.

One typed question is one request, with the id ``q``; those beside it are ``q2``, ``q3`` and so on.
Nothing is sent or received here: a dialect
refuses what its endpoint can't be asked, writes the bytes of the request, and reads the bytes of the answer
(:mod:`choicewise.extensions.endpoints.decisions.answers`).

Sources: typesafe-sdk 0.7.5 (``_schemas/models.py``), openai 3.54.0 (``types/decision*.py``), SGLang 0.5.23
(``srt/entrypoints/openai/protocol.py``), google-genai 3.4.0 (``_gaos/types/decisions``), EvalScope 1.14.1
(``models/utils/decision.py``: AutoTrust), and the documentation of Cloudflare's Clef.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from choicewise.data.decisions import NOUL
from choicewise.extensions.endpoints.decisions.answers import QUESTION, AnswerFormat, option_keys
from choicewise.questions import TypedQuestion
from choicewise.util.jsonio import exact_json
from choicewise.util.text import listed, short


@dataclass(frozen=True, kw_only=True)
class Dialect(AnswerFormat):
    """One format, of requests and of answers.

    ``route``: the path after the base URL.  ``owner``: what stands before a model's name that has no slash.
    ``sizes``: the fewest and the most options or levels.  ``request``: the fields of a question's body, as JSON texts.
    ``described``: for which kinds options have descriptions: ``any`` JSON or ``text`` alone.  ``instructed``: whether
    instructions are required.  ``one_line``: whether names with control characters or spaces around them are refused.
    ``state``: what else it objects to in a state.
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
        """The path of the endpoint after the base URL, without a slash at its beginning."""
        return self.route.format(model=quote(self._whole(model), safe="@/"))

    def objection(self, asked: TypedQuestion) -> str | None:
        """Why ``asked`` can't be sent as it is, with what to do instead; None where it can."""
        return next(self._objections(asked), None)

    def body(self, asked: TypedQuestion, model: str) -> bytes:
        """The body of the request to ``model``, for a question without :meth:`objection`.

        UTF-8 JSON.  State and descriptions stand in it byte for byte, and the options in the order in which they are
        given.
        """
        return _object(self.request(asked, self._whole(model))).encode()

    def _whole(self, model: str) -> str:
        return model if "/" in model else self.owner + model

    def _objections(self, asked: TypedQuestion) -> Iterator[str]:
        if asked.beside and self.in_order is None:
            yield f"the dialect {self.name} has one question a request, and none beside it"
        for other in asked.beside:
            yield from (
                f"a question beside it: {objection}" for objection in self._objections(other)
            )
        if asked.kind not in self.wire:
            yield f"{self.name} has no questions of kind {asked.kind!r}; it has {listed([*self.wire])}"
            return
        few, most = self.sizes[asked.kind]
        what, count = "levels" if asked.kind == "score" else "options", len(asked.names)
        if not few <= count <= most:
            bound = f"{few}" if few == most else f"{few} to {most}"
            yield f"a {asked.kind} has {bound} {what} in the dialect {self.name}, not {count}; leave the item out"
        if asked.kind == "noul" and asked.names != tuple(NOUL):
            yield f"a noul has the choices yes and no, in this order, and not {list(asked.names)}"
        yield from self._name_objections(asked, what)
        yield from self._description_objections(asked, what)
        if self.instructed and not asked.instructions.strip():
            yield f"the dialect {self.name} needs instructions, and there are none"
        try:
            state = json.loads(asked.state)
        except (ValueError, RecursionError):
            yield "the state is no JSON; a text stands in quotes"
            return
        if not isinstance(state, str | dict | list):
            yield "the state must be a text, an object or a list"
        elif (own := self.state(state)) is not None:
            yield own
        try:
            self.body(asked, "")
        except UnicodeEncodeError:
            yield "it holds half of a surrogate pair, which no JSON in UTF-8 can; correct the text"

    def _name_objections(self, asked: TypedQuestion, what: str) -> Iterator[str]:
        if not all(name.strip() for name in asked.names):
            yield f"one of the {what} has an empty name; name it, or ask with letters as names"
        folded = [name.strip().casefold() for name in self.keys(asked)]
        if len(set(folded)) < len(folded):
            twice = next(
                name
                for place, name in enumerate(self.keys(asked))
                if folded[place] in folded[:place]
            )
            yield (
                f"two options are called {short(twice, 60)!r}, but for case and spaces around it, and an answer tells "
                "options apart by their names; ask with letters as names"
            )
        if self.one_line and asked.kind == "choice":
            for name in asked.names:
                if name != name.strip() or any(
                    unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in name
                ):
                    yield (
                        f"the dialect {self.name} refuses {short(name, 60)!r} as a name, for a line break, another "
                        "control character or spaces around it; ask with letters as names"
                    )

    def _description_objections(self, asked: TypedQuestion, what: str) -> Iterator[str]:
        given = [each for each in asked.descriptions if each is not None]
        takes = self.described.get(asked.kind)
        if given and takes is None:
            yield (
                f"the dialect {self.name} has no descriptions of the {what} of a {asked.kind}, and to put them into "
                "the instructions is another question; leave them out, or write the instructions so"
            )
        elif takes == "text" and not all(each.startswith('"') for each in given):
            yield f"the dialect {self.name} takes a text for a description, and one is an object, a list or a number"


def _object(fields: Mapping[str, str]) -> str:
    """An object of JSON texts, in their order."""
    return "{" + ", ".join(f"{exact_json(name)}: {text}" for name, text in fields.items()) + "}"


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(texts)}]"


def _instructions(asked: TypedQuestion, name: str = "instructions") -> Mapping[str, str]:
    return {name: exact_json(asked.instructions)} if asked.instructions else {}


def _yes_no(asked: TypedQuestion, names: Sequence[str]) -> Mapping[str, str]:
    """The descriptions of yes and no under these ``names``, of those that have one."""
    return {
        name: text for name, text in zip(names, asked.descriptions, strict=True) if text is not None
    }


def _ids(asked: TypedQuestion) -> Iterator[tuple[str, TypedQuestion]]:
    """The questions of a request by their ids, in its order."""
    yield QUESTION, asked
    for number, other in enumerate(asked.beside, start=2):
        yield f"{QUESTION}{number}", other


def _systemone(
    asked: TypedQuestion,
    model: str,
    state: Callable[[TypedQuestion], Mapping[str, str]] = lambda asked: {"state": asked.state},
    yes_no: Sequence[str] = ("true", "false"),
    undescribed: str = "null",
) -> Mapping[str, str]:
    questions = {name: _systemone_question(each, yes_no, undescribed) for name, each in _ids(asked)}
    return {"model": exact_json(model), **state(asked), "questions": _object(questions)}


def _systemone_question(asked: TypedQuestion, yes_no: Sequence[str], undescribed: str) -> str:
    question = {"type": exact_json(asked.kind), **_instructions(asked)}
    if asked.kind == "choice":
        described = (undescribed if text is None else text for text in asked.descriptions)
        question["criteria"] = _object(dict(zip(asked.names, described, strict=True)))
    elif asked.kind == "score":
        question["criteria"] = _list([*map(exact_json, asked.names)])
    elif criteria := _yes_no(asked, yes_no):
        question["criteria"] = _object(criteria)
    return _object(question)


def _google(asked: TypedQuestion, model: str) -> Mapping[str, str]:
    """As System One, but that the state is a text: of an object its JSON."""
    return _systemone(
        asked,
        model,
        state=lambda asked: {
            "input": asked.state if asked.state.startswith('"') else exact_json(asked.state)
        },
        yes_no=("true_description", "false_description"),
        undescribed='""',
    )


def _openai(asked: TypedQuestion, model: str) -> Mapping[str, str]:
    whole = asked.state
    if not whole.startswith('"'):
        part = _object({"type": exact_json("input_json"), "data": whole})
        whole = _list([_object({"role": exact_json("user"), "content": _list([part])})])
    questions = [_openai_question(name, each) for name, each in _ids(asked)]
    return {"model": exact_json(model), "input": whole, "questions": _list(questions)}


def _openai_question(name: str, asked: TypedQuestion) -> str:
    question = {"type": exact_json(DIALECTS["openai"].wire[asked.kind]), "name": exact_json(name)}
    question |= _instructions(asked)
    if asked.kind != "noul":
        field_of, called = ("choices", "value") if asked.kind == "choice" else ("levels", "label")
        question[field_of] = _list(_described(asked, called))
    return _object(question)


def _sglang(asked: TypedQuestion, model: str) -> Mapping[str, str]:
    questions = [_sglang_question(name, each) for name, each in _ids(asked)]
    return {"model": exact_json(model), "input": asked.state, "questions": _list(questions)}


def _sglang_question(name: str, asked: TypedQuestion) -> str:
    question = {"id": exact_json(name), "type": exact_json(DIALECTS["sglang"].wire[asked.kind])}
    question |= _instructions(asked, "question")
    if asked.kind == "choice":
        question["options"] = _list(_described(asked, "name"))
    elif asked.kind == "score":
        question["levels"] = _list([*map(exact_json, asked.names)])
    else:
        question |= _yes_no(asked, ("yes", "no"))
    return _object(question)


def _described(asked: TypedQuestion, name: str) -> list[str]:
    pairs = zip(asked.names, asked.descriptions, strict=True)
    return [
        _object({name: exact_json(own), **({} if text is None else {"description": text})})
        for own, text in pairs
    ]


def _autotrust(asked: TypedQuestion, model: str) -> Mapping[str, str]:
    """As EvalScope asks: no model is named, an option is its description, and levels stand in the instructions."""
    instructions = asked.instructions
    if asked.kind == "score":
        instructions += "\nLevels:\n" + "\n".join(
            f"{level}: {text}" for level, text in enumerate(asked.names)
        )
    fields = {
        "kind": exact_json(asked.kind),
        "state": asked.state,
        "question": exact_json(instructions),
    }
    fields["thinking"] = exact_json("off")
    if asked.kind == "choice":
        fields["options"] = _list([*map(exact_json, _autotrust_keys(asked))])
    return fields


def _autotrust_keys(asked: TypedQuestion) -> Sequence[str]:
    if asked.kind != "choice":
        return option_keys(asked)
    pairs = zip(asked.names, asked.descriptions, strict=True)
    return [name if text is None else str(json.loads(text)) for name, text in pairs]


def _openai_state(state: Any) -> str | None:
    """The limits of ``input_json``."""
    if isinstance(state, str):
        return None
    if isinstance(state, list) and not all(isinstance(each, dict) for each in state):
        return "the dialect openai takes a text, an object or a list of objects for a state; write others as a text"
    levels, values, level = 0, 0, [state]
    while level:
        inside = [
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, dict | list)
        ]
        levels, values = levels + bool(inside), values + len(level)
        level = [one for each in inside for one in each]
    bytes = len(exact_json(state).encode(errors="surrogatepass"))
    if levels > 32 or values > 10_000 or bytes > 2**18:
        return (
            "the dialect openai takes 32 levels, 10,000 values and 256 KiB of a state, and this one has "
            f"{levels} levels, {values:,} values and {bytes:,} bytes; send it as a text"
        )
    return None


def _sglang_state(state: Any) -> str | None:
    blank = not (state.strip() if isinstance(state, str) else state)
    return (
        "the dialect sglang refuses an empty state; write what the question is about"
        if blank
        else None
    )


_SAME: Final = {"choice": "choice", "noul": "noul", "score": "score"}

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (
        # TypeSafe, vLLM, transformers, SGLang, llama.cpp, OpenRouter, Perplexity: the widest limits of any, as the
        # address does not tell whose it is; a narrower server refuses the one question itself
        Dialect(
            name="systemone",
            route="systemone",
            wire=_SAME,
            sizes={"choice": (2, 255), "noul": (2, 2), "score": (2, 26)},
            request=_systemone,
            described={"choice": "any", "noul": "any"},
        ),
        Dialect(
            name="openai",
            route="decisions",
            wire={**_SAME, "noul": "predicate"},
            sizes={"choice": (2, 255), "noul": (2, 2), "score": (2, 10)},
            request=_openai,
            described={"choice": "text", "score": "text"},
            parts="pairs",
            in_order=True,
            yes="probability",
            instructed=True,
            state=_openai_state,
        ),
        Dialect(
            name="sglang",
            route="decisions",
            wire={**_SAME, "noul": "yes_no"},
            sizes={"choice": (2, 26), "noul": (2, 2), "score": (2, 10)},
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
            wire=_SAME,
            sizes={"choice": (2, 255), "noul": (2, 2), "score": (2, 255)},
            request=_google,
            described={"choice": "text", "noul": "text"},
            instructed=True,
            one_line=True,
        ),
        Dialect(
            name="cloudflare",
            route="ai/run/{model}",
            owner="@cf/cloudflare/",
            wire=_SAME,
            sizes={"choice": (2, 255), "noul": (2, 2), "score": (2, 10)},
            request=lambda asked, model: _systemone(asked, model.rpartition("/")[2]),
            described={"choice": "any", "noul": "any"},
            envelope="result",
        ),
        Dialect(
            name="autotrust",
            route="decide",
            wire=_SAME,
            sizes={"choice": (2, 255), "noul": (2, 2), "score": (6, 6)},
            request=_autotrust,
            described={"choice": "text"},
            parts="array",
            in_order=None,
            keys=_autotrust_keys,
            instructed=True,
        ),
    )
}
"""Every dialect by its name.  None is guessed from an address: ``/v1/decisions`` alone has three of them."""
