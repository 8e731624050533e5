"""Answers to a bundle: reading them from files, checking them, and writing them as a run.

Answers are joined by key, index and token, never by order.  The columns of a file tell its form:

* ``key, place, token_id, logprob`` and maybe ``rank``: a row for each scored token;
* ``key, token_ids, logprobs`` and maybe ``ranks``: lists, a row for each sequence, in the order of
  its scored tokens;
* ``key, sum_logprob`` and maybe ``token_id`` (of a label), ``num_tokens``, ``is_greedy``: sums.

Beside ``NAME.parquet`` or ``NAME.csv`` lies ``NAME.json``, an object with ``requests``, the digest
of the bundle, and ``model``, the name; its other fields are kept as text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import choicewise
from choicewise.engine import ranges
from choicewise.errors import DataError, StoreError
from choicewise.extensions.training.bundles.bundle import RUN, Bundle
from choicewise.questions import NOT_FIRST, UNKNOWN
from choicewise.records import (
    OBSERVATIONS,
    BlockRecord,
    EngineRecord,
    ImportRecord,
    ItemRow,
    Manifest,
    ModelRecord,
)
from choicewise.results.run import Run, open_run
from choicewise.running.progress import Progress
from choicewise.scoring.observed import Integers, Mask, row_of
from choicewise.store.folder import open_folder
from choicewise.store.tables import block_file, damaged_blocks, read_table
from choicewise.util.files import SETTINGS, TABLE, open_file, read_text
from choicewise.util.jsonio import json_digest, json_text, read_json
from choicewise.util.tables import open_parquet, unpacked
from choicewise.util.text import check_name, counted, has_half_character, listed, refuse_secret

Floats = npt.NDArray[np.float32]

REQUESTS = "requests"
MODEL = "model"

ROUNDING = 1e-3
"""Nats by which the rounding of logits may lift a log-probability above 0."""

SURPLUS = 0.02
"""Probability above 1 that the rounding to bfloat16 may give to all tokens of an index together."""

CONTRADICTION = 0.05
"""Nats by which rounding may put a log-probability on the wrong side of what its rank implies."""

FEW = 20
SHARE = 0.5
CERTAIN = -1e-3
"""If more than ``SHARE`` of at least ``FEW`` numbers are equal, they are placeholders.

Numbers above ``CERTAIN`` are not: a model may be certain of many tokens.
"""

_STORED = np.finfo(np.float32).max  # the largest number that a run can store
_EXAMPLES = 3  # rows that the text of a problem names
_AT = "{} place {}"


@dataclass(frozen=True, eq=False)
class Answered:
    """Hold answers in the order of
    :attr:`choicewise.extensions.training.bundles.bundle.Bundle.scored`.

    ``model``: its name.  ``logprobs``: natural log-probabilities over the whole vocabulary (nats),
    float32 [tokens].  ``ranks``: how many tokens of the vocabulary are strictly likelier, int32
    [tokens], ``UNKNOWN`` (-1) for an unknown rank; None if all are unknown.  ``totals``: the sums
    (nats) of questions whose single tokens are unknown, float64 [questions], NaN for the others.
    ``greedy``: 1 if all tokens of such a question were the likeliest, 0 if not, -1 if unknown.
    ``engine``: the program that computed, with its version; ``settings``: further facts.
    """

    model: str
    logprobs: Floats
    ranks: npt.NDArray[np.int32] | None = None
    _: KW_ONLY
    totals: npt.NDArray[np.float64] | None = None
    greedy: npt.NDArray[np.int8] | None = None
    engine: str = "another engine"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def only_sums(self) -> int:
        """Count the questions of which only the sum is known."""
        if self.totals is None:
            return 0
        return int(np.count_nonzero(~np.isnan(self.totals)))


def import_answers(
    bundle: Bundle,
    answers: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    model: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Make the run folder ``out`` of one or several files of ``answers`` to ``bundle``, and open
    it.

    ``model``: its name, if the files name none, or to replace theirs.  A second call with the same
    arguments changes nothing.  Raises the errors of :func:`read_answers` and :func:`write_run`.
    """
    paths = [answers] if isinstance(answers, str | Path) else answers
    files = [Path(path) for path in paths]
    return write_run(bundle, read_answers(bundle, files, model), out, progress)


