"""Make run folders of logs that other tools wrote."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choicewise import __version__
from choicewise.errors import ChoicewiseError, DataError, StoreError, UsageError
from choicewise.extensions.interop.logs.checks import Checks, LogNumbers, checked_item
from choicewise.extensions.interop.logs.files import find_reader, recognise
from choicewise.extensions.run.sweep import begun_sweep, replaced
from choicewise.logs import Log, LoggedChoice, LoggedItem, Reread, Unreadable
from choicewise.ports import LogReader
from choicewise.protocols.protocol import NEUTRAL, Protocol, signature
from choicewise.protocols.readings import CONDITIONAL, SUMS
from choicewise.records import (
    GENERATED,
    MANIFEST,
    CellRecord,
    DatasetRecord,
    ImportRecord,
    ItemRow,
    Manifest,
    ModelRecord,
    ObservationRow,
    RequestRow,
    Selection,
    SpanRow,
    Sweep,
)
from choicewise.requests.blocks import list_request_specs
from choicewise.results.run import Run, open_run
from choicewise.scoring.observed import Continuations
from choicewise.scoring.scores import SCORES as SCORED
from choicewise.scoring.scores import lacking
from choicewise.store.folder import (
    RunFolder,
    check_folder,
    is_sweep,
    open_folder,
    read_manifest,
    write_sweep,
)
from choicewise.store.tables import Rows
from choicewise.thoughts import left_open
from choicewise.tokens.boundary import choice_prompts_batch
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.files import disk_errors, folder_name, free_name, locked
from choicewise.util.jsonio import JsonDict


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """Hold the findings of one pass over a log.

    ``requests``, ``data`` and ``model``: digests of the requests, the items and the answers (64 hex
    each).  ``subjects``: the number of items of each.  ``has``: facts that hold of any item: its
    choices have a ``text``, ``tokens`` (a number), ``greedy`` flags or a ``loglikelihood``; it has
    ``several`` right choices, or ``choices`` to choose from.  ``numbers``: those of the log, and of
    its answers.  ``notes``: values of the log that do not follow from its answers, and ``unused``:
    values that are not imported, in words.
    """

    requests: str
    data: str
    model: str
    subjects: dict[str, int]
    has: frozenset[str]
    numbers: LogNumbers
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """Hold an imported log and its run folder."""

    log: Log
    folder: Path
    state: LogState

    @property
    def record(self) -> ImportRecord:
        """Return what the run's manifest keeps of the log."""
        return _import_record(self.log, self.state)


