"""Lines of Every Eval Ever about single items, schema 0.3.0: one per item and protocol."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from choicewise.interchange.answered import AnsweredItem, answered_items
from choicewise.interchange.write.json_text import json_text
from choicewise.interchange.write.line_files import LineFiles
from choicewise.protocols.readings import READINGS
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run


def write_samples(run: Run, file: Path, shared: Mapping[str, str], about: Mapping[str, tuple[str, str]]) -> int:
    """Write the lines of a run, and return how many they are; no file where there is none.

    ``shared``: what every line says; ``about``: protocol → name and id of its result.  An item that could not be scored
    has no line: the schema asks for a score, and no number is the right one.
    """
    by_prompt: dict[str, list[Measurement]] = {}
    for name in about:
        measured = run.measurements[name]
        by_prompt.setdefault(measured.protocol.prompt_digest, []).append(measured)
    count = 0
    with LineFiles() as files:
        for prompt, item in answered_items(run, dict.fromkeys(by_prompt, ())):
            for measured in by_prompt[prompt]:
                if not math.isnan(measured.credit[item.place]):
                    names = dict(zip(("evaluation_name", "evaluation_result_id"), about[measured.name], strict=True))
                    files.add(file, json_text({**shared, **names, **_line(item, measured)}))
                    count += 1
    return count


def _line(item: AnsweredItem, measured: Measurement) -> dict[str, Any]:
    credit = float(measured.credit[item.place])
    predicted = int(measured.prediction[item.place])
    chosen = item.choices[predicted].choice if 0 <= predicted < len(item.choices) else ""
    references = [item.choices[gold].choice for gold in item.gold]
    output = chosen if item.generated is None else item.generated
    digest = hashlib.sha256(f"{item.question}{''.join(references)}".encode()).hexdigest()
    right = measured.metric.counted and credit == 1.0
    return {
        "sample_id": item.id,
        "sample_hash": digest,
        "interaction_type": "single_turn",
        "input": {
            **{"raw": item.question, "formatted": item.context, "reference": references},
            "choices": [choice.choice for choice in item.choices],
        },
        "output": {"raw": [output]},
        "answer_attribution": [
            {
                **{"turn_idx": 0, "source": "output.raw", "extracted_value": chosen},
                **{"extraction_method": measured.protocol.decision, "is_terminal": True},
            }
        ],
        "evaluation": {"score": credit, "is_correct": right},
        "metadata": dict(_metadata(item, measured)),
    }


def _metadata(item: AnsweredItem, measured: Measurement) -> Iterator[tuple[str, str]]:
    """Texts about the item: where it is from, what was right, and the number of every choice."""
    yield from (("split", item.split), ("subject", item.subject), ("gold", json_text(list(item.gold))))
    yield "prediction", str(int(measured.prediction[item.place]))
    if not measured.metric.counted:
        yield "is_correct", f"not defined by the metric {measured.protocol.metric}"
    if measured.known_scores is not None:
        yield "scores", json_text(measured.known_scores[item.row : item.row + len(item)].tolist())
    if READINGS[measured.protocol.reading].one_likelihood:
        yield "loglikelihoods", json_text([choice.loglikelihood for choice in item.choices])
