"""What `data` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from rich.console import Group
from rich.table import Table
from rich.text import Text

from choicewise.data.benchmarks import ANY
from choicewise.data.decisions import KIND
from choicewise.data.items import BLANK, Item
from choicewise.data.patterns import AnswerPattern, Guess
from choicewise.data.rows import LETTERS
from choicewise.data.survey import FAULTS, SplitSurvey, Survey
from choicewise.protocols.catalogue import entries
from choicewise.report.findings import reversal_sentence, turn_text
from choicewise.report.tables import table, titled
from choicewise.results.compare import StrikingPair
from choicewise.results.finding import Finding, Reversal
from choicewise.scoring.significance import FEWEST
from choicewise.util.text import NAME, are, counted, percent, protocols, safe, short, visible_line


def recognised(survey: Survey) -> Iterator[str]:
    """The dataset's name and digest, its shape, and what each column was read as."""
    yield f"{safe(survey.name)}, data {survey.digest[:12]}"
    columns = survey.columns
    if columns is None:
        layout = "files of the MMLU layout: question, choices, letter, without names"
        yield f"shape     {'typed questions about states (decisions)' if KIND in survey.fields else layout}"
        return
    yield f"shape     {survey.shape or 'declared'}"
    for spec in fields(columns):
        role, declared = spec.name, getattr(columns, spec.name)
        if not spec.init or role in _ABOUT or (declared == spec.default and role != "question"):
            continue
        if value := _value(declared):
            labels = f", labels {', '.join(columns.labels)}" if columns.labels else ""
            kind = (
                f" (read as {_READ.get(columns.answer_is, columns.answer_is)}{labels})"
                if role == "answer"
                else ""
            )
            yield safe(f"{role:<9} {value}{kind}")
    if survey.fields:
        marked = (f"{name} (content)" if name in survey.content else name for name in survey.fields)
        yield safe(f"{'fields':<9} {', '.join(marked)}")
    if BLANK in survey.content:
        yield f"{'blank':<9} {BLANK} in the question, which the choices fill"


def data_warnings(survey: Survey) -> list[str]:
    """What to look at, a line each; empty where there is nothing."""
    return [*_skipped(survey), *_answer_text(survey), *_doubles(survey), *_faults(survey)]


def fits(survey: Survey, refusals: Mapping[str, str]) -> list[str]:
    """Which families of protocols can ask the items, by how many of each can, and why others of its own can't.

    ``refusals``: protocol of the catalogue → why it can't ask them, nothing where it can.
    """
    general = {
        each.name for each in entries() if next(iter(each.protocols.values())).benchmark == ANY
    }
    able = [name for name, why in refusals.items() if not why]
    lines = [
        f"{title}: {', '.join(f'{family} ({number})' for family, number in families.items())}"
        for title, names in (
            (
                "protocols for any dataset that can ask these items",
                [name for name in able if name in general],
            ),
            (
                "protocols of benchmarks whose items have this form",
                [name for name in able if name not in general],
            ),
        )
        if (families := Counter(name.split("/")[0] for name in names))
    ]
    own: dict[str, list[str]] = {}
    for name, why in refusals.items():
        if why and _letters(name.split("/")[0]) in _letters(survey.name):
            own.setdefault(why, []).append(name)
    return [
        *(lines or ["no published protocol can ask these items as they are"]),
        *(
            safe(
                f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''} can't: {short(why, _REASON)}"
            )
            for why, names in own.items()
        ),
    ]


def data_tables(survey: Survey) -> Iterator[Group]:
    """The tables, in the order in which they are read."""
    yield titled("splits", _splits(survey.splits))
    chosen = {name: split for name, split in survey.splits.items() if max(split.answers.counts) > 1}
    if chosen:
        yield titled(
            "where the right answers stand, and what a guess by rule would score, in %",
            _answer_cells(chosen),
            f"!: a pattern with a probability below {_UNLIKELY} where right answers are placed by chance",
        )
    title = Text(
        f"{len(survey.rows)} of the items of {safe(survey.evaluated)}; [ ]: right", style="italic"
    )
    yield Group(title, *(Text(_item(item, survey.content)) for item in survey.rows))


