"""What columns may mean: guesses and proposals for an unknown shape.

A guess is read by where it alone fits every row; else it only becomes the text of a mapping that a person checks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from choicewise.data.dataset import RESERVED, Columns, Items, mapping_table
from choicewise.data.files import ROW_READERS, RowPlace, list_in, text
from choicewise.data.rows import DOUBTFUL, LETTERS, Answer, CountingOpen, RowDraft, draft, shape_of_columns
from choicewise.errors import DataError, NoAnswer, UnusableRow
from choicewise.util.jsonio import exact_json

_COPY = "declare a mapping, such as this one in a file of its own:"
_TRIED: Final = 200  # combinations of columns that are tried
_Ints = npt.NDArray[np.int64]
_MOST: Final = 10  # choices for which labels are guessed
_LOWER, _ENCLOSED = tuple(LETTERS[:_MOST].lower()), tuple(f"({letter})" for letter in LETTERS[:_MOST])
Source = str | tuple[str, ...]  # a column that holds a list, or columns with one text each
_CHOICES: Final = ("choices", "options", "endings", "answers", "candidates", "alternatives", "targets")
_RIGHT: Final = ("correct", "right", "good", "true", "gold")
_WRONG: Final = ("incorrect", "wrong", "bad", "false", "distractor", "distractors")
ID: Final = ("id", "uid", "qid", "guid", "uuid", "number")
_MEMBER = re.compile(r"(?P<stem>.*?)[ _.-]?(?P<label>[A-Ja-j]|[0-9])")
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
Floats = npt.NDArray[np.float64]
SAMPLE: Final = 200  # rows that a proposal is tried on


class UnknownShape(DataError):
    """Columns that are of no known shape; its ``problems`` are the lines of a mapping in TOML that may fit them."""


def unknown_shape(file: Path, rows: Sequence[Mapping[str, Any]]) -> UnknownShape:
    """The error about a file whose columns are of no known shape; ``rows``: its first ones."""
    why = f"{file} has the columns {', '.join(rows[0])}, which are no known shape"
    return UnknownShape(f"{why}; {_COPY}", proposal(rows, file=file))


def open_counting(file: Path, rows: Sequence[Mapping[str, Any]], error: CountingOpen) -> UnknownShape:
    """The error about answers of a known shape that may count from 0 or from 1."""
    return UnknownShape(f"{file}: {error.message}, such as this one in a file of its own:", proposal(rows, doubtful=1))


def misread_shape(
    file: Path, rows: Sequence[Mapping[str, Any]], columns: Columns, error: DataError
) -> UnknownShape | None:
    """The error about a file of a known shape none of whose ``rows`` fit, where another mapping does fit them."""
    drafts, unanswered = _read(rows, columns)
    if drafts or unanswered or not (lines := proposal(rows))[0].startswith("# fits"):
        return None
    why = f"{file} has the columns of {shape_of_columns(columns)}, and no row can be read so: {error.parts[0]}"
    return UnknownShape(f"{why}; {_COPY}", lines)


def proposal(rows: Sequence[Mapping[str, Any]], doubtful: int = DOUBTFUL, file: Path | None = None) -> list[str]:
    """The lines of a mapping in TOML that fits nine of ten ``rows``, or of one with gaps where none does.

    ``rows``: the first ones of a file, at least one; where the ``file`` is given, a row that does not fit is named.
    The lines begin with what is to be checked, as comments.  From ``doubtful`` digits up of which none is 0, the
    mapping leaves open whether they count from 0 or from 1.
    """
    cells = _Cells(rows)
    for columns in islice(_candidates(cells), _TRIED):
        drafts, unanswered = _read(rows, columns)
        if len(drafts) + unanswered >= 0.9 * len(rows) and drafts:
            fits = f"# fits {len(drafts) + unanswered} of the first {len(rows)} rows; check it before you use it"
            answers = [each.answer for each in drafts if isinstance(each.answer, Answer)]
            no_zero = columns.answer_is == "index" and not any("0" in map(str, each.cells) for each in answers)
            counting_open = no_zero and len(answers) >= doubtful
            lines = [fits, *([f"# {unanswered} of them have no answer"] if unanswered else [])]
            if file is not None and (misfit := _first_misfit(file, rows, columns)):
                lines.append(f"# it does not fit {misfit}")
            if counting_open:
                lines.append('# no answer is 0: put "number" in place of ... if they count from 1, "index" if from 0')
            elif no_zero:
                lines.append('# no answer is 0: if they count from 1, answer_is = "number"')
            if columns.labels in _TRUTHS and not columns.fixed:
                lines.append(f"# check that {columns.labels[0]} means the first choice")
            if columns.answer_is == "number" and len({str(each.cell) for each in answers}) == 1:
                lines.append("# all answers are the same: check that they count from 1")
            return [*lines, *mapping_lines(columns, counting_open)]
    return [
        "# no columns fit by their names and values: put theirs in place of ...",
        f"# the columns are {', '.join(map(_toml, cells.columns))}",
        f"question = {_toml(next(iter(cells.questions()), '...'))}",
        'choices = ["...", "..."]',
        'answer = "..."',
    ]


def guessed_columns(files: Sequence[Path]) -> Columns | None:
    """What the columns of ``files`` mean where all guesses that fit every row agree, and there is one; else None.

    Guesses differ where a row has other choices or another answer by one than by the other, as digits have that may
    count from 0 or from 1.
    """
    rows = chain.from_iterable(ROW_READERS[file.suffix](file) for file in files)
    sample = [row for row in islice(rows, SAMPLE) if isinstance(row, dict)]
    cells = _Cells(sample)
    left = {number: each for number, each in enumerate(islice(_candidates(cells), _TRIED)) if cells.alone(each)}
    if any(not each.fixed for each in left.values()):
        left = {number: each for number, each in left.items() if not each.fixed or each.choices}
    read = dict.fromkeys(left, 0)
    golds: dict[int, set[tuple[int, ...]]] = {number: set() for number in left}
    ids, repeats = set[int](), False
    for row in chain.from_iterable(ROW_READERS[file.suffix](file) for file in files):
        if not isinstance(row, dict):
            return None
        for number, columns in [*left.items()]:
            try:
                id, choices, gold = _meant(row, columns)
            except UnusableRow:
                del left[number]
                continue
            read[number] = hash((read[number], choices, gold))
            golds[number] |= {gold} if len(golds[number]) < 2 else set()
            if number == min(left) and id:
                repeats |= hash(id) in ids
                ids.add(hash(id))
        if not left:
            return None
    best = left[min(left)]
    if len({read[number] for number in left}) > 1 or (best.answer_is == "number" and len(golds[min(left)]) == 1):
        return None
    labels = best.labels[: len(best.choices)] if isinstance(best.choices, tuple) else best.labels
    return replace(best, labels=labels, id=None if repeats else best.id)


def reading_line(file: Path, columns: Columns) -> str:
    """What the columns of ``file`` were guessed to mean, on a line."""
    kinds = {"index": "index from 0", "number": "number from 1"}
    parts = [f"{name} = {_named(value)}" for name, value in _sources(columns).items() if value and name != "answer"]
    answer = [f"answer = {columns.answer} ({kinds.get(columns.answer_is, columns.answer_is)})"] * bool(columns.answer)
    after = [f"{name} = {value}" for name, value in {"subject": columns.subject, "id": columns.id}.items() if value]
    return f"{file.name}: {', '.join([*parts, *answer, *after])}"


def _named(source: Source) -> str:
    """The columns of a source; of those that are named alike the first, and the label of the last."""
    if isinstance(source, str):
        return source
    members = [_MEMBER.fullmatch(name) for name in source]
    stems = {member["stem"] if member else name for member, name in zip(members, source, strict=True)}
    last = members[-1]
    return f"{source[0]}..{last['label']}" if len(stems) == 1 and last and len(source) > 2 else ", ".join(source)


def _first_misfit(file: Path, rows: Sequence[Mapping[str, Any]], columns: Columns) -> str:
    """The place of the first of the ``rows`` that the mapping does not fit, and why; empty where it fits all."""
    for row in rows:
        try:
            _meant(row, columns)
        except UnusableRow as reason:
            numbers = (number for number, each in enumerate(ROW_READERS[file.suffix](file)) if each == row)
            return f"{RowPlace(file, next(numbers))}: {reason}"
    return ""


def _meant(row: Mapping[str, Any], columns: Columns) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
    """Id, choices and right ones of a row; UnusableRow where it can't be asked as ``columns`` say."""
    drafted = draft(row, columns)
    gold = drafted.answer.gold(columns.answer_is) if isinstance(drafted.answer, Answer) else drafted.answer
    if len(drafted.choices) < 2 or not all(map(str.strip, drafted.choices)):
        raise UnusableRow(f"it has not two choices or more, all with a text: {', '.join(map(repr, drafted.choices))}")
    return drafted.id, drafted.choices, gold


