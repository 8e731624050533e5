"""The board as a value: models × columns, a number or a word in each cell, and the ranks."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from choicewise.protocols.family import family
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.signature import parse_signature, short_signature
from choicewise.results.row import Row, chosen_part
from choicewise.scoring.statistics.rank_interval import ranks
from choicewise.web.board.column import Column, Key, Part
from choicewise.web.board.line import Cell, Line, Spread
from choicewise.web.board.listed_run import ListedRun, State
from choicewise.web.board.slug import slug


@dataclass(frozen=True, eq=False)
class Board:
    """Every column and line of some runs; what is shown of them is chosen later (:mod:`choicewise.web.board.view`).

    ``panels``: the ids of the columns whose median a line has, by the id of the part of the data.
    """

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    panels: Mapping[str, frozenset[str]]
    runs: tuple[ListedRun, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models, each once."""
        return tuple(dict.fromkeys(line.model for line in self.lines))


def board(runs: Sequence[ListedRun]) -> Board:
    """The board of ``runs``.  Runs that could not be read have no cells; their reasons stand in ``runs``."""
    numbers: dict[Key, list[tuple[ListedRun, Row]]] = {}
    wordy: list[tuple[ListedRun, Key, str]] = []
    facts: dict[Key, tuple[ListedRun, str]] = {}
    for run in runs:
        for key, name, row in _keys(run):
            facts.setdefault(key, (run, name))
            if row is None:
                wordy.append((run, key, _words(run)))
            else:
                numbers.setdefault(key, []).append((run, row))
    alike: dict[Key, list[Key]] = {}
    for key in numbers:
        alike.setdefault(_without_texts(key), []).append(key)
    cells: dict[Key, dict[str, Cell]] = {key: _ranked(members) for key, members in numbers.items()}
    for run, key, words in wordy:
        for each in alike.get(key, [key]):
            cells.setdefault(each, {}).setdefault(run.id, Cell(run, None, words))
    columns = _ordered(_column(key, *facts[key], numbers.get(key, [])) for key in cells)
    own: dict[str, dict[str, Cell]] = {run.id: {} for run in runs}
    for column in columns:
        for run_id, cell in cells[column.key].items():
            own[run_id][column.id] = cell
    parts = {column.id: column.key.part.id for column in columns}
    bare = list(_lines(runs, own))
    panels = _panels(bare, parts)
    lines = tuple(replace(line, spreads=_spreads(line, panels, parts)) for line in bare)
    return Board(columns, lines, panels, tuple(runs))


def _keys(run: ListedRun) -> Iterator[tuple[Key, str, Row | None]]:
    """What a run has a cell for: the key of the column, the name of the protocol, and the number if there is one."""
    if run.manifest is None:
        return
    part = Part(run.manifest.dataset.digest, chosen_part(run.manifest.selection))
    if run.state is State.READ:
        for row in run.rows:
            if not row.share:
                continue
            key = Key(part, row.signature, row.i, row.metric, row.subject)
            yield (
                (key, row.protocol, row)
                if row.selection == part.selection
                else (_without_texts(key), row.protocol, None)
            )
    else:
        for name, text in run.manifest.protocols.items():
            if METRICS[metric := parse_signature(text).metric].share:
                yield Key(part, text, "", metric, ""), name, None


def _without_texts(key: Key) -> Key:
    return replace(key, texts="", subject="")


def _words(run: ListedRun) -> str:
    return str(State.INCOMPLETE if run.state is State.READ else run.state)


def _ranked(members: Sequence[tuple[ListedRun, Row]]) -> dict[str, Cell]:
    placed = ranks([row.value for _, row in members]).tolist()
    return {
        run.id: Cell(run, row, rank=rank) if rank else Cell(run, row, "nothing scored")
        for (run, row), rank in zip(members, placed, strict=True)
    }


def _column(key: Key, run: ListedRun, name: str, members: Sequence[tuple[ListedRun, Row]]) -> Column:
    assert run.manifest is not None
    protocol = parse_signature(key.signature)
    row = members[0][1] if members else None
    return Column(
        key=key,
        dataset=run.manifest.dataset.name,
        protocol=name,
        p=short_signature(protocol),
        family=family(protocol) if row is None else row.family,
        n=0 if row is None else row.n + row.missing,
        chance=math.nan if row is None else row.chance,
        measured=len(members),
    )


def _ordered(columns: Iterable[Column]) -> tuple[Column, ...]:
    """By part of the data, that of the most numbers first, then by family, that with the most headlines first."""
    listed = list(columns)
    datasets, most = dict[Part, str](), Counter[Part]()
    for column in listed:
        datasets.setdefault(column.key.part, column.dataset)
        most[column.key.part] = max(most[column.key.part], column.measured)
    parts = sorted(datasets, key=lambda part: (-most[part], datasets[part], part.selection, part.data))
    places = {part: place for place, part in enumerate(parts)}
    headlines = Counter(column.family for column in listed if column.headline)
    names = sorted(dict.fromkeys(column.family for column in listed), key=lambda name: -headlines[name])
    families = {name: place for place, name in enumerate(names)}
    return tuple(sorted(listed, key=lambda column: (places[column.key.part], families[column.family])))


def _lines(runs: Sequence[ListedRun], own: Mapping[str, Mapping[str, Cell]]) -> Iterator[Line]:
    """Runs of one model as it was computed share a line, unless they have cells in the same column."""
    computed: dict[tuple[str, str], list[ListedRun]] = {}
    for run in runs:
        if own[run.id]:
            computed.setdefault((run.model, run.computed), []).append(run)
    models = Counter(model for model, _ in computed)
    for (model, how), members in computed.items():
        taken = Counter(column for run in members for column in own[run.id])
        several = max(taken.values()) > 1
        for group in [[run] for run in members] if several else [members]:
            words = [how] * (models[model] > 1) + [run.label for run in group] * several
            cells = {column: cell for run in group for column, cell in own[run.id].items()}
            name = slug(" ".join([model, how, *([group[0].label] if several else [])]))
            yield Line(name, model, " ".join(words), tuple(group), cells, {})


def _panels(lines: Sequence[Line], parts: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """For each part of the data the columns that most lines have together; of two sets as common, the larger one."""
    sets: dict[str, Counter[frozenset[str]]] = {}
    for line in lines:
        own: dict[str, set[str]] = {}
        for column, cell in line.cells.items():
            if not math.isnan(cell.value):
                own.setdefault(parts[column], set()).add(column)
        for part, columns in own.items():
            sets.setdefault(part, Counter())[frozenset(columns)] += 1
    return {
        part: max(counts, key=lambda each: (counts[each], len(each), sorted(each))) for part, counts in sets.items()
    }


def _spreads(line: Line, panels: Mapping[str, frozenset[str]], parts: Mapping[str, str]) -> dict[str, Spread]:
    spreads = {}
    for part in dict.fromkeys(parts[column] for column in line.cells):
        panel = panels.get(part, frozenset())
        values = [line.cells[column].value for column in panel if column in line.cells]
        values = [value for value in values if not math.isnan(value)]
        whole = bool(values) and len(values) == len(panel)
        three = (median(values), min(values), max(values)) if whole else (math.nan,) * 3
        spreads[part] = Spread(*three, len(values), len(panel))
    return spreads