def read_answers(bundle: Bundle, files: Sequence[Path], model: str | None = None) -> Answered:
    """Read the answers of ``files``, which together must answer all of ``bundle``.

    Raises DataError with all problems: answers to a different bundle; unknown, repeated and missing
    keys; indices that are not scored; tokens that differ from the scored ones or are beyond the
    vocabulary; numbers that can't be log-probabilities, and one number in place of all.
    """
    if not files:
        raise DataError("no file of answers was given")
    descriptions = [_read_description(bundle, file, model) for file in files]
    names = list(dict.fromkeys(description.model for description in descriptions))
    if len(names) > 1:
        raise DataError(
            f"the files are of different models: {listed(names)}; import them one by one, or name "
            "one model"
        )
    intake = _Intake(bundle)
    for file in files:
        intake.take(file, _read_file(file))
    intake.refuse_gaps()
    intake.refuse_placeholders()
    intake.refuse_surplus()
    intake.refuse_ranks()
    if intake.problems:
        where = listed([str(file) for file in files])
        raise DataError(f"{where} does not answer {bundle.path}", intake.problems)
    logprobs = intake.logprobs.astype(np.float32)
    answers = replace(descriptions[0], logprobs=logprobs, ranks=intake.ranks)
    sums = np.count_nonzero(~np.isnan(intake.totals))
    if not sums:
        return answers
    unknown = f"unknown: {sums:,} of {bundle.scored.questions:,} questions have only sums"
    settings = {**answers.settings, "per token": unknown}
    return replace(answers, totals=intake.totals, greedy=intake.greedy, settings=settings)


def write_run(
    bundle: Bundle, answers: Answered, out: str | Path, progress: Progress | None = None
) -> Run:
    """Make the run folder ``out`` of ``answers`` to ``bundle``, unless it exists, and open it.

    No model, tokenizer or data is needed.  ``progress`` is called with (done, total) blocks.  The
    run's model has the digest of its answers, as its weights are unknown.  Raises DataError if the
    number of answers is wrong, and StoreError if ``out`` holds another run or the bundle is
    damaged.
    """
    out = Path(out)
    scored = bundle.scored
    blocks = bundle.manifest.blocks
    if len(answers.logprobs) != len(scored):
        raise DataError(
            f"{bundle.path} needs {len(scored):,} log-probabilities, and there are "
            f"{len(answers.logprobs):,}; give "
            "one for each of its scored tokens"
        )
    check_name(str(out), "the folder of the run")
    for text in (answers.model, answers.engine, *answers.settings, *answers.settings.values()):
        if has_half_character(text):
            raise DataError(f"{text!r} holds half a character (a lone surrogate); use another name")
    run = bundle.path / RUN
    damaged = damaged_blocks(run, blocks)
    if damaged:
        raise StoreError(
            f"{damaged[0].path} {damaged[0].reason}; copy the bundle again from where it was made"
        )
    # A second call with the same answers goes on with the run of the first.
    observations = _Observations(bundle, answers)
    with open_folder(out, _run_manifest(bundle, answers), _items(bundle)) as folder:
        written = {block.name for block in folder.manifest.blocks}
        if progress is not None:
            progress(0, len(blocks))
        for number, block in enumerate(blocks, start=1):
            if block.name not in written:
                tables: dict[str, pa.Table | Path] = {
                    "requests": block_file(run, block, "requests"),
                    "spans": block_file(run, block, "spans"),
                    "observations": observations.of_block(block),
                }
                folder.add_block(block.extent, block.asks, tables)
            if progress is not None:
                progress(number, len(blocks))
        if len(folder.manifest.blocks) != len(blocks):
            raise StoreError(
                f"{out} holds blocks of another bundle than {bundle.path}; delete it, and import "
                "again"
            )
        folder.finish()
    return open_run(out)


