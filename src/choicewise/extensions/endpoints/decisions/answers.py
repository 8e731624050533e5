"""Read the answers of decision endpoints, in the format that a dialect declares.

Nothing is repaired: an answer that is no distribution over the options of the question is missing,
with the reason.  Whatever in it contradicts its probabilities is kept beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from choicewise.data.decisions import NOUL
from choicewise.extensions.endpoints.decisions.claims import MASSES, confidences
from choicewise.extensions.endpoints.server.faults import Unreadable, json_answer
from choicewise.questions import TypedQuestion
from choicewise.scoring.rounding import rounding_step
from choicewise.util.jsonio import JsonDict, JsonMapping, json_text
from choicewise.util.text import listed, short

QUESTION = "q"
"""The id of a request's first question: some servers show it to the model, so it must not vary."""

REFUSED = "refused"
"""How the reason of an answer begins that the model or a filter declined to give."""

# How far numbers of float32 may be from what their sums should be.
_EXACT = 1e-5

# How far from 1 probabilities may sum that are not rounded, as in EvalScope 1.14.1.
_SUM = 0.02

_DIAGNOSTICS = (*MASSES, "argmax_is_label", "temperature")
_NOULS = ("noul", "predicate", "boolean", "yes_no")
_YES_OR_NO = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}
_USAGE = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "total_input_tokens": "input_tokens",
    "total_output_tokens": "output_tokens",
}


