"""A decision endpoint on loopback in every dialect, whose probabilities a function gives, and which misbehaves by name.

    with serving_decisions(lambda asked: [0.7, 0.2, 0.1], "google") as server:
        behave(server, "two decimals")         # of every answer from now on
        behave(server, "429 with seconds")     # and a status in place of every answer; ``server.next`` for a few

Written from the clients' types and the servers' sources, and not from ``extensions/endpoints/decisions``: it parses
what it is sent, and refuses with 400 what its dialect does not have.  ``server.requests`` has all requests with their
bytes.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.helpers.misbehaving_server import Fault, Server, serving
from tests.helpers.served_model import JSON, Refused
from tests.helpers.server_faults import HTML, says, status, truncated_json

ROUTES = {
    "systemone": "/v1/systemone",
    "openai": "/v1/decisions",
    "sglang": "/v1/decisions",
    "google": "/v1/decisions",
    "cloudflare": "/v1/ai/run/@cf/cloudflare/decider",
    "autotrust": "/v1/decide",
}
"""The path of each dialect where the base URL ends in ``/v1`` and the model is ``decider``."""

SEEN = 2048  # characters of a state, of which a server that cuts it sees no more


@dataclass(frozen=True)
class Asked:
    """What a request asks: ``keys`` are what the answer calls the options, ``texts`` what it calls levels."""

    kind: str
    state: str
    instructions: str
    keys: list[str]
    texts: list[str]


Told = Callable[[Asked], Sequence[float]]


class DecisionService:
    """Who answers.  ``told``: from a question to a probability per option, for a noul yes and no.

    ``mass``: the label mass; None where the server gives none.  ``confidence``: by whose formula.  ``behaviours``: the
    names of what it does wrong.
    """

    def __init__(self, told: Told, dialect: str = "systemone", name: str = "decider") -> None:
        self.told, self.dialect, self.name = told, dialect, name
        self.mass: float | None = None
        self.confidence: str | None = "typesafe"
        self.behaviours = dict[str, None]()
        self.answered = 0

    def answer(self, method: str, path: str, body: JSON) -> Any:
        """The answer to one request; raises Refused."""
        if (method, path) != ("POST", ROUTES[self.dialect]):
            raise Refused(404, {"detail": "Not Found"})
        asked = _PARSED[self.dialect](body)
        tokens = len(f"{asked.state}{asked.instructions}") // 4
        if "state cut" in self.behaviours:
            asked = Asked(
                asked.kind, asked.state[:SEEN], asked.instructions, asked.keys, asked.texts
            )
            tokens = len(f"{asked.state}{asked.instructions}") // 4
        values: list[Any] = [float(p) for p in self.told(asked)]
        assert len(values) == len(asked.keys), "the test tells another number of probabilities"
        for name in self.behaviours:
            values = PROBABILITIES.get(name, lambda values, _: values)(values, self.answered)
        self.answered += 1
        reply = _WRITTEN[self.dialect](self, asked, values)
        usage = {"input_tokens": tokens, "output_tokens": 1}
        whole = {"model": self.name, **reply, "usage": usage}
        if self.dialect == "google":
            del whole["model"]
            whole["usage"] = {"total_input_tokens": tokens, "total_output_tokens": 0}
        elif self.dialect == "sglang":
            whole["usage"] = {
                "prompt_tokens": tokens,
                "total_tokens": tokens,
                "completion_tokens": 0,
            }
        for name in self.behaviours:
            whole = ANSWERS.get(name, lambda whole, *_: whole)(whole, asked, self.answered)
        if self.dialect == "cloudflare":
            whole = {"result": whole, "success": True, "errors": [], "messages": []}
        for name in self.behaviours:
            whole = BODIES.get(name, lambda whole: whole)(whole)
        return whole


@contextmanager
def serving_decisions(told: Told, dialect: str = "systemone", port: int = 0) -> Iterator[Server]:
    """A server with the base URL ``server.url`` and the model ``decider``; ``server.model`` is its service."""
    with serving(port=port) as server:
        server.model = DecisionService(told, dialect)  # type: ignore[assignment]
        yield server


def behave(server: Server, *names: str) -> None:
    """What goes wrong with every answer from now on, by name; nothing without one."""
    service: Any = server.model
    service.behaviours = {name: None for name in names if name not in STATUSES}
    assert {*service.behaviours} <= {*PROBABILITIES, *ANSWERS, *BODIES, "state cut"}, names
    server.always(next((STATUSES[name] for name in names if name in STATUSES), None))


def _bad(message: str) -> Refused:
    return Refused(400, {"error": {"message": message}})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _only(fields: JSON, *names: str) -> None:
    if extra := set(fields) - set(names):
        raise _bad(f"unknown field {sorted(extra)[0]}")


def _map(body: JSON, state: str = "state", noul: Sequence[str] = ("true", "false")) -> Asked:
    _only(body, "model", state, "questions")
    (question,) = body["questions"].values()
    _only(question, "type", "instructions", "criteria")
    kind, criteria = question["type"], question.get("criteria")
    about = _text(body[state]), question.get("instructions", "")
    if kind == "choice":
        return Asked(kind, *about, [*criteria], [*map(_text, criteria.values())])
    if kind == "score":
        return Asked(kind, *about, [str(level) for level in range(len(criteria))], criteria)
    _only(criteria or {}, *noul)
    return Asked("noul", *about, ["yes", "no"], ["", ""])


def _openai(body: JSON) -> Asked:
    _only(body, "model", "input", "questions")
    (question,) = body["questions"]
    whole = body["input"]
    if not isinstance(whole, str):
        ((message,),) = (whole,)
        (part,) = message["content"]
        assert (message["role"], part["type"]) == ("user", "input_json")
        whole = part["data"]
    about = _text(whole), question["instructions"]
    if question["type"] == "predicate":
        _only(question, "type", "instructions", "name")
        return Asked("noul", *about, ["yes", "no"], ["", ""])
    if question["type"] == "choice":
        return Asked("choice", *about, [each["value"] for each in question["choices"]], [])
    levels = [each["label"] for each in question["levels"]]
    return Asked("score", *about, [str(level) for level in range(len(levels))], levels)


def _sglang(body: JSON) -> Asked:
    _only(body, "model", "input", "questions", "temperature")
    (question,) = body["questions"]
    about = _text(body["input"]), question["question"]
    if question["type"] == "choice":
        _only(question, "id", "type", "question", "options")
        return Asked("choice", *about, [each["name"] for each in question["options"]], [])
    if question["type"] == "score":
        return Asked(
            "score",
            *about,
            [str(level) for level in range(len(question["levels"]))],
            question["levels"],
        )
    _only(question, "id", "type", "question", "yes", "no")
    return Asked("noul", *about, ["yes", "no"], ["", ""])


def _autotrust(body: JSON) -> Asked:
    _only(body, "kind", "state", "question", "options", "thinking")
    about = _text(body["state"]), body["question"]
    if body["kind"] == "choice":
        return Asked("choice", *about, body["options"], [])
    if body["kind"] == "noul":
        return Asked("noul", *about, ["yes", "no"], ["", ""])
    return Asked("score", *about, [str(level) for level in range(6)], [])


_PARSED: dict[str, Callable[[JSON], Asked]] = {
    "systemone": _map,
    "openai": _openai,
    "sglang": _sglang,
    "google": lambda body: _map(body, "input", ("true_description", "false_description")),
    "cloudflare": _map,
    "autotrust": _autotrust,
}


def confidence_of(formula: str, kind: str, values: Sequence[float], mass: float = 1.0) -> float:
    """A server's confidence, from the formulae as their sources write them."""
    n, top = len(values), max(values)
    if formula != "typesafe":
        return top * (mass if formula == "p-mass" else 1.0)
    if kind != "score":
        return (top - 1 / n) / (1 - 1 / n)
    mode, even = values.index(top), sum(abs(i - (n - 1) / 2) for i in range(n)) / n
    return max(0.0, 1 - sum(p * abs(i - mode) for i, p in enumerate(values)) / even)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _value(asked: Asked, values: list[Any]) -> JSON:
    """The one answer that is named, and the probabilities by name."""
    numbers = [_number(value) for value in values]
    by_key = dict(zip(asked.keys, values, strict=True))
    if asked.kind == "noul":
        return {"noul": values[0]}
    if asked.kind == "choice":
        return {"choice": asked.keys[numbers.index(max(numbers))], "probabilities": by_key}
    return {"score": sum(level * p for level, p in enumerate(numbers)), "probabilities": by_key}


