"""How the answers of decision endpoints are read: what the formats differ in is declared, and one code reads all.

Nothing is repaired: an answer that is not a distribution over the options that were asked is missing, with the reason.
What else it says is held against its probabilities, and what does not agree is kept beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from choicewise.data.decisions import NOUL
from choicewise.extensions.endpoints.server.faults import Unreadable, json_answer
from choicewise.questions import TypedQuestion
from choicewise.scoring.rounding import MASSES, confidences, label_mass, rounding_step
from choicewise.util.jsonio import exact_json
from choicewise.util.text import listed, short

QUESTION: Final = "q"
"""The id of the one question of a request: some servers show it to the model, so it must not vary."""

REFUSED: Final = "refused"
"""How the reason of an answer begins that the model or a filter declined to give."""


@dataclass(frozen=True)
class DecisionAnswer:
    """What an endpoint answered.

    ``probabilities``: one per name of the question, as sent, 0 to 1; None where they are ``missing``, for this reason.
    ``retry``: whether the content is an error that may heal, though its status was 200.  ``model``: the name that the
    server gives.  ``usage``: its counts, ``input_tokens`` and ``output_tokens`` under these names whatever it calls
    them.  ``confidence``: as sent; ``recomputed``: by TypeSafe's formula
    (:func:`choicewise.scoring.rounding.confidences`).  ``diagnostics``: label mass and the like, by the
    server's names.
    ``contradictions``: what in the answer says otherwise than its probabilities, each with a kind, ``:``, and the case.
    ``notes``: what is unusual and harmless.
    """

    probabilities: tuple[float, ...] | None = None
    missing: str | None = None
    retry: bool = False
    model: str | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    confidence: float | None = None
    recomputed: float | None = None
    diagnostics: Mapping[str, float | bool] = field(default_factory=dict)
    contradictions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether the question was declined, rather than answered wrongly or not at all."""
        return self.missing is not None and self.missing.startswith(REFUSED)

    @property
    def label_mass(self) -> float | None:
        """The probability that all labels have among all tokens, where the server says it."""
        return label_mass(self.diagnostics)


