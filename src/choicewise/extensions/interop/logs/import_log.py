"""From a log to a run folder."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from choicewise.extensions.interop.logs.checks import ROUNDING, Checks, checked_item
from choicewise.extensions.interop.logs.files import find_reader, recognise
from choicewise.extensions.interop.write.harness_names import HARNESS_METRICS
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
from choicewise.running.sweep import begun_sweep, replaced
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
from choicewise.util.text import counted as counted_number
from choicewise.util.text import percent


@dataclass(frozen=True, slots=True)
class LogState:
    """``requests``: a digest of what was asked; ``data``: of the items; ``model``: of the answers (64 hex each).

    ``subjects``: how many items each has, in order.  ``has``: what the log has anywhere: ``text`` of choices, how many
    ``tokens``, ``greedy`` flags, a ``loglikelihood``, ``several`` right choices of an item, ``choices`` to choose from.
    ``notes``: where the log's own values are others than what follows from its log-likelihoods, in words;
    ``unused``: values of items in the log that are not imported, likewise.
    """

    requests: str
    data: str
    model: str
    subjects: dict[str, int]
    has: frozenset[str]
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """A log that was imported, and the run folder of it."""

    log: Log
    folder: Path
    state: LogState


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

    ``paths``: files or folders of one format, which is recognised unless it is named.  One log becomes the run folder
    ``out``, several become ``out/MODEL/TASK`` with a sweep file.  ``results``: the file with the totals, where it does
    not lie beside the samples.  ``model`` and ``task``: their names, where the files do not say them or say others.
    ``tokenizer``: the folder of the model's tokenizer, which counts the tokens of texts.  Importing the same again
    changes nothing.

    Raises DataError for a log that can't be used, UsageError for names that fit several logs, and StoreError where
    ``out`` holds something else.
    """
    named = [paths] if isinstance(paths, str | Path) else list(paths)
    logs = read_logs(
        [Path(path) for path in named], format, None if results is None else Path(results)
    )
    logs = renamed(logs, model, task)
    if tokenizer is not None:
        logs = counted(logs, Path(tokenizer))
    return [open_run(each.folder) for each in write_logs(logs, Path(out))]


def read_logs(
    paths: Sequence[Path], format: str | None = None, results: Path | None = None
) -> list[Log]:
    """The logs in ``paths``; their items are read later.

    Raises DataError for what is no log; one file that can't be used among others that can is a log of
    :class:`Unreadable` items.
    """
    if not paths:
        raise UsageError("no file was named; name the logs, or the folders that hold them")
    paths_of_reader: dict[LogReader, list[Path]] = {}
    for path in paths:
        reader = find_reader(format) if format else recognise(path)
        paths_of_reader.setdefault(reader, []).append(path)
    logs = []
    for reader, files in paths_of_reader.items():
        verdicts = reader.verdicts()
        logs += [replace(log, verdicts=verdicts) for log in reader.read(files, results)]
    if len(logs) == 1 and isinstance(logs[0].items, Unreadable):
        raise logs[0].items.error
    return logs


def renamed(logs: Sequence[Log], model: str | None, task: str | None) -> list[Log]:
    """The logs under other names.  UsageError where two of them then are of the same model and task."""
    changes = {
        name: value for name, value in (("model", model), ("task", task)) if value is not None
    }
    new = [replace(log, **changes) for log in logs]  # type: ignore[arg-type]
    for place, log in enumerate(new):
        for other in new[:place]:
            if (log.model, log.task) != (other.model, other.task):
                continue
            files = [each.settings["file"] for each in (other, log) if "file" in each.settings]
            which = f" ({' and '.join(files)})" if len(set(files)) == 2 else ""
            raise UsageError(
                f"two of the logs{which} are of {log.model} on {log.task}; import them one by one into folders of "
                "their own, and name model and task where the files don't"
            )
    return new


