"""File names, rows of a run, and items with their answers, for the writers of all formats."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from choicewise.logs import AVERAGES
from choicewise.page.study import Study, make_study
from choicewise.ports import Export
from choicewise.protocols.preparations import DONT_KNOW
from choicewise.records import MANIFEST
from choicewise.results.measurement import Measurement
from choicewise.results.number import Number
from choicewise.results.outcomes import Summary
from choicewise.results.rows import run_id
from choicewise.results.run import Run
from choicewise.results.summary import summarize, summary_of
from choicewise.results.sweep import averages
from choicewise.results.tables import read_item_rows
from choicewise.scoring.observed import Continuations, Floats
from choicewise.scoring.portion import ObservedPortion
from choicewise.scoring.scores import greedy, tokens
from choicewise.util.files import free_name
from choicewise.util.jsonio import JsonMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredChoice:
    """Hold a choice under a prompt.

    ``choice``: the text of the data; ``option``: the text that the prompt shows. ``context`` and
    ``continuation``: the texts that were scored, None if the item could not be asked.
    ``loglikelihood``: in nats; NaN if it is missing, known as an upper bound only, or asked in
    several parts. ``tokens``: how many were scored, and ``greedy``: if each was the likeliest; None
    if unknown. ``after_null``: null context → log-likelihood after it, in nats.
    """

    choice: str
    option: str | None
    context: str | None
    continuation: str | None
    loglikelihood: float
    tokens: int | None
    greedy: bool | None
    after_null: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredItem:
    """Hold an item under a prompt.

    ``index``: its index in the arrays of a measurement under this prompt that have an entry per
    item; ``row``: the index of its first choice in those that have one per choice. ``fields``: the
    further fields of the data. ``context``: the prompt as it was sent, None if the item could not
    be asked; ``generated``: the text that the model wrote after it; ``missing``: why something is
    missing.
    """

    index: int
    row: int
    id: str
    split: str
    subject: str
    question: str
    gold: tuple[int, ...]
    fields: Mapping[str, str]
    context: str | None
    choices: tuple[AnsweredChoice, ...]
    generated: str | None
    missing: str | None

    def __len__(self) -> int:
        return len(self.choices)


def item_scores(item: AnsweredItem, measured: Measurement) -> list[float] | None:
    """Return the score of each choice, NaN if it is unknown; None if the protocol has no scores."""
    scores = measured.known_scores
    if scores is None:
        return None
    return scores[item.row : item.row + len(item)].tolist()


def answered_items(
    run: Run, nulls: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, AnsweredItem]]:
    """Yield (prompt, item) for every prompt (``Protocol.prompt_digest``) in ``nulls`` and every
    item that was asked under it.

    ``nulls``: by prompt, the null contexts whose log-likelihoods are wanted. The run is read once,
    a portion at a time: the items of a prompt come in the order of its evidence, and prompts take
    turns.
    """
    item_counts = dict.fromkeys(nulls, 0)
    row_counts = dict.fromkeys(nulls, 0)
    for tables in run.evidence.portion_tables(texts=True):
        data_rows = read_item_rows(run.folder, tables.items["position"].to_pylist())
        prompts = set(tables.requests["prompt"].unique().to_pylist())
        for prompt in sorted(prompts & nulls.keys()):
            portion = ObservedPortion(tables, prompt)
            # A portion counts from 0, the arrays of a measurement are of all portions.
            before = item_counts[prompt], row_counts[prompt]
            for item in _items(portion, data_rows, nulls[prompt], before):
                yield prompt, item
            item_counts[prompt] += len(portion.items)
            row_counts[prompt] += int(portion.item_offsets[-1])


def _items(
    portion: ObservedPortion,
    data_rows: Mapping[int, JsonMapping],
    nulls: Sequence[str],
    before: tuple[int, int],
) -> Iterator[AnsweredItem]:
    """Yield the items of a portion. ``before``: items and rows of the portions before it."""
    item_count, row_count = before
    rows_of_portion = [data_rows[position] for position in portion.items.tolist()]
    contexts: list[str | None] = portion.requests["context"].to_pylist()
    texts_of_items = [data_row["choices"] for data_row in rows_of_portion]
    choices = _choices(portion, nulls, contexts, texts_of_items)
    offsets = portion.item_offsets.tolist()
    generated = portion.generated()
    # The first reason of every item that has something missing.
    reasons: dict[int, str] = {}
    for null in (None, *nulls):
        for item, reason in portion.reasons(null):
            reasons.setdefault(item, reason)
    for index, (data_row, choices_of_item) in enumerate(zip(rows_of_portion, choices, strict=True)):
        yield AnsweredItem(
            index=item_count + index,
            row=row_count + offsets[index],
            id=str(data_row["item"]),
            split=str(data_row["split"]),
            subject=str(data_row["subject"]),
            question=str(data_row["question"]),
            gold=tuple(portion.gold[index]),
            fields=json.loads(str(data_row["fields"])),
            context=contexts[index],
            choices=choices_of_item,
            generated=generated[index],
            missing=reasons.get(index),
        )


def _choices(
    portion: ObservedPortion,
    nulls: Sequence[str],
    contexts: Sequence[str | None],
    texts_of_items: Sequence[Sequence[str]],
) -> Iterator[tuple[AnsweredChoice, ...]]:
    """Yield the choices of each item of a portion. ``texts_of_items``: those of the data."""
    scored = portion.continuations()
    contexts_of_rows = portion.row_contexts
    options = portion.options()
    expected = portion.expected()
    token_counts: list[int] = np.nan_to_num(tokens(scored)).astype(np.int64).tolist()
    flags: list[float] = greedy(scored).tolist()
    loglikelihoods = _loglikelihoods(portion, scored)
    after_null: dict[str, list[float]] = {}
    for null in nulls:
        after_null[null] = _known_sums(portion.continuations(null)).tolist()

    counts = np.diff(portion.item_offsets).tolist()
    row = 0
    for item, texts in enumerate(texts_of_items):
        # The prompt may add an option behind those of the data.
        texts = [*texts, DONT_KNOW][: counts[item]]
        choices = []
        for index, text in enumerate(texts):
            context = contexts_of_rows[row]
            if context is None:
                context = contexts[item]
            choice = AnsweredChoice(
                choice=text,
                option=_text_at(options[item], index),
                context=context,
                # An unobserved choice has no text, but the prompt has the text that was to be
                # scored.
                continuation=scored.text[row] or _text_at(expected[item], index),
                loglikelihood=loglikelihoods[row],
                tokens=token_counts[row] or None,
                greedy=_flag(flags[row]),
                after_null={null: sums[row] for null, sums in after_null.items()},
            )
            choices.append(choice)
            row += 1
        yield tuple(choices)


def _text_at(texts: Sequence[str], index: int) -> str | None:
    if index < len(texts):
        return texts[index]
    return None


def _flag(value: float) -> bool | None:
    if math.isnan(value):
        return None
    return bool(value)


def _loglikelihoods(portion: ObservedPortion, scored: Continuations) -> list[float]:
    part_sums = portion.part_sums
    if len(part_sums) > 1:
        # Other formats have one number per choice, and no part of several is that number.
        return [math.nan] * len(part_sums[0])
    return _known_sums(scored).tolist()


def _known_sums(observed: Continuations) -> Floats:
    """Return log-likelihoods in nats, float64 [rows]; NaN for upper bounds, which other formats
    lack.
    """
    if observed.at_most is None:
        return observed.sums
    return np.where(observed.at_most, np.nan, observed.sums)


LONGEST = 120
"""Bytes of a name, so that it fits with a prefix and an ending into the 255 of a file system."""

_RESERVED = (
    {"con", "prn", "aux", "nul", "data"}
    | {f"com{number}" for number in range(10)}
    | {f"lpt{number}" for number in range(10)}
)
"""Names that a folder can't have everywhere, or that a data store reserves."""


