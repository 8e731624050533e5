"""Answers to a bundle: read from files and checked against what was asked, then written as a run.

Answers are joined by key, place and token, never by order.  A file has one of three forms, told by its columns:

* ``key, place, token_id, logprob`` and maybe ``rank``: a row a scored token;
* ``key, token_ids, logprobs`` and maybe ``ranks``: lists, a row a sequence, in the order in which it names its tokens;
* ``key, sum_logprob`` and maybe ``token_id`` (of a label), ``num_tokens``, ``is_greedy``: sums alone.

Beside ``NAME.parquet`` or ``NAME.csv`` lies ``NAME.json``, an object with ``requests``, the digest of the bundle, and
``model``, the name; all else in it is kept as text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import choicewise
from choicewise.errors import DataError, StoreError
from choicewise.extensions.training.bundles.bundle import RUN, Bundle
from choicewise.questions import NOT_FIRST, UNKNOWN
from choicewise.records import (
    OBSERVATIONS,
    BlockRecord,
    EngineRecord,
    ImportRecord,
    ItemRow,
    ModelRecord,
)
from choicewise.results.run import Run, open_run
from choicewise.running.progress import Progress
from choicewise.store.folder import open_folder
from choicewise.store.tables import block_file, damaged_blocks, read_table
from choicewise.util.files import SETTINGS, TABLE, open_file, read_text
from choicewise.util.jsonio import json_digest, json_text, read_json
from choicewise.util.tables import open_parquet, unpacked
from choicewise.util.text import check_name, counted, has_half_character, listed, refuse_secret

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

REQUESTS, MODEL = "requests", "model"
"""What the JSON file beside answers must hold."""

ROUNDING: Final = 1e-3
"""Nats by which the rounding of logits may lift a log-probability above 0."""

SURPLUS: Final = 0.02
"""Probability above 1 that the rounding of log-probabilities (bfloat16) may give to the tokens of a place together."""

CONTRADICTION: Final = 0.05
"""Nats by which rounding may put a log-probability on the wrong side of what a rank says."""

FEW, SHARE, CERTAIN = 20, 0.5, -1e-3
"""One number that more than this share of at least so many answers have is no answer, unless it is near 0."""

_STORED = np.finfo(np.float32).max  # what is beyond it has no place in a run
_SHOWN = 3  # places that a problem names


@dataclass(frozen=True, eq=False)
class Answered:
    """Answers in the order of :attr:`choicewise.extensions.training.bundles.bundle.Bundle.scored`.

    ``logprobs``: natural log-probabilities over the whole vocabulary (nats), float32 [tokens].  ``ranks``: how many
    tokens of the vocabulary are strictly likelier, int32 [tokens]; ``UNKNOWN`` (-1) where nobody says, None for
    nowhere.  ``totals``: of questions of which only the sum is known, that (nats), float64 [questions], NaN for the
    others, whose ``logprobs`` count; ``greedy``: 1 where each of their tokens was the likeliest, 0 where not, -1 where
    nobody says.  ``model``: its name; ``engine``: what computed, with its version; ``settings``: further facts.
    """

    model: str
    logprobs: Floats
    ranks: npt.NDArray[np.int32] | None = None
    totals: npt.NDArray[np.float64] | None = None
    greedy: npt.NDArray[np.int8] | None = None
    engine: str = "another engine"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def only_sums(self) -> int:
        """Questions of which only the sum is known."""
        return 0 if self.totals is None else int(np.count_nonzero(~np.isnan(self.totals)))


def import_answers(
    bundle: Bundle,
    answers: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    model: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Make the run folder ``out`` of one or several files of ``answers`` to ``bundle``, and open it.

    ``model``: its name, where the files say none or another.  The same again changes nothing.  Raises as
    :func:`read_answers` and :func:`write_run`.
    """
    files = [answers] if isinstance(answers, str | Path) else answers
    return write_run(
        bundle, read_answers(bundle, [Path(each) for each in files], model), out, progress
    )