def positions(pattern: AnswerPattern) -> str:
    """Letter and share in % of every position, for the number of choices that most items have."""
    if not pattern.positions:
        return ""
    count = max(pattern.positions, key=lambda count: sum(pattern.positions[count]))
    places = pattern.positions[count]
    shares = ", ".join(
        f"{LETTERS[place % 26]} {percent(right / sum(places))}"
        for place, right in enumerate(places)
    )
    of = "" if len(pattern.counts) == 1 else f" (of {count})"
    return f"{shares}{of}{' !' if pattern.p_positions < _UNLIKELY else ''}"


def discovery_lines(
    finding: Finding, turned: Reversal | None, pair: StrikingPair | None
) -> Iterator[str]:
    """Say in five lines what was found on one dataset; in fewer if there is nothing to say or few questions say it.

    ``pair``: of the model that leads.
    """
    large = [lead for lead in finding.leads if lead.items >= FEWEST]
    for lead in large[:1]:
        best = short(lead.models[0], NAME)
        every = protocols(lead.contests, lead.grouped)
        yield f"{best} is the first of {len(lead.models)} models under {lead.first} of {every}."
        own = next(each for each in finding.numbers if each.model == lead.models[0])
        if own.lowest is not None and own.highest is not None:
            low, high, questions = (
                own.lowest.value,
                own.highest.value,
                counted(own.items[1], "question"),
            )
            yield (
                f"It scores between {percent(low)} % and {percent(high)} % on the same {questions}: "
                f"{percent(high - low)} points lie in how it is asked."
            )
        if lead.turn is not None:
            yield f"The order of the models changes: it leads under {turn_text(lead.turn)}."
    if turned is not None:
        yield reversal_sentence(turned)
    if pair is not None:
        yield (
            f"One change, axis {pair.axis.axis} from {_quoted(pair.axis.left)} to {_quoted(pair.axis.right)}, takes "
            f"{percent(pair.start_value - pair.end_value)} points: {pair.lost} of {counted(pair.n, 'answer')} go wrong "
            f"and {pair.gained} right from {short(pair.start, NAME)} to {short(pair.end, NAME)}."
        )


_ABOUT = ("answer_is", "labels", "rename", "drop_empty", "choices_split")
"""Keys of a mapping that say how a column is read, and name none."""

_REASON = 150  # characters of a reason that are shown

_READ = {
    "any": "label, index or text, whichever fits every row",
    "flags": "a 1 or 0 for each choice",
    "number": "number from 1",
}


def _value(declared: object) -> str:
    """What a key of a mapping declares; empty where it declares nothing."""
    if isinstance(declared, str):
        return declared
    if isinstance(declared, tuple | Mapping):
        return ", ".join(declared)
    if isinstance(declared, bool):
        return "yes" if declared else "no"
    return "" if declared is None else str(declared)


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _skipped(survey: Survey) -> Iterator[str]:
    for reason, number in survey.skipped.items():
        yield safe(
            f"{counted(number, 'row')} can't be used, and a run stops there unless it skips bad items: {reason}"
        )


def _answer_text(survey: Survey) -> Iterator[str]:
    columns = survey.columns
    placed = columns is not None and columns.right is not None
    fixed = columns is not None and bool(columns.fixed or columns.fixed_of)
    for name, split in survey.splits.items():
        pattern = split.answers
        if placed:
            yield f"{name}: the right choices come first, as their columns say; shuffle choices that are shown together"
        elif pattern.constant:
            yield f"{name}: the same position is right in every item; check the answers, or shuffle the choices"
        for rule, guess in pattern.guesses.items():
            by_place = rule in ("first", "last")
            known = placed or pattern.constant if by_place else fixed
            if guess.p < _UNLIKELY and guess.score > guess.chance and not known:
                score, chance = percent(guess.score), percent(guess.chance)
                yield f"{name}: choosing the {rule} choice scores {score} % where chance is {chance} %"