@dataclass(frozen=True, kw_only=True)
class AnswerFormat:
    """What the answers of a dialect look like.

    ``name``: of the dialect.  ``wire``: what it calls each kind of question.  ``parts``: how probabilities stand there:
    a ``map`` from names, a list of ``pairs``, or an ``array`` beside the options.  ``in_order``: whether the answers
    are a list; None where the one answer is the whole body.  ``yes``: the field with the probability of yes.  ``keys``:
    what an answer calls the options.  ``envelope``: the field that holds all, None for none.
    """

    name: str
    wire: Mapping[str, str]
    parts: str = "map"
    in_order: bool | None = False
    yes: str = "noul"
    keys: Callable[[TypedQuestion], Sequence[str]] = lambda asked: option_keys(asked)
    envelope: str | None = None

    def read(self, content: bytes, asked: TypedQuestion) -> DecisionAnswer:
        """The answer that the body ``content`` of a response with status 200 holds; never raises for what it is."""
        try:
            body = json_answer(content, finite=False)
        except Unreadable as unreadable:
            reason = "it is HTML" if content.lstrip()[:1] == b"<" else unreadable.reason
            return DecisionAnswer(
                missing=f"the answer can't be read: {reason}", retry=not unreadable.deliberate
            )
        inner = body.get(self.envelope) if self.envelope else body
        about = _About(inner if isinstance(inner, dict) else {})
        try:
            _check_success(body)
            if not isinstance(inner, dict):
                raise _Missing(f"the answer has no object {self.envelope!r}")
            answer = self._of_question(inner, about, len(asked.beside))
            probabilities = self._probabilities(answer, asked, about)
        except _Missing as missing:
            return about.answer(missing=missing.reason, retry=missing.retry)
        about.compare(answer, asked, probabilities, self.keys(asked))
        confidence = _number(answer.get("confidence"))
        if "confidence" in answer and confidence is None and answer["confidence"] is not None:
            about.notes.append(f"the confidence is {_spelled(answer['confidence'])}")
        return about.answer(
            probabilities=probabilities,
            confidence=confidence,
            recomputed=confidences(asked.kind, probabilities)["typesafe"],
            diagnostics=_diagnostics(inner, answer),
        )

    def _of_question(
        self, inner: Mapping[str, Any], about: _About, asked: int
    ) -> Mapping[str, Any]:
        """The answer to the question, beside which so many others were ``asked``; raises _Missing for none."""
        answers = inner if self.in_order is None else inner.get("answers")
        feedback = inner.get("prompt_feedback")
        if isinstance(feedback, dict) and (feedback.get("block_reason") or not answers):
            reason = (
                feedback.get("block_reason_message") or feedback.get("block_reason") or "blocked"
            )
            raise _Missing(f"{REFUSED}: the input was blocked ({short(str(reason), 200)})")
        if self.in_order is None:
            return inner
        if answers is None:
            raise _Missing("the answer has no 'answers'")
        if self.in_order != isinstance(answers, list) or not isinstance(answers, list | dict):
            stands = (
                "a list"
                if isinstance(answers, list)
                else "an object"
                if isinstance(answers, dict)
                else "neither"
            )
            wanted = "a list" if self.in_order else "an object with the id of each question"
            raise _Missing(f"'answers' is {stands}, and the dialect {self.name} has {wanted}")
        if isinstance(answers, list):
            named = [
                each
                for each in answers
                if not isinstance(each, dict) or each.get("name") in (QUESTION, None)
            ]
            if len(named) > 1:
                raise _Missing("the question has two answers")
            others = len(answers) - len(named) - asked
        else:
            named = [answers[QUESTION]] if QUESTION in answers else []
            others = len(answers) - len(named) - asked
        if not named:
            raise _Missing(
                "the question has no answer"
                + (", but others have that nobody asked" if others > 0 else "")
            )
        if others > 0:
            about.notes.append("answers: there are some to questions that nobody asked")
        if not isinstance(named[0], dict):
            raise _Missing("the answer to the question is no object")
        return named[0]

    def _probabilities(
        self, answer: Mapping[str, Any], asked: TypedQuestion, about: _About
    ) -> tuple[float, ...]:
        """In the order of the question's names; raises _Missing where they are no distribution over them."""
        kind = answer.get("kind" if self.in_order is None else "type", self.wire[asked.kind])
        if kind == "refusal":
            raise _Missing(REFUSED)
        if kind != self.wire[asked.kind] and not (asked.kind == "noul" and kind in _NOULS):
            raise _Missing(
                f"the answer is of type {_spelled(kind)}, and the question a {asked.kind}"
            )
        if asked.kind == "noul" and self.yes in answer:
            yes = _checked(answer[self.yes], "yes")
            if answer.get("probabilities") is None:
                return yes, 1 - yes
        pairs = self._pairs(answer, asked)
        keys = [*self.keys(asked)] if asked.kind != "noul" else [*NOUL]
        if (
            [key for key, _ in pairs] != keys
            and sorted(key for key, _ in pairs) == sorted(keys)
            and asked.kind != "noul"
        ):
            about.notes.append("order: the options stand in another order than in the question")
        by_key = dict(pairs)
        if len(by_key) < len(pairs):
            raise _Missing("an option has two probabilities")
        absent, extra = (
            [key for key in keys if key not in by_key],
            [key for key in by_key if key not in keys],
        )
        if absent or extra:
            lacking = (
                f"no probability for {listed([repr(short(key, 60)) for key in absent])}"
                if absent
                else ""
            )
            unasked = (
                f"one for {listed([repr(short(key, 60)) for key in extra])}, which nobody asked"
                if extra
                else ""
            )
            raise _Missing("there is " + ", but ".join(part for part in (lacking, unasked) if part))
        _check_legend(answer, asked)
        probabilities = tuple(
            _checked(by_key[key], name) for key, name in zip(keys, asked.names, strict=True)
        )
        about.check_sum(probabilities)
        return probabilities

    def _pairs(self, answer: Mapping[str, Any], asked: TypedQuestion) -> list[tuple[str, Any]]:
        """(what the option is called, its probability as it stands there) in the answer's order."""
        given: Any = answer.get("probabilities")
        if given is None:
            raise _Missing("the answer has no probabilities")
        if not isinstance(given, dict if self.parts == "map" else list):
            wanted = "an object" if self.parts == "map" else "a list"
            raise _Missing(
                f"the probabilities are {_spelled(given)}, and the dialect {self.name} has {wanted}"
            )
        if self.parts == "array":
            options = answer.get("options")
            if not isinstance(options, list) or len(options) != len(given):
                raise _Missing("there is no option beside each probability")
            pairs = [*zip(options, given, strict=True)]
        elif self.parts == "pairs":
            if not all(isinstance(each, dict) and "value" in each for each in given):
                raise _Missing("a probability has no value beside it")
            pairs = [(each["value"], each.get("probability")) for each in given]
        else:
            pairs = [*dict(given).items()]
        # an option called "true" is not the boolean; OpenAI has both
        typed = "the value {}" if asked.kind == "choice" else "{}"
        spelled = [
            (key if isinstance(key, str) else typed.format(_spelled(key)), value)
            for key, value in pairs
        ]
        if asked.kind == "noul":
            spelled = [(_YES_OR_NO.get(key.lower(), key), value) for key, value in spelled]
        return spelled