def _systemone(service: DecisionService, asked: Asked, values: list[Any]) -> JSON:
    answer = {"type": asked.kind, **_value(asked, values)}
    if asked.kind == "score":
        answer["legend"] = {str(level): text for level, text in enumerate(asked.texts) if text}
    google = service.dialect == "google"
    if service.confidence and (google or asked.kind != "noul"):
        formula = "p-max" if google else service.confidence
        answer["confidence"] = confidence_of(
            formula, asked.kind, [_number(p) for p in values], service.mass or 1.0
        )
    reply: JSON = {"answers": {"q": answer}}
    if service.mass is not None:
        reply["diagnostics"] = {"q": {"label_mass": service.mass, "argmax_is_label": True}}
    return reply


def _of_openai(service: DecisionService, asked: Asked, values: list[Any]) -> JSON:
    numbers = [_number(value) for value in values]
    answer: JSON = {"type": "predicate" if asked.kind == "noul" else asked.kind, "name": "q"}
    if asked.kind == "noul":
        return {"answers": [{**answer, "probability": values[0]}]}
    answer |= {"confidence": max(numbers), **_value(asked, values)}
    entries = [{"value": key, "probability": p} for key, p in zip(asked.keys, values, strict=True)]
    if asked.kind == "score":
        levels = zip(entries, asked.texts, strict=True)
        entries = [
            {"label": text, "probability": each["probability"], "value": int(each["value"])}
            for each, text in levels
        ]
    return {"answers": [{**answer, "probabilities": entries}]}