def _run_manifest(bundle: Bundle, answers: Answered) -> Manifest:
    """Return the manifest of a new run: the bundle's, with the model and engine that answered."""
    contents = []
    for numbers in (answers.logprobs, answers.ranks, answers.totals, answers.greedy):
        if numbers is not None:
            contents.append(hashlib.sha256(numbers.tobytes()).hexdigest())
    settings = dict(answers.settings)
    digest = json_digest([answers.model, answers.engine, settings, bundle.digest, contents])
    model = ModelRecord(
        name=answers.model,
        digest=digest,
        dtype=settings.get("dtype", ""),
        device="",
        window=bundle.record.window,
        chat=bundle.manifest.model.chat,
    )
    return replace(
        bundle.manifest,
        model=model,
        versions={"choicewise": choicewise.__version__},
        engine=EngineRecord(),
        blocks=(),
        complete=False,
        files={},
        imported=ImportRecord(answers.engine, {"requests": bundle.digest, **settings}),
    )


class _Observations:
    """Fill the observations of a bundle with answers."""

    def __init__(self, bundle: Bundle, answers: Answered) -> None:
        self._run = bundle.path / RUN
        self._answers = answers
        self._starts = bundle.scored.starts
        self._keys = pa.array(bundle.prompt_keys(), pa.string())

    def of_block(self, block: BlockRecord) -> pa.Table:
        """Return the answered observations of a block."""
        path = block_file(self._run, block, "observations")
        table = read_table(path, OBSERVATIONS, block.files.get(path.name)).combine_chunks()
        if not len(table):
            return table
        questions = pc.index_in(table["key"].combine_chunks(), self._keys)
        if questions.null_count:
            raise StoreError(f"{path} does not fit the rows of the bundle; make the bundle again")
        question = questions.to_numpy(zero_copy_only=False).astype(np.int64)
        counts = np.diff(self._starts)[question]
        for name in ("tokens", "sizes"):
            lengths = pc.fill_null(pc.list_value_length(table[name]), -1).to_numpy()
            if not np.array_equal(lengths, counts):
                raise StoreError(
                    f"{path} has other {name} than the rows of the bundle; make the bundle again"
                )
        for name, column in self._columns(table, question, counts).items():
            index = OBSERVATIONS.get_field_index(name)
            table = table.set_column(index, OBSERVATIONS.field(name), column)
        return table

    def _columns(self, table: pa.Table, question: Integers, counts: Integers) -> dict[str, Any]:
        answers = self._answers
        totals = np.full(len(question), np.nan)
        if answers.totals is not None:
            totals = answers.totals[question]
        is_sum = ~np.isnan(totals)
        # An observation that only has a sum keeps no tokens.
        kept_counts = np.where(is_sum, 0, counts)
        offsets = np.cumsum([0, *kept_counts])
        scored = ranges(self._starts[question], kept_counts)
        ranks = np.full(len(scored), UNKNOWN, np.int32)
        if answers.ranks is not None:
            ranks = answers.ranks[scored]
        is_kept = pa.array(np.repeat(~is_sum, counts))
        tokens = table["tokens"].combine_chunks().flatten().filter(is_kept)
        sizes = table["sizes"].combine_chunks().flatten().filter(is_kept)
        columns = {
            "tokens": _lists(tokens, offsets),
            "sizes": _lists(sizes, offsets),
            "logprobs": _lists(pa.array(answers.logprobs[scored], pa.float32()), offsets),
            "ranks": _lists(pa.array(ranks, pa.int32()), offsets),
            "value": pa.nulls(len(table), pa.float32()),
            "missing": pa.nulls(len(table), pa.string()),
        }
        if is_sum.any():
            greedy = np.full(len(question), -1)
            if answers.greedy is not None:
                greedy = answers.greedy[question]
            columns["total"] = pa.array(totals, pa.float64(), mask=~is_sum)
            columns["token_count"] = pa.array(counts, pa.int32(), mask=~is_sum)
            unknown = ~is_sum | (greedy < 0)
            columns["greedy"] = pa.array(greedy == 1, pa.bool_(), mask=unknown)
        return columns


