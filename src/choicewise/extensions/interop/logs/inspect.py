"""Inspect.

Read from inspect_ai 0.3.285 (log/_log.py, log/_recorders/eval.py and json.py), log version 2.  An archive holds
``header.json`` (``_journal/start.json`` until the run has ended) and one file a sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.files import (
    head,
    json_value,
    laid_out_by,
    parts,
    unpacked,
    unreadable,
)
from choicewise.extensions.interop.logs.verdicts import letter
from choicewise.logs import Log, LoggedChoice, LoggedItem, Verdict
from choicewise.questions import FILTERED, LENGTH, STOP


def recognises(path: Path) -> bool:
    """Return whether ``path`` is of this tool, or holds files of it."""
    try:
        if path.is_dir():
            return any(map(recognises, _files(path)))
    except OSError:
        return False
    start = head(path)[:4096]
    if path.suffix == ".eval":
        return start.startswith("PK")
    return start.startswith("{") and all(
        f'"{key}"' in start for key in ("version", "status", "eval")
    )


def _files(folder: Path) -> Iterator[Path]:
    return (
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".eval", ".json") and path.is_file()
    )


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """A log for every file and epoch: an epoch is a draw of its own for each item, and no further items."""
    if results is not None:
        raise DataError(
            f"{results}: a log of Inspect holds its own results; leave the file of results out"
        )
    for path in paths:
        for file in (
            [each for each in _files(path) if recognises(each)] if path.is_dir() else [path]
        ):
            try:
                with laid_out_by("Inspect", file):
                    logs = list(
                        _logs(file, *(_archive(file) if file.suffix == ".eval" else _json(file)))
                    )
            except DataError as error:
                logs = [unreadable("inspect", file, error)]
            yield from logs


def _archive(path: Path) -> tuple[Any, list[_Sample]]:
    with unpacked(path) as archive:
        names = [
            name for name in archive.names if name.startswith("samples/") and name.endswith(".json")
        ]
        header = next(
            (name for name in ("header.json", "_journal/start.json") if name in archive.names), None
        )
        if header is None:
            raise DataError(
                f"{path} has neither header.json nor _journal/start.json; it is no log of Inspect"
            )
        samples = (json_value(archive.read(name), f"{path}: {name}") for name in names)
        return json_value(archive.read(header), f"{path}: {header}"), _items(path, samples)


def _json(path: Path) -> tuple[Any, list[_Sample]]:
    header: dict[str, Any] = {}

    def samples() -> Iterator[Any]:
        for key, value in parts(path, "samples"):
            if key == "samples":
                yield value
            else:
                header[key] = value

    return header, _items(path, samples())


_Sample = tuple[int, LoggedItem]
"""(epoch, item)"""


def _items(path: Path, samples: Iterable[Any]) -> list[_Sample]:
    return [
        logged_item(sample, f"{path}, sample {number} (from 1)")
        for number, sample in enumerate(samples, 1)
    ]


def _logs(path: Path, header: Any, samples: Sequence[_Sample]) -> Iterator[Log]:
    """``header``: what the log says of the run as a whole."""
    if not isinstance(header, dict) or not isinstance(header.get("eval"), dict):
        raise DataError(f"{path} does not say what was evaluated; it is no log of Inspect")
    spec = header["eval"]
    check(path, header, len(samples))
    epochs = sorted({epoch for epoch, _ in samples})
    for epoch in epochs:
        items = tuple(item for each, item in samples if each == epoch)
        repeated = len(items) - len({item.id for item in items})
        if repeated:
            raise DataError(
                f"{path} holds {repeated} samples twice in epoch {epoch}; write it again with Inspect"
            )
        name = str(spec.get("task") or path.stem)
        several = {"epoch": f"{epoch} of {len(epochs)}"} if len(epochs) > 1 else {}
        yield Log(
            tool="inspect",
            model=str(spec.get("model") or ""),
            task=f"{name} epoch {epoch}" if several else name,
            items=items,
            settings={**settings(header), **several},
            recorded={} if several else totals(header),
            rules=rules(header),
        )


VERSIONS: Final = (1, 2)
"""Versions of the log format that are read."""

RULES: Final = (
    ((0, 3, 264), "inspect@0.3.264"),
    ((0, 3, 221), "inspect@0.3.221"),
    ((0, 3, 121), "inspect@0.3.121"),
    ((0, 0, 0), "inspect@0.3.42"),
)
"""By which published rule a release, from this one on, reads the letter in a text."""


def check(path: Path, header: Mapping[str, Any], samples: int) -> None:
    """Refuse logs of another version, without ``samples``, or of which a part was never answered."""
    version, status = header.get("version"), header.get("status", "started")
    if version not in VERSIONS:
        raise DataError(
            f"{path} is of version {version} of Inspect's logs; {' and '.join(map(str, VERSIONS))} are read:"
            " write it again with `inspect log convert`"
        )
    if not samples:
        raise DataError(
            f"{path} holds no samples (status {status}); run it again, and log the samples"
        )
    dataset, config = (header["eval"].get(key) or {} for key in ("dataset", "config"))
    ids = dataset.get("sample_ids") or []
    expected = len(ids) * int(config.get("epochs") or 1)
    if status != "success" and (samples < expected or not ids):
        raise DataError(
            f"{path} has status {status} and {samples} of {expected or 'an unknown number of'} samples;"
            " those that came first are no sample of all: finish it with `inspect eval-retry`"
        )


def settings(header: Mapping[str, Any]) -> dict[str, str]:
    """What a reader needs to know of the run; arguments of the model stay out, as they may hold secrets."""
    spec = header["eval"]
    packages = spec.get("packages") or {}
    steps = [
        step for step in (header.get("plan") or {}).get("steps") or () if isinstance(step, dict)
    ]
    limits = [(step.get("params") or {}).get("max_tokens") for step in steps]
    generated = spec.get("model_generate_config") or {}
    said = {
        "inspect_ai": packages.get("inspect_ai"),
        "created": spec.get("created"),
        "task_version": spec.get("task_version"),
        "dataset": (spec.get("dataset") or {}).get("name"),
        "solver": ", ".join(str(step.get("solver")) for step in steps),
        **{key: generated.get(key) for key in ("temperature", "top_p", "seed", "reasoning_effort")},
        "max_tokens": next(
            (limit for limit in (*limits, generated.get("max_tokens")) if limit), None
        ),
    }
    return {key: str(value) for key, value in said.items() if value not in (None, "")}


def rules(header: Mapping[str, Any]) -> tuple[str, ...]:
    """The rule of the release that wrote the log first, then those of other releases and tools."""
    said = str((header["eval"].get("packages") or {}).get("inspect_ai", ""))
    release = tuple(int(number) for number in re.findall(r"\d+", said)[:3]) or RULES[0][0]
    own = next((rule for start, rule in RULES if release >= start), RULES[-1][1])
    # those of others read texts of the form that Inspect asks for, which is simple-evals'
    others = ("simple-evals@f517a91", "simple-evals-multilingual@f517a91", "opencompass@14ca958")
    return own, *(rule for _, rule in RULES if rule != own), *others


def totals(header: Mapping[str, Any]) -> dict[str, float]:
    """The log's own numbers, as SCORER/METRIC."""
    scores = (header.get("results") or {}).get("scores") or ()
    return {
        f"{score.get('name')}/{name}": float(metric["value"])
        for score in scores
        for name, metric in (score.get("metrics") or {}).items()
        if isinstance(metric, dict) and isinstance(metric.get("value"), int | float)
    }