def _of_sglang(service: DecisionService, asked: Asked, values: list[Any]) -> JSON:
    answer = {"type": "yes_no" if asked.kind == "noul" else asked.kind, **_value(asked, values)}
    answer |= {
        "label_mass": service.mass or 0.75,
        "probabilities": dict(zip(asked.keys, values, strict=True)),
    }
    answer.pop("noul", None)
    return {"object": "decisions", "prompt_format_version": 1, "answers": {"q": answer}}


def _of_autotrust(service: DecisionService, asked: Asked, values: list[Any]) -> JSON:
    options, told = [*asked.keys], [*values]
    if asked.kind == "noul":
        options, told = ["false", "true"], told[::-1]
    best = max(range(len(told)), key=lambda place: _number(told[place]))
    picked = {"choice_index": best, "choice": options[best]}
    return {"kind": asked.kind, "options": options, "probabilities": told, **picked}


_WRITTEN: dict[str, Callable[[DecisionService, Asked, list[Any]], JSON]] = {
    "systemone": _systemone,
    "openai": _of_openai,
    "sglang": _of_sglang,
    "google": _systemone,
    "cloudflare": _systemone,
    "autotrust": _of_autotrust,
}


def _first(value: Any) -> Callable[[list[Any], int], list[Any]]:
    return lambda values, _: [value, *values[1:]]


PROBABILITIES: dict[str, Callable[[list[Any], int], list[Any]]] = {
    "two decimals": lambda values, _: [round(p, 2) for p in values],
    "four decimals": lambda values, _: [round(p, 4) for p in values],
    "sum of a half": lambda values, _: [p / 2 for p in values],
    "sum a little off": lambda values, _: [p * 0.985 for p in values],
    "all zero": lambda values, _: [0.0 for _ in values],
    "NaN": _first(math.nan),
    "null": _first(None),
    "negative": _first(-0.25),
    "above 1": _first(1.5),
    "text for a number": lambda values, _: [str(values[0]), *values[1:]],
    "noul clipped": lambda values, _: [min(max(p, 0.01), 0.99) for p in values],
    "other numbers": lambda values, number: (lambda own: [p / sum(own) for p in own])(
        [p + (number % 7 + place) % 3 / 50 for place, p in enumerate(values)]
    ),
}
"""What happens to the numbers, from them and how many requests came before."""

_Change = Callable[[JSON, Asked, int], Any]


def _of_q(change: Callable[[JSON, Asked], JSON]) -> _Change:
    """The answer to the question changed, where it stands in a map."""

    def changed(whole: JSON, asked: Asked, _: int) -> JSON:
        return {**whole, "answers": {"q": change(whole["answers"]["q"], asked)}}

    return changed


def _by_name(change: Callable[[JSON, Asked], JSON]) -> _Change:
    return _of_q(
        lambda answer, asked: {**answer, "probabilities": change(answer["probabilities"], asked)}
    )


def _lowest(answer: JSON, asked: Asked) -> JSON:
    told = answer["probabilities"]
    return {**answer, "choice": min(told, key=told.__getitem__)}


def _last_of_best(answer: JSON, asked: Asked) -> JSON:
    told = answer["probabilities"]
    return {**answer, "choice": [key for key in told if told[key] == max(told.values())][-1]}