def import_log(
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    format: str | None = None,
    results: str | Path | None = None,
    model: str | None = None,
    task: str | None = None,
    tokenizer: str | Path | None = None,
) -> list[Run]:
    """Make run folders of other tools' logs, and open them.

    ``paths``: files or folders of one format, which is recognised unless it is named.  One log
    becomes the run folder ``out``, several become ``out/MODEL/TASK`` with a sweep file.
    ``results``: the file with the totals, if it is not beside the samples.  ``model`` and ``task``:
    names that replace those in the files.  ``tokenizer``: the folder of the model's tokenizer,
    which counts the tokens of texts.  A second import of the same logs changes nothing.

    Raises DataError for a log that can't be used, UsageError for names that fit several logs, and
    StoreError if ``out`` holds something else.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    results_file = None
    if results is not None:
        results_file = Path(results)
    logs = read_logs(list(map(Path, paths)), format, results_file)
    logs = renamed(logs, model, task)
    if tokenizer is not None:
        logs = counted(logs, Path(tokenizer))
    return [open_run(imported.folder) for imported in write_logs(logs, Path(out))]


def read_logs(
    paths: Sequence[Path], format: str | None = None, results: Path | None = None
) -> list[Log]:
    """Return the logs in ``paths``, whose items are read later.

    Raises DataError for a file that is no log.  A file that can't be used is a log of
    :class:`Unreadable` items if there are others.
    """
    if not paths:
        raise UsageError("no log was named; name files, or folders of logs")
    paths_of_reader: dict[LogReader, list[Path]] = {}
    for path in paths:
        reader = find_reader(format) if format else recognise(path)
        paths_of_reader.setdefault(reader, []).append(path)
    logs = []
    for reader, files in paths_of_reader.items():
        verdicts = reader.verdicts()
        logs += [replace(log, verdicts=verdicts) for log in reader.read(files, results)]
    # Nothing else is lost if the only log can not be read.
    if len(logs) == 1 and isinstance(logs[0].items, Unreadable):
        raise logs[0].items.error
    return logs


def renamed(logs: Sequence[Log], model: str | None, task: str | None) -> list[Log]:
    """Return the logs under other names.  Raises UsageError if two are of one model and task."""
    new_logs = []
    first_logs: dict[tuple[str, str], Log] = {}
    for log in logs:
        if model is not None:
            log = replace(log, model=model)
        if task is not None:
            log = replace(log, task=task)
        new_logs.append(log)
        # Two logs of one model and task would be the same run folder.
        first = first_logs.setdefault((log.model, log.task), log)
        if first is not log:
            files = {str(named.settings.get("file", "")): None for named in (first, log)}
            which = ""
            if len(files) == 2 and "" not in files:
                which = f" ({' and '.join(files)})"
            raise UsageError(
                f"two of the logs{which} are of {log.model} on {log.task}; import them one by one "
                "into folders of their own, and name model and task if the files don't"
            )
    return new_logs


def write_logs(
    logs: Sequence[Log], out: Path, done: Callable[[Imported], None] = lambda imported: None
) -> list[Imported]:
    """Write a run folder for each of ``logs``, and call ``done`` with each import.

    Raises the errors of :func:`run_of_log`.
    """
    # An existing sweep takes even a single log.
    if len(logs) == 1 and not is_sweep(out):
        imported = Imported(logs[0], out, run_of_log(logs[0], out))
        done(imported)
        return [imported]
    begun_sweep(out)
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        return _write_several(logs, out, done)


def _write_several(
    logs: Sequence[Log], out: Path, done: Callable[[Imported], None]
) -> list[Imported]:
    sweep = begun_sweep(out)
    written: list[Imported] = []
    failed: list[ChoicewiseError] = []
    for log in logs:
        folder = _folder(sweep, log)
        cell = CellRecord(log.model, log.task, folder, "")
        try:
            state = run_of_log(log, out / folder)
            cell = replace(cell, asked=state.model, done=True)
            imported = Imported(log, out / folder, state)
            written.append(imported)
            done(imported)
        except ChoicewiseError as error:
            # The other logs are still imported.
            failed.append(error.within(f"{log.model} on {log.task}"))
            cell = replace(cell, failure=str(error))
        sweep = replaced(sweep, cell)
        write_sweep(out, sweep)
    if not failed:
        return written
    others = ""
    if written:
        others = f"; the others are in {out}"
    first = failed[0]
    if len(failed) == 1:
        raise type(first)(f"{first.message}{others}", first.problems)
    problems = []
    for refused in failed:
        problems += str(refused).split("\n")
    raise type(first)(f"{len(failed)} of {len(logs)} logs can't be used{others}", problems)


def _folder(sweep: Sweep, log: Log) -> str:
    """Return the folder of the log's run: that of an earlier import, or a free MODEL/TASK."""
    folder_of_model: dict[str, str] = {}
    tasks_of_model = [MANIFEST]
    for cell in sweep.cells:
        if (cell.model, cell.dataset) == (log.model, log.task):
            return cell.folder
        model_folder, _, task_folder = cell.folder.partition("/")
        folder_of_model[cell.model] = model_folder
        if cell.model == log.model:
            tasks_of_model.append(task_folder)
    # A model keeps its folder if another one of the same last name is imported.
    model = folder_of_model.get(log.model)
    if model is None:
        name = log.model.rstrip("/").rpartition("/")[2]
        model = free_name(folder_name(name), [*folder_of_model.values(), MANIFEST])
    return f"{model}/{free_name(folder_name(log.task), tasks_of_model)}"


BLOCK_ITEMS = 20_000
"""Items that are in memory at once, at most."""

BLOCK_CHARS = 30_000_000
"""Characters of the items that are in memory at once, at most."""


def run_of_log(log: Log, out: Path) -> LogState:
    """Write the run folder ``out`` of ``log``, or nothing if it is there already.

    The log is read three times and is never in memory as a whole.  Raises DataError if it can't be
    used, and StoreError if ``out`` holds something else.
    """
    check_folder(out)
    state = read_state(log)
    protocols = text_protocols(log, state.requests) | log_protocols(log, state.requests, state.has)
    wanted = Manifest(
        model=ModelRecord(log.model, state.model, log.settings.get("dtype", ""), "", 0),
        dataset=DatasetRecord(log.task, state.data),
        selection=Selection(limit=log.limit),
        protocols={name: signature(protocol) for name, protocol in protocols.items()},
        versions={"choicewise": __version__},
        imported=_import_record(log, state),
    )
    _refuse_others(out, wanted)
    with open_folder(out, wanted, {SPLIT: _item_rows(log)}) as folder:
        # A complete folder is of the same log, so nothing is read again.
        if not folder.manifest.complete:
            _write_blocks(folder, log, state, protocols)
            folder.finish()
    return state