def write_logs(
    logs: Sequence[Log], out: Path, say: Callable[[Imported], None] = lambda imported: None
) -> list[Imported]:
    """A run folder for each of ``logs``; ``say`` hears of each.  Raises what :func:`run_of_log` raises."""
    if len(logs) == 1 and not is_sweep(out):
        done = Imported(logs[0], out, run_of_log(logs[0], out))
        say(done)
        return [done]
    begun_sweep(out)
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        return _write_several(logs, out, say)


def totals_line(imported: Imported) -> str:
    """The log's own totals in %, and whether the same follows from its items; empty where none can be computed.

    It ends in a colon where there are further numbers, behind which the caller says how to see them.
    Of a harness's names for scores, which other tools write, too.
    """
    run = open_run(imported.folder)
    rows = {row.identity.protocol: row.value for row in run.rows() if row.share and row.counts.n}
    said, others = list[str](), list[str]()
    for (score, _, metric), name in HARNESS_METRICS.items():
        own = f"{imported.log.task}:{score if metric in ('acc', 'exact_match') else metric}"
        if (total := imported.log.recorded.get(name)) is None or own not in rows:
            continue
        said.append(f"{name} {percent(total)}")
        if abs(total - rows[own]) > ROUNDING:
            others.append(f"{name} {percent(rows[own])}")
    if not said:
        return ""
    further = (
        f" {counted_number(len(rows) - len(said), 'further number')}:"
        if len(rows) > len(said)
        else ""
    )
    return f"the log says {', '.join(said)}; computed again: {', '.join(others) or 'the same'}.{further}"


def _write_several(
    logs: Sequence[Log], out: Path, say: Callable[[Imported], None]
) -> list[Imported]:
    sweep = begun_sweep(out)
    done: list[Imported] = []
    failed: list[ChoicewiseError] = []
    for log in logs:
        folder = _folder(sweep, log)
        cell = CellRecord(log.model, log.task, folder, "")
        try:
            state = run_of_log(log, out / folder)
            cell = replace(cell, asked=state.model, done=True)
            done.append(Imported(log, out / folder, state))
            say(done[-1])
        except ChoicewiseError as error:
            failed.append(error.within(f"{log.model} on {log.task}"))
            cell = replace(cell, failure=str(error))
        sweep = replaced(sweep, cell)
        write_sweep(out, sweep)
    others = f"; the others are in {out}" if done else ""
    if len(failed) == 1:
        raise type(failed[0])(f"{failed[0].message}{others}", failed[0].problems)
    if failed:
        problems = [part for error in failed for part in str(error).split("\n")]
        raise type(failed[0])(f"{len(failed)} of {len(logs)} logs can't be used{others}", problems)
    return done


def _folder(sweep: Sweep, log: Log) -> str:
    """Where the run of the log lies below the folder: where it lay, or MODEL/TASK, numbered where that is taken."""
    for cell in sweep.cells:
        if (cell.model, cell.dataset) == (log.model, log.task):
            return cell.folder
    models = {cell.model: cell.folder.partition("/")[0] for cell in sweep.cells}
    model = models.get(log.model) or _free(
        log.model.rstrip("/").rpartition("/")[2], models.values()
    )
    taken = {cell.folder.partition("/")[2] for cell in sweep.cells if cell.model == log.model}
    return f"{model}/{_free(log.task, taken)}"


def _free(name: str, taken: Iterable[str]) -> str:
    return free_name(folder_name(name), (*taken, MANIFEST))


BLOCK_ITEMS = 20_000
"""Items that are in memory at once, at most."""

BLOCK_CHARS = 30_000_000
"""And characters of theirs."""