ATTACHMENT: Final = "attachment://"
"""What stands for a long text, which is then among the sample's attachments (log/_condense.py@499e615)."""

FINISHED: Final = {
    "stop": STOP,
    "max_tokens": LENGTH,
    "model_length": LENGTH,
    "content_filter": FILTERED,
}
"""Inspect's reasons for the end of a text (model/_model_output.py@499e615) as ours; of others it is not known."""

VALUES: Final = {"C": 1.0, "I": 0.0, "N": 0.0, "P": 0.5}
"""Inspect's verdicts as its metrics count them: correct, incorrect, no answer, partial (scorer/_metric.py@499e615)."""


def logged_item(sample: Any, place: str) -> tuple[int, LoggedItem]:
    """(epoch, item) of a sample; ``place`` says where it stands.

    A sample that ended in an error has no text, and its choices say why.  Raises DataError where it is no
    multiple-choice question.
    """
    if not isinstance(sample, dict) or "id" not in sample:
        raise DataError(f"{place} is no sample of Inspect: it has no id")
    options = sample.get("choices")
    if not isinstance(options, list) or not options:
        raise DataError(
            f"{place} (id {sample['id']!r}) has no choices; only multiple-choice tasks can be imported"
        )
    text = _texts(sample.get("attachments"))
    options = tuple(text(option) for option in options)
    gold = _gold(sample.get("target"), options)
    missing = _missing(sample, gold)
    unscored = (
        missing or "the log has text that the model wrote, and no log-likelihoods of the options"
    )
    item = LoggedItem(
        id=str(sample["id"]),
        gold=gold,
        choices=(LoggedChoice(missing=unscored),) * len(options),
        context=_context(sample, text),
        question=text(sample.get("input")),
        options=options,
        generated=None if missing else _completion(sample, text),
        finish=FINISHED.get(str(_first_choice(sample).get("stop_reason"))),
        recorded={} if missing else _verdicts(sample),
    )
    epoch = sample.get("epoch", 1)
    return epoch if isinstance(epoch, int) else 1, item