def file_name(text: str) -> str:
    """Return ``text`` as a part of a path that every system takes: letters, digits, ``_``, ``.``,
    ``@`` and ``-``.

    Other characters become ``-``. A longer name ends in a digest of the text.
    """
    name = re.sub(r"[^\w.@-]+", "-", text).strip(".-") or "unnamed"
    if name.partition(".")[0].lower() in _RESERVED:
        name = f"{name}-"
    encoded = name.encode()
    if len(encoded) <= LONGEST:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{encoded[: LONGEST - 9].decode(errors='ignore')}-{digest}"


def distinct_name(name: str, taken: Collection[str], identity: str) -> str:
    """Return ``name`` if it is not ``taken``, else ``name`` with ``identity`` behind it, and with a
    number if that is taken too.
    """
    if free_name(name, taken) == name:
        return name
    return free_name(f"{name}-{identity}", taken)


@contextmanager
def line_files() -> Iterator[Callable[[Path, str], None]]:
    """Yield a function that adds a line, given without its end, to a file.

    Lines wait until they are many, so that one file at a time is open however many there are.
    """
    waiting: dict[Path, list[str]] = {}
    length = 0

    def write() -> None:
        for file, lines in waiting.items():
            with file.open("a", encoding="utf-8", newline="\n") as stream:
                stream.writelines(lines)
        waiting.clear()

    def add(file: Path, line: str) -> None:
        nonlocal length
        waiting.setdefault(file, []).append(f"{line}\n")
        length += len(line)
        # Characters that wait in memory.
        if length > 8_000_000:
            write()
            length = 0

    yield add
    write()