def read_answers(bundle: Bundle, files: Sequence[Path], model: str | None = None) -> Answered:
    """What ``files`` answer to all of ``bundle``, together.

    Raises DataError with everything that is wrong: answers to another bundle, keys that are unknown, twice or lacking,
    places that were not asked, tokens that are others than asked or beyond the vocabulary, numbers that are no
    log-probabilities, and one number in the place of all.
    """
    if not files:
        raise DataError("no file of answers was named")
    about = [_about(bundle, file, model) for file in files]
    names = list(dict.fromkeys(each.model for each in about))
    if len(names) > 1:
        raise DataError(
            f"the files are of different models: {listed(names)}; name one model, or import them one by one"
        )
    scored = bundle.scored
    into = _Intake(bundle)
    for file in files:
        into.take(file, _table(file))
    into.refuse_gaps()
    into.refuse_surplus()
    into.refuse_ranks()
    if into.problems:
        where = listed([str(file) for file in files])
        raise DataError(f"{where} can't be the answers to {bundle.path}", into.problems)
    filled = replace(about[0], logprobs=into.logprobs.astype(np.float32), ranks=into.ranks)
    if np.isnan(into.totals).all():
        return filled
    sums = np.diff(scored.starts)[~np.isnan(into.totals)]
    said = f"sums alone of {len(sums):,} of {scored.questions:,} questions"
    return replace(
        filled,
        totals=into.totals,
        greedy=into.greedy,
        settings={**filled.settings, "per token": f"not known: {said}"},
    )


def write_run(
    bundle: Bundle, answers: Answered, out: str | Path, progress: Progress | None = None
) -> Run:
    """Make the run folder ``out`` of ``answers`` to ``bundle``, and open it; nothing where it is there already.

    No model, tokenizer or data is needed.  ``progress`` is called with (done, total) blocks.  The run's model has a
    digest of the answers in place of one of weights.  Raises DataError where the answers are not as many as asked, and
    StoreError where ``out`` holds another run or the bundle is damaged.
    """
    out, asked, scored = Path(out), bundle.manifest, bundle.scored
    if len(answers.logprobs) != len(scored):
        raise DataError(
            f"{bundle.path} asks for {len(scored):,} log-probabilities, and there are {len(answers.logprobs):,}; give"
            " one for each of its scored tokens"
        )
    check_name(str(out), "the folder of the run")
    for text in (answers.model, answers.engine, *answers.settings, *answers.settings.values()):
        if has_half_character(text):
            raise DataError(
                f"{text!r} holds half a character (a lone surrogate), which no file can hold; name it otherwise"
            )
    run = bundle.path / RUN
    if damaged := damaged_blocks(run, asked.blocks):
        raise StoreError(
            f"{damaged[0].path} {damaged[0].reason}; fetch the bundle again from where it was made"
        )
    numbers = [
        each
        for each in (answers.logprobs, answers.ranks, answers.totals, answers.greedy)
        if each is not None
    ]
    contents = [hashlib.sha256(each.tobytes()).hexdigest() for each in numbers]
    digest = json_digest(
        [answers.model, answers.engine, dict(answers.settings), bundle.digest, contents]
    )
    settings = {"requests": bundle.digest, **answers.settings}
    record = ModelRecord(
        answers.model,
        digest,
        answers.settings.get("dtype", ""),
        "",
        bundle.record.window,
        asked.model.chat,
    )
    wanted = replace(
        asked,
        model=record,
        versions={"choicewise": choicewise.__version__},
        engine=EngineRecord(),
        blocks=(),
        complete=False,
        files={},
        imported=ImportRecord(answers.engine, settings),
    )
    fill = _Filling(bundle, answers)
    with open_folder(out, wanted, _items(bundle)) as folder:
        there = {block.name for block in folder.manifest.blocks}
        if progress is not None:
            progress(0, len(asked.blocks))
        for number, block in enumerate(asked.blocks):
            if block.name not in there:
                tables: dict[str, pa.Table | Path] = {
                    name: block_file(run, block, name) for name in ("requests", "spans")
                }
                folder.add_block(block.place, block.asks, {**tables, "observations": fill(block)})
            if progress is not None:
                progress(number + 1, len(asked.blocks))
        if len(folder.manifest.blocks) != len(asked.blocks):
            raise StoreError(
                f"{out} holds blocks that are not of {bundle.path}; delete it, and import again"
            )
        folder.finish()
    return open_run(out)