def option_keys(asked: TypedQuestion) -> Sequence[str]:
    """What answers call the options: levels by their numbers."""
    return (
        asked.names if asked.kind != "score" else [str(level) for level in range(len(asked.names))]
    )


class _Missing(Exception):
    """There is no distribution, for this ``reason``; ``retry``: the whole answer is an error that may heal."""

    def __init__(self, reason: str, retry: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.retry = reason, retry


class _About:
    """What an answer says beside its probabilities, gathered while it is read."""

    def __init__(self, inner: Mapping[str, Any]) -> None:
        model = inner.get("model")
        self.model = model if isinstance(model, str) and model else None
        self.usage = {_USAGE.get(name, name): count for name, count in _counts(inner.get("usage"))}
        self.contradictions, self.notes = list[str](), list[str]()
        if self.model is None:
            self.notes.append("model: the answer names none")

    def answer(self, **rest: Any) -> DecisionAnswer:
        """With what was gathered, and the ``rest``."""
        notes, contradictions = tuple(self.notes), tuple(self.contradictions)
        return DecisionAnswer(
            model=self.model, usage=self.usage, contradictions=contradictions, notes=notes, **rest
        )

    def check_sum(self, probabilities: Sequence[float]) -> None:
        """Raises _Missing for a sum too far from 1, and keeps one in mind that rounding does not explain."""
        total, step = math.fsum(probabilities), rounding_step(probabilities, evidence=0) or 0.0
        rounded = len(probabilities) * (step / 2 + 1e-6) + _EXACT
        if total == 0 or abs(total - 1) > max(_SUM + _EXACT, rounded):
            raise _Missing(f"the probabilities sum to {total:.6g}")
        if abs(total - 1) > rounded:
            self.contradictions.append(
                f"sum: the probabilities sum to {total:.6g}, which rounding does not explain"
            )

    def compare(
        self,
        answer: Mapping[str, Any],
        asked: TypedQuestion,
        probabilities: tuple[float, ...],
        keys: Sequence[str],
    ) -> None:
        """Hold the one answer that is named against the probabilities."""
        step = rounding_step(probabilities, evidence=0) or 0.0
        if asked.kind == "noul":
            yes = next(
                (
                    number
                    for key in ("noul", "probability")
                    if (number := _number(answer.get(key))) is not None
                ),
                None,
            )
            own = rounding_step([yes], evidence=0) or 0.0 if yes is not None else 0.0
            slack = 0.0 if own == step else (own + step) / 2
            if yes is not None and abs(yes - probabilities[0]) > slack + _EXACT:
                self.contradictions.append(
                    f"noul: it is {yes:.6g}, and the probability of yes {probabilities[0]:.6g}"
                )
        elif asked.kind == "score" and (score := _number(answer.get("score"))) is not None:
            most = len(probabilities) - 1
            mean = math.fsum(level * p for level, p in enumerate(probabilities))
            own = rounding_step([score], evidence=0) or 0.0
            slack = step / 2 * len(probabilities) * most / 2 + own / 2 + _EXACT
            if min(abs(score - mean), abs(score - mean / math.fsum(probabilities))) > slack:
                self.contradictions.append(
                    f"score: it is {score:.6g}, and the mean of the levels {mean:.6g}"
                )
        if (chosen := _chosen(answer, keys)) is None or asked.kind == "noul":
            return
        if chosen not in keys:
            self.contradictions.append(f"choice: it is {short(chosen, 60)!r}, which nobody asked")
            return
        place, top = [*keys].index(chosen), max(probabilities)
        if probabilities[place] < top - _EXACT:
            best = short(asked.names[probabilities.index(top)], 60)
            self.contradictions.append(
                f"choice: it is {short(asked.names[place], 60)!r} with {probabilities[place]:.6g}, and {best!r} has "
                f"{top:.6g}"
            )
        elif place != probabilities.index(top):
            self.contradictions.append(
                f"tie: of several options with {top:.6g} the choice is not the first"
            )


_EXACT: Final = 1e-5
"""How far numbers of float32 may be from what their sums say."""

_SUM: Final = 0.02
"""How far from 1 probabilities may sum that are not rounded, as in EvalScope 1.14.1."""

_DIAGNOSTICS: Final = (*MASSES, "argmax_is_label", "temperature")
_NOULS: Final = ("noul", "predicate", "boolean", "yes_no")
_YES_OR_NO: Final = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}
_USAGE: Final = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "total_input_tokens": "input_tokens",
    "total_output_tokens": "output_tokens",
}