@dataclass(frozen=True)
class Guess:
    """What choosing by a simple rule would score, among items that chance would score ``chance`` on.

    ``score`` and ``chance`` are shares of 1; several choices that the rule names share the guess.  ``p``: how probable
    a score at least as far from chance is where the rule says nothing about the answer (normal approximation, two
    sides).
    """

    score: float
    chance: float
    p: float


@dataclass(frozen=True)
class AnswerPattern:
    """The right answers of one split.

    ``counts``: number of choices → items; ``positions``: number of choices → how often each position, from 0, is the
    right one, for items with one right choice; ``several``: items with several right choices.  ``p_positions``: how
    probable positions at least as uneven are where all are equally likely (chi-squared over all numbers of choices),
    NaN where there are too few items.  ``constant``: whether the same positions are right in every item, where an item
    has several choices.
    ``guesses``: rule → what it scores.
    """

    counts: Mapping[int, int]
    positions: Mapping[int, tuple[int, ...]]
    several: int
    p_positions: float
    constant: bool
    guesses: Mapping[str, Guess]


def answer_pattern(items: Items) -> AnswerPattern:
    """The pattern of ``items``, each with a right choice; computed column by column."""
    sums = {rule: np.zeros(3) for rule in ("first", "last", "longest", "shortest")}
    counts: dict[int, int] = {}
    positions: dict[int, _Ints] = {}
    several, golds = 0, set[tuple[int, ...]]()
    for choices, gold in _ragged(items):
        right, number = choices.flags(gold), choices.number
        for rule, mask in choices.rules().items():
            sums[rule] += _scored(choices, mask, right)
        single = gold.number == 1
        several += int((~single).sum())
        first = gold.values[gold.starts]
        for count, items_with in zip(*map(np.ndarray.tolist, np.unique(number, return_counts=True)), strict=True):
            counts[count] = counts.get(count, 0) + items_with
            places = np.bincount(first[single & (number == count)], minlength=count)
            positions[count] = positions.get(count, np.zeros(count, np.int64)) + places
        if len(golds) < 2:  # the item with the fewest right choices and the one with the most say whether all are alike
            golds |= {gold.row(0), *(gold.row(int(row)) for row in np.flatnonzero(gold.differs())[:1])}
    total = sum(counts.values())
    return AnswerPattern(
        dict(sorted(counts.items())),
        {count: tuple(places.tolist()) for count, places in sorted(positions.items()) if places.any()},
        several,
        _even(positions.values()),
        len(golds) == 1 and total > 1 and max(counts) > 1,
        {rule: _guess(values, total) for rule, values in sums.items()} if total else {},
    )