ANSWERS: dict[str, _Change] = {
    "choice not a maximum": _of_q(_lowest),
    "choice last of a tie": _of_q(_last_of_best),
    "choice unknown": _of_q(lambda answer, _: {**answer, "choice": "none of them"}),
    "noul with yes and no": _of_q(
        lambda answer, _: {
            **answer,
            "probabilities": {"no": 1 - answer["noul"], "yes": answer["noul"]},
        }
    ),
    "noul with true and false": _of_q(
        lambda answer, _: {
            **answer,
            "probabilities": {"true": answer["noul"], "false": 1 - answer["noul"]},
        }
    ),
    "noul differs": _of_q(lambda answer, _: {**answer, "probabilities": {"yes": 0.5, "no": 0.5}}),
    "score differs": _of_q(lambda answer, _: {**answer, "score": answer["score"] + 0.5}),
    "legend as list": _of_q(lambda answer, _: {**answer, "legend": [*answer["legend"].values()]}),
    "legend in reverse": _of_q(
        lambda answer, _: {**answer, "legend": dict([*answer["legend"].items()][::-1])}
    ),
    "legend in part": _of_q(
        lambda answer, _: {**answer, "legend": dict([*answer["legend"].items()][1:])}
    ),
    "legend of other texts": _of_q(lambda answer, _: {**answer, "legend": {"0": "something else"}}),
    "option missing": _by_name(lambda told, _: dict([*told.items()][1:])),
    "option extra": _by_name(lambda told, _: {**told, "none of them": 0.0}),
    "option renamed": _by_name(
        lambda told, _: {(f"{key}?" if not n else key): told[key] for n, key in enumerate(told)}
    ),
    "case changed": _by_name(lambda told, _: {key.upper(): p for key, p in told.items()}),
    "sorted": _by_name(lambda told, _: {key: told[key] for key in sorted(told)}),
    "probabilities as list": _of_q(
        lambda answer, _: {**answer, "probabilities": [*answer["probabilities"].values()]}
    ),
    "no probabilities": _of_q(
        lambda answer, _: {key: each for key, each in answer.items() if key != "probabilities"}
    ),
    "other type": _of_q(lambda answer, _: {**answer, "type": "box"}),
    "confidence a text": _of_q(lambda answer, _: {**answer, "confidence": "high"}),
    "answers as list": lambda whole, *_: {**whole, "answers": [*whole["answers"].values()]},
    "question missing": lambda whole, *_: {**whole, "answers": {}},
    "question extra": lambda whole, *_: {
        **whole,
        "answers": {**whole["answers"], "r": {"type": "noul", "noul": 0.5}},
    },
    "refusal": lambda whole, *_: {**whole, "answers": _refusal(whole["answers"])},
    "prompt feedback": lambda whole, *_: {
        "prompt_feedback": {"block_reason": "SAFETY"},
        "usage": whole["usage"],
    },
    "model changes": lambda whole, _, number: {**whole, "model": f"decider-{number}"},
    "model absent": lambda whole, *_: {key: each for key, each in whole.items() if key != "model"},
    "label mass always 1": lambda whole, *_: {
        **whole,
        "diagnostics": {"q": {"label_mass": 1.0, "argmax_is_label": True}},
    },
}
"""What happens to the answer, from it, the question, and how many requests came, this one too."""


def _refusal(answers: Any) -> Any:
    return (
        [{"type": "refusal", "name": "q"}]
        if isinstance(answers, list)
        else {"q": {"type": "refusal"}}
    )


BODIES: dict[str, Callable[[JSON], Any]] = {
    "success false": lambda whole: {
        "result": None,
        "success": False,
        "errors": [{"code": 3040, "message": "capacity temporarily exceeded"}],
    },
    "error with 200": lambda whole: {"error": {"message": "the engine died", "code": 500}},
    "no envelope": lambda whole: whole["result"],
    "a list": lambda whole: [whole],
}
"""What happens to the whole body, with the envelope of Cloudflare."""

_INVALID = (
    b'{"detail": [{"loc": ["body", "questions", "q"], "msg": "Field required", "type": "missing"}]}'
)
_QUOTA = b'{"success": false, "errors": [{"code": 4006, "message": "you have used up your daily free allocation"}]}'

STATUSES: dict[str, Fault] = {
    "HTML": says(HTML, Content_Type="text/html"),
    "truncated JSON": truncated_json,
    "204": status(204, b""),
    "400": status(400, b'{"error": {"message": "max_tokens_exceeded"}}'),
    "401": status(401, b'{"detail": "invalid api key"}'),
    "403": status(403, b'{"detail": "missing api key"}'),
    "404": status(404, b'{"detail": "Not Found"}'),
    "413": status(
        413, b'{"success": false, "errors": [{"code": 5021, "message": "state too long"}]}'
    ),
    "422": status(422, _INVALID),
    "429": status(429),
    "429 with seconds": status(429, Retry_After="1"),
    "429 with milliseconds": status(429, retry_after_ms="20"),
    "429 of a daily quota": status(429, _QUOTA),
    "501": status(501, b'{"error": {"message": "the architecture is not served for decisions"}}'),
    "503": status(503),
    "504": status(504),
    "529": status(529, b'{"success": false, "errors": [{"code": 5012, "message": "overloaded"}]}'),
}
"""What is sent in place of an answer."""