def _import_record(log: Log, state: LogState) -> ImportRecord:
    return ImportRecord(
        tool=log.tool,
        settings=dict(log.settings),
        recorded=state.numbers.recorded,
        unused=(*log.unused, *state.unused, *state.notes),
        recomputed=state.numbers.recomputed,
    )


def _item_rows(log: Log) -> Iterator[ItemRow]:
    for position, item in enumerate(checked_items(log)):
        yield ItemRow(
            position=position,
            split=SPLIT,
            item=item.id,
            subject=item.subject,
            question=item.shown_question,
            choices=item.shown_options,
            gold=item.gold,
            fields="{}",
        )


def _refuse_others(out: Path, wanted: Manifest) -> None:
    if not (out / MANIFEST).exists():
        return
    manifest = read_manifest(out)
    if manifest.imported is None:
        raise StoreError(
            f"{out} holds a run of {manifest.model.name} that was computed here; choose another "
            "folder"
        )
    has_model = manifest.model.digest == wanted.model.digest
    if not has_model or manifest.dataset.digest != wanted.dataset.digest:
        raise StoreError(
            f"{out} holds another log, of {manifest.model.name} on {manifest.dataset.name} by "
            f"{manifest.imported.tool}; choose another folder"
        )


def _write_blocks(
    folder: RunFolder, log: Log, state: LogState, protocols: dict[str, Protocol]
) -> None:
    """Write the blocks that the folder lacks; a log has the same blocks whenever it is read."""
    specs = list_request_specs(protocols)
    prompts = {spec.protocol.reading: spec.protocol.prompt_digest for spec in specs}
    names = [spec.name for spec in specs]
    written = {block.extent for block in folder.manifest.blocks}
    for subject, start, items in _blocks(checked_items(log)):
        extent = (SPLIT, subject, start, start + len(items))
        # An import that was stopped goes on after its last block.
        if extent in written:
            continue
        rows = LogRows(prompts, state.model, log.null)
        for item in items:
            rows.add(item)
        tables: dict[str, Rows] = {
            "requests": rows.requests,
            "spans": rows.spans,
            "observations": rows.observations,
        }
        folder.add_block(extent, names, tables)


def _blocks(items: Iterator[LoggedItem]) -> Iterator[tuple[str, int, list[LoggedItem]]]:
    """Yield (subject, index in it, neighbouring items of it); subjects may be mixed."""
    starts = Counter[str]()
    while items_of_subject := _portion(items):
        for subject, neighbours in items_of_subject.items():
            yield subject, starts[subject], neighbours
            starts[subject] += len(neighbours)


def _portion(items: Iterator[LoggedItem]) -> dict[str, list[LoggedItem]]:
    """Take as many items as may be in memory at once, by subject."""
    items_of_subject: dict[str, list[LoggedItem]] = {}
    chars = 0
    for count, item in enumerate(items, start=1):
        items_of_subject.setdefault(item.subject, []).append(item)
        chars += len(item.context or "") + sum(map(len, item.shown_options))
        # A single item may hold a whole article.
        if count >= BLOCK_ITEMS or chars >= BLOCK_CHARS:
            break
    return items_of_subject


def checked_items(log: Log) -> Iterator[LoggedItem]:
    """Yield the items of the log, checked.  Raises the DataError of :func:`checked_item`."""
    for item in log.items:
        yield checked_item(item, log.tool)


_spell = json.JSONEncoder(sort_keys=True).encode