def _lists(values: pa.Array, offsets: Integers) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _items(bundle: Bundle) -> dict[str, Iterator[ItemRow]]:
    """Return the rows of the item table by split."""
    splits = bundle.items["split"].combine_chunks()
    return {split: _items_of(bundle, split) for split in dict.fromkeys(splits.to_pylist())}


def _items_of(bundle: Bundle, split: str) -> Iterator[ItemRow]:
    for row in bundle.items.filter(pc.field("split") == split).to_pylist():
        yield ItemRow(
            position=row["position"],
            split=row["split"],
            item=row["item"],
            subject=row["subject"],
            question=row["question"],
            choices=row["choices"],
            gold=row["gold"],
            fields=row["fields"],
        )


def _read_description(bundle: Bundle, file: Path, model: str | None) -> Answered:
    """Read the JSON file beside ``file``, and return its facts without answers."""
    beside = file.with_suffix(".json")
    must = f'{{"{REQUESTS}": the digest in {bundle.path}/bundle.json, "{MODEL}": its name}}'
    try:
        content = read_json(read_text(beside, SETTINGS))
    except FileNotFoundError as error:
        raise DataError(
            f"{beside} is missing, so it is unknown what {file} answers; write {must} there"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"{beside} can't be read ({error}); write {must} there") from error
    if not isinstance(content, dict) or not isinstance(content.get(REQUESTS), str):
        raise DataError(f"{beside} does not name the answered requests; write {must} there")
    digest = content.pop(REQUESTS)
    if digest != bundle.digest:
        raise DataError(
            f"{file} answers the requests {digest[:12]}, but {bundle.path} holds "
            f"{bundle.digest[:12]}. Pass "
            "the bundle that the engine read, or have it answer this one"
        )
    stated_model = content.pop(MODEL, None)
    name = stated_model if model is None else model
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"{beside} does not name the model; write {must} there, or name the model")
    refuse_secret(name, f"{MODEL} in {beside}", DataError)
    facts = {}
    for key, value in content.items():
        facts[str(key)] = value if isinstance(value, str) else json_text(value)
        refuse_secret(facts[str(key)], f"{key} in {beside}", DataError)
    engine_parts = [facts.pop("engine", ""), facts.pop("engine_version", "")]
    engine = " ".join(filter(None, engine_parts))
    return Answered(
        model=name,
        logprobs=np.zeros(0, np.float32),
        engine=engine or "another engine",
        settings=facts,
    )


_TYPES = {
    "key": pa.string(),
    "place": pa.int64(),
    "token_id": pa.int64(),
    "logprob": pa.float64(),
    "rank": pa.int64(),
    "token_ids": pa.list_(pa.int64()),
    "logprobs": pa.list_(pa.float64()),
    "ranks": pa.list_(pa.int64()),
    "sum_logprob": pa.float64(),
    "num_tokens": pa.int64(),
    "is_greedy": pa.bool_(),
}

_LISTS = {"token_ids": "token_id", "logprobs": "logprob", "ranks": "rank"}
"""A column of lists → the column of its elements."""

_FORMS = {
    "place": ("place", "token_id", "logprob"),
    "logprobs": ("token_ids", "logprobs"),
    "sum_logprob": ("sum_logprob",),
}
"""The column that tells a form → the columns that the form needs besides the key."""

_OPTIONAL = {"token_id", "num_tokens", "is_greedy"}
"""Columns of the form of sums in which rows may be empty."""