_TRUTHS: Final = (("false", "true"), ("no", "yes"))
"""Answers of two kinds, in the order in which an index of 0 or 1 would count them."""


def _candidates(cells: _Cells) -> Iterator[Columns]:
    id, subject = cells.id(), cells.subject()
    questions: list[str | None] = [*cells.questions()]
    for right, wrong in cells.pairs():
        for question in (*(name for name in questions if name not in (right, *right, wrong, *wrong)), None):
            yield _renamed(cells, question=question, right=right, wrong=wrong, id=id, subject=subject)
            break
    for choices in cells.choices():
        parts = {choices} if isinstance(choices, str) else {*choices}
        for answer, question in product(cells.answers(), questions):
            if len({question, answer} | parts) != len(parts) + 2:
                continue
            common = {"question": question, "choices": choices, "answer": answer, "id": id, "subject": subject}
            used = {question, answer, *parts}
            common |= {name: None for name in ("id", "subject") if common[name] in used}
            names = choices if isinstance(choices, tuple) else ()
            spelled = [("label", ()), ("text", ()), ("label", _LOWER), ("label", _ENCLOSED), ("label", names)]
            spelled += [("index", ()), ("flags", ()), ("number", ()), *(("label", truth) for truth in _TRUTHS)]
            for kind, labels in spelled:
                yield _renamed(cells, **common, answer_is=kind, labels=labels)
    for answer, question in product(cells.answers(), questions):
        for no, yes in _TRUTHS if answer != question else ():
            common = {"question": question, "fixed": ("yes", "no"), "answer": answer, "id": id, "subject": subject}
            yield _renamed(cells, **common, answer_is="label", labels=(yes, no))