def run_of_log(log: Log, out: Path) -> LogState:
    """Write the run folder ``out`` of ``log``; nothing where it is there already.

    The log is read three times, and never held as a whole.  Raises DataError where it can't be used, and StoreError
    where ``out`` holds something else.
    """
    check_folder(out)
    state = read_state(log)
    protocols = {
        **text_protocols(log, state.requests),
        **log_protocols(log, state.requests, state.has),
    }
    wanted = Manifest(
        model=ModelRecord(log.model, state.model, log.settings.get("dtype", ""), "", 0),
        dataset=DatasetRecord(log.task, state.data),
        selection=Selection(),
        protocols={name: signature(protocol) for name, protocol in protocols.items()},
        versions={"choicewise": __version__},
        imported=ImportRecord(
            log.tool,
            dict(log.settings),
            dict(log.recorded),
            (*log.unused, *state.unused, *state.notes),
        ),
    )
    _refuse_others(out, wanted)
    items = (
        ItemRow(
            position,
            SPLIT,
            item.id,
            item.subject,
            item.shown_question,
            item.shown_options,
            item.gold,
            "{}",
        )
        for position, item in enumerate(checked_items(log))
    )
    with open_folder(out, wanted, {SPLIT: items}) as folder:
        if not folder.manifest.complete:
            _write_blocks(folder, log, state, protocols)
            folder.finish()
    return state


def _refuse_others(out: Path, wanted: Manifest) -> None:
    if not (out / MANIFEST).exists():
        return
    there = read_manifest(out)
    if there.imported is None:
        raise StoreError(
            f"{out} holds a run of {there.model.name} that was asked here; choose another folder"
        )
    same = (there.model.digest, there.dataset.digest) == (
        wanted.model.digest,
        wanted.dataset.digest,
    )
    if not same:
        raise StoreError(
            f"{out} holds another log, of {there.model.name} on {there.dataset.name} by {there.imported.tool}; "
            "choose another folder"
        )


def _write_blocks(
    folder: RunFolder, log: Log, state: LogState, protocols: dict[str, Protocol]
) -> None:
    """Write what the folder lacks; blocks have the same edges whenever the same log is read."""
    specs = list_request_specs(protocols)
    prompts = {spec.protocol.reading: spec.protocol.prompt_digest for spec in specs}
    there = {block.extent for block in folder.manifest.blocks}
    for subject, start, items in _blocks(checked_items(log)):
        place = (SPLIT, subject, start, start + len(items))
        if place in there:
            continue
        rows = LogRows(prompts, state.model, log.null)
        for item in items:
            rows.add(item)
        tables: dict[str, Rows] = {
            "requests": rows.requests,
            "spans": rows.spans,
            "observations": rows.observations,
        }
        folder.add_block(place, [spec.name for spec in specs], tables)


def _blocks(items: Iterator[LoggedItem]) -> Iterator[tuple[str, int, list[LoggedItem]]]:
    """(subject, position of the first item in it, items) in turn; the subjects may be mixed."""
    waiting: dict[str, list[LoggedItem]] = {}
    starts: dict[str, int] = {}
    count = chars = 0

    def filled() -> Iterator[tuple[str, int, list[LoggedItem]]]:
        for subject, own in waiting.items():
            start = starts.get(subject, 0)
            starts[subject] = start + len(own)
            yield subject, start, own

    for item in items:
        waiting.setdefault(item.subject, []).append(item)
        count, chars = (
            count + 1,
            chars + len(item.context or "") + sum(map(len, item.shown_options)),
        )
        if count >= BLOCK_ITEMS or chars >= BLOCK_CHARS:
            yield from filled()
            waiting, count, chars = {}, 0, 0
    yield from filled()


_CHOICE_FIELDS = ("text", "tokens", "greedy", "loglikelihood")
"""What a choice may have, by which it is known what the log can be scored by."""


def checked_items(log: Log) -> Iterator[LoggedItem]:
    """The items of the log, checked; DataError as :func:`checked_item`."""
    return (checked_item(item, log.tool) for item in log.items)