def read_state(log: Log) -> LogState:
    """Read the log once.  Raises DataError for no items, a repeated id, or an unusable item."""
    requests = hashlib.sha256()
    data = hashlib.sha256()
    model = hashlib.sha256(_spell([log.tool, log.model, log.task, log.null]).encode())
    checks = Checks(log)
    has: set[str] = set()
    subjects = Counter[str]()
    # 8 bytes for each id: millions of them have to fit into memory.
    id_digests = bytearray()
    for item in checked_items(log):
        id_digests += _id_digest(item)
        subjects[item.subject] += 1
        has |= _facts(item)
        texts = [choice.text for choice in item.choices]
        context = "" if item.own_contexts else item.context
        request = [item.id, item.subject, context, item.own_contexts, texts, item.gold]
        requests.update(_line(request))
        options = item.shown_options
        row = [SPLIT, item.id, item.subject, item.shown_question, options, item.gold, {}]
        data.update(_line(row))
        model.update(_line([item.id, item.missing, item.generated, _answers(item)]))
        checks.add(item)
    if not subjects:
        raise DataError(f"the {log.tool} log of {log.model} on {log.task} holds no items")
    _refuse_repeated(log, np.frombuffer(id_digests, dtype=np.uint64))
    return LogState(
        requests=requests.hexdigest(),
        data=data.hexdigest(),
        model=model.hexdigest(),
        subjects=dict(subjects),
        has=frozenset(has),
        numbers=checks.numbers(),
        notes=checks.notes(),
        unused=checks.unused(),
    )


def _line(content: Any) -> bytes:
    return f"{_spell(content)}\n".encode()


def _answers(item: LoggedItem) -> list[Any]:
    answers = []
    for choice in item.choices:
        numbers: list[Any] = []
        for nats in (choice.loglikelihood, choice.unconditional):
            # A float is spelled exactly in hexadecimal.
            numbers.append(None if nats is None else nats.hex())
        answers.append([*numbers, choice.tokens, choice.greedy, choice.missing])
    return answers


def _facts(item: LoggedItem) -> set[str]:
    """Return the facts of :class:`LogState` that hold of an item."""
    facts = set()
    if len(item.gold) > 1:
        facts.add("several")
    if len(item.choices) > 1:
        facts.add("choices")
    for name in ("text", "tokens", "greedy", "loglikelihood"):
        if any(getattr(choice, name) is not None for choice in item.choices):
            facts.add(name)
    return facts


def _id_digest(item: LoggedItem) -> bytes:
    return hashlib.blake2b(item.id.encode(), digest_size=8).digest()


def _refuse_repeated(log: Log, ids: NDArray[np.uint64]) -> None:
    """Check that no id is repeated.  Raises DataError with the first one that is."""
    digests, counts = np.unique(ids, return_counts=True)
    # Two of some million ids have the same 8 bytes with a probability of one in a million.
    repeated = {int(digest).to_bytes(8, "little") for digest in digests[counts > 1]}
    if not repeated:
        return
    first = next(item.id for item in log.items if _id_digest(item) in repeated)
    raise DataError(
        f"the {log.tool} log of {log.model} on {log.task} has item {first!r} twice; is it of two "
        f"models or two runs? ({len(repeated):,} ids are repeated)"
    )


SCORES = (*SUMS, "greedy", "least_likely", "locally_renormalised")
"""Scores of every log; the last two represent those that need single tokens."""

CONDITIONAL_SCORES = tuple(score for score in CONDITIONAL if score != "dc_pmi")
"""Scores that use a null context, without ``dc_pmi``, which equals ``pmi``."""

TIES = {"sum": ("split", "wrong"), "char_mean_bare": ("split",)}
"""Other ways with ties, of scores for which other tools take the first of the tied choices."""


ALONE: Mapping[str, Mapping[str, str]] = {
    "greedy": {"score": "greedy", "decision": "greedy-match", "metric": "exact_match"},
    "perplexity": {"metric": "perplexity"},
}
"""Axes of the protocols of a log whose items have one choice each."""


def log_protocols(log: Log, requests: str, has: Collection[str]) -> dict[str, Protocol]:
    """Return the protocols of ``log`` by name, those that the log has too little for last.

    ``requests``: the digest of the requests (64 hex).  ``has``: the facts of :class:`LogState`.
    """
    choices: int | None = 1
    if "choices" in has:
        choices = None
    base: JsonDict = {
        **NEUTRAL,
        **log.axes,
        "aggregation": log.aggregations[0],
        "choices": choices,
    }
    protocols = {}
    lacks = {}
    for name, axes in _protocol_axes(log, has).items():
        protocol = Protocol(benchmark=log.task, split=SPLIT, requests=requests, **{**base, **axes})
        protocols[f"{log.task}:{name}"] = protocol
        lacks[f"{log.task}:{name}"] = _lacks(protocol.score, log, has)
    if "choices" not in has:
        return protocols
    names = sorted(protocols, key=lacks.__getitem__)
    return {name: protocols[name] for name in names}