def _doubles(survey: Survey) -> Iterator[str]:
    doubles = survey.doubles
    for split, number in doubles.within.items():
        pair = next(each for each in doubles.examples if each.split == each.other_split == split)
        same = f"{number:,} {are(number)} the same question as one before, with the same choices"
        yield safe(f"{split}: {same}, such as {pair.other} and {pair.item}")
    for (split, other), number in doubles.across.items():
        pair = next(
            each for each in doubles.examples if (each.split, each.other_split) == (split, other)
        )
        yield safe(
            f"{split}: {counted(number, 'item')} {are(number)} in {other} as well, such as {pair.item}: {pair.other}"
        )
    if doubles.disagreeing:
        yield f"{counted(doubles.disagreeing, 'pair')} of these have other right answers"


def _faults(survey: Survey) -> Iterator[str]:
    for fault, meaning in FAULTS.items():
        seen = {
            name: split.faults[fault]
            for name, split in survey.splits.items()
            if fault in split.faults
        }
        if seen:
            items = ", ".join(f"{name} {each.count:,}" for name, each in seen.items())
            yield safe(f"{meaning}: {items} (such as {next(iter(seen.values())).example})")


_UNLIKELY = 0.001  # below this probability a pattern of the right answers is marked
_QUESTION, _CHOICE = 150, 60  # characters of a question and of a choice that are shown


def _splits(splits: Mapping[str, SplitSurvey]) -> Table:
    named = any(subject for split in splits.values() for subject in split.subjects)
    shown = table(
        "split", "items", *(["subjects", "largest subject", "smallest"] if named else []), "choices"
    )
    for name, split in splits.items():
        sizes = sorted(split.subjects.items(), key=lambda size: (-size[1], size[0]))
        ends = (f"{short(subject, 40)} ({count:,})" for subject, count in (sizes[0], sizes[-1]))
        counts = split.answers.counts
        choices = ", ".join(
            f"{count} ({items:,})" if len(counts) > 1 else str(count)
            for count, items in counts.items()
        )
        subjects = (f"{len(sizes):,}", *ends) if named else ()
        shown.add_row(safe(name), f"{split.items:,}", *subjects, short(choices, 60))
    return shown


def _answer_cells(splits: Mapping[str, SplitSurvey]) -> Table:
    rules = list(dict.fromkeys(rule for split in splits.values() for rule in split.answers.guesses))
    several = any(split.answers.several for split in splits.values())
    shown = table(
        "split", "right position", *rules, "chance", *(["several right"] if several else [])
    )
    for name, split in splits.items():
        pattern = split.answers
        guesses = [_guess(pattern.guesses[rule]) for rule in rules]
        chance = percent(next(iter(pattern.guesses.values())).chance)
        counts = [f"{pattern.several:,}"] if several else []
        shown.add_row(safe(name), short(positions(pattern), 90), *guesses, chance, *counts)
    return shown


def _guess(guess: Guess) -> str:
    return f"{percent(guess.score)}{' !' if guess.p < _UNLIKELY else ''}"


def _item(item: Item, content: Sequence[str]) -> str:
    head = f"{short(item.id, 40)}  {short(item.question, _QUESTION)}"
    fields = (
        f"{name}: {short(item.fields[name], _QUESTION)}" for name in content if name in item.fields
    )
    choices = (
        f"[{LETTERS[place % 26]}] {text}"
        if place in item.gold
        else f" {LETTERS[place % 26]}  {text}"
        for place, text in enumerate(short(choice, _CHOICE) for choice in item.choices)
    )
    return "\n".join((head, *(f"   {line}" for line in (*fields, *choices))))


def _quoted(value: str) -> str:
    return f'"{short(visible_line(value), NAME)}"'
