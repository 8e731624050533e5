"""One line of the samples of lm-evaluation-harness 0.4: what was asked, what was answered, and what is said of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from choicewise.errors import DataError
from choicewise.interchange.logs.log import LoggedChoice
from choicewise.interchange.logs.read.cells import flag, index, number


class NoLikelihoods(DataError):
    """The task of a file has no log-likelihoods of choices."""


MUTUAL = "acc_mutual_info"
"""The metric for which every choice is asked a second time, after nothing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample line.

    ``context``: that of all choices, None where they have their own.  ``target`` and ``doc``: as the file has them.
    ``metrics``: the numbers that the line says of the item, by name, and ``others`` the names of what is no number.
    """

    id: int
    filter: str
    context: str | None
    choices: tuple[LoggedChoice, ...]
    target: Any
    doc: Mapping[str, Any]
    metrics: Mapping[str, float]
    others: tuple[str, ...] = ()

    @property
    def own_contexts(self) -> bool:
        """Whether the choices differ in their contexts and not in what is scored."""
        return self.context is None and len({choice.text for choice in self.choices}) == 1


def sample_key(row: Mapping[str, Any], where: str) -> tuple[str, int]:
    """The filter and the id of a sample line; DataError where it is none."""
    doc_id = index(row.get("doc_id"))
    if doc_id is None or "resps" not in row:
        raise DataError(
            f"{where} is no sample of lm-evaluation-harness 0.4: it has no doc_id and resps; is it of another version?"
        )
    name = row.get("filter")
    return name if isinstance(name, str) else "none", doc_id


def read_sample(row: Mapping[str, Any], where: str) -> Sample:
    """The sample that ``row`` is.

    Numbers and true and false may be texts.  Raises DataError, saying ``where``, for a task whose answers are not
    log-likelihoods, and for a row that is malformed.
    """
    name, doc_id = sample_key(row, where)
    asked = _pairs(row.get("arguments"), where)
    answers = _answers(row, where)
    if len(answers) > len(asked) > 0:
        raise DataError(f"{where} has {len(answers)} answers and {len(asked)} requests")
    count = max(len(asked), len(answers))
    asked = asked or [(None, None)] * count
    choices = tuple(
        _choice(answers[place] if place < len(answers) else None, text, f"{where}, request {place}")
        for place, (_, text) in enumerate(asked)
    )
    said = _said(row)
    metrics = _metrics(said)
    others = tuple(name for name in said if name not in metrics)
    contexts = [context for context, _ in asked]
    if _has_mutual(asked, metrics):
        half = len(choices) // 2
        choices = tuple(
            replace(choice, unconditional=after.loglikelihood)
            for choice, after in zip(choices[:half], choices[half:], strict=True)
        )
        contexts = contexts[:half]
    shared = contexts[0] if len(set(contexts)) == 1 else None
    if shared is None and any(context is not None for context in contexts):
        choices = tuple(replace(choice, context=context) for choice, context in zip(choices, contexts, strict=True))
    doc = row.get("doc")
    doc = doc if isinstance(doc, dict) else {}
    return Sample(doc_id, name, shared, choices, row.get("target"), doc, metrics, others)


def _pairs(arguments: Any, where: str) -> list[tuple[str | None, str | None]]:
    """(context, continuation) of every request, in order; none where the line has no arguments."""
    if isinstance(arguments, dict):
        numbered = sorted(
            (int(name.rpartition("_")[2]), each) for name, each in arguments.items() if _is_numbered(name)
        )
        rows = [(each.get("arg_0"), each.get("arg_1")) for _, each in numbered if isinstance(each, dict)]
    elif isinstance(arguments, list):
        rows = [tuple(each[:2]) for each in arguments if isinstance(each, list) and len(each) > 1]
        if len(rows) < len(arguments):
            raise DataError(f"{where}: its requests are no pairs of context and continuation")
    else:
        return []
    texts = [(context, text) for context, text in rows if isinstance(context, str) and isinstance(text, str)]
    if len(texts) < len(rows):
        raise NoLikelihoods(
            f"{where}: its requests are no pairs of context and continuation; a task that is answered in text, or that "
            "scores whole documents, has no log-likelihoods of choices"
        )
    return [*texts]


def _is_numbered(name: str) -> bool:
    digits = name.rpartition("_")[2]
    return name.startswith("gen_args_") and digits.isascii() and digits.isdigit()


def _answers(row: Mapping[str, Any], where: str) -> list[Any]:
    """What answers each request: its first repetition, or None where there is none."""
    resps = row["resps"]
    if not isinstance(resps, list):
        raise DataError(f"{where}: resps is no list")
    if not resps and isinstance(row.get("filtered_resps"), list):
        return list(row["filtered_resps"])
    return [(each[0] if each else None) if isinstance(each, list) else each for each in resps]


def _choice(answer: Any, text: str | None, where: str) -> LoggedChoice:
    if answer is None:
        return LoggedChoice(None, text, missing="the log has no answer for it")
    if isinstance(answer, list) and len(answer) == 2:
        value, greedy = number(answer[0], f"{where}: its log-likelihood"), flag(answer[1], f"{where}: is_greedy")
        return LoggedChoice(value, text, greedy=greedy, missing=None if value is not None else "the log says NaN")
    raise NoLikelihoods(
        f"{where}: its answer is {str(answer)[:60]!r}, and no log-likelihood with whether it is greedy; only tasks of "
        "the output types multiple_choice and loglikelihood have these"
    )


def _said(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a line says of the item besides the request and its answers: the task's metrics."""
    known = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
    return {name: value for name, value in row.items() if name not in known and not name.endswith("_hash")}


def _metrics(said: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among what a line says of the item."""
    metrics: dict[str, float] = {}
    for name, value in said.items():
        if isinstance(value, bool | int | float):
            metrics[name] = float(value)
        elif isinstance(value, str) and (text := _number(value)) is not None:
            metrics[name] = text
    return metrics


def _number(text: str) -> float | None:
    try:
        return number(flag(text, "") if text in ("True", "False") else text, "") if text else None
    except DataError:
        return float(text == "True") if text in ("True", "False") else None


def _has_mutual(asked: Sequence[tuple[str | None, str | None]], metrics: Mapping[str, float]) -> bool:
    """Whether the second half of the requests asks the first again after nothing."""
    half = len(asked) // 2
    if len(asked) < 2 or len(asked) % 2 or any(context for context, _ in asked[half:]):
        return False
    again = [text for _, text in asked[:half]] == [text for _, text in asked[half:]]
    return MUTUAL in metrics or (again and all(context for context, _ in asked[:half]))


def listed(target: Any) -> list[int] | None:
    """The indices that a target lists, which is text in newer files; None where it is no list of them."""
    if isinstance(target, str) and target.startswith("[") and len(target) < 1_000:
        try:
            target = ast.literal_eval(target)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    if not isinstance(target, list):
        return None
    indices = [index(each) for each in target]
    known = [each for each in indices if each is not None]
    return known if len(known) == len(indices) else None