def _renamed(cells: _Cells, **named: Any) -> Columns:
    columns = Columns(**named)
    tops = {path.split(".")[0] for path in columns.used}
    return Columns(
        **named, rename={name: f"{name}_" for name in RESERVED if name in cells.columns and name not in tops}
    )


def _read(rows: Sequence[Mapping[str, Any]], columns: Columns) -> tuple[list[RowDraft], int]:
    """The drafts of the rows that the mapping fits, and how many more it would fit if they had answers."""
    drafts, unanswered = [], 0
    for row in rows:
        try:
            drafted = draft(row, columns)
            if isinstance(drafted.answer, Answer) and columns.answer_is != "any":
                drafted.answer.gold(columns.answer_is)
            elif isinstance(drafted.answer, Answer) and not drafted.answer.readings():
                drafted.answer.gold("label")
                continue
            if len(drafted.choices) > 1:
                drafts.append(drafted)
        except NoAnswer:
            unanswered += 1
        except UnusableRow:
            continue
    return drafts, unanswered


def mapping_lines(columns: Columns, counting_open: bool = False) -> Iterator[str]:
    """The lines of the mapping ``columns`` in TOML; ``counting_open`` leaves open whether answers count from 0 or 1."""
    values = mapping_table(columns)
    if columns.answer is not None:
        values = {**values, "answer_is": "..." if counting_open else columns.answer_is}
    if isinstance(columns.choices, tuple) and columns.labels:
        values["labels"] = columns.labels[: len(columns.choices)]
    rename = values.pop("rename", {})
    yield from (f"{name} = {_toml(value)}" for name, value in values.items())
    if rename:
        yield from chain([""], ["[rename]"], (f"{old} = {_toml(new)}" for old, new in rename.items()))


def _sources(columns: Columns) -> dict[str, Source | None]:
    return {name: getattr(columns, name) for name in ("question", "choices", "fixed", "right", "wrong", "answer")}


def _toml(value: object) -> str:
    """Texts and lists of them as TOML spells them: as JSON does, but no character as two halves, and none deleted."""
    return exact_json(value).replace("\x7f", "\\u007f")


_QUESTION: Final = (
    *("question", "query", "problem", "stem", "ask", "prompt", "goal", "sentence", "premise", "instruction"),
    *("input", "ctx", "text", "context", "q"),
)


_ANSWER: Final = (
    *("answer", "label", "gold", "correct", "target", "key", "solution", "right", "cop", "idx", "index"),
    *("choice", "option", "truth", "true"),
)


SUBJECT: Final = ("subject", "category", "topic", "area", "domain", "task", "subset")
"""Words of columns' names, those that say most first."""