class _Filling:
    """Turns the observations of a block of the bundle into answered ones."""

    def __init__(self, bundle: Bundle, answers: Answered) -> None:
        self._run, self._answers, self._starts = bundle.path / RUN, answers, bundle.scored.starts
        self._keys = pa.array(bundle.prompt_keys(), pa.string())

    def __call__(self, block: BlockRecord) -> pa.Table:
        path, answers = block_file(self._run, block, "observations"), self._answers
        table = read_table(path, OBSERVATIONS, block.files.get(path.name)).combine_chunks()
        if not len(table):
            return table
        questions = pc.index_in(table["key"].combine_chunks(), self._keys)
        if questions.null_count:
            raise StoreError(
                f"{path} asks what the rows of the bundle do not; make the bundle again"
            )
        place = questions.to_numpy(zero_copy_only=False).astype(np.int64)
        starts, counts = self._starts[place], self._starts[place + 1] - self._starts[place]
        for name in ("tokens", "sizes"):
            lengths = pc.fill_null(pc.list_value_length(table[name]), -1).to_numpy()
            if not np.array_equal(lengths, counts):
                raise StoreError(
                    f"{path} has other {name} than the rows of the bundle; make the bundle again"
                )
        totals = np.full(len(place), np.nan) if answers.totals is None else answers.totals[place]
        summed = ~np.isnan(totals)
        kept = np.where(summed, 0, counts)
        offsets = np.cumsum([0, *kept])
        flat = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], kept)
        asked = np.repeat(~summed, counts)
        ranks = (
            np.full(len(flat), UNKNOWN, np.int32) if answers.ranks is None else answers.ranks[flat]
        )
        columns = {
            "tokens": _lists(
                table["tokens"].combine_chunks().flatten().filter(pa.array(asked)), offsets
            ),
            "sizes": _lists(
                table["sizes"].combine_chunks().flatten().filter(pa.array(asked)), offsets
            ),
            "logprobs": _lists(pa.array(answers.logprobs[flat], pa.float32()), offsets),
            "ranks": _lists(pa.array(ranks, pa.int32()), offsets),
            "value": pa.nulls(len(table), pa.float32()),
            "missing": pa.nulls(len(table), pa.string()),
        }
        if summed.any():
            greedy = np.full(len(place), -1) if answers.greedy is None else answers.greedy[place]
            columns |= {
                "total": pa.array(totals, pa.float64(), mask=~summed),
                "token_count": pa.array(counts, pa.int32(), mask=~summed),
                "greedy": pa.array(greedy == 1, pa.bool_(), mask=~summed | (greedy < 0)),
            }
        for name, column in columns.items():
            table = table.set_column(
                OBSERVATIONS.get_field_index(name), OBSERVATIONS.field(name), column
            )
        return table


def _lists(values: pa.Array, offsets: Integers) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _items(bundle: Bundle) -> dict[str, Iterator[ItemRow]]:
    """The rows of the item table by split."""
    splits = bundle.items["split"].combine_chunks()

    def rows(split: str) -> Iterator[ItemRow]:
        own = bundle.items.filter(pc.equal(splits, split))
        for values in zip(*(column.to_pylist() for column in own.columns), strict=True):
            yield ItemRow(*values)

    return {split: rows(split) for split in dict.fromkeys(splits.to_pylist())}


def _about(bundle: Bundle, file: Path, model: str | None) -> Answered:
    """What the JSON file beside ``file`` says, without answers."""
    beside = file.with_suffix(".json")
    must = f'{{"{REQUESTS}": the digest in {bundle.path}/bundle.json, "{MODEL}": its name}}'
    try:
        content = read_json(read_text(beside, SETTINGS))
    except FileNotFoundError as error:
        raise DataError(
            f"{beside} is missing, which says what {file} answers; write {must} there"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"{beside} can't be read ({error}); write {must} there") from error
    if not isinstance(content, dict) or not isinstance(content.get(REQUESTS), str):
        raise DataError(f"{beside} does not say which requests were answered; write {must} there")
    if (digest := content.pop(REQUESTS)) != bundle.digest:
        raise DataError(
            f"{file} answers the requests {digest[:12]}, and {bundle.path} holds {bundle.digest[:12]}; name the bundle "
            "that the engine read, or have it answer this one"
        )
    said = content.pop(MODEL, None)
    name = said if model is None else model
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"{beside} does not name the model; write {must} there, or name a model")
    facts = {
        str(key): value if isinstance(value, str) else json_text(value)
        for key, value in content.items()
    }
    for key, text in {MODEL: name, **facts}.items():
        refuse_secret(text, f"{key} in {beside}", DataError)
    engine = (
        " ".join(filter(None, (facts.pop("engine", ""), facts.pop("engine_version", ""))))
        or "another engine"
    )
    return Answered(name, np.zeros(0, np.float32), engine=engine, settings=facts)