def _read_file(file: Path) -> pa.Table:
    """Read the columns of a file of answers that have a meaning, in their types."""
    try:
        table = _read_table(file)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {file}; pass the file that the engine wrote") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file} can't be read ({error}); write it again") from error
    names = set(table.column_names)
    _check_form(file, table.column_names)
    columns = {}
    for name in names & _TYPES.keys():
        try:
            columns[name] = table[name].cast(_TYPES[name]).combine_chunks()
        except pa.ArrowException as error:
            raise DataError(f"{file}: column {name} must hold {_TYPES[name]} ({error})") from error
    for name, column in columns.items():
        if "sum_logprob" in names and name in _OPTIONAL:
            continue
        empty = column.null_count
        if pa.types.is_list(column.type):
            empty += column.flatten().null_count
        if empty:
            raise DataError(f"{file}: {counted(empty, 'row')} without {name}; every row needs one")
    return pa.table(columns)


def _read_table(file: Path) -> pa.Table:
    suffix = file.suffix.lower()
    if suffix not in (".parquet", ".csv"):
        raise DataError(f"{file} is neither .parquet nor .csv; write one of these")
    with open_file(file, TABLE) as content:
        if suffix == ".parquet":
            unpacked(content)
            return open_parquet(content).read()
        # Without the type a column of keys that are all digits is read as numbers.
        # A key may be spelled like a null value.
        options = pa.csv.ConvertOptions(
            column_types={"key": pa.string()}, strings_can_be_null=False
        )
        return pa.csv.read_csv(content, convert_options=options)


def _check_form(file: Path, names: Sequence[str]) -> None:
    """Raise DataError if columns of the form are missing, or if two have one name."""
    if "key" in names and len(set(names)) == len(names):
        for mark, needed in _FORMS.items():
            if mark in names:
                if set(needed) <= set(names):
                    return
                break
    forms = [f"key, {', '.join(needed)}" for needed in _FORMS.values()]
    raise DataError(
        f"{file} has the columns {', '.join(names) or 'none'}; answers have {' or '.join(forms)}"
    )