class _Cells:
    """The cells of sample rows by column; parts of nested columns under their paths."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        paths = dict.fromkeys(_paths(rows[0]))
        self.columns: dict[str, list[object]] = {path: [_at(row, path) for row in rows] for path in paths}

    def questions(self) -> list[str]:
        """Columns of texts whose names could be a question's, the likeliest first; those last that are all the same."""
        names = self._ranked(_QUESTION, [name for name in self.columns if self._all(name, _is_text)])
        return sorted(names, key=lambda name: len({*self.columns[name]}) == 1)

    def choices(self) -> Iterator[Source]:
        """Columns that hold lists, and groups of columns named alike, the likeliest first."""
        lists = [name for name in self.columns if self._all(name, _is_list)]
        yield from self._ranked(_CHOICES, lists)
        groups: dict[str, dict[str, str]] = {}
        for name in self.columns:
            if (member := _MEMBER.fullmatch(name)) and self._mostly_filled(name):
                groups.setdefault(member["stem"], {})[member["label"]] = name
        for members in sorted(groups.values(), key=len, reverse=True):
            labels = sorted(members)
            start = labels[0]
            if len(labels) > 1 and start in "Aa01" and labels == [chr(ord(start) + n) for n in range(len(labels))]:
                yield tuple(members[label] for label in labels)
        yield from (name for name in lists if not _rank(name, _CHOICES))

    def alone(self, columns: Columns) -> bool:
        """Whether no other column could as well be the question, or be one more choice, and labels say their order."""
        used = columns.used - {columns.id, columns.subject, ""}
        free = [name for name in self.questions() if name == columns.question or name not in used]
        ranks = [_rank(name, _QUESTION) for name in free]
        if columns.question is not None and (free[0] != columns.question or ranks.count(ranks[0]) > 1):
            return False
        names = columns.choices if isinstance(columns.choices, tuple) else ()
        stems = {member["stem"] for name in names if (member := _MEMBER.fullmatch(name))}
        others = (member for name in self.columns if name not in used and (member := _MEMBER.fullmatch(name)))
        ordered = bool(columns.fixed) or columns.labels not in _TRUTHS
        return ordered and not any(member["stem"] in stems for member in others)

    def pairs(self) -> Iterator[tuple[Source, Source]]:
        """A source of the right choices and one of the wrong, where names say which is which."""
        filled = [name for name in self.columns if self._all(name, lambda cell: _is_filled(cell) or _is_list(cell))]
        wrong = [name for name in filled if {*_words(name)} & {*_WRONG}]
        right = [name for name in filled if {*_words(name)} & {*_RIGHT} and name not in wrong]
        if right and wrong:
            yield self._source(right[:1]), self._source(wrong)

    def answers(self) -> list[str]:
        return self._ranked(_ANSWER, [*self.columns])

    def id(self) -> str | None:
        names = self._ranked(ID, [name for name in self.columns if self._all(name, _is_filled)])
        return next((name for name in names if len({*map(str, self.columns[name])}) == len(self.columns[name])), None)

    def subject(self) -> str | None:
        names = self._ranked(SUBJECT, [name for name in self.columns if self._all(name, _is_text)])
        return next((name for name in names if 2 * len({*self.columns[name]}) < len(self.columns[name])), None)

    def _source(self, names: Sequence[str]) -> Source:
        return names[0] if len(names) == 1 and self._all(names[0], _is_list) else tuple(names)

    def _all(self, name: str, holds: Any) -> bool:
        cells = [cell for cell in self.columns[name] if cell is not None]
        return bool(cells) and all(map(holds, cells))

    def _mostly_filled(self, name: str) -> bool:
        cells = self.columns[name]
        return sum(map(_is_filled, cells)) >= 0.9 * len(cells)

    @staticmethod
    def _ranked(words: Sequence[str], names: Sequence[str]) -> list[str]:
        ranks = {name: rank for name in names if (rank := _rank(name, words))}
        return sorted(ranks, key=lambda name: ranks[name])


def _rank(name: str, words: Sequence[str]) -> tuple[int, int] | None:
    """How near a name is to the ``words``: its best word, then how many others it has."""
    own = _words(name)
    places = [words.index(word) for word in own if word in words]
    return (min(places), len(own)) if places else None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _paths(row: Mapping[str, Any], start: str = "") -> Iterator[str]:
    for name, cell in row.items():
        if isinstance(cell, Mapping) and not isinstance(cell.get("text"), list):
            yield from _paths(cell, f"{start}{name}.")
        else:
            yield start + name


