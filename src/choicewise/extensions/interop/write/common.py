"""What the writers of exports share: file names, rows of a run, items with their answers."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from choicewise.page.study import Study, make_study
from choicewise.ports import Export
from choicewise.protocols.preparations import DONT_KNOW
from choicewise.records import MANIFEST
from choicewise.results.number import Number
from choicewise.results.outcomes import OutcomeKeeper, Summary
from choicewise.results.rows import run_id
from choicewise.results.run import Run
from choicewise.results.spans import ObservedPortion
from choicewise.results.summary import summarize
from choicewise.results.sweep import averages
from choicewise.results.tables import read_item_rows
from choicewise.scoring import scores
from choicewise.scoring.observed import Continuations, Floats
from choicewise.scoring.scores import greedy


@dataclass(frozen=True, slots=True)
class AnsweredChoice:
    """A choice under a prompt.

    ``choice``: as the data have it; ``shown``: as the prompt shows it; ``context`` and ``continuation``: the texts that
    were scored, None where the item could not be asked.  ``loglikelihood``: in nats, NaN where missing, where no more
    than an upper bound is known, or where the choice was asked in several parts.  ``tokens``: how many were scored, and
    ``greedy``: whether every one was the likeliest; None where not known.  ``after_null``: null context →
    log-likelihood after it, in nats.
    """

    choice: str
    shown: str | None
    context: str | None
    continuation: str | None
    loglikelihood: float
    tokens: int | None
    greedy: bool | None
    after_null: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AnsweredItem:
    """An item under a prompt.

    ``index``: where every array of a measurement under this prompt has it; ``row``: where its first choice is among the
    measurement's rows.  ``fields``: the further fields of the data.  ``context``: the prompt as it was sent, None where
    the item could not be asked; ``generated``: what the model wrote after it; ``missing``: why something is missing.
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


def answered_items(
    run: Run, nulls: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, AnsweredItem]]:
    """(prompt, item) for every prompt (``Protocol.prompt_digest``) in ``nulls`` and every item asked under it.

    ``nulls``: by prompt, the null contexts whose log-likelihoods are wanted.  The run is read once, a portion at a
    time; the items of a prompt come in the order of its evidence, those of several prompts by turns.
    """
    counted = dict.fromkeys(nulls, (0, 0))
    for tables in run.evidence.whole_portions():
        texts = read_item_rows(run.folder, tables.items["position"].to_pylist())
        asked = {*tables.requests["prompt"].unique().to_pylist()}
        for prompt in sorted(asked & nulls.keys()):
            portion = ObservedPortion(tables, prompt)
            for item in _items(portion, texts, nulls[prompt], *counted[prompt]):
                counted[prompt] = item.index + 1, item.row + len(item)
                yield prompt, item


def _items(
    portion: ObservedPortion,
    texts: Mapping[int, Mapping[str, Any]],
    nulls: Sequence[str],
    place: int,
    row: int,
) -> Iterator[AnsweredItem]:
    reasons: dict[int, str] = {}
    for null in (None, *nulls):
        for item, reason in portion.reasons(null):
            reasons.setdefault(item, reason)
    contexts, own, generated = (
        portion.requests["context"].to_pylist(),
        portion.own_contexts,
        portion.generated(),
    )
    scored, parts = portion.continuations(), portion.part_sums
    sums: Floats = _known(scored) if len(parts) == 1 else np.full(len(parts[0]), np.nan)
    likeliest, counts = greedy(scored).tolist(), scores.tokens(scored).tolist()
    after = {null: _known(portion.continuations(null)).tolist() for null in nulls}
    expected, shown = portion.expected(), portion.options()
    loglikelihoods = sums.tolist()
    for number, (start, end) in enumerate(pairwise(portion.item_offsets.tolist())):
        about = texts[int(portion.items[number])]
        texts_of = [
            *about["choices"],
            *([DONT_KNOW] if end - start > len(about["choices"]) else []),
        ]
        choices = []
        for at in range(start, end):
            choice = at - start
            continuation = scored.text[at] or None
            if continuation is None and choice < len(expected[number]):
                continuation = expected[number][choice]
            choices.append(
                AnsweredChoice(
                    choice=texts_of[choice],
                    shown=shown[number][choice] if choice < len(shown[number]) else None,
                    context=contexts[number] if own[at] is None else own[at],
                    continuation=continuation,
                    loglikelihood=loglikelihoods[at],
                    tokens=int(np.nan_to_num(counts[at])) or None,
                    greedy=None if np.isnan(likeliest[at]) else bool(likeliest[at]),
                    after_null={null: sums[at] for null, sums in after.items()},
                )
            )
        yield AnsweredItem(
            index=place + number,
            row=row + start,
            id=str(about["item"]),
            split=str(about["split"]),
            subject=str(about["subject"]),
            question=str(about["question"]),
            gold=tuple(portion.gold[number]),
            fields=json.loads(str(about["fields"])),
            context=contexts[number],
            choices=tuple(choices),
            generated=generated[number],
            missing=reasons.get(number),
        )


def _known(observed: Continuations) -> Floats:
    """The log-likelihood of each row in nats, float64 [rows]; NaN for upper bounds, which other formats lack."""
    return (
        observed.sums
        if observed.at_most is None
        else np.where(observed.at_most, np.nan, observed.sums)
    )