@dataclass(frozen=True, kw_only=True)
class DecisionAnswer:
    """Hold what an endpoint answered.

    ``probabilities``: one for each name of the question, as sent, 0 to 1; None if they are missing,
    and ``missing`` says why.  ``retry``: True if the content is an error that may heal, though its
    status was 200.  ``model``: the server's name of the model.  ``usage``: its counts;
    ``input_tokens`` and ``output_tokens`` have these names whatever the server calls them.
    ``confidence``: as sent; ``recomputed``: by TypeSafe's formula
    (:func:`~choicewise.extensions.endpoints.decisions.claims.confidences`).  ``diagnostics``: label
    mass and the like, by the server's names.  ``contradictions``: statements of the answer that its
    probabilities contradict, each with a kind, ``:`` and the case.  ``notes``: what is unusual and
    harmless.
    ``was_read``: False if no answer came that could be read.
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
    was_read: bool = True

    @property
    def refused(self) -> bool:
        """Check that the question was declined, not answered wrongly or not at all."""
        return self.missing is not None and self.missing.startswith(REFUSED)


def option_keys(question: TypedQuestion) -> Sequence[str]:
    """Return the names that answers give the options: levels have numbers."""
    if question.kind != "score":
        return question.names
    return [str(level) for level in range(len(question.names))]


@dataclass(frozen=True, kw_only=True)
class AnswerFormat:
    """Describe the answers of a dialect.

    ``name``: of the dialect.  ``wire``: its name of each kind of question.  ``answers``: how the
    answers are stored: by ``id`` of their questions, in a ``list``, or the one answer is the whole
    ``body``.  ``parts``: how the probabilities are stored: a ``map`` from names, a list of
    ``pairs``, or an ``array`` beside the options.  ``yes``: the field with the probability of yes.
    ``keys``: the names that an answer gives the options.  ``envelope``: the field that contains
    everything, None if there is none.
    """

    name: str
    wire: Mapping[str, str]
    answers: Literal["id", "list", "body"] = "id"
    parts: Literal["map", "pairs", "array"] = "map"
    yes: str = "noul"
    keys: Callable[[TypedQuestion], Sequence[str]] = option_keys
    envelope: str | None = None

    def read(self, content: bytes, question: TypedQuestion) -> DecisionAnswer:
        """Read the body ``content`` of a response with status 200.

        Nothing that a server sends raises: the answer is missing, and says why.
        """
        try:
            body = json_answer(content, finite=False)
        except Unreadable as error:
            reason = error.reason
            # A proxy answers for the server, often with a page under status 200.
            if content.lstrip()[:1] == b"<":
                reason = "it is HTML"
            missing = f"the answer can't be read: {reason}"
            return DecisionAnswer(missing=missing, retry=not error.deliberate)
        inner: Any = body
        if self.envelope:
            inner = body.get(self.envelope)
        remarks = _Remarks(inner)
        try:
            _check_success(body)
            if not isinstance(inner, dict):
                raise _Missing(f"the answer has no object {self.envelope!r}")
            answer = self._answer_of(inner, question, remarks)
            probabilities = self._probabilities(answer, question, remarks)
        except _Missing as error:
            return replace(remarks.answer(), missing=error.reason, retry=error.retry)
        remarks.compare(answer, question, probabilities, self.keys(question))
        confidence = _number(answer.get("confidence"))
        if confidence is None and answer.get("confidence") is not None:
            remarks.notes.append(f"the confidence is {_spelled(answer['confidence'])}")
        return replace(
            remarks.answer(),
            probabilities=probabilities,
            confidence=confidence,
            recomputed=confidences(question.kind, probabilities)["typesafe"],
            diagnostics=_diagnostics(inner, answer),
        )

    def _answer_of(
        self, inner: JsonMapping, question: TypedQuestion, remarks: _Remarks
    ) -> JsonMapping:
        """Return the answer to the question; raise _Missing if there is none."""
        if self.answers == "body":
            _check_blocked(inner, inner)
            return inner
        answers = inner.get("answers")
        _check_blocked(inner, answers)
        if answers is None:
            raise _Missing("the answer has no 'answers'")
        is_right = isinstance(answers, dict)
        wanted = "an object with the id of each question"
        if self.answers == "list":
            is_right = isinstance(answers, list)
            wanted = "a list"
        if not is_right:
            kinds: dict[type, str] = {dict: "an object", list: "a list"}
            container = kinds.get(type(answers), "neither")
            raise _Missing(f"'answers' is {container}; in the dialect {self.name} it is {wanted}")
        candidates = _candidates(answers)
        if len(candidates) > 1:
            raise _Missing("the question has two answers")
        unrequested = len(answers) - len(candidates) - len(question.beside)
        if not candidates and unrequested > 0:
            raise _Missing("the answer is to other questions")
        if not candidates:
            raise _Missing("the question has no answer")
        if unrequested > 0:
            remarks.notes.append("answers: some are to other questions")
        if not isinstance(candidates[0], dict):
            raise _Missing("the answer to the question is not an object")
        return candidates[0]

    def _probabilities(
        self, answer: JsonMapping, question: TypedQuestion, remarks: _Remarks
    ) -> tuple[float, ...]:
        """Return them in the order of the question's names; raise _Missing for no distribution."""
        self._check_kind(answer, question)
        is_noul = question.kind == "noul"
        # The probability of yes is enough; a distribution beside it is preferred and compared.
        if is_noul and self.yes in answer:
            yes = _checked(answer[self.yes], "yes")
            if answer.get("probabilities") is None:
                return yes, 1 - yes
        keys = list(self.keys(question))
        if is_noul:
            keys = list(NOUL)
        value_by_key: JsonDict = {}
        for key, value in self._pairs(answer):
            name = _option_name(key, question.kind)
            if name in value_by_key:
                raise _Missing("an option has two probabilities")
            value_by_key[name] = value
        _check_options(value_by_key, keys)
        if not is_noul and list(value_by_key) != keys:
            remarks.notes.append("order: the options are in another order than in the question")
        _check_legend(answer, question)
        probabilities = []
        for key, name in zip(keys, question.names, strict=True):
            probabilities.append(_checked(value_by_key[key], name))
        remarks.check_sum(probabilities)
        return tuple(probabilities)

    def _check_kind(self, answer: JsonMapping, question: TypedQuestion) -> None:
        expected = self.wire[question.kind]
        name_of_kind = "kind" if self.answers == "body" else "type"
        kind = answer.get(name_of_kind, expected)
        if kind == "refusal":
            raise _Missing(REFUSED)
        # A server may have another dialect's word for a noul.
        is_noul = question.kind == "noul" and kind in _NOULS
        if kind != expected and not is_noul:
            reason = (
                f"the answer is of type {_spelled(kind)}, but the question is a {question.kind}"
            )
            raise _Missing(reason)

    def _pairs(self, answer: JsonMapping) -> list[tuple[Any, Any]]:
        """Return the answer's name of every option and its probability, both as sent."""
        sent = answer.get("probabilities")
        if sent is None:
            raise _Missing("the answer has no probabilities")
        if self.parts == "map" and isinstance(sent, dict):
            return list(sent.items())
        if self.parts == "map" or not isinstance(sent, list):
            wanted = "an object" if self.parts == "map" else "a list"
            raise _Missing(
                f"the probabilities are {_spelled(sent)}; in the dialect {self.name} they are "
                f"{wanted}"
            )
        if self.parts == "array":
            options = answer.get("options")
            if not isinstance(options, list) or len(options) != len(sent):
                raise _Missing("a probability has no option")
            return list(zip(options, sent, strict=True))
        pairs = []
        for entry in sent:
            if not isinstance(entry, dict) or "value" not in entry:
                raise _Missing("a probability has no value")
            pairs.append((entry["value"], entry.get("probability")))
        return pairs


