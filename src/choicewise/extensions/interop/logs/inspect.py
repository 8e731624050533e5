"""Read logs of Inspect: the header of a run, and the samples with the text that the model wrote.

Read from inspect_ai 0.3.285 (log/_log.py, log/_recorders/eval.py and json.py), log version 2.  An
archive holds ``header.json`` (``_journal/start.json`` until the run has ended) and one file a
sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.files import (
    head,
    is_finite,
    json_value,
    laid_out_by,
    mapping,
    objects_among,
    parts,
    unpacked,
    unreadable,
)
from choicewise.extensions.interop.logs.verdicts import letter
from choicewise.logs import Log, LoggedChoice, LoggedItem, Verdict
from choicewise.questions import FILTERED, LENGTH, STOP
from choicewise.util.jsonio import JsonDict, JsonMapping


def recognises(path: Path) -> bool:
    """Return whether ``path`` is a log of Inspect, or a folder that holds one."""
    try:
        if path.is_dir():
            return any(map(recognises, _files(path)))
    except OSError:
        return False
    start = head(path)[:4096]
    if path.suffix == ".eval":
        return start.startswith("PK")
    keys = ('"version"', '"status"', '"eval"')
    return start.startswith("{") and all(key in start for key in keys)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".eval", ".json") and path.is_file():
            yield path


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """Yield a log for every file and epoch.

    An epoch is a new draw for every item, and adds no items.  Raises DataError for ``results``.
    """
    if results is not None:
        raise DataError(
            f"{results}: a log of Inspect holds its own results; leave the file of results out"
        )
    for path in paths:
        if not path.is_dir():
            yield from _read_file(path)
            continue
        for file in _files(path):
            if recognises(file):
                yield from _read_file(file)


def _read_file(path: Path) -> list[Log]:
    try:
        with laid_out_by("Inspect", path):
            if path.suffix == ".eval":
                header, samples = _archive(path)
            else:
                header, samples = _json(path)
            return list(_logs(path, header, samples))
    except DataError as error:
        # The other files of a folder can still be imported.
        return [unreadable("inspect", path, error)]


def _archive(path: Path) -> tuple[Any, list[tuple[int, LoggedItem]]]:
    with unpacked(path) as archive:
        if "header.json" in archive.names:
            header = "header.json"
        elif "_journal/start.json" in archive.names:
            header = "_journal/start.json"
        else:
            raise DataError(
                f"{path} has neither header.json nor _journal/start.json; it is not a log of "
                "Inspect"
            )
        names = [
            name for name in archive.names if name.startswith("samples/") and name.endswith(".json")
        ]
        samples = (json_value(archive.read(name), f"{path}: {name}") for name in names)
        content = json_value(archive.read(header), f"{path}: {header}")
        return content, _items(path, samples)


def _json(path: Path) -> tuple[Any, list[tuple[int, LoggedItem]]]:
    header: JsonDict = {}

    # The samples become items one by one: a file of them all may not fit into memory.
    def samples() -> Iterator[Any]:
        for key, value in parts(path, "samples"):
            if key == "samples":
                yield value
            else:
                header[key] = value

    return header, _items(path, samples())


def _items(path: Path, samples: Iterable[Any]) -> list[tuple[int, LoggedItem]]:
    return [
        logged_item(sample, f"{path}, sample {number} (from 1)")
        for number, sample in enumerate(samples, 1)
    ]


def _logs(path: Path, header: Any, samples: Sequence[tuple[int, LoggedItem]]) -> Iterator[Log]:
    """Yield a log for each epoch of the ``samples``."""
    if not isinstance(header, dict) or not isinstance(header.get("eval"), dict):
        raise DataError(f"{path} does not name a task; it is no log of Inspect")
    check(path, header, len(samples))
    items_of_epoch: dict[int, list[LoggedItem]] = {}
    for epoch, item in samples:
        items_of_epoch.setdefault(epoch, []).append(item)
    spec = header["eval"]
    task = str(spec.get("task") or path.stem)
    facts = settings(header)
    recorded = totals(header)
    for epoch, items in sorted(items_of_epoch.items()):
        repeated = len(items) - len({item.id for item in items})
        if repeated:
            raise DataError(
                f"{path} holds {repeated} samples twice in epoch {epoch}; write it again with "
                "Inspect"
            )
        name = task
        if len(items_of_epoch) > 1:
            # The totals of the log are those of all epochs together.
            name = f"{task} epoch {epoch}"
            facts = {**facts, "epoch": f"{epoch} of {len(items_of_epoch)}"}
            recorded = {}
        yield Log(
            tool="inspect",
            model=str(spec.get("model") or ""),
            task=name,
            items=tuple(items),
            settings=facts,
            recorded=recorded,
            rules=rules(header),
        )


VERSIONS = (1, 2)
"""Versions of the log format that are read."""

RULES = (
    ((0, 3, 264), "inspect@0.3.264"),
    ((0, 3, 221), "inspect@0.3.221"),
    ((0, 3, 121), "inspect@0.3.121"),
    ((0, 0, 0), "inspect@0.3.42"),
)
"""First release of Inspect that reads a letter by a published rule, and the rule."""


def check(path: Path, header: JsonMapping, samples: int) -> None:
    """Refuse a log of another version, without ``samples``, or of a run that did not end."""
    version = header.get("version")
    if version not in VERSIONS:
        raise DataError(
            f"{path} is of version {version} of Inspect's logs; {' and '.join(map(str, VERSIONS))} "
            "are read: write it again with `inspect log convert`"
        )
    status = header.get("status", "started")
    if not samples:
        raise DataError(
            f"{path} holds no samples (status {status}); run it again, and log the samples"
        )
    dataset = header["eval"].get("dataset") or {}
    config = header["eval"].get("config") or {}
    ids = dataset.get("sample_ids") or []
    expected = len(ids) * int(config.get("epochs") or 1)
    # The samples that a stopped run has answered first are no random draw of all.
    is_whole = bool(ids) and samples >= expected
    if status != "success" and not is_whole:
        raise DataError(
            f"{path} has status {status} and {samples} of {expected or 'an unknown number of'} "
            "samples; the first samples are not a random sample: finish it with `inspect "
            "eval-retry`"
        )


def settings(header: JsonMapping) -> dict[str, str]:
    """Return the settings of a run as text; arguments of the model may be secrets and stay out."""
    spec = header["eval"]
    packages = spec.get("packages") or {}
    dataset = spec.get("dataset") or {}
    generated = spec.get("model_generate_config") or {}
    steps = objects_among((header.get("plan") or {}).get("steps"))
    limit = None
    for step in steps:
        limit = limit or (step.get("params") or {}).get("max_tokens")
    values = {
        "inspect_ai": packages.get("inspect_ai"),
        "created": spec.get("created"),
        "task_version": spec.get("task_version"),
        "dataset": dataset.get("name"),
        "solver": ", ".join([str(step.get("solver")) for step in steps]),
        "temperature": generated.get("temperature"),
        "top_p": generated.get("top_p"),
        "seed": generated.get("seed"),
        "reasoning_effort": generated.get("reasoning_effort"),
        # A solver's limit goes before that of the model.
        "max_tokens": limit or generated.get("max_tokens") or None,
    }
    return {key: str(value) for key, value in values.items() if value not in (None, "")}


def rules(header: JsonMapping) -> tuple[str, ...]:
    """Return the rule of the release that wrote the log, then those of other releases and tools."""
    spelled = str((header["eval"].get("packages") or {}).get("inspect_ai", ""))
    release = tuple(int(number) for number in re.findall(r"\d+", spelled)[:3])
    if not release:
        release = RULES[0][0]
    names = [rule for _, rule in RULES]
    first = names[-1]
    for start, rule in RULES:
        if release >= start:
            first = rule
            break
    names.remove(first)
    # Inspect asks for answers in the form of simple-evals, which these tools read, too.
    others = ("simple-evals@f517a91", "simple-evals-multilingual@f517a91", "opencompass@14ca958")
    return (first, *names, *others)


def totals(header: JsonMapping) -> dict[str, float]:
    """Return the numbers of the log by SCORER/METRIC."""
    numbers = {}
    for score in (header.get("results") or {}).get("scores") or ():
        for name, metric in (score.get("metrics") or {}).items():
            if isinstance(metric, dict) and isinstance(metric.get("value"), int | float):
                numbers[f"{score.get('name')}/{name}"] = float(metric["value"])
    return numbers


ATTACHMENT = "attachment://"
"""Prefix of a key that replaces a long text (log/_condense.py@499e615)."""

FINISHED = {
    "stop": STOP,
    "max_tokens": LENGTH,
    "model_length": LENGTH,
    "content_filter": FILTERED,
}
"""Our reasons for the end of a text by those of Inspect (model/_model_output.py@499e615)."""

VALUES = {"C": 1.0, "I": 0.0, "N": 0.0, "P": 0.5}
"""Credit for correct, incorrect, no answer and partial (scorer/_metric.py@499e615)."""


def logged_item(sample: Any, where: str) -> tuple[int, LoggedItem]:
    """Return the epoch and the item of a sample; ``where`` names it in messages.

    A sample that ended in an error has no text, and its choices say why.  Raises DataError if it is
    no multiple-choice question.
    """
    if not isinstance(sample, dict) or "id" not in sample:
        raise DataError(f"{where} is not a sample of Inspect: it has no id")
    options = sample.get("choices")
    if not isinstance(options, list) or not options:
        raise DataError(
            f"{where} (id {sample['id']!r}) has no choices; only multiple-choice tasks can be "
            "imported"
        )
    texts = _Texts(sample.get("attachments"))
    options = tuple(map(texts.read, options))
    gold = _gold(sample.get("target"), options)
    output = sample.get("output") or {}
    first_choice = mapping((output.get("choices") or [{}])[0])
    reason = _missing(sample, gold)
    generated = None
    recorded: dict[str, float] = {}
    missing = reason
    if reason is None:
        missing = "the log has text that the model wrote, and no log-likelihoods of the options"
        generated = output.get("completion")
        if not isinstance(generated, str):
            generated = (first_choice.get("message") or {}).get("content")
        generated = texts.read(generated)
        recorded = _verdicts(sample)
    item = LoggedItem(
        id=str(sample["id"]),
        gold=gold,
        choices=(LoggedChoice(missing=missing),) * len(options),
        context=texts.read(_sent_messages(sample)) or None,
        question=texts.read(sample.get("input")),
        options=options,
        generated=generated,
        finish=FINISHED.get(str(first_choice.get("stop_reason"))),
        recorded=recorded,
    )
    epoch = sample.get("epoch", 1)
    if not isinstance(epoch, int):
        epoch = 1
    return epoch, item


class _Texts:
    """Read the text of a message's content, in which an attachment's key stands for a long text."""

    def __init__(self, attachments: Any) -> None:
        self._attachments = mapping(attachments)

    def read(self, content: Any) -> str:
        """Return the text of a text, of a message's parts, or of a list of messages."""
        if isinstance(content, str):
            if not content.startswith(ATTACHMENT):
                return content
            return str(self._attachments.get(content.removeprefix(ATTACHMENT), content))
        if isinstance(content, list):
            return "\n\n".join(filter(None, map(self.read, content)))
        if isinstance(content, dict):
            return self.read(content.get("text", content.get("content", "")))
        return ""


