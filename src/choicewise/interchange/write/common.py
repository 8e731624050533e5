"""What the writers of exports share: file names, rows of a run, items with their answers."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import numpy as np

from choicewise.interchange.export import Export
from choicewise.page.study import Study, make_study
from choicewise.records import MANIFEST
from choicewise.results.outcomes import OutcomeKeeper, Summary
from choicewise.results.rows import Row, run_id
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

    ``place``: where every array of a measurement under this prompt has it; ``row``: where its first choice is among the
    measurement's rows.  ``fields``: the further fields of the data.  ``context``: the prompt as it was sent, None where
    the item could not be asked; ``generated``: what the model wrote after it; ``missing``: why something is missing.
    """

    place: int
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


def answered_items(run: Run, nulls: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, AnsweredItem]]:
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
                counted[prompt] = item.place + 1, item.row + len(item)
                yield prompt, item


def _items(
    portion: ObservedPortion, texts: Mapping[int, Mapping[str, object]], nulls: Sequence[str], place: int, row: int
) -> Iterator[AnsweredItem]:
    reasons: dict[int, str] = {}
    for null in (None, *nulls):
        for item, reason in portion.reasons(null):
            reasons.setdefault(item, reason)
    contexts = portion.requests["context"].to_pylist()
    choices = _choices(portion, texts, nulls, contexts)
    generated = portion.generated()
    for number, at in enumerate(portion.items.tolist()):
        row_texts = texts[at]
        own = tuple(next(choices) for _ in range(int(portion.item_offsets[number + 1] - portion.item_offsets[number])))
        yield AnsweredItem(
            place=place + number,
            row=row + int(portion.item_offsets[number]),
            id=str(row_texts["item"]),
            split=str(row_texts["split"]),
            subject=str(row_texts["subject"]),
            question=str(row_texts["question"]),
            gold=tuple(portion.gold[number]),
            fields=json.loads(str(row_texts["fields"])),
            context=contexts[number],
            choices=own,
            generated=generated[number],
            missing=reasons.get(number),
        )


def _choices(
    portion: ObservedPortion,
    texts: Mapping[int, Mapping[str, object]],
    nulls: Sequence[str],
    contexts: Sequence[str | None],
) -> Iterator[AnsweredChoice]:
    """The choices of every item in turn."""
    scored = portion.continuations()
    parts = portion.part_sums
    sums: Floats = _known(scored) if len(parts) == 1 else np.full(len(parts[0]), np.nan)
    likeliest = greedy(scored).tolist()
    after = {null: _known(portion.continuations(null)).tolist() for null in nulls}
    own, expected, shown = portion.own_contexts, portion.expected(), portion.options()
    loglikelihoods, counts = sums.tolist(), scores.tokens(scored).tolist()
    for number, (start, end) in enumerate(pairwise(portion.item_offsets.tolist())):
        as_given = texts[int(portion.items[number])]["choices"]
        assert isinstance(as_given, list)
        for row in range(start, end):
            choice = row - start
            continuation = scored.text[row] or None
            if continuation is None and choice < len(expected[number]):
                continuation = expected[number][choice]
            yield AnsweredChoice(
                choice=as_given[choice],
                shown=shown[number][choice] if choice < len(shown[number]) else None,
                context=contexts[number] if own[row] is None else own[row],
                continuation=continuation,
                loglikelihood=loglikelihoods[row],
                tokens=int(np.nan_to_num(counts[row])) or None,
                greedy=None if np.isnan(likeliest[row]) else bool(likeliest[row]),
                after_null={null: sums[row] for null, sums in after.items()},
            )


def _known(observed: Continuations) -> Floats:
    """The log-likelihood of each row in nats, float64 [rows]; NaN for upper bounds, which other formats lack."""
    return observed.sums if observed.at_most is None else np.where(observed.at_most, np.nan, observed.sums)


LONGEST = 120
"""Bytes of a name, so that what is put around it fits into the 255 that file systems allow."""