def _check_success(body: Mapping[str, Any]) -> None:
    """Raises _Missing, to be retried, for a body that says that it is an error."""
    error, errors = body.get("error"), body.get("errors")
    if body.get("success") is False or (
        error and "answers" not in body and "probabilities" not in body
    ):
        raise _Missing(
            f"the answer is an error: {short(exact_json(_plain(error or errors)), 300)}", retry=True
        )


def _check_legend(answer: Mapping[str, Any], asked: TypedQuestion) -> None:
    """Raises _Missing where an answer's levels have other texts than the question's; they may be left out."""
    legend, levels = answer.get("legend"), answer.get("probabilities")
    if asked.kind != "score":
        return
    if isinstance(levels, list):
        entries = [
            (each.get("value"), each.get("label")) for each in levels if isinstance(each, dict)
        ]
    else:
        entries = (
            [*legend.items()]
            if isinstance(legend, dict)
            else [*enumerate(legend if isinstance(legend, list) else [])]
        )
    texts = {str(level): text for level, text in enumerate(asked.names)}
    for level, text in entries:
        if text not in (None, "") and texts.get(str(level)) != text:
            raise _Missing(
                f"the answer calls level {level} {_spelled(text)}, which is not what was asked"
            )


def _chosen(answer: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """What the answer calls its choice; an index of it goes before its text."""
    index, choice = answer.get("choice_index"), answer.get("choice")
    if isinstance(index, int) and not isinstance(index, bool):
        options = answer.get("options")
        return (
            str(options[index])
            if isinstance(options, list) and 0 <= index < len(options)
            else f"number {index}"
        )
    return (
        None
        if choice is None
        else choice
        if isinstance(choice, str)
        else exact_json(_plain(choice))
    )


def _checked(value: Any, name: str) -> float:
    """A probability; raises _Missing, with the ``name`` of its option, for anything else."""
    number = _number(value)
    if number is None or number < 0 or number > 1 + _EXACT:
        raise _Missing(f"probability of {short(name, 60)!r} is {_spelled(value)}")
    return min(number, 1.0)


def _number(value: Any) -> float | None:
    """A finite number; None for anything else, numbers as texts too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _spelled(value: Any) -> str:
    """A value of an answer in words."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value:.6g}"
    text = short(exact_json(_plain(value)), 80)
    return f"the text {text}" if isinstance(value, str) else text


def _plain(value: Any) -> Any:
    """``value`` with a text for what JSON has no number for."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _counts(usage: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in usage.items() if isinstance(usage, dict) else ():
        if isinstance(value, dict):
            yield from _counts(value, f"{prefix}{name}.")
        elif (count := _number(value)) is not None:
            yield f"{prefix}{name}", count


def _diagnostics(inner: Mapping[str, Any], answer: Mapping[str, Any]) -> Mapping[str, float | bool]:
    """By the server's names, those beside all answers first."""
    beside = inner.get("diagnostics")
    own = beside.get(QUESTION) if isinstance(beside, dict) else None
    named = {
        **(own if isinstance(own, dict) else {}),
        **{name: answer[name] for name in _DIAGNOSTICS if name in answer},
    }
    values = {
        name: value if isinstance(value, bool) else _number(value) for name, value in named.items()
    }
    return {name: value for name, value in values.items() if value is not None}