def _protocol_axes(log: Log, has: Collection[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the axes of the protocols of ``log`` by their names, in the order of a report."""
    if "loglikelihood" not in has and log.rules:
        return {"sum": {}}
    if "choices" not in has:
        return ALONE
    axes: dict[str, Mapping[str, str]] = {}
    for score in SCORES:
        axes[score] = ALONE.get(score, {"score": score})
        for ties in TIES.get(score, ()):
            axes[f"{score}@ties={ties}"] = {"score": score, "ties": ties}
        if score in SUMS:
            for aggregation in log.aggregations[1:]:
                name = f"{score}@aggregation={aggregation}"
                axes[name] = {"score": score, "aggregation": aggregation}
    axes["mc1"] = {"metric": "mc1"}
    axes["mc2"] = {"metric": "mc2"}
    if "several" in has:
        axes["mc2-split"] = {"metric": "mc2-split"}
    conditional = CONDITIONAL_SCORES
    if log.null is None:
        # One score is enough to tell that the log has no null context.
        conditional = CONDITIONAL_SCORES[:1]
    for score in conditional:
        axes[score] = {"score": score, "null": log.null or ""}
    return axes


def _lacks(score: str, log: Log, has: Collection[str]) -> bool:
    """Return whether ``log`` has too little for a score, by trying it on an example."""
    empty = np.zeros(0)
    one = np.ones(1)
    observed = Continuations(
        tokens=empty.astype(np.int32),
        logprobs=empty.astype(np.float32),
        sizes=empty.astype(np.int32),
        ranks=empty.astype(np.int32),
        offsets=np.zeros(2, dtype=np.int64),
        text=[None],
        item_offsets=np.array([0, 1]),
        totals=-one,
    )
    if "text" in has:
        observed = replace(observed, text=["x"])
    if "tokens" in has:
        observed = replace(observed, token_counts=one)
    if "greedy" in has:
        observed = replace(observed, all_greedy=one)
    null = observed
    if log.null is None:
        null = replace(observed, totals=np.full(1, np.nan))
    return bool(lacking(SCORED[score], observed, null).any())


def text_protocols(log: Log, requests: str) -> dict[str, Protocol]:
    """Return the protocols by which the rules of ``log`` read its text, by name.

    ``requests``: the digest of the requests (64 hex).
    """
    # A log without a limit gets one that no text reaches.
    new_tokens = 1_000_000
    limit = log.settings.get("max_tokens", "")
    if limit.isdecimal() and int(limit):
        new_tokens = int(limit)
    base: JsonDict = {**NEUTRAL, "letters": ascii_uppercase}
    protocols = {}
    for rule in log.rules:
        protocols[f"{log.task}:{rule}"] = Protocol(
            benchmark=log.task,
            split=SPLIT,
            requests=requests,
            **base,
            reading="generate",
            new_tokens=new_tokens,
            score="none",
            decision=rule,
            ties="none",
            metric="exact_match",
        )
    return protocols


SPLIT = "test"
"""The split that all items of a log are of."""


class LogRows:
    """Collect the rows of a block.

    ``prompts``: the ``prompt_digest`` of the protocols by reading.  ``model``: the digest of the
    answers.  ``null``: the null context, None if no protocol compares with it.
    """

    def __init__(self, prompts: Mapping[str, str], model: str, null: str | None) -> None:
        self.requests: list[RequestRow] = []
        self.spans: list[SpanRow] = []
        self.observations: list[ObservationRow] = []
        self._prompt = prompts["loglikelihood"]
        self._text_prompt = prompts.get("generate")
        self._model = model
        self._null = null

    def add(self, item: LoggedItem) -> None:
        """Add the rows of an item; a missing item has no observations."""
        self._add_choices(item)
        if self._text_prompt is not None:
            self._add_text(item, self._text_prompt)

    def _add_text(self, item: LoggedItem, prompt: str) -> None:
        request = RequestRow(prompt, item.id, item.subject, item.gold)
        if item.missing:
            self.requests.append(request._replace(missing=item.missing))
            return
        self.requests.append(request._replace(context=item.context, options=item.shown_options))
        span = SpanRow(prompt, item.id, choice=GENERATED, part=0)
        if item.generated is None:
            reason = item.choices[0].missing or "the log has no text that the model wrote"
            self.spans.append(span._replace(missing=reason))
            return
        key = self._key(item.id, GENERATED, "given")
        observation = _observation(key, item.text_loglikelihood)._replace(
            text=item.generated, finish=item.finish, opened=left_open(item.context or "") or None
        )
        self.observations.append(observation)
        self.spans.append(span._replace(key=key))

    def _add_choices(self, item: LoggedItem) -> None:
        request = RequestRow(self._prompt, item.id, item.subject, item.gold, missing=item.missing)
        if item.missing:
            self.requests.append(request)
            return
        context = item.context
        if item.own_contexts:
            context = ""
        # The texts of a request are recorded only if the log has all of them.
        texts = [choice.text for choice in item.choices if choice.text is not None]
        if len(texts) == len(item.choices):
            request = request._replace(continuations=texts, options=texts)
        self.requests.append(request._replace(context=context))
        for number, choice in enumerate(item.choices):
            self._add_choice(item.id, number, choice)

    def _add_choice(self, item: str, number: int, choice: LoggedChoice) -> None:
        key = None
        if choice.loglikelihood is not None:
            key = self._key(item, number, "given")
            observation = _observation(key, choice.loglikelihood)
            self.observations.append(
                observation._replace(token_count=choice.tokens, greedy=choice.greedy)
            )
        span = SpanRow(self._prompt, item, number, part=0, continuation=choice.text)
        self.spans.append(span._replace(context=choice.context, key=key, missing=choice.missing))
        if self._null is not None and choice.unconditional is not None:
            key = self._key(item, number, "null")
            self.observations.append(_observation(key, choice.unconditional))
            self.spans.append(span._replace(null=self._null, key=key))

    def _key(self, item: str, choice: int, side: str) -> str:
        """Return a key of 32 hex digits."""
        # The scored tokens are not known, so no other log or run may have the same key.
        content = "\0".join((self._model, item, str(choice), side))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _observation(key: str, total: float | None) -> ObservationRow:
    return ObservationRow(key=key, tokens=(), sizes=(), logprobs=(), ranks=(), total=total)


BOUNDARY = "moved-space"
"""How lm-evaluation-harness tells the tokens of a continuation from those of its context."""


def counted(logs: Sequence[Log], folder: Path) -> list[Log]:
    """Return the logs with a token count for every choice that has a text and no count.

    The count is of the tokens after the context, by the harness's boundary; without a context it is
    of the text alone.  ``folder``: the tokenizer, in the files of transformers.  Raises ModelError
    if it holds none, and DataError if no log has texts.
    """
    from choicewise.models.local.tokenizer import HfTokenizer

    tokenizer = HfTokenizer(folder)
    fact = f"by the tokenizer {tokenizer.digest[:12]}, boundary {BOUNDARY}"
    new_logs = []
    first_items: list[LoggedItem] = []
    for log in logs:
        if isinstance(log.items, Unreadable):
            new_logs.append(log)
            continue
        # The first item tells whether a log has texts.
        first_items += islice(log.items, 1)
        items = Reread(partial(_counted_items, log, tokenizer))
        new_logs.append(replace(log, items=items, settings={**log.settings, "token counts": fact}))
    is_readable = any(not isinstance(log.items, Unreadable) for log in logs)
    choices = [choice for item in first_items for choice in item.choices]
    if is_readable and not any(choice.text for choice in choices):
        raise DataError(
            "the log has no texts of the choices to count tokens of; leave the tokenizer out"
        )
    return new_logs


def _counted_items(log: Log, tokenizer: Tokenizer) -> Iterator[LoggedItem]:
    """Yield the items of a log with token counts."""
    remaining = iter(log.items)
    while items := list(islice(remaining, 256)):
        # The texts of these items are encoded together.
        encodings = Encodings(tokenizer, "default")
        contexts = []
        texts = []
        for item in items:
            for choice in item.choices:
                context = choice.context
                if context is None:
                    context = item.context
                contexts.append(context or "")
                texts.append([choice.text or ""])
        golds = [[0]] * len(texts)
        requests = choice_prompts_batch(encodings, BOUNDARY, contexts, texts, golds)
        prompts = iter([prompt for (prompt,) in requests])
        for item in items:
            choices = []
            for choice in item.choices:
                span = next(prompts).span
                if choice.tokens is None and choice.text is not None and span is not None:
                    choice = replace(choice, tokens=len(span.continuation))
                choices.append(choice)
            yield replace(item, choices=tuple(choices))