def _texts(attachments: Any) -> Callable[[Any], str]:
    """What gives the text of a text, of a message's parts (their texts alone), or of a list of messages."""
    known: Mapping[str, Any] = attachments if isinstance(attachments, dict) else {}

    def text(content: Any) -> str:
        if isinstance(content, str):
            key = content.removeprefix(ATTACHMENT)
            return str(known.get(key, content)) if key != content else content
        if isinstance(content, list):
            return "\n\n".join(filter(None, map(text, content)))
        if isinstance(content, dict):
            return text(content.get("text", content.get("content", "")))
        return ""

    return text


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
        # the kind alone: a message may hold an address, and an address a secret
        kind = re.match(r"[A-Za-z_][\w.]{0,80}", str(error.get("message", "")))
        return f"the sample ended in an error ({kind[0] if kind else 'of no kind'}), of which the log says more"
    if sample.get("invalidation"):
        return "the sample was marked invalid in the log"
    if len(gold) > 1:
        return f"the log asks for {len(gold)} letters at once, and the rules for text read one"
    return None


def _context(sample: Mapping[str, Any], text: Callable[[Any], str]) -> str | None:
    """The messages before the model's last one, which are what it was sent."""
    messages = [each for each in sample.get("messages") or () if isinstance(each, dict)]
    last = max(
        (place for place, each in enumerate(messages) if each.get("role") == "assistant"),
        default=len(messages),
    )
    return text([each.get("content") for each in messages[:last]]) or None


def _completion(sample: Mapping[str, Any], text: Callable[[Any], str]) -> str:
    output = sample.get("output") or {}
    if isinstance(output.get("completion"), str):
        return text(output["completion"])
    return text((_first_choice(sample).get("message") or {}).get("content"))


def _first_choice(sample: Mapping[str, Any]) -> Mapping[str, Any]:
    first: Any = next(iter((sample.get("output") or {}).get("choices") or ()), {})
    return first if isinstance(first, dict) else {}


def _verdicts(sample: Mapping[str, Any]) -> dict[str, float]:
    scores = sample.get("scores") or (
        {"score": sample["score"]} if isinstance(sample.get("score"), dict) else {}
    )
    values = (
        (name, score.get("value")) for name, score in scores.items() if isinstance(score, dict)
    )
    return {
        name: VALUES[value] if isinstance(value, str) else float(value)
        for name, value in values
        if (isinstance(value, int | float) and isfinite(value))
        or (isinstance(value, str) and value in VALUES)
    }


VERDICTS: Final[Mapping[str, Verdict]] = {"choice": letter}
"""The scorer choice."""