LONGEST = 120
"""Bytes of a name, so that what is put around it fits into the 255 that file systems allow."""

_RESERVED = {
    *("con", "prn", "aux", "nul", "data"),
    *(f"{port}{n}" for port in ("com", "lpt") for n in range(10)),
}
"""Names that a folder can't have everywhere, or that a data store keeps for itself."""


def file_name(text: str) -> str:
    """``text`` as one part of a path that every system takes: letters, digits, ``_``, ``.``, ``@`` and ``-``.

    Anything else becomes ``-``.  A longer name ends in a digest of the text.
    """
    name = re.sub(r"[^\w.@-]+", "-", text).strip(".-") or "unnamed"
    if name.partition(".")[0].lower() in _RESERVED:
        name = f"{name}-"
    encoded = name.encode()
    if len(encoded) <= LONGEST:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{encoded[: LONGEST - 9].decode(errors='ignore')}-{digest}"


def free_name(name: str, taken: Collection[str], identity: str) -> str:
    """``name`` where it is not ``taken``, else with what tells the two apart after it, and a number where that is, too.

    Names that differ in the case of their letters alone are the same file on some systems.
    """
    used = {each.casefold() for each in taken}
    candidates = [
        name,
        f"{name}-{identity}",
        *(f"{name}-{identity}-{number}" for number in range(2, len(used) + 3)),
    ]
    return next(each for each in candidates if each.casefold() not in used)


@contextmanager
def line_files() -> Iterator[Callable[[Path, str], None]]:
    """What adds a line, without its end, to a file; lines wait until they are many, then one file is open at a time."""
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
        if length > 8_000_000:  # characters that wait in memory
            write()
            length = 0

    yield add
    write()


def model_names(runs: Sequence[Run]) -> list[str]:
    """The name of each run's model; with #R where another run on a dataset of that name has the same, or a number."""
    datasets = [run.manifest.dataset.name for run in runs]
    names = [run.manifest.model.name for run in runs]
    ids = [run_id(run.manifest) for run in runs]
    keys = list(zip(names, datasets, ids, strict=True))
    alike, counts = Counter(key[:2] for key in keys), Counter(keys)
    labels = [name if alike[name, dataset] == 1 else f"{name} {id}" for name, dataset, id in keys]
    return [
        f"{label} ({place})" if counts[key] > 1 else label
        for place, (label, key) in enumerate(zip(labels, keys, strict=True), start=1)
    ]


def not_whole(runs: Sequence[Run]) -> list[str]:
    """A line per run whose items are not all there."""
    unfinished = [run for run in runs if not run.manifest.complete]
    return [
        f"{run.folder} is not complete: only items that were asked are there" for run in unfinished
    ]


def by_model(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of every model, in the order in which the models come; imported logs know a model by its name alone."""
    models: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        model = run.manifest.model
        digest = model.digest if run.manifest.imported is None else ""
        models.setdefault((model.name, digest, model.dtype), []).append(run)
    return list(models.values())


def report_rows(run: Run) -> dict[str, Number]:
    """One row of the run's report per protocol, by its name: over all items where it has several groups."""
    rows = run.rows()
    several = {
        name for name in run.protocols if sum(row.identity.protocol == name for row in rows) != 1
    }
    micro = run.rows("micro") if several else []
    listed = [row for row in rows if row.identity.protocol not in several] + [
        row for row in micro if row.identity.protocol in several
    ]
    by_name = {row.identity.protocol: row for row in listed}
    return {name: by_name[name] for name in run.protocols if name in by_name}


def last_written(runs: Iterable[Run]) -> datetime:
    """When the latest of the runs was last written to, in UTC."""
    return datetime.fromtimestamp(max((run.folder / MANIFEST).stat().st_mtime for run in runs), UTC)


def summaries(export: Export) -> list[Summary]:
    """What remains of each of the export's runs, which are released."""
    keeper = OutcomeKeeper()
    return [_summary(run, keeper) for run in export.runs]


def shown_runs(export: Export) -> Study:
    """The study of the export's runs, with the averages of suites of the folders that it names."""
    study = make_study(summaries(export))
    whole = {run.folder: run for run in export.runs if _is_whole(run)}
    known = {
        folder: {
            path: summarize(path)
            for path in (folder / cell.folder for cell in sweep.cells)
            if path in whole
        }
        for folder, sweep in export.sweeps
    }
    shown = [
        each for folder, sweep in export.sweeps for each in averages(folder, sweep, known[folder])
    ]
    return replace(study, averages=tuple(each for each in shown if each.counted))


def _is_whole(run: Run) -> bool:
    """Whether the run has all of its own protocols and no other."""
    return run.protocols.keys() == run.manifest.protocols.keys()


def _summary(run: Run, keeper: OutcomeKeeper) -> Summary:
    """The kept summary where the run has all of its own protocols, else a new one; the run is released."""
    if _is_whole(run):
        return summarize(run.folder)
    summary = Summary(
        folder=run.folder, manifest=run.manifest, rows=tuple(run.rows()), outcomes=keeper.keep(run)
    )
    run.release()
    return summary
