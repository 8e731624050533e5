"""Lines of samples files of LM Evaluation Harness: an item under a filter each."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from choicewise.interchange.answered import AnsweredChoice, AnsweredItem
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.results.measurement import Measurement

UNCONDITIONAL = "acc_mutual_info"
"""The metric of which the harness asks every choice once more, after nothing, and lists these requests last."""


def sample_lines(item: AnsweredItem, number: int, metrics: Mapping[str, Measurement]) -> Iterator[dict[str, Any]]:
    """The lines about ``item``, the one of that ``number`` in its task: one per filter of the ``metrics``.

    None for a filter under which nothing about the item has a number.  Keys, their order and their types are those of
    lm_eval/loggers/evaluation_tracker.py, which writes all numbers of ``resps`` as text.
    """
    document: dict[str, Any] = dict(item.fields)
    document |= {"id": item.id, "split": item.split, "subject": item.subject, "question": item.question}
    document |= {"choices": [choice.choice for choice in item.choices], "gold": list(item.gold)}
    for name in dict.fromkeys(key.partition(",")[2] for key in metrics):
        own = {key.partition(",")[0]: measured for key, measured in metrics.items() if key.partition(",")[2] == name}
        credits = {metric: float(measured.credit[item.place]) for metric, measured in own.items()}
        credits = {metric: credit for metric, credit in credits.items() if not np.isnan(credit)}
        if not credits:
            continue
        measured = next(iter(own.values()))
        shown = _first_right(item) if {each.protocol.metric for each in own.values()} == {"mc1"} else item
        target = _target(shown, measured.protocol)
        asked = _asked(shown, measured, UNCONDITIONAL in own)
        yield {
            "doc_id": number,
            "doc": document,
            "target": target,
            "arguments": {
                f"gen_args_{place}": dict(zip(("arg_0", "arg_1"), each, strict=True))
                for place, (each, _) in enumerate(asked)
            },
            "resps": [[answer] for _, answer in asked],
            "filtered_resps": _filtered(item, measured, [answer for _, answer in asked]),
            "filter": name,
            "metrics": list(credits),
            "doc_hash": _sha256(json.dumps(document, indent=2, ensure_ascii=False)),
            "prompt_hash": _sha256(asked[0][0][0] if asked else ""),
            "target_hash": _sha256(target),
            **credits,
        }


def sample_hashes(line: Mapping[str, Any]) -> str:
    """What the hash of a task is made of, line after line."""
    return f"{line['doc_hash']}{line['prompt_hash']}{line['target_hash']}"


def _first_right(item: AnsweredItem) -> AnsweredItem:
    """The item without the right choices after the first, as the harness asks it for mc1."""
    kept = [place for place in range(len(item)) if place not in item.gold[1:]]
    return replace(item, choices=tuple(item.choices[place] for place in kept), gold=(kept.index(item.gold[0]),))


def _asked(item: AnsweredItem, measured: Measurement, unconditional: bool) -> list[tuple[tuple[str, Any], Any]]:
    """((context, continuation), answer) of every request; of a generation (prompt, settings) and the text."""
    protocol = measured.protocol
    if READINGS[protocol.reading].text:
        stop = protocol.stop.split("\n") if protocol.stop else []
        settings = {"until": stop, "do_sample": False, "max_gen_toks": protocol.new_tokens}
        return [((item.context or "", settings), item.generated or "")]
    numbers = _numbers(item, measured)
    asked = [
        ((choice.context or "", choice.continuation or ""), [str(number), str(choice.greedy)])
        for choice, number in numbers
    ]
    if unconditional:
        asked += [
            (("", choice.continuation or ""), [str(choice.after_null.get("", np.nan)), str(None)])
            for choice in item.choices
        ]
    return list(asked)


def _numbers(item: AnsweredItem, measured: Measurement) -> Iterator[tuple[AnsweredChoice, float]]:
    """Every choice with its log-likelihood, or with its score where the reading has another number for a choice."""
    for place, choice in enumerate(item.choices):
        if measured.likelihoods or measured.known_scores is None:
            yield choice, choice.loglikelihood
        else:
            yield choice, float(measured.known_scores[item.row + place])


def _filtered(item: AnsweredItem, measured: Measurement, answers: list[Any]) -> list[Any]:
    """The answers; in place of generated text the choice that was read from it, if one was."""
    if not READINGS[measured.protocol.reading].text:
        return answers
    predicted = int(measured.prediction[item.place])
    if predicted < 0 or len(item.choices) < 2:
        return answers
    chosen = item.choices[predicted]
    return [(chosen.continuation or chosen.choice).strip()]


def _target(item: AnsweredItem, protocol: Protocol) -> str:
    """The right answer as text: its index, several as a list, the text itself where text was asked for."""
    if READINGS[protocol.reading].text or len(item.choices) == 1:
        right = item.choices[item.gold[0]] if item.gold else None
        return "" if right is None else (right.continuation or right.choice)
    return str(item.gold[0]) if len(item.gold) == 1 else str(list(item.gold))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
