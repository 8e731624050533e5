"""A survey of a dataset in sentences: what was recognised, and what to look at before anything is run."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields

from choicewise.data.benchmark import ANY
from choicewise.data.content import BLANK
from choicewise.data.survey import Survey
from choicewise.data.text_faults import FAULTS
from choicewise.protocols.catalogue import entries
from choicewise.report.data_table import UNLIKELY
from choicewise.report.table import percent
from choicewise.report.visible_text import safe, short
from choicewise.report.words import are, count

_ABOUT = ("answer_is", "labels", "rename", "drop_empty")
"""Keys of a mapping that say how a column is read, and name none."""

_REASON = 150
"""Characters of a reason that are shown."""

_READ = {
    "any": "label, index or text, whichever fits every row",
    "flags": "a 1 or 0 for each choice",
    "number": "number from 1",
}


def recognised(survey: Survey) -> Iterator[str]:
    """The dataset's name and digest, its shape, and what each column was read as."""
    yield f"{safe(survey.name)}, data {survey.digest[:12]}"
    columns = survey.columns
    if columns is None:
        yield "shape     files of the MMLU layout: question, choices, letter, without names"
        return
    yield f"shape     {survey.shape or 'declared'}"
    for spec in fields(columns):
        role, declared = spec.name, getattr(columns, spec.name)
        if not spec.init or role in _ABOUT or (declared == spec.default and role != "question"):
            continue
        if value := _value(declared):
            labels = f", labels {', '.join(columns.labels)}" if columns.labels else ""
            kind = f" (read as {_READ.get(columns.answer_is, columns.answer_is)}{labels})" if role == "answer" else ""
            yield safe(f"{role:<9} {value}{kind}")
    if survey.fields:
        marked = (f"{name} (content)" if name in survey.content else name for name in survey.fields)
        yield safe(f"{'fields':<9} {', '.join(marked)}")
    if BLANK in survey.content:
        yield f"{'blank':<9} {BLANK} in the question, which the choices fill"


def _value(declared: object) -> str:
    """What a key of a mapping declares; empty where it declares nothing."""
    if isinstance(declared, str):
        return declared
    if isinstance(declared, tuple | Mapping):
        return ", ".join(declared)
    if isinstance(declared, bool):
        return "yes" if declared else "no"
    return "" if declared is None else str(declared)


def doubts(survey: Survey) -> list[str]:
    """What to look at, a line each; empty where there is nothing."""
    return [*_skipped(survey), *_answers(survey), *_doubles(survey), *_faults(survey)]


def fits(survey: Survey, refusals: Mapping[str, str]) -> list[str]:
    """Which families of protocols can ask the items, by how many of each can, and why others of its own can't.

    ``refusals``: protocol of the catalogue → why it can't ask them, nothing where it can.
    """
    general = {each.name for each in entries() if next(iter(each.protocols.values())).benchmark == ANY}
    able = [name for name, why in refusals.items() if not why]
    lines = [
        f"{title}: {', '.join(f'{family} ({number})' for family, number in families.items())}"
        for title, names in (
            ("protocols for any dataset that can ask these items", [name for name in able if name in general]),
            ("protocols of benchmarks whose items have this form", [name for name in able if name not in general]),
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
            safe(f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''} can't: {short(why, _REASON)}")
            for why, names in own.items()
        ),
    ]


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _skipped(survey: Survey) -> Iterator[str]:
    for reason, number in survey.skipped.items():
        yield safe(f"{count(number, 'row')} can't be used, and a run stops there unless it skips bad items: {reason}")


def _answers(survey: Survey) -> Iterator[str]:
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
            if guess.p < UNLIKELY and guess.score > guess.chance and not known:
                score, chance = percent(guess.score), percent(guess.chance)
                yield f"{name}: choosing the {rule} choice scores {score} % where chance is {chance} %"


def _doubles(survey: Survey) -> Iterator[str]:
    doubles = survey.doubles
    for split, number in doubles.within.items():
        pair = next(each for each in doubles.examples if each.split == each.other_split == split)
        same = f"{number:,} {are(number)} the same question as one before, with the same choices"
        yield safe(f"{split}: {same}, such as {pair.other} and {pair.item}")
    for (split, other), number in doubles.across.items():
        pair = next(each for each in doubles.examples if (each.split, each.other_split) == (split, other))
        yield safe(
            f"{split}: {count(number, 'item')} {are(number)} in {other} as well, such as {pair.item}: {pair.other}"
        )
    if doubles.disagreeing:
        yield f"{count(doubles.disagreeing, 'pair')} of these have other right answers"


def _faults(survey: Survey) -> Iterator[str]:
    for fault, meaning in FAULTS.items():
        seen = {name: split.faults[fault] for name, split in survey.splits.items() if fault in split.faults}
        if seen:
            items = ", ".join(f"{name} {each.count:,}" for name, each in seen.items())
            yield safe(f"{meaning}: {items} (such as {next(iter(seen.values())).example})")