def read_state(log: Log) -> LogState:
    """Read the log once.  Raises DataError where an item can't be used, stands twice, or there is none."""
    requests, data, model = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    spell = json.JSONEncoder(sort_keys=True).encode
    model.update(spell([log.tool, log.model, log.task, log.null]).encode())
    subjects, checks, has, ids = Counter[str](), Checks(log), set[str](), bytearray()
    for item in checked_items(log):
        ids += _id_digest(item)
        subjects[item.subject] += 1
        sizes = {"several": len(item.gold), "choices": len(item.choices)}
        has.update(name for name, size in sizes.items() if size > 1)
        has.update(
            name
            for choice in item.choices
            for name in _CHOICE_FIELDS
            if getattr(choice, name) is not None
        )
        texts = [
            item.id,
            item.subject,
            "" if item.own_contexts else item.context,
            item.own_contexts,
        ]
        requests.update(
            spell([*texts, [each.text for each in item.choices], item.gold]).encode() + b"\n"
        )
        record = [
            "test",
            item.id,
            item.subject,
            item.shown_question,
            item.shown_options,
            item.gold,
            {},
        ]
        data.update(spell(record).encode() + b"\n")
        answers = [
            [
                _hex(each.loglikelihood),
                _hex(each.unconditional),
                each.tokens,
                each.greedy,
                each.missing,
            ]
            for each in item.choices
        ]
        model.update(spell([item.id, item.missing, item.generated, answers]).encode() + b"\n")
        checks.add(item)
    if not subjects:
        raise DataError(f"the {log.tool} log of {log.model} on {log.task} holds no items")
    _refuse_doubles(log, np.frombuffer(ids, dtype=np.uint64))
    digests = requests.hexdigest(), data.hexdigest(), model.hexdigest()
    return LogState(*digests, dict(subjects), frozenset(has), checks.notes(), checks.unused())


def _hex(number: float | None) -> str | None:
    return None if number is None else number.hex()


def _id_digest(item: LoggedItem) -> bytes:
    """8 bytes for the id of an item, so that millions of them fit into memory."""
    return hashlib.blake2b(item.id.encode(), digest_size=8).digest()


def _refuse_doubles(log: Log, ids: NDArray[np.uint64]) -> None:
    """DataError that names an id whose digest stands twice among those of all items."""
    known, counts = np.unique(ids, return_counts=True)
    if twice := {int(each).to_bytes(8, "little") for each in known[counts > 1]}:
        double = next(item.id for item in log.items if _id_digest(item) in twice)
        raise DataError(
            f"the {log.tool} log of {log.model} on {log.task} has item {double!r} twice; is it of two "
            f"models or two runs? ({len(twice):,} ids stand more than once)"
        )


SCORES = (*SUMS, "greedy", "least_likely", "locally_renormalised")
"""What is made of every log; the last two stand for the scores that need single tokens."""

ASKED = tuple({SCORED[name].function: name for name in reversed(CONDITIONAL)}.values())[::-1]
"""Scores against the log-likelihood after a null context; of two names for one computation the first."""

TIES = {"sum": ("split", "wrong"), "char_mean_bare": ("split",)}
"""Scores that other tools publish with the first of tied choices as the winner → the other ways with ties."""


ALONE: Mapping[str, Mapping[str, str]] = {
    "greedy": {"score": "greedy", "decision": "greedy-match", "metric": "exact_match"},
    "perplexity": {"metric": "perplexity"},
}
"""What is made of a log whose items have one choice each."""


def log_protocols(log: Log, requests: str, has: Collection[str]) -> dict[str, Protocol]:
    """By name what is made of ``log``, which ``has`` these (:class:`LogState`), where ``requests`` (64 hex) were asked.

    What the log has too little for comes last.
    """
    first, *others = log.aggregations
    base: dict[str, Any] = {
        **NEUTRAL,
        **log.axes,
        "aggregation": first,
        "choices": None if "choices" in has else 1,
    }

    def protocol(**axes: Any) -> Protocol:
        return Protocol(benchmark=log.task, split="test", requests=requests, **{**base, **axes})

    if "loglikelihood" not in has and log.rules:
        return {f"{log.task}:sum": protocol()}
    if "choices" not in has:
        return {f"{log.task}:{name}": protocol(**axes) for name, axes in ALONE.items()}
    protocols: dict[str, Protocol] = {}
    for score in SCORES:
        protocols[f"{log.task}:{score}"] = protocol(**ALONE.get(score, {"score": score}))
        for ties in TIES.get(score, ()):
            protocols[f"{log.task}:{score}@ties={ties}"] = protocol(score=score, ties=ties)
        for other in others if score in SUMS else ():
            protocols[f"{log.task}:{score}@aggregation={other}"] = protocol(
                score=score, aggregation=other
            )
    for metric in ("mc1", "mc2", "mc2-split") if "several" in has else ("mc1", "mc2"):
        protocols[f"{log.task}:{metric}"] = protocol(metric=metric)
    for score in (
        CONDITIONAL[:1] if log.null is None else ASKED
    ):  # one says what a log without any lacks
        protocols[f"{log.task}:{score}"] = protocol(score=score, null=log.null or "")
    return dict(sorted(protocols.items(), key=lambda named: _lacks(named[1].score, log, has)))


