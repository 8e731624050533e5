"""One sample of an Inspect log as an item: what was asked, what the model wrote, and how Inspect judged it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

from choicewise.errors import DataError
from choicewise.interchange.logs.log import LoggedChoice, LoggedItem

ATTACHMENT: Final = "attachment://"
"""What stands for a long text, which is then among the sample's attachments (log/_condense.py@499e615)."""

VALUES: Final = {"C": 1.0, "I": 0.0, "N": 0.0, "P": 0.5}
"""Inspect's verdicts as its metrics count them: correct, incorrect, no answer, partial (scorer/_metric.py@499e615)."""

_KIND: Final = re.compile(r"[A-Za-z_][\w.]{0,80}")
"""The kind of an error; its message may hold an address, and an address a secret."""

NO_LIKELIHOOD: Final = "the log has text that the model wrote, and no log-likelihoods of the options"
"""Why an option of a generated answer has no score."""


def logged_item(sample: Any, place: str) -> tuple[int, LoggedItem]:
    """(epoch, item) of a sample; ``place`` says where it stands.

    A sample that ended in an error has no text, and its choices say why.  Raises DataError where it is no
    multiple-choice question.
    """
    if not isinstance(sample, dict) or "id" not in sample:
        raise DataError(f"{place} is no sample of Inspect: it has no id")
    options = sample.get("choices")
    if not isinstance(options, list) or not options:
        raise DataError(f"{place} (id {sample['id']!r}) has no choices; only multiple-choice tasks can be imported")
    texts = _Texts(sample.get("attachments"))
    options = tuple(texts.of(option) for option in options)
    gold = _gold(sample.get("target"), options)
    missing = _missing(sample, gold)
    item = LoggedItem(
        id=str(sample["id"]),
        gold=gold,
        choices=(LoggedChoice(None, missing=missing or NO_LIKELIHOOD),) * len(options),
        context=_context(sample, texts),
        question=texts.of(sample.get("input")),
        options=options,
        generated=None if missing else _completion(sample, texts),
        recorded={} if missing else _verdicts(sample),
    )
    epoch = sample.get("epoch", 1)
    return epoch if isinstance(epoch, int) else 1, item


class _Texts:
    """The texts of a sample, whose long ones are attachments."""

    def __init__(self, attachments: Any) -> None:
        self._attachments: Mapping[str, Any] = attachments if isinstance(attachments, dict) else {}

    def of(self, content: Any) -> str:
        """The text of a text, of a message's parts (their texts alone), or of a list of messages."""
        if isinstance(content, str):
            key = content.removeprefix(ATTACHMENT)
            return str(self._attachments.get(key, content)) if key != content else content
        if isinstance(content, list):
            return "\n\n".join(text for text in map(self.of, content) if text)
        if isinstance(content, dict):
            return self.of(content.get("text", content.get("content", "")))
        return ""


def _gold(target: Any, options: Sequence[str]) -> tuple[int, ...]:
    """The indices that a target names; none where it names none of the options.

    By letters, as the scorer choice reads them (scorer/_choice.py@499e615: A to Z, then 1 for the 27th; several of them
    in capitals, as other words are texts), else by the text of an option.
    """
    targets = [str(each) for each in (target if isinstance(target, list) else [target])]
    words = [word for each in targets for word in each.replace(",", " ").split()]
    letters = [index for word in words for index in _indices(word)]
    if letters and all(0 <= index < len(options) for index in letters):
        return tuple(sorted(set(letters)))
    texts = [place for each in targets for place, option in enumerate(options) if option == each]
    return tuple(sorted(set(texts))) if len(texts) >= len(targets) else ()


def _indices(word: str) -> list[int]:
    if word.isdecimal():
        return [25 + int(word) if int(word) else -1]
    if not (word.isascii() and word.isalpha()) or (len(word) > 1 and not word.isupper()):
        return [-1]
    return [ord(letter) - ord("A") for letter in word.upper()]


def _missing(sample: Mapping[str, Any], gold: Sequence[int]) -> str | None:
    """Why what the model wrote can't be read as an answer, or None."""
    if isinstance(error := sample.get("error"), dict):
        kind = _KIND.match(str(error.get("message", "")))
        return f"the sample ended in an error ({kind[0] if kind else 'of no kind'}), of which the log says more"
    if sample.get("invalidation"):
        return "the sample was marked invalid in the log"
    if len(gold) > 1:
        return f"the log asks for {len(gold)} letters at once, and the rules for text read one"
    return None


def _context(sample: Mapping[str, Any], texts: _Texts) -> str | None:
    """The messages before the model's last one, which are what it was sent."""
    messages = [each for each in sample.get("messages") or () if isinstance(each, dict)]
    last = max((place for place, each in enumerate(messages) if each.get("role") == "assistant"), default=len(messages))
    return texts.of([each.get("content") for each in messages[:last]]) or None


def _completion(sample: Mapping[str, Any], texts: _Texts) -> str:
    output = sample.get("output") or {}
    if isinstance(output.get("completion"), str):
        return texts.of(output["completion"])
    first: Mapping[str, Any] = next(iter(output.get("choices") or ()), {})
    return texts.of((first.get("message") or {}).get("content"))


def _verdicts(sample: Mapping[str, Any]) -> dict[str, float]:
    scores = sample.get("scores") or ({"score": sample["score"]} if isinstance(sample.get("score"), dict) else {})
    values = ((name, score.get("value")) for name, score in scores.items() if isinstance(score, dict))
    return {
        name: VALUES[value] if isinstance(value, str) else float(value)
        for name, value in values
        if (isinstance(value, int | float) and isfinite(value)) or (isinstance(value, str) and value in VALUES)
    }