class _Intake:
    """Join the answers of files to the scored tokens; ``problems`` has a line for each fault."""

    def __init__(self, bundle: Bundle) -> None:
        scored = bundle.scored
        self._bundle = bundle
        self.problems: list[str] = []
        self.logprobs = np.full(len(scored), np.nan)
        self.ranks: npt.NDArray[np.int32] = np.full(len(scored), UNKNOWN, dtype=np.int32)
        self.totals = np.full(scored.questions, np.nan)
        self.greedy: npt.NDArray[np.int8] = np.full(scored.questions, -1, dtype=np.int8)
        self._times = np.zeros(len(scored), dtype=np.int64)
        self._keys = bundle.rows["key"].combine_chunks()
        self._question = row_of(scored.starts)
        greatest = int(scored.token.max(initial=0))
        self._vocabulary = max(bundle.record.tokenizer.vocabulary, greatest + 1)
        # Row, index and token make one number, so that answers are found by a binary search.
        # A label stands one after the last token of its row.
        self._width = bundle.record.longest + 2
        self._places = scored.row * self._width + scored.position
        codes = self._places * self._vocabulary + scored.token
        self._order = np.argsort(codes, kind="stable")
        self._codes = codes[self._order]

    def take(self, file: Path, table: pa.Table) -> None:
        """Take the answers of one file."""
        row_index = pc.index_in(table["key"].combine_chunks(), self._keys)
        is_unknown = row_index.is_null()
        if row_index.null_count:
            keys = table["key"].combine_chunks().filter(is_unknown).unique().to_pylist()
            one = "key is not in the bundle"
            self._add_problem(len(keys), one, "keys are not in the bundle", keys[:_EXAMPLES])
        table = table.filter(pc.invert(is_unknown))
        row = row_index.drop_null().to_numpy().astype(np.int64)
        if "sum_logprob" in table.column_names:
            self._take_sums(row, table)
        elif "logprobs" in table.column_names:
            self._take_lists(row, table)
        else:
            self._take_tokens(row, table["place"].to_numpy().astype(np.int64), table)

    def refuse_gaps(self) -> None:
        """Note the scored tokens that have no answer, or two."""
        scored = self._bundle.scored
        is_sum = ~np.isnan(self.totals)
        answers = self._times + is_sum[self._question]
        lacking = np.flatnonzero(answers == 0)
        rows = counted(len(np.unique(scored.row[lacking])), "row")
        one = f"scored token of {rows} has no answer"
        many = f"scored tokens of {rows} have no answer"
        self._refuse(lacking, one, many, _AT, scored.row, scored.position)
        twice = np.flatnonzero(answers > 1)
        one = "token is answered twice"
        many = "tokens are answered twice"
        self._refuse(twice, one, many, _AT, scored.row, scored.position)

    def refuse_placeholders(self) -> None:
        """Note a number that stands for most answers."""
        self._refuse_placeholder(self.logprobs[self._times > 0], "answers")
        self._refuse_placeholder(self.totals[~np.isnan(self.totals)], "sums")

    def _refuse_placeholder(self, numbers: npt.NDArray[np.float64], noun: str) -> None:
        values, counts = np.unique(numbers[np.isfinite(numbers)], return_counts=True)
        if not len(values) or len(numbers) < 4:
            return
        commonest = int(counts.argmax())
        count = int(counts[commonest])
        value = values[commonest]
        is_common = count > SHARE * len(numbers) and value < CERTAIN
        if count == len(numbers) or (len(numbers) >= FEW and is_common):
            self.problems.append(
                f"{count:,} of {len(numbers):,} {noun} are {value:g}: a placeholder, not a model's "
                "answer"
            )

    def refuse_surplus(self) -> None:
        """Note indices whose tokens have a probability above 1 together."""
        scored = self._bundle.scored
        shares = np.exp(np.where(np.isfinite(self.logprobs), self.logprobs, -np.inf))
        _, firsts, position = np.unique(self._places, return_index=True, return_inverse=True)
        totals = np.bincount(position, shares, minlength=len(firsts))
        over = np.flatnonzero(totals > 1 + SURPLUS)
        why = "more than 1 together (log2 or log10 instead of nats?)"
        one = f"place has tokens of probability {why}"
        many = f"places have tokens of probability {why}"
        pattern = f"{_AT} ({{:.2f}})"
        self._refuse(over, one, many, pattern, scored.row[firsts], scored.position[firsts], totals)

    def refuse_ranks(self) -> None:
        """Note ranks that contradict their log-probabilities.

        If r tokens are likelier, a token has at most 1 / (r + 1).  The likeliest has at least 1 /
        vocabulary.  Of two tokens at one index, the likelier one has the better rank.
        """
        scored = self._bundle.scored
        is_number = np.isfinite(self.logprobs)
        is_ranked = self.ranks >= 0
        highest = CONTRADICTION - np.log1p(np.maximum(self.ranks, 0))
        # Models pad their vocabulary to up to twice its size.
        lowest = np.where(self.ranks == 0, -np.log(2 * self._vocabulary), -np.inf)
        outside = (self.logprobs > highest) | (self.logprobs < lowest)
        is_wrong = is_number & is_ranked & outside

        order = np.lexsort((self.logprobs, self.ranks, self._places))
        better = order[:-1]
        worse = order[1:]
        rise = self.logprobs[worse] - self.logprobs[better]
        is_tie = self.ranks[better] == self.ranks[worse]
        rise = np.where(is_tie, np.abs(rise), rise)
        same_place = self._places[better] == self._places[worse]
        is_wrong[worse] |= is_ranked[better] & same_place & (rise > CONTRADICTION)
        one = "rank contradicts its log-probability"
        many = "ranks contradict their log-probabilities"
        self._refuse(np.flatnonzero(is_wrong), one, many, _AT, scored.row, scored.position)

    def _take_lists(self, row: Integers, table: pa.Table) -> None:
        """Take lists: one element for each scored token of the row, in their order."""
        scored = self._bundle.scored
        firsts = np.searchsorted(scored.row, np.arange(len(self._keys) + 1))
        expected = np.diff(firsts)[row]
        is_complete = np.ones(len(row), np.bool_)
        names = [name for name in _LISTS if name in table.column_names]
        for name in names:
            is_complete &= pc.list_value_length(table[name]).to_numpy() == expected
        lengths = pc.list_value_length(table["logprobs"]).to_numpy()
        wrong = np.flatnonzero(~is_complete)
        one = "list has the wrong length"
        many = "lists have the wrong length"
        self._refuse(wrong, one, many, "{} ({} of {})", row, lengths, expected)
        columns = {}
        for name in names:
            lists = table[name].combine_chunks().filter(pa.array(is_complete))
            columns[_LISTS[name]] = lists.flatten()
        row = row[is_complete]
        expected = expected[is_complete]
        position = scored.position[ranges(firsts[row], expected)]
        self._take_tokens(np.repeat(row, expected), position, pa.table(columns))

    def _take_tokens(self, row: Integers, position: Integers, table: pa.Table) -> None:
        token = table["token_id"].to_numpy().astype(np.int64)
        logprobs = table["logprob"].to_numpy()
        scored, is_usable = self._located(row, position, token)
        self._refuse_numbers(row, position, logprobs)
        np.add.at(self._times, scored, 1)
        self.logprobs[scored] = logprobs[is_usable]
        if "rank" in table.column_names:
            rank = table["rank"].to_numpy().astype(np.int64)
            wrong = np.flatnonzero((rank < 1) | (rank > 2**31 - 1))
            one = "rank is below 1 or no integer"
            self._refuse(wrong, one, "ranks are below 1 or no integers", "{} ({})", row, rank)
            self.ranks[scored] = np.clip(rank - 1, 0, 2**31 - 2)[is_usable]

    def _take_sums(self, row: Integers, table: pa.Table) -> None:
        """Take sums of whole spans, and log-probabilities of labels, which their token names."""
        scored = self._bundle.scored
        totals = table["sum_logprob"].to_numpy()
        stated_token = _integers(table, "token_id")
        first = np.searchsorted(scored.row, row)
        position = scored.position[first]
        is_label = position == self._bundle.lengths[row]
        # A row of labels has one label for each token, so that a sum must name its token.
        unnamed = np.flatnonzero(is_label & (stated_token < 0))
        one = "sum of a label has no token_id"
        self._refuse(unnamed, one, "sums of labels have no token_id", "{}", row)
        # A label without its token was noted above; the first token is only to go on with.
        has_token = is_label & (stated_token >= 0)
        token = np.where(has_token, stated_token, scored.token[first])
        located, is_usable = self._located(row, position, token)
        self._refuse_numbers(row, position, totals)

        question = self._question[located]
        sizes = np.diff(scored.starts)[question]
        stated_sizes = _integers(table, "num_tokens")[is_usable]
        wrong = np.flatnonzero((stated_sizes >= 0) & (stated_sizes != sizes))
        one = "sum counts other tokens"
        many = "sums count other tokens"
        self._refuse(wrong, one, many, "{} ({} of {})", row[is_usable], stated_sizes, sizes)

        # The sum of one token is its log-probability.
        numbers = totals[is_usable]
        is_long = sizes > 1
        alone = located[~is_long]
        np.add.at(self._times, alone, 1)
        self.logprobs[alone] = numbers[~is_long]
        summed = question[is_long]
        repeated = np.flatnonzero(np.bincount(summed, minlength=scored.questions) > 1)
        one = "sum is given twice"
        many = "sums are given twice"
        self._refuse(scored.starts[repeated], one, many, _AT, scored.row, scored.position)
        self.totals[summed] = numbers[is_long]
        if "is_greedy" in table.column_names:
            greedy = _integers(table, "is_greedy")[is_usable]
            self.greedy[summed] = greedy[is_long]
            ranks = np.select([greedy == 1, greedy == 0], [0, NOT_FIRST], UNKNOWN)
            self.ranks[alone] = ranks[~is_long]

    def _located(self, row: Integers, position: Integers, token: Integers) -> tuple[Integers, Mask]:
        """Return the index of each answer among the scored tokens, and mark the usable answers.

        The indices are those of usable answers alone; the others are noted as problems.
        """
        is_beyond = (token < 0) | (token >= self._vocabulary)
        if is_beyond.any():
            ids = [str(token_id) for token_id in np.unique(token[is_beyond])[:_EXAMPLES]]
            beyond = f"beyond the vocabulary of {self._vocabulary:,}"
            count = int(is_beyond.sum())
            self._add_problem(count, f"token_id is {beyond}", f"token_ids are {beyond}", ids)
        is_inside = (position >= 0) & (position < self._width)
        where = row * self._width + np.where(is_inside, position, 0)
        codes = where * self._vocabulary + np.where(is_beyond, 0, token)
        nearest = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        is_usable = np.zeros(len(row), np.bool_)
        if len(self._codes):
            is_usable = (self._codes[nearest] == codes) & is_inside & ~is_beyond
        is_scored = is_inside & np.isin(where, self._places)
        strange = np.flatnonzero(~is_scored)
        one = "place is not scored"
        self._refuse(strange, one, "places are not scored", _AT, row, position)
        different = np.flatnonzero(is_scored & ~is_usable & ~is_beyond)
        one = "token_id differs from the bundle's (another tokenizer?)"
        many = "token_ids differ from the bundle's (another tokenizer?)"
        self._refuse(different, one, many, f"{_AT}: {{}}", row, position, token)
        return self._order[nearest[is_usable]], is_usable

    def _refuse_numbers(
        self, row: Integers, position: Integers, numbers: npt.NDArray[np.float64]
    ) -> None:
        faults = [
            (np.isnan(numbers), "is NaN", "are NaN"),
            (np.abs(numbers) > _STORED, "is infinite", "are infinite"),
            (numbers > ROUNDING, "is above 0", "are above 0"),
        ]
        for is_wrong, is_fault, are_fault in faults:
            one = f"log-probability {is_fault}"
            many = f"log-probabilities {are_fault}"
            wrong = np.flatnonzero(is_wrong)
            self._refuse(wrong, one, many, f"{_AT}: {{:g}}", row, position, numbers)

    def _refuse(
        self, wrong: Integers, one: str, many: str, pattern: str, rows: Integers, *columns: Any
    ) -> None:
        """Note a problem of the entries ``wrong``, if there are any.

        ``pattern`` is filled with the key of an entry's row and its value in each of ``columns``.
        """
        if not len(wrong):
            return
        examples = []
        for index in wrong[:_EXAMPLES].tolist():
            values = [column[index] for column in columns]
            examples.append(pattern.format(self._keys[int(rows[index])], *values))
        self._add_problem(len(wrong), one, many, examples)

    def _add_problem(self, count: int, one: str, many: str, examples: Sequence[str]) -> None:
        dots = ", ..." if count > _EXAMPLES else ""
        self.problems.append(f"{counted(count, one, many)}: {', '.join(examples)}{dots}")


def _integers(table: pa.Table, name: str) -> Integers:
    """Return an optional column, -1 for empty cells and for a column that is not there."""
    if name not in table.column_names:
        return np.full(len(table), -1)
    return pc.fill_null(table[name].combine_chunks().cast(pa.int64()), -1).to_numpy()