def _lacks(score: str, log: Log, has: Collection[str]) -> bool:
    """Whether nothing of ``log`` can be scored so."""
    nothing, one = np.zeros(0), np.ones(1)
    observed = Continuations(
        tokens=nothing.astype(np.int32),
        logprobs=nothing.astype(np.float32),
        sizes=nothing.astype(np.int32),
        ranks=nothing.astype(np.int32),
        offsets=np.zeros(2, dtype=np.int64),
        text=["x" if "text" in has else None],
        item_offsets=np.array([0, 1]),
        totals=-one,
        token_counts=one if "tokens" in has else None,
        all_greedy=one if "greedy" in has else None,
    )
    null = observed if log.null is not None else replace(observed, totals=np.full(1, np.nan))
    return bool(lacking(SCORED[score], observed, null).any())


def text_protocols(log: Log, requests: str) -> dict[str, Protocol]:
    """By name what the rules of ``log`` make of its text; ``requests``: the digest of what was asked (64 hex)."""
    limit = log.settings.get("max_tokens", "")  # a million where the log names none
    return {
        f"{log.task}:{rule}": Protocol(
            benchmark=log.task,
            split="test",
            requests=requests,
            **{**NEUTRAL, "letters": ascii_uppercase},
            reading="generate",
            new_tokens=int(limit) if limit.isdecimal() and int(limit) else 1_000_000,
            score="none",
            decision=rule,
            ties="none",
            metric="exact_match",
        )
        for rule in log.rules
    }


SPLIT = "test"
"""The split that all items of a log are of."""