def model_names(runs: Sequence[Run]) -> list[str]:
    """Return the name of each run's model, with #R if another run on a dataset of that name has the
    same model name, and with a number if that is equal too.
    """
    pairs = [(run.manifest.model.name, run.manifest.dataset.name) for run in runs]
    keys = [(pair, run_id(run.manifest)) for pair, run in zip(pairs, runs, strict=True)]
    pair_counts = Counter(pairs)
    key_counts = Counter(keys)
    names = []
    for number, (pair, identity) in enumerate(keys, start=1):
        name = pair[0]
        if pair_counts[pair] > 1:
            name += f" {identity}"
        if key_counts[pair, identity] > 1:
            name += f" ({number})"
        names.append(name)
    return names


def incomplete_notes(export: Export) -> list[str]:
    """Return a line per run whose items are not all there."""
    unfinished = [run for run in export.runs if not run.manifest.complete]
    return [
        f"{run.folder} is not complete; the export holds only the items that were run"
        for run in unfinished
    ]


def missing_notes(run: Run, rows: Mapping[str, Number]) -> list[str]:
    """Return a line per protocol with items that have no line in the samples. ``rows``: by
    protocol.
    """
    notes = []
    for name, row in rows.items():
        missing = row.counts.missing
        if missing:
            notes.append(
                f"{run.folder}, {name}: {missing} items have no answer, so the samples leave them "
                "out"
            )
    return notes


def model_folders(
    runs: Iterable[Run], spelled: Callable[[str], str] = str
) -> Iterator[tuple[str, list[Run]]]:
    """Yield a folder's name and the runs of every model, in the order of the models' first runs.

    ``spelled``: returns the name of a model as a format has it.
    """
    models: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        model = run.manifest.model
        digest = model.digest
        if run.manifest.imported is not None:
            # A log names its model and nothing else: the digest is one of the log.
            digest = ""
        models.setdefault((model.name, digest, model.dtype), []).append(run)
    names: list[str] = []
    for same_model in models.values():
        model = same_model[0].manifest.model
        name = file_name(spelled(model.name))
        names.append(distinct_name(name, names, model.digest[:6]))
        yield names[-1], same_model


def report_rows(run: Run) -> dict[str, Number]:
    """Return one row of the run's report per protocol, by its name; the row over all items if it
    has several groups.
    """
    rows = run.rows()
    row_counts = Counter(row.identity.protocol for row in rows)
    grouped = {name for name in run.protocols if row_counts[name] != 1}
    by_name = {}
    for row in rows:
        if row.identity.protocol not in grouped:
            by_name[row.identity.protocol] = row
    if grouped:
        # A protocol with a row per subject has one over all items under another aggregation.
        for row in run.rows("micro"):
            if row.identity.protocol in grouped:
                by_name[row.identity.protocol] = row
    return {name: by_name[name] for name in run.protocols if name in by_name}


def over_items(aggregation: str) -> str:
    """Return the ``aggregation`` if its number is one over all items, else micro."""
    if aggregation in AVERAGES:
        return aggregation
    return "micro"


def last_written(runs: Iterable[Run]) -> datetime:
    """Return when the latest of the runs was last written to, in UTC."""
    return datetime.fromtimestamp(max((run.folder / MANIFEST).stat().st_mtime for run in runs), UTC)


def summaries(export: Export) -> list[Summary]:
    """Return the summary of each run of the export, the stored one if the run has the protocols of
    its manifest, and release the runs.
    """
    summaries = []
    for run in export.runs:
        if _is_whole(run):
            summaries.append(summarize(run.folder))
            continue
        summaries.append(summary_of(run))
        run.release()
    return summaries


def export_study(export: Export) -> Study:
    """Return the study of the export's runs, with the averages of suites of the folders that it
    names.
    """
    study = make_study(summaries(export))
    whole = {run.folder for run in export.runs if _is_whole(run)}
    counted = []
    for folder, sweep in export.sweeps:
        runs = [folder / cell.folder for cell in sweep.cells]
        # A run with other protocols than it was evaluated with may lack what a suite averages.
        whole_summaries = {run: summarize(run) for run in runs if run in whole}
        for average in averages(folder, sweep, whole_summaries):
            if average.counted:
                counted.append(average)
    return replace(study, averages=tuple(counted))


def _is_whole(run: Run) -> bool:
    """Return whether the run has the protocols of its manifest, and no other."""
    return run.protocols.keys() == run.manifest.protocols.keys()


def is_finished(run: Run) -> bool:
    """Return whether the run has everything that was asked for."""
    return run.manifest.complete and not run.evidence.damages