_RESERVED = {
    "con",
    "prn",
    "aux",
    "nul",
    "data",
    *(f"{port}{number}" for port in ("com", "lpt") for number in range(10)),
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
    candidates = [name, f"{name}-{identity}", *(f"{name}-{identity}-{number}" for number in range(2, len(used) + 3))]
    return next(each for each in candidates if each.casefold() not in used)


MOST = 8_000_000
"""Characters that wait in memory."""


class LineFiles:
    """Lines that wait in memory until they are many, and are then added to their files, one file open at a time."""

    def __init__(self) -> None:
        self._waiting: dict[Path, list[str]] = {}
        self._length = 0

    def add(self, file: Path, line: str) -> None:
        """Add a ``line``, without its end, to the ``file``."""
        self._waiting.setdefault(file, []).append(f"{line}\n")
        self._length += len(line)
        if self._length > MOST:
            self._write()

    def __enter__(self) -> LineFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write()

    def _write(self) -> None:
        for file, lines in self._waiting.items():
            with file.open("a", encoding="utf-8", newline="\n") as stream:
                stream.writelines(lines)
        self._waiting.clear()
        self._length = 0


def model_names(runs: Sequence[Run]) -> list[str]:
    """The name of each run's model; with #R where another run on a dataset of that name has the same, or a number."""
    datasets = [run.manifest.dataset.name for run in runs]
    names = [run.manifest.model.name for run in runs]
    ids = [run_id(run.manifest) for run in runs]
    alike = Counter(zip(names, datasets, strict=True))
    counts = Counter(zip(names, datasets, ids, strict=True))
    chosen = []
    for place, key in enumerate(zip(names, datasets, ids, strict=True)):
        name = key[0] if alike[key[:2]] == 1 else f"{key[0]} {key[2]}"
        chosen.append(f"{name} ({place + 1})" if counts[key] > 1 else name)
    return chosen


def not_whole(runs: Sequence[Run]) -> list[str]:
    """A line per run whose items are not all there."""
    lines = [f"{run.folder} is not complete: only items that were asked are there" for run in runs]
    return [line for line, run in zip(lines, runs, strict=True) if not run.manifest.complete]


def by_model(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of every model, in the order in which the models come; imported logs know a model by its name alone."""
    models: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        model = run.manifest.model
        digest = model.digest if run.manifest.imported is None else ""
        models.setdefault((model.name, digest, model.dtype), []).append(run)
    return list(models.values())


def report_rows(run: Run) -> dict[str, Row]:
    """One row of the run's report per protocol, by its name: over all items where it has several groups."""
    rows = run.rows()
    several = {name for name in run.protocols if sum(row.protocol == name for row in rows) != 1}
    micro = run.rows("micro") if several else []
    kept = [row for row in rows if row.protocol not in several] + [row for row in micro if row.protocol in several]
    by_name = {row.protocol: row for row in kept}
    return {name: by_name[name] for name in run.protocols if name in by_name}


def last_written(runs: Iterable[Run]) -> datetime:
    """When the latest of the runs was last written to, in UTC."""
    return datetime.fromtimestamp(max((run.folder / MANIFEST).stat().st_mtime for run in runs), UTC)


def shown_runs(export: Export) -> Study:
    """The study of the export's runs, with the averages of suites of the folders that it names."""
    keeper = OutcomeKeeper()
    study = make_study([_summary(run, keeper) for run in export.runs])
    whole = {run.folder: run for run in export.runs if _is_whole(run)}
    known = {
        folder: {path: summarize(path) for path in (folder / cell.folder for cell in sweep.cells) if path in whole}
        for folder, sweep in export.sweeps
    }
    shown = [each for folder, sweep in export.sweeps for each in averages(folder, sweep, known[folder])]
    return replace(study, averages=tuple(each for each in shown if each.counted))


def _is_whole(run: Run) -> bool:
    """Whether the run has all of its own protocols and no other."""
    return run.protocols.keys() == run.manifest.protocols.keys()


def _summary(run: Run, keeper: OutcomeKeeper) -> Summary:
    """The kept summary where the run has all of its own protocols, else a new one; the run is released."""
    if _is_whole(run):
        return summarize(run.folder)
    made = Summary(run.folder, run.manifest, tuple(run.rows()), keeper.keep(run))
    run.release()
    return made