def _gold(target: Any, options: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the options that a target names, or nothing if it names none.

    Letters come first, as the scorer choice reads them (scorer/_choice.py@499e615: A to Z, then 1
    for the 27th; a word in capitals is several letters), and the text of an option second.
    """
    targets = target if isinstance(target, list) else [target]
    names = list(map(str, targets))
    letters = []
    texts = []
    for name in names:
        for word in name.replace(",", " ").split():
            letters += _letter_indices(word)
        # A data set may have the same option twice.
        texts += [index for index, option in enumerate(options) if option == name]
    if letters and all(0 <= index < len(options) for index in letters):
        return tuple(sorted(set(letters)))
    if len(texts) < len(names):
        return ()
    return tuple(sorted(set(texts)))


def _letter_indices(word: str) -> list[int]:
    """Return the index of each letter of a word, or -1 for a word that is no letters."""
    if word.isdecimal():
        number = int(word)
        if number == 0:
            return [-1]
        return [25 + number]
    if not (word.isascii() and word.isalpha()):
        return [-1]
    if len(word) > 1 and not word.isupper():
        return [-1]
    return [ord(letter) - ord("A") for letter in word.upper()]


def _missing(sample: JsonMapping, gold: Sequence[int]) -> str | None:
    """Return why the text of the model can't be read as an answer, or None."""
    error = sample.get("error")
    if isinstance(error, dict):
        # The kind alone: a message may hold an address, and an address a secret.
        match = re.match(r"[A-Za-z_][\w.]{0,80}", str(error.get("message", "")))
        kind = "of no kind"
        if match:
            kind = match[0]
        return f"the sample ended in an error ({kind}); the log has the details"
    if sample.get("invalidation"):
        return "the sample was marked invalid in the log"
    if len(gold) > 1:
        return f"the log asks for {len(gold)} letters at once, and the rules for text read one"
    return None


def _sent_messages(sample: JsonMapping) -> list[Any]:
    """Return the contents of the messages before the model's last one."""
    messages = objects_among(sample.get("messages"))
    end = len(messages)
    # The last message of the model is the answer itself.
    for index, message in enumerate(messages):
        if message.get("role") == "assistant":
            end = index
    return [message.get("content") for message in messages[:end]]


def _verdicts(sample: JsonMapping) -> dict[str, float]:
    """Return the credit that each scorer gave the sample."""
    scores = sample.get("scores")
    if not scores and isinstance(sample.get("score"), dict):
        scores = {"score": sample["score"]}  # older logs have one scorer
    credits: dict[str, float] = {}
    for name, score in (scores or {}).items():
        if not isinstance(score, dict):
            continue
        value = score.get("value")
        if isinstance(value, str):
            value = VALUES.get(value)
        if is_finite(value):
            credits[name] = float(value)
    return credits


VERDICTS: Mapping[str, Verdict] = {"choice": letter}
"""How the credit of the scorer choice follows from the text."""