_NUMBERS = {
    "place": pa.int64(),
    "token_id": pa.int64(),
    "rank": pa.int64(),
    "num_tokens": pa.int64(),
}
_NUMBERS |= {"logprob": pa.float64(), "sum_logprob": pa.float64()}
_LISTED = {
    "token_ids": ("token_id", pa.int64()),
    "logprobs": ("logprob", pa.float64()),
    "ranks": ("rank", pa.int64()),
}
_FORMS = {
    "place": ("place", "token_id", "logprob"),
    "logprobs": ("token_ids", "logprobs"),
    "sum_logprob": (),
}
"""A column by which a form is known → the columns that it must have besides the key."""


def _table(file: Path) -> pa.Table:
    """The columns of a file of answers that are known here, in their types."""
    try:
        if file.suffix.lower() == ".parquet":
            with open_file(file, TABLE) as content:
                unpacked(content)
                table = open_parquet(content).read()
        elif file.suffix.lower() == ".csv":
            with open_file(file, TABLE) as content:
                texts = pa.csv.ConvertOptions(
                    column_types={"key": pa.string()}, strings_can_be_null=False
                )
                table = pa.csv.read_csv(content, convert_options=texts)
        else:
            raise DataError(
                f"{file} is neither .parquet nor .csv; write the answers as one of these"
            )
    except FileNotFoundError as error:
        raise DataError(f"there is no file {file}; name the file that the engine wrote") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file} can't be read ({error}); write it again") from error
    names = set(table.column_names)
    form = next((needed for mark, needed in _FORMS.items() if mark in names), None)
    lacking = ["key"] * ("key" not in names) + [name for name in form or () if name not in names]
    if form is None or lacking or len(names) < len(table.column_names):
        wanted = " or ".join(
            f"key, {', '.join(needed or ['sum_logprob'])}" for needed in _FORMS.values()
        )
        raise DataError(
            f"{file} has the columns {', '.join(table.column_names) or 'none'}; answers have {wanted}"
        )
    kinds = {**_NUMBERS, "key": pa.string(), "is_greedy": pa.bool_()}
    kinds |= {name: pa.list_(kind) for name, (_, kind) in _LISTED.items()}
    columns = {}
    for name in names & kinds.keys():
        try:
            columns[name] = table[name].cast(kinds[name]).combine_chunks()
        except pa.ArrowException as error:
            raise DataError(
                f"{file}: column {name} holds other things than {kinds[name]} ({error})"
            ) from error
    optional = {"token_id", "num_tokens", "is_greedy"} if "sum_logprob" in names else set()
    for name in columns.keys() - optional:
        lists = pa.types.is_list(columns[name].type)
        if empty := columns[name].null_count + (columns[name].flatten().null_count if lists else 0):
            raise DataError(f"{file}: {counted(empty, 'row')} without {name}; every row needs one")
    return pa.table(columns)