def _at(row: object, path: str) -> object:
    if isinstance(row, Mapping) and path in row:
        return row[path]
    first, _, rest = path.partition(".")
    return _at(row.get(first), rest) if rest and isinstance(row, Mapping) else None


def _is_text(cell: object) -> bool:
    return isinstance(cell, str) and not _is_list(cell)


def _is_filled(cell: object) -> bool:
    try:
        return text(cell, "").strip() != "" and not _is_list(cell)
    except UnusableRow:
        return False


def _is_list(cell: object) -> bool:
    if isinstance(cell, Mapping):
        return isinstance(cell.get("text"), list)
    if isinstance(cell, str) and cell.startswith("["):
        try:
            cell = list_in(cell, "")
        except UnusableRow:
            return False
    return isinstance(cell, list) and len(cell) > 1


@dataclass(frozen=True)
class _Ragged:
    """Values of all items in one array, with where each item's begin and how many it has."""

    values: Any
    starts: _Ints
    number: _Ints

    def flags(self, gold: _Ragged) -> npt.NDArray[np.bool_]:
        flags = np.zeros(int(self.number.sum()), bool)
        flags[np.repeat(self.starts, gold.number) + gold.values] = True
        return flags

    def rules(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Rule of guessing → the choices that it names; of texts by their lengths in characters."""
        size = len(self.values)
        first, last = np.zeros(size, bool), np.zeros(size, bool)
        first[self.starts] = last[self.starts + self.number - 1] = True
        longest, shortest = (
            self.values == np.repeat(reduce.reduceat(self.values, self.starts), self.number)
            for reduce in (np.maximum, np.minimum)
        )
        return {"first": first, "last": last, "longest": longest, "shortest": shortest}

    def row(self, number: int) -> tuple[int, ...]:
        start = self.starts[number]
        return tuple(self.values[start : start + self.number[number]].tolist())

    def differs(self) -> npt.NDArray[np.bool_]:
        first = self.values[: self.number[0]]
        same = self.number == len(first)
        for place, value in enumerate(first):
            same &= self.values[np.minimum(self.starts + place, len(self.values) - 1)] == value
        return ~same


def _ragged(items: Items) -> Iterator[tuple[_Ragged, _Ragged]]:
    for batch in items.table().to_batches():
        values = pc.utf8_length(batch["choices"].flatten()), batch["gold"].flatten()
        offsets = (batch[name].offsets.to_numpy().astype(np.int64) for name in ("choices", "gold"))
        choices, gold = (
            _Ragged(each.to_numpy().astype(np.int64), at[:-1] - at[0], np.diff(at))
            for each, at in zip(values, offsets, strict=True)
        )
        yield choices, gold


def _scored(choices: _Ragged, mask: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> Floats:
    """(score, expectation, variance) of guessing among the choices of ``mask``, summed over the items.

    Where the right choices are any of the item's, equally likely, their number among the named is hypergeometric.
    """
    named, both, all_right = (
        np.add.reduceat(part.astype(np.int64), choices.starts) for part in (mask, mask & right, right)
    )
    chance = all_right / choices.number
    variance = chance * (1 - chance) * (choices.number - named) / (named * np.maximum(choices.number - 1, 1))
    return np.array([(both / named).sum(), chance.sum(), variance.sum()])


def _guess(sums: Floats, total: int) -> Guess:
    score, expected, variance = sums.tolist()
    distance = abs(score - expected)
    p = math.erfc(distance / math.sqrt(2 * variance)) if variance > 0 else float(distance < 1e-9)
    return Guess(score / total, expected / total, p)


_LEAST_EXPECTED: Final = 5
"""Right answers that each position needs on average for the test of positions, the usual rule for chi-squared."""


def _even(positions: Iterable[_Ints]) -> float:
    from scipy.special import gammaincc

    statistic, freedom = 0.0, 0
    for counts in positions:
        expected = counts.sum() / len(counts)
        if expected >= _LEAST_EXPECTED:
            statistic += float(((counts - expected) ** 2 / expected).sum())
            freedom += len(counts) - 1
    return float(gammaincc(freedom / 2, statistic / 2)) if freedom else math.nan