class _Missing(Exception):
    """There is no distribution; ``retry``: the whole answer is an error that may heal."""

    def __init__(self, reason: str, retry: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry


class _Remarks:
    """Gather what an answer contains beside its probabilities, while it is read."""

    def __init__(self, inner: Any) -> None:
        if not isinstance(inner, dict):
            inner = {}
        self.usage: dict[str, float] = {}
        for name, count in _usage_counts(inner.get("usage")):
            self.usage[_USAGE.get(name, name)] = count
        self.contradictions: list[str] = []
        self.notes: list[str] = []
        self.model: str | None = None
        model = inner.get("model")
        if isinstance(model, str) and model:
            self.model = model
        else:
            self.notes.append("model: the answer names none")

    def answer(self) -> DecisionAnswer:
        """Return an answer that has no more than these."""
        return DecisionAnswer(
            model=self.model,
            usage=self.usage,
            contradictions=tuple(self.contradictions),
            notes=tuple(self.notes),
        )

    def check_sum(self, probabilities: Sequence[float]) -> None:
        """Raise _Missing for a sum too far from 1, and note one that rounding does not explain."""
        total = math.fsum(probabilities)
        rounded = len(probabilities) * (_step(probabilities) / 2 + 1e-6) + _EXACT
        distance = abs(total - 1)
        if total == 0 or distance > max(_SUM + _EXACT, rounded):
            raise _Missing(f"the probabilities sum to {total:.6g}")
        if distance > rounded:
            self.contradictions.append(
                f"sum: the probabilities sum to {total:.6g}, which rounding does not explain"
            )

    def compare(
        self,
        answer: JsonMapping,
        question: TypedQuestion,
        probabilities: Sequence[float],
        keys: Sequence[str],
    ) -> None:
        """Note where the answer's one decision contradicts its ``probabilities``."""
        if question.kind == "noul":
            self._compare_yes(answer, probabilities)
            return
        score = _number(answer.get("score"))
        if question.kind == "score" and score is not None:
            self._compare_score(score, probabilities)
        choice = _choice(answer)
        if choice is None:
            return
        if choice in keys:
            self._compare_choice(list(keys).index(choice), question.names, probabilities)
        else:
            self.contradictions.append(
                f"choice: it is {short(choice, 60)!r}, not one of the options"
            )

    def _compare_yes(self, answer: JsonMapping, probabilities: Sequence[float]) -> None:
        yes = _number(answer.get("noul"))
        if yes is None:
            yes = _number(answer.get("probability"))
        if yes is None:
            return
        step = _step(probabilities)
        step_of_yes = _step([yes])
        slack = _EXACT
        # Two numbers that are rounded to one step must be equal.
        if step_of_yes != step:
            slack += (step_of_yes + step) / 2
        if abs(yes - probabilities[0]) > slack:
            self.contradictions.append(
                f"noul: it is {yes:.6g}, but the probability of yes is {probabilities[0]:.6g}"
            )

    def _compare_score(self, score: float, probabilities: Sequence[float]) -> None:
        highest = len(probabilities) - 1
        mean = math.fsum(level * p for level, p in enumerate(probabilities))
        # Some servers take the mean of probabilities that they have divided by their sum.
        normalised = mean / math.fsum(probabilities)
        # Every probability is off by half a step at most, and the level counts as its factor.
        rounding = _step(probabilities) / 2 * len(probabilities) * highest / 2
        slack = rounding + _step([score]) / 2 + _EXACT
        if min(abs(score - mean), abs(score - normalised)) > slack:
            self.contradictions.append(
                f"score: it is {score:.6g}, but the mean of the levels is {mean:.6g}"
            )

    def _compare_choice(
        self, chosen: int, names: Sequence[str], probabilities: Sequence[float]
    ) -> None:
        top = max(probabilities)
        best = probabilities.index(top)
        if probabilities[chosen] < top - _EXACT:
            self.contradictions.append(
                f"choice: it is {short(names[chosen], 60)!r} with {probabilities[chosen]:.6g}, "
                f"but {short(names[best], 60)!r} has {top:.6g}"
            )
        elif chosen != best:
            self.contradictions.append(
                f"tie: of several options with {top:.6g} the choice is not the first"
            )


def _check_success(body: JsonMapping) -> None:
    """Raise _Missing, to be retried, for a body that reports an error."""
    error = body.get("error")
    # Cloudflare reports it by ``success``, others by ``error``, and all under status 200.
    is_answer = "answers" in body or "probabilities" in body
    if body.get("success") is False or (error and not is_answer):
        message = json_text(error or body.get("errors"))
        raise _Missing(f"the answer is an error: {short(message, 300)}", retry=True)


def _check_blocked(inner: JsonMapping, answers: object) -> None:
    feedback = inner.get("prompt_feedback")
    if not isinstance(feedback, dict):
        return
    # Feedback beside answers is harmless if it names no reason.
    block = feedback.get("block_reason")
    if block or not answers:
        reason = str(feedback.get("block_reason_message") or block or "blocked")
        raise _Missing(f"{REFUSED}: the input was blocked ({short(reason, 200)})")


def _candidates(answers: Any) -> list[Any]:
    """Return the answers that may be meant for the first question of a request."""
    if isinstance(answers, dict):
        return [answers[QUESTION]] if QUESTION in answers else []
    candidates = []
    # An entry without a name may be ours: with one question a server need not repeat its id.
    for answer in answers:
        if not isinstance(answer, dict) or answer.get("name") in (QUESTION, None):
            candidates.append(answer)
    return candidates


def _option_name(key: Any, kind: str) -> str:
    """Return the option ``key`` of an answer as a text, "yes" or "no" for a noul."""
    name = key
    if not isinstance(key, str):
        name = _spelled(key)
        # An option called "true" is not the boolean; OpenAI has both.
        if kind == "choice":
            name = f"the value {name}"
    if kind == "noul":
        return _YES_OR_NO.get(name.lower(), name)
    return name


def _check_options(names: JsonMapping, keys: Sequence[str]) -> None:
    """Raise _Missing if ``names`` are not those of ``keys``, in any order."""
    absent = [repr(short(key, 60)) for key in keys if key not in names]
    extra = [repr(short(name, 60)) for name in names if name not in keys]
    problems = []
    if absent:
        problems.append(f"no probability for {listed(absent)}")
    if extra:
        problems.append(f"one for {listed(extra)}, not among the options")
    if problems:
        raise _Missing(f"there is {', but '.join(problems)}")


def _check_legend(answer: JsonMapping, question: TypedQuestion) -> None:
    """Raise _Missing if an answer's levels have other texts than the question's.

    They may be left out.
    """
    if question.kind != "score":
        return
    legend = answer.get("legend")
    levels = answer.get("probabilities")
    pairs: list[tuple[Any, Any]] = []
    if isinstance(levels, list):
        objects = [level for level in levels if isinstance(level, dict)]
        pairs = [(level.get("value"), level.get("label")) for level in objects]
    elif isinstance(legend, dict):
        pairs = list(legend.items())
    elif isinstance(legend, list):
        pairs = list(enumerate(legend))
    texts = {str(level): text for level, text in enumerate(question.names)}
    for level, text in pairs:
        if text not in (None, "") and texts.get(str(level)) != text:
            raise _Missing(f"the answer calls level {level} {_spelled(text)}, unlike the question")


def _choice(answer: JsonMapping) -> str | None:
    """Return the answer's name of its choice; an index goes before a text."""
    index = answer.get("choice_index")
    if isinstance(index, int) and not isinstance(index, bool):
        options = answer.get("options")
        if isinstance(options, list) and 0 <= index < len(options):
            return str(options[index])
        return f"number {index}"
    choice = answer.get("choice")
    if choice is None or isinstance(choice, str):
        return choice
    return json_text(choice)


def _step(probabilities: Sequence[float]) -> float:
    return rounding_step(probabilities, evidence=0) or 0.0


def _checked(value: Any, name: str) -> float:
    """Return a probability; raise _Missing, naming the option, for anything else."""
    number = _number(value)
    if number is None or number < 0 or number > 1 + _EXACT:
        raise _Missing(f"probability of {short(name, 60)!r} is {_spelled(value)}")
    return min(number, 1.0)


def _number(value: Any) -> float | None:
    """Return a finite number; None for anything else, a number in quotes too."""
    # To Python JSON's true is an int.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # JSON has integers of any length.
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _spelled(value: Any) -> str:
    """Spell a value of an answer in words."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value:.6g}"
    text = short(json_text(value), 80)
    return f"the text {text}" if isinstance(value, str) else text


def _usage_counts(usage: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield all numbers of a nested object, with names such as ``details.cached``."""
    if not isinstance(usage, dict):
        return
    for name, value in usage.items():
        count = _number(value)
        if isinstance(value, dict):
            yield from _usage_counts(value, f"{prefix}{name}.")
        elif count is not None:
            yield f"{prefix}{name}", count


def _diagnostics(inner: JsonMapping, answer: JsonMapping) -> Mapping[str, float | bool]:
    """Return the numbers and flags beside all answers, then those of the answer."""
    values: JsonDict = {}
    beside = inner.get("diagnostics")
    if isinstance(beside, dict) and isinstance(beside.get(QUESTION), dict):
        values.update(beside[QUESTION])
    values.update((name, answer[name]) for name in _DIAGNOSTICS if name in answer)
    diagnostics: dict[str, float | bool] = {}
    for name, value in values.items():
        number = value if isinstance(value, bool) else _number(value)
        if number is not None:
            diagnostics[name] = number
    return diagnostics