class LogRows:
    """The rows of a block.  ``prompts``: the protocols' ``prompt_digest`` by reading; ``model``: of the answers.

    ``null``: the context of the unconditional log-likelihoods, None where no protocol compares with them.
    """

    def __init__(self, prompts: Mapping[str, str], model: str, null: str | None) -> None:
        self.requests: list[RequestRow] = []
        self.spans: list[SpanRow] = []
        self.observations: list[ObservationRow] = []
        self._prompt, self._text_prompt = prompts["loglikelihood"], prompts.get("generate")
        self._model, self._null = model, null

    def add(self, item: LoggedItem) -> None:
        """The rows of one item: nothing was observed of one that is missing."""
        self._add_choices(item)
        if self._text_prompt is not None:
            self._add_text(item, self._text_prompt)

    def _add_text(self, item: LoggedItem, prompt: str) -> None:
        if item.missing:
            self.requests.append(
                RequestRow(prompt, item.id, item.subject, item.gold, missing=item.missing)
            )
            return
        self.requests.append(
            RequestRow(
                prompt, item.id, item.subject, item.gold, item.context, None, item.shown_options
            )
        )
        span = SpanRow(prompt, item.id, GENERATED, 0)
        if item.generated is None:
            self.spans.append(
                span._replace(
                    missing=item.choices[0].missing or "the log has no text that the model wrote"
                )
            )
            return
        key = self._key(item.id, GENERATED, "given")
        row = ObservationRow(
            key, (), (), (), (), item.generated, total=item.text_loglikelihood, finish=item.finish
        )
        self.observations.append(row._replace(opened=left_open(item.context or "") or None))
        self.spans.append(span._replace(key=key))

    def _add_choices(self, item: LoggedItem) -> None:
        texts = [choice.text for choice in item.choices]
        request = RequestRow(self._prompt, item.id, item.subject, item.gold, missing=item.missing)
        if item.missing:
            self.requests.append(request)
            return
        known = [text for text in texts if text is not None]
        sent = known if len(known) == len(texts) else None
        context = "" if item.own_contexts else item.context
        self.requests.append(request._replace(context=context, continuations=sent, options=sent))
        for place, choice in enumerate(item.choices):
            key = None
            if choice.loglikelihood is not None:
                key = self._key(item.id, place, "given")
                flags = choice.tokens, choice.greedy
                self.observations.append(
                    ObservationRow(key, (), (), (), (), None, None, choice.loglikelihood, *flags)
                )
            row = SpanRow(self._prompt, item.id, place, 0, None, choice.context, choice.text, key)
            self.spans.append(row._replace(missing=choice.missing))
            if self._null is not None and choice.unconditional is not None:
                key = self._key(item.id, place, "null")
                self.observations.append(
                    ObservationRow(key, (), (), (), (), None, None, choice.unconditional)
                )
                self.spans.append(
                    SpanRow(self._prompt, item.id, place, 0, self._null, None, choice.text, key)
                )

    def _key(self, item: str, choice: int, side: str) -> str:
        """32 hex digits of this log alone: which tokens were scored is not known, so nobody else has the same."""
        content = "\0".join((self._model, item, str(choice), side))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


BOUNDARY = "moved-space"
"""How lm-evaluation-harness tells the tokens of a continuation from those of its context."""


def counted(logs: Sequence[Log], folder: Path) -> list[Log]:
    """The logs with the number of tokens of every choice that has none and has a text.

    They are the tokens after the context, by the harness's own boundary; where the log has no context, those of the
    text alone.  ``folder``: the tokenizer's, as of a model of transformers.  Raises ModelError where it holds none, and
    DataError where no log has texts.
    """
    from choicewise.models.local.tokenizer import HfTokenizer

    tokenizer = HfTokenizer(folder)
    counting = {"token counts": f"by the tokenizer {tokenizer.digest[:12]}, boundary {BOUNDARY}"}
    readable = [log for log in logs if not isinstance(log.items, Unreadable)]
    first = [item for log in readable for item in islice(log.items, 1)]
    if readable and not any(choice.text for item in first for choice in item.choices):
        raise DataError(
            "the log has no texts of the choices, so that there are no tokens to count; leave the tokenizer out"
        )
    return [
        replace(
            log,
            items=Reread(partial(_counted_items, log, tokenizer)),
            settings={**log.settings, **counting},
        )
        if any(log is each for each in readable)
        else log
        for log in logs
    ]


def _counted_items(log: Log, tokenizer: Tokenizer) -> Iterator[LoggedItem]:
    """The items of a log, with token counts."""
    remaining = iter(log.items)
    while items := list(islice(remaining, 256)):  # whose texts are encoded together
        encodings = Encodings(tokenizer, "default")
        groups = [(item, choice) for item in items for choice in item.choices]
        contexts = [
            (choice.context if choice.context is not None else item.context) or ""
            for item, choice in groups
        ]
        asked = choice_prompts_batch(
            encodings,
            BOUNDARY,
            contexts,
            [[choice.text or ""] for _, choice in groups],
            [[0]] * len(groups),
        )
        spans = iter([question.span for (question,) in asked])
        for item in items:
            counts = [
                None if (span := next(spans)) is None else len(span.continuation)
                for _ in item.choices
            ]
            yield replace(item, choices=tuple(map(_with_count, item.choices, counts)))


def _with_count(choice: LoggedChoice, count: int | None) -> LoggedChoice:
    known = choice.tokens is not None or choice.text is None
    return choice if known else replace(choice, tokens=count)