class _Intake:
    """Answers as they are taken from files; ``problems``: everything that is wrong so far, a line each."""

    def __init__(self, bundle: Bundle) -> None:
        scored, self._bundle = bundle.scored, bundle
        self.problems: list[str] = []
        self.logprobs = np.full(len(scored), np.nan)
        self.ranks: npt.NDArray[np.int32] = np.full(len(scored), UNKNOWN, dtype=np.int32)
        self.totals = np.full(scored.questions, np.nan)
        self.greedy: npt.NDArray[np.int8] = np.full(scored.questions, -1, dtype=np.int8)
        self._keys = bundle.rows["key"].combine_chunks()
        self._times = np.zeros(len(scored), dtype=np.int64)
        self._vocabulary = max(
            bundle.record.tokenizer.vocabulary, int(scored.token.max(initial=0)) + 1
        )
        self._width = bundle.record.longest + 2
        self._places = scored.row * self._width + scored.place
        codes = self._places * self._vocabulary + scored.token
        self._order = np.argsort(codes, kind="stable")
        self._codes = codes[self._order]
        self._question = np.repeat(np.arange(scored.questions), np.diff(scored.starts))

    def take(self, file: Path, table: pa.Table) -> None:
        """Take the answers of one file."""
        rows = pc.index_in(table["key"].combine_chunks(), self._keys)
        unknown = rows.is_null().to_numpy(zero_copy_only=False)
        if unknown.any():
            keys = table["key"].combine_chunks().filter(pa.array(unknown)).unique().to_pylist()
            self._problem(
                len(keys), "key is no row of the bundle", "keys are no rows of the bundle", keys
            )
        table = table.filter(pa.array(~unknown))
        row = rows.drop_null().to_numpy().astype(np.int64)
        if "sum_logprob" in table.column_names:
            self._take_sums(row, table)
        elif "logprobs" in table.column_names:
            self._take_lists(row, table)
        else:
            place = table["place"].to_numpy().astype(np.int64)
            self._take_tokens(row, place, table)

    def refuse_gaps(self) -> None:
        """Note what has no answer, and numbers that stand for none."""
        scored = self._bundle.scored
        summed = ~np.isnan(self.totals)
        lacking = np.flatnonzero((self._times == 0) & ~summed[self._question])
        if len(lacking):
            where = f"of {counted(len(np.unique(scored.row[lacking])), 'row')}"
            one, many = (
                f"scored token {where} has no answer",
                f"scored tokens {where} have no answer",
            )
            self._problem(len(lacking), one, many, self._named(lacking))
        twice = np.flatnonzero(self._times + summed[self._question] > 1)
        if len(twice):
            self._problem(
                len(twice),
                "token is answered twice",
                "tokens are answered twice",
                self._named(twice),
            )
        for numbers, names in (
            (self.logprobs[self._times > 0], "answers"),
            (self.totals[summed], "sums"),
        ):
            values, counts = np.unique(numbers[np.isfinite(numbers)], return_counts=True)
            if not len(values) or len(numbers) < 4:
                continue
            most = int(counts.argmax())
            alike = int(counts[most])
            if alike == len(numbers) or (
                len(numbers) >= FEW and alike > SHARE * len(numbers) and values[most] < CERTAIN
            ):
                self.problems.append(
                    f"{alike:,} of {len(numbers):,} {names} are {values[most]:g}: a placeholder, not what a model says"
                )

    def refuse_surplus(self) -> None:
        """Note places whose tokens have more than all probability together."""
        shares = np.exp(np.where(np.isfinite(self.logprobs), self.logprobs, -np.inf))
        _, firsts, place = np.unique(self._places, return_index=True, return_inverse=True)
        totals = np.bincount(place, shares, minlength=len(firsts))
        over = np.flatnonzero(totals > 1 + SURPLUS)
        if len(over):
            named = [
                f"{self._named(firsts[[each]])[0]} ({totals[each]:.2f})"
                for each in over[:_SHOWN].tolist()
            ]
            why = "more than 1 together (log2 or log10 in the place of nats?)"
            one, many = (
                f"place has tokens of probability {why}",
                f"places have tokens of probability {why}",
            )
            self._problem(len(over), one, many, named)

    def refuse_ranks(self) -> None:
        """Note ranks that can't belong to their log-probabilities.

        Where r tokens are likelier, one has 1 / (r + 1) at most; the likeliest has 1 / vocabulary at least, which may
        be filled up to twice its size; of two tokens of a place the likelier has the better rank.
        """
        known, ranked, place = np.isfinite(self.logprobs), self.ranks >= 0, self._places
        most = CONTRADICTION - np.log1p(np.maximum(self.ranks, 0))
        least = np.where(self.ranks == 0, -np.log(2 * self._vocabulary), -np.inf)
        wrong = known & ranked & ((self.logprobs > most) | (self.logprobs < least))
        order = np.lexsort((self.logprobs, self.ranks, place))
        better, worse = order[:-1], order[1:]
        change = self.logprobs[worse] - self.logprobs[better]
        change = np.where(self.ranks[better] == self.ranks[worse], np.abs(change), change)
        wrong[worse] |= ranked[better] & (place[better] == place[worse]) & (change > CONTRADICTION)
        if wrong.any():
            one, many = (
                "rank contradicts its log-probability",
                "ranks contradict their log-probabilities",
            )
            self._problem(int(wrong.sum()), one, many, self._named(np.flatnonzero(wrong)))

    def _take_lists(self, row: Integers, table: pa.Table) -> None:
        """A list a row becomes the tokens that the row names, in their order."""
        scored = self._bundle.scored
        first = np.searchsorted(scored.row, np.arange(len(self._keys) + 1))
        asked = np.diff(first)[row]
        lists = {
            name: table[name].combine_chunks() for name in _LISTED if name in table.column_names
        }
        counts = {name: pc.list_value_length(column).to_numpy() for name, column in lists.items()}
        right = np.logical_and.reduce([own == asked for own in counts.values()])
        if not right.all():
            wrong = np.flatnonzero(~right)
            named = [
                f"{self._keys[row[at]]} ({counts['logprobs'][at]} of {asked[at]})"
                for at in wrong[:_SHOWN].tolist()
            ]
            self._problem(
                len(wrong),
                "list has not as many as asked",
                "lists have not as many as asked",
                named,
            )
        row, keep = row[right], pa.array(right)
        places = np.concatenate(
            [scored.place[first[each] : first[each + 1]] for each in row.tolist()] or [row]
        )
        flat = {_LISTED[name][0]: column.filter(keep).flatten() for name, column in lists.items()}
        self._take_tokens(np.repeat(row, asked[right]), places, pa.table(flat))

    def _take_tokens(self, row: Integers, place: Integers, table: pa.Table) -> None:
        token = table["token_id"].to_numpy().astype(np.int64)
        at, usable = self._located(row, place, token)
        logprobs = table["logprob"].to_numpy()
        self._refuse_numbers(row, place, logprobs)
        np.add.at(self._times, at, 1)
        self.logprobs[at] = logprobs[usable]
        if "rank" in table.column_names:
            rank = table["rank"].to_numpy().astype(np.int64)
            wrong = np.flatnonzero((rank < 1) | (rank > 2**31 - 1))
            if len(wrong):
                named = [
                    f"{self._keys[row[each]]} ({rank[each]})" for each in wrong[:_SHOWN].tolist()
                ]
                self._problem(
                    len(wrong), "rank is no count from 1 on", "ranks are no counts from 1 on", named
                )
            self.ranks[at] = np.clip(rank - 1, 0, 2**31 - 2)[usable]

    def _take_sums(self, row: Integers, table: pa.Table) -> None:
        """Sums of whole spans, and log-probabilities of labels, which are named by their token."""
        scored, totals = self._bundle.scored, table["sum_logprob"].to_numpy()
        nothing = pa.nulls(len(table), pa.int64())
        token, count = (
            pc.fill_null(
                table[name].combine_chunks() if name in table.column_names else nothing, -1
            ).to_numpy()
            for name in ("token_id", "num_tokens")
        )
        first = np.searchsorted(scored.row, row)
        label = scored.place[first] == self._bundle.lengths[row]
        unnamed = np.flatnonzero(label & (token < 0))
        if len(unnamed):
            keys = [str(self._keys[each]) for each in row[unnamed[:_SHOWN]].tolist()]
            self._problem(
                len(unnamed),
                "sum of a label has no token_id",
                "sums of labels have no token_id",
                keys,
            )
        tokens = np.where(label, token, scored.token[first])
        at, usable = self._located(
            row, scored.place[first], np.where(label & (token < 0), scored.token[first], tokens)
        )
        self._refuse_numbers(row, scored.place[first], totals)
        question = self._question[at]
        sizes, said, numbers = np.diff(scored.starts)[question], count[usable], totals[usable]
        wrong = np.flatnonzero((said >= 0) & (said != sizes))
        if len(wrong):
            named = [
                f"{self._keys[row[usable][each]]} ({said[each]} of {sizes[each]})"
                for each in wrong[:_SHOWN].tolist()
            ]
            self._problem(
                len(wrong),
                "sum is of another number of tokens",
                "sums are of other numbers of tokens",
                named,
            )
        several = sizes > 1
        np.add.at(self._times, at[~several], 1)
        self.logprobs[at[~several]] = numbers[~several]
        own = question[several]
        doubles = own[np.flatnonzero(np.bincount(own, minlength=scored.questions)[own] > 1)]
        if len(doubles):
            named = self._named(scored.starts[np.unique(doubles)])
            self._problem(
                len(np.unique(doubles)), "sum is given twice", "sums are given twice", named
            )
        self.totals[own] = numbers[several]
        if "is_greedy" in table.column_names:
            flags = pc.fill_null(
                table["is_greedy"].combine_chunks().cast(pa.int8()), -1
            ).to_numpy()[usable]
            self.greedy[own] = flags[several]
            alone = at[~several]
            self.ranks[alone] = np.where(
                flags[~several] == 1, 0, np.where(flags[~several] == 0, NOT_FIRST, UNKNOWN)
            )

    def _located(
        self, row: Integers, place: Integers, token: Integers
    ) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Where those stand among all that is scored, and which of them were asked; notes the others."""
        beyond = (token < 0) | (token >= self._vocabulary)
        if beyond.any():
            ids = sorted({*token[beyond].tolist()})
            self._problem(
                int(beyond.sum()),
                f"token_id is beyond the vocabulary of {self._vocabulary:,}",
                f"token_ids are beyond the vocabulary of {self._vocabulary:,}",
                [str(each) for each in ids],
            )
        inside = (place >= 0) & (place < self._width)
        where = row * self._width + np.where(inside, place, 0)
        codes = where * self._vocabulary + np.where(beyond, 0, token)
        near = np.minimum(np.searchsorted(self._codes, codes), max(len(self._codes) - 1, 0))
        usable = (
            (self._codes[near] == codes) & inside & ~beyond
            if len(self._codes)
            else np.zeros(len(row), np.bool_)
        )
        known = inside & np.isin(where, self._places)
        strange = np.flatnonzero(~known)
        if len(strange):
            named = [
                f"{self._keys[row[each]]} place {place[each]}" for each in strange[:_SHOWN].tolist()
            ]
            self._problem(
                len(strange), "place is not to be scored", "places are not to be scored", named
            )
        other = np.flatnonzero(known & ~usable & ~beyond)
        if len(other):
            named = [
                f"{self._keys[row[each]]} place {place[each]}: {token[each]}"
                for each in other[:_SHOWN].tolist()
            ]
            one, many = "token_id is not what was asked", "token_ids are not what was asked"
            self._problem(
                len(other), f"{one} (another tokenizer?)", f"{many} (another tokenizer?)", named
            )
        return self._order[near[usable]], usable

    def _refuse_numbers(
        self, row: Integers, place: Integers, numbers: npt.NDArray[np.float64]
    ) -> None:
        tests: dict[tuple[str, str], Callable[[npt.NDArray[np.float64]], npt.NDArray[np.bool_]]] = {
            ("is NaN", "are NaN"): np.isnan,
            ("is infinite", "are infinite"): lambda own: np.abs(own) > _STORED,
            ("is above 0", "are above 0"): lambda own: own > ROUNDING,
        }
        for (one, many), test in tests.items():
            wrong = np.flatnonzero(test(numbers))
            if len(wrong):
                named = [
                    f"{self._keys[row[at]]} place {place[at]}: {numbers[at]:g}"
                    for at in wrong[:_SHOWN].tolist()
                ]
                self._problem(
                    len(wrong), f"log-probability {one}", f"log-probabilities {many}", named
                )

    def _named(self, tokens: Integers) -> list[str]:
        scored = self._bundle.scored
        return [
            f"{self._keys[int(scored.row[at])]} place {scored.place[at]}"
            for at in tokens[:_SHOWN].tolist()
        ]

    def _problem(self, count: int, one: str, many: str, named: Sequence[str]) -> None:
        more = ", ..." if count > _SHOWN else ""
        self.problems.append(
            f"{counted(count, one, many)}: {', '.join(map(str, named[:_SHOWN]))}{more}"
        )
