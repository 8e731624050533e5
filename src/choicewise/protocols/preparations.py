"""Prepare the texts of items by published rules, and change their lists of options.

A preparation changes texts and adds fields; the number of an item's choices, their order and which
are right stay.  A change of the options is made after it, and is named behind it:
``copa+dont-know``, or ``dont-know`` alone; so are the changes of a panel
(:mod:`choicewise.protocols.changes`), which come before it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any

from choicewise import ports
from choicewise.data.decisions import DESCRIPTIONS, NOUL, STATE, kind_of
from choicewise.data.files import read_list
from choicewise.data.items import Item, draw_hash
from choicewise.errors import DataError, UnusableRow, did_you_mean
from choicewise.protocols.changes import (
    CHANGES,
    NONE_OF_THESE,
    Order,
    apply_change,
    descriptions_of,
    unchanged,
    with_field,
    with_options,
    with_replaced_option,
)
from choicewise.util.jsonio import compact_json, exact_json

_CONNECTIVES = {"cause": "because", "effect": "therefore"}
"""The word that leads to what an item asks for."""

_BLANK = "  _  ."
"""The end of a question that its answer completes."""

_BRACKETS = re.compile(r"\[.*?\]")


def copa(item: Item) -> Item:
    """Join the premise and the connective, and give the alternatives a small first letter.

    The premise loses its last character.  EleutherAI/lm-evaluation-harness@4e7e0d4,
    lm_eval/tasks/super_glue/copa/utils.py; the same in 2023 and in lighteval.
    """
    relation = item.fields.get("asks_for", "")
    if relation not in _CONNECTIVES:
        raise DataError(
            f"item {item.id} has {relation!r} in the column asks_for; write "
            f"{' or '.join(_CONNECTIVES)}"
        )
    question = f"{item.question.strip()[:-1]} {_CONNECTIVES[relation]}"
    choices = [text[:1].lower() + text[1:] for text in item.choices]
    return replace(item, question=question, choices=tuple(choices))


def gap(item: Item) -> Item:
    """Add the fields ``before`` and ``after``: the text up to the first ``_``, and the rest.

    The field ``line`` has every ``_`` of the question as ``___``.  preprocess_winogrande.py of
    EleutherAI/lm-evaluation-harness@4e7e0d4 cuts it like this, and winogrande_std.py of
    allenai/OLMo-Eval@d7f75fb lists it like this.
    """
    before, blank, after = item.question.partition("_")
    if not blank:
        raise DataError(
            f"item {item.id} has no gap _ in its question {item.question!r}; correct the item"
        )
    parts = {"before": before, "after": after.strip(), "line": item.question.replace("_", "___")}
    return replace(item, fields={**item.fields, **parts})


def _named_subject(item: Item, field: str, table: str, section: str, exam: str = "") -> Item:
    """Add the ``field`` that the subject has in a table beside this file; DataError without."""
    texts = _tables(table)[section]
    if item.subject not in texts:
        lacking = f", which {exam} has not" if exam else ""
        hint = did_you_mean(item.subject, texts)
        raise DataError(f"item {item.id} has the subject {item.subject!r}{lacking}; {hint}")
    return with_field(item, field, texts[item.subject])


@cache
def _tables(name: str) -> Mapping[str, Mapping[str, str]]:
    path = files("choicewise.protocols").joinpath("preparations", f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _with_choices(item: Item, brackets: bool) -> Item:
    """Strip each choice, " [title]" as a full stop, ``brackets`` kept or removed, two spaces as
    one."""
    choices = []
    for choice in item.choices:
        text = choice.strip().replace(" [title]", ". ")
        if not brackets:
            text = _BRACKETS.sub("", text)
        choices.append(text.replace("  ", " "))
    return replace(item, choices=tuple(choices))


_BRACKETED_TITLE = re.compile(r" \[title\]")
_TITLE = re.compile(r"\.? \[title\]")


def _hellaswag(
    item: Item,
    question: Callable[[str], str],
    ending: Callable[[str], str],
    second: Callable[[str], str] = str.capitalize,
    alone: str = "",
) -> Item:
    """Join the question to ``label: first part Second part``, and clean it and every ending.

    ``question`` and ``ending`` clean the texts.  ``second`` writes the second part, of which all
    letters but the first become small, names included.  ``alone`` follows a question that others
    have joined.
    """
    names = _HELLASWAG_FIELDS
    missing = [name for name in names if name not in item.fields]
    # Rows that others have cleaned have one text and no parts.  They stay unchanged, since cleaning
    # twice is not the same as cleaning once: every pass makes one space of two.
    if len(missing) == len(names):
        return replace(item, question=item.question + alone)
    if missing:
        raise DataError(
            f"item {item.id} lacks {' and '.join(missing)} of {', '.join(names)}; correct the item"
        )
    fields = item.fields
    context = f"{fields['activity_label']}: {fields['ctx_a']} {second(fields['ctx_b'])}"
    return replace(item, question=question(context), choices=tuple(map(ending, item.choices)))


def _cleaned(text: str, title: re.Pattern[str] = _BRACKETED_TITLE) -> str:
    """Write WikiHow's titles as sentences, remove other brackets, make one space of two."""
    return _BRACKETS.sub("", title.sub(". ", text)).replace("  ", " ")


def _stripped(text: str, title: re.Pattern[str] = _BRACKETED_TITLE) -> str:
    return _cleaned(text.strip(), title)


def _redux_ok(item: Item) -> Item:
    """Return the item; DataError if its verdict (``error_type``) is not ``ok``.

    Gema et al., 2024, arXiv:2406.04127.  A dataset of such items alone may lack the field.
    """
    verdict = item.fields.get("error_type", "ok")
    if verdict != "ok":
        raise DataError(
            f"item {item.id} has the error_type {verdict!r} and does not count; remove it, or skip "
            "bad items"
        )
    return item


def _after_article(item: Item, kept: slice) -> Item:
    """Join the article, every earlier question with its answer, and the bare question.

    The blank at the end of an earlier question is filled by its answer; ``kept``: the part of such
    a question that stays.
    """
    missing = [name for name in ("article", "problems") if name not in item.fields]
    if missing:
        raise DataError(
            f"item {item.id} has no field {' and no field '.join(missing)}; RACE needs one row per "
            "article with a list of problems (EleutherAI/race), not one row per question"
        )
    before = ""
    try:
        for problem in read_list(item.fields["problems"], "problems")[:-1]:
            question = problem["question"]
            answer = problem["options"]["ABCD".index(problem["answer"])]
            if question.endswith(_BLANK):
                before += f"{question[kept]}{answer}\n"
            else:
                before += f"Question: {question}\nAnswer: {answer}\n"
    except (UnusableRow, KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(
            f"item {item.id} has problems that can't be read ({error}); correct the item"
        ) from error
    return replace(item, question=f"Article: {item.fields['article']}\n\n{before}{item.question}")


def _with_passage(item: Item, passage: Callable[[str], str]) -> Item:
    return with_field(item, "passage", passage(item.fields.get("support", "")))


INSTRUCTIONS = "Which option correctly answers `question`?"
"""The instructions of a question that is no decision; EvalScope 1.14.1, multi_choice_adapter.py."""


def _decision(
    item: Item,
    state: Callable[[object], str] = exact_json,
    described: Callable[[object], str] = exact_json,
    trim: Callable[[str], str] = str,
) -> Item:
    """Add the field ``state``, and write the descriptions as texts.

    A state or a description that is a text stays unchanged, others are written by ``state`` and
    ``described``; an empty description is none, and ``trim`` is applied to others.  A question of
    another dataset is the state ``{"question": TEXT}`` with :data:`INSTRUCTIONS`.
    """
    parts = _stated(item)
    if not parts.question.strip():
        raise DataError(
            f"item {item.id} has no instructions; take that line out of the axis question, or skip "
            "bad items"
        )
    state_text = parts.state
    if not isinstance(state_text, str):
        state_text = state(state_text)
    texts = []
    for text in parts.descriptions:
        if not isinstance(text, str | None):
            text = described(text)
        trimmed = trim(text) if text else None
        texts.append(trimmed)
    return _with_texts(item, parts.question, state_text, texts)


def _decision_endpoint(item: Item) -> Item:
    """Add the field ``state`` as JSON, a text in quotes; the descriptions stay JSON."""
    parts = _stated(item)
    return _with_texts(item, parts.question, exact_json(parts.state), parts.descriptions)


def _with_texts(item: Item, question: str, state: str, descriptions: list[Any]) -> Item:
    texts = {"state": state, DESCRIPTIONS: exact_json(descriptions)}
    return replace(item, question=question, fields={**item.fields, **texts})


@dataclass(frozen=True, slots=True)
class _Parts:
    """Hold the parts of a typed question."""

    state: Any
    question: str
    descriptions: list[Any]


def _stated(item: Item) -> _Parts:
    state = item.fields.get(STATE)
    question = item.question
    if state is None:
        state = exact_json({"question": item.question})
        question = INSTRUCTIONS
    if kind_of(item) == "noul" and item.choices != tuple(NOUL):
        raise DataError(
            f"item {item.id} is a noul with the choices {list(item.choices)}; they must be yes and "
            "no"
        )
    try:
        descriptions = json.loads(item.fields.get(DESCRIPTIONS, "[]"))
        return _Parts(json.loads(state), question, descriptions)
    except ValueError as error:
        raise DataError(
            f"item {item.id}: the field {STATE} or {DESCRIPTIONS} is no JSON ({error})"
        ) from error


def _decision_d1(item: Item) -> Item:
    """Write names with spaces for underscores.

    If one answer to yes or no is described, the other's description is "None".  Raises DataError
    for names that are single letters, which the model takes for its codes.
    """
    if kind_of(item) == "choice" and all(map(_is_letter, item.choices)):
        raise DataError(
            f"item {item.id} names its options by letters, which d1 takes for its own codes; "
            "rename them"
        )
    item = _decision(item, partial(exact_json, indent=2), str)
    descriptions = json.loads(item.fields[DESCRIPTIONS])
    if kind_of(item) == "noul" and any(descriptions):
        texts = [str(description) for description in descriptions]
        return with_field(item, DESCRIPTIONS, exact_json(texts))
    if kind_of(item) == "choice":
        names = [name.replace("_", " ") for name in item.choices]
        return replace(item, choices=tuple(names))
    return item


def _is_letter(name: str) -> bool:
    return len(name.strip()) == 1 and name.strip().isalpha()


def _olmes_listed_context(text: str) -> str:
    return _cleaned(text.lstrip(), _TITLE)


def _olmes_listed_ending(text: str) -> str:
    return _cleaned(f". {text}", _TITLE).removeprefix(". ")


def _lighteval_context(text: str) -> str:
    return _cleaned(f"{text} ")


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _passage_line(support: str) -> str:
    return support.lstrip() + "\n"


def _optional_passage_line(support: str) -> str:
    return (support + "\n").lstrip()


def _chinese_subjects(exam: str) -> Preparation:
    table = "chinese_subjects"
    return partial(_named_subject, field="chinese_subject", table=table, section=exam, exam=exam)


Preparation = Callable[[Item], Item]
"""From an item to the item that templates show; raises DataError if something is missing."""

PREPARATIONS: Mapping[str, Preparation] = ports.OpenTable(
    {
        "none": unchanged,
        "gap": gap,
        # A full stop before WikiHow's [title] is not doubled:
        # olmo_eval/tasks/olmes_v0_1/hellaswag_std.py@d7f75fb.
        "hellaswag-olmes": partial(
            _hellaswag,
            question=partial(_stripped, title=_TITLE),
            ending=partial(_stripped, title=_TITLE),
        ),
        # The prompt with its listed endings is cleaned as one text: so the context keeps a space at
        # its end, an ending has none at its beginning, and the full stop and space of its label
        # take part (hellaswag_std.py again).
        "hellaswag-olmes-listed": partial(
            _hellaswag,
            question=_olmes_listed_context,
            ending=_olmes_listed_ending,
        ),
        # EleutherAI/lm-evaluation-harness@4e7e0d4, lm_eval/tasks/hellaswag/utils.py; also in 2023.
        "hellaswag": partial(_hellaswag, question=_stripped, ending=_stripped),
        # Nothing is stripped, the question ends with a space: lighteval@8d9ecd6,
        # src/lighteval/tasks/default_prompts.py.
        "hellaswag-lighteval": partial(
            _hellaswag, question=_lighteval_context, ending=_cleaned, alone=" "
        ),
        # Nothing is cleaned: lighteval@7c1cd62, src/lighteval/tasks/tasks/hellaswag.py.
        "hellaswag-raw": partial(_hellaswag, question=str, ending=str),
        # One letter becomes a capital, the rest stays: stanford-crfm/helm@cab5d89,
        # scenarios/commonsense_scenario.py.
        "hellaswag-helm": partial(_hellaswag, question=str, ending=str, second=_capitalized),
        "copa": copa,
        # The passage has no white space at its start; its line is there even if it is empty:
        # EleutherAI/lm-evaluation-harness@4e7e0d4, lm_eval/tasks/sciq/sciq.yaml.
        "sciq": partial(_with_passage, passage=_passage_line),
        # Without a passage there is no line, because the whole prompt is stripped: @b281b09,
        # lm_eval/tasks/sciq.py; lighteval.
        "sciq-v0": partial(_with_passage, passage=_optional_passage_line),
        # Of ``  _  .`` one space stays: @4e7e0d4, lm_eval/tasks/race/preprocess_race.py.
        "race": partial(_after_article, kept=slice(None, -len(_BLANK) + 1)),
        # Only the blank stays, `` _  .``: an error of @b281b09, lm_eval/tasks/race.py, and of
        # lighteval@8d9ecd6.
        "race-v0": partial(_after_article, kept=slice(-len(_BLANK) + 1, None)),
        "cmmlu-subjects": _chinese_subjects("cmmlu"),
        "ceval-subjects": _chinese_subjects("ceval"),
        "redux-ok": _redux_ok,
        # lm_eval/tasks/gpqa/zeroshot/utils.py@4e7e0d4; the leaderboard removes everything in
        # brackets, formulae too: lm_eval/tasks/leaderboard/gpqa/utils.py@4e7e0d4.
        "gpqa": partial(_with_choices, brackets=True),
        "gpqa-leaderboard": partial(_with_choices, brackets=False),
        # Texts of lm_eval/tasks/leaderboard/bbh_mc/*.yaml@4e7e0d4.
        "bbh": partial(_named_subject, field="description", table="bbh", section="descriptions"),
        # transformers 5.23.0, decision/template_utils.py: nested values as JSON.
        "decision": _decision,
        # vLLM 0.32.0, structured_decisions/strategies.py: a description that is no text by str().
        "decision-str": partial(_decision, described=str),
        # vLLM at c59eeb6c, structured_decisions/prompts.py: the state as ASCII, a description
        # without space around it.
        "decision-ascii": partial(_decision, state=json.dumps, described=str, trim=str.strip),
        # d1 of Liquid AI as vLLM 0.32.0 asks it (LiquidAI/d1-3b, prompt.py).
        "decision-d1": _decision_d1,
        # SGLang 0.5.23, prompt_format_version 1: JSON without spaces.
        "decision-compact": partial(_decision, state=compact_json, described=compact_json),
        # For the reading decision, which sends JSON.
        "decision-endpoint": _decision_endpoint,
    },
    ports.Preparation,
    lambda addition: addition.change,
)
"""Every preparation; a preparation whose source changes gets a second name."""

DONT_KNOW = "I don't know"
"""The option that the change ``dont-know`` appends, which is never right (2510.04302)."""

NONE = "None of the other answers"
"""The option that stands in place of another one (2502.12896)."""

_REFERS = re.compile(
    r"""(?ix) \W* (?: \(? [a-z0-9] \)? [.):] \s+ )?              # a label
    (?: none | all | neither | both | any | not \s any ) \s+ (?: of \s+ )? (?:
        (?: the \s+ )? (?: \w+ \s+ )? above \b .*               # none of the (answers) above (is right)
      # all of these (answers) (are right)
      | (?: these | those | them | (?: the \s+ )? (?: others? | rest ) | the \s+ (?: preceding | foregoing ) )
        (?: \s+ (?: answers | options | choices | alternatives | statements | responses ) )?
        (?: \s+ (?: is | are | was | were | apply | applies | will | would | can | do | does ) \b .* )? \W*
      | (?: the \s+ )? (?: given \s+ | listed \s+ | other \s+ )? (?: answers | options | choices | alternatives )
        (?: \s+ (?: given | listed | here ) )? (?: \s+ (?: is | are ) \b .* )? \W*
    )"""
)


def refers_to_others(text: str) -> bool:
    """Check if an option says "none of the above", "all of these", or the like.

    "Both A and B" does not count: it names its options.
    """
    return _REFERS.fullmatch(text.strip()) is not None


def dont_know(item: Item) -> Item:
    """Append the option ``DONT_KNOW``; DataError if the item has no list of options."""
    if len(item.choices) < 2:
        raise DataError(f"item {item.id} has no options, so none can be added; skip bad items")
    return with_options(item, [*item.choices, DONT_KNOW], [*descriptions_of(item), None])


def _with_none(item: Item, control: bool) -> Item:
    """Replace the right option by ``NONE``, or for ``control`` a wrong one by the hash of the id.

    DataError for items without one right and a wrong option, or with an option that refers to the
    others already.
    """
    wrong = [index for index in range(len(item.choices)) if index not in item.gold]
    problem = ""
    if len(item.gold) != 1 or not wrong:
        problem = (
            f"has {len(item.gold)} right and {len(wrong)} wrong options; it needs one right option"
        )
    elif any(map(refers_to_others, item.choices)):
        problem = (
            "has an option that refers to the others already (none of the above, all of these, ...)"
        )
    if problem:
        raise DataError(
            f"item {item.id} {problem}, so it does not count under none-of-the-others; skip bad "
            "items"
        )
    index = item.gold[0]
    if control:
        index = wrong[int.from_bytes(draw_hash(0, item.id), "big") % len(wrong)]
    return with_replaced_option(item, index, NONE)


OPTIONS: Mapping[str, Preparation] = {
    "dont-know": dont_know,
    "none-of-the-others": partial(_with_none, control=False),
    "none-of-the-others-control": partial(_with_none, control=True),
}
"""Every change of the list of options."""

AFTER = (*OPTIONS, *CHANGES)
"""Every change that is named behind a preparation."""

BATCHED = "decision-endpoint+batched"
"""The value that sends the other questions of a case in the same request, for endpoints alone."""


def _names() -> list[str]:
    names = []
    for preparation in PREPARATIONS:
        before = "" if preparation == "none" else f"{preparation}+"
        names.append(preparation)
        names += [f"{before}{change}" for change in AFTER]
    return [name for name in names if not name.endswith("batched") or name == BATCHED]


def prepare(name: str, item: Item, shot: bool = False) -> Item:
    """Prepare an item by the axis ``prepare``.

    ``shot``: it is an example, which must stay right and so has no ``NONE``.  Raises DataError for
    an item that lacks what it needs, or does not count.
    """
    preparation, change = _split_name(name)
    if change in CHANGES and not shot:
        changed = apply_change(change, item)
        if changed is None:
            raise DataError(f"item {item.id} does not fit {change}; skip bad items")
        item = changed
    item = PREPARATIONS[preparation](item)
    if change in OPTIONS and (change == "dont-know" or not shot):
        return OPTIONS[change](item)
    return item


def changed_options(name: str, change: str) -> str:
    """Return the value of ``prepare`` with this ``change`` after the preparation of ``name``."""
    preparation, _ = _split_name(name)
    return change if preparation == "none" else f"{preparation}+{change}"


def more_options(name: str) -> int:
    """Return the number of added options: 1, -1 if one is left out, or 0."""
    change = change_of(name)
    return CHANGES[change].added if change in CHANGES else int(change == "dont-know")


def added_option(name: str) -> str:
    """Return the name of the added option; "" if none is added."""
    added = {
        "dont-know": DONT_KNOW,
        "none-added": NONE_OF_THESE,
        "cloned": "(an option once more)",
    }
    return added.get(change_of(name), "")


def shown_order(name: str, options: int) -> tuple[Order, bool]:
    """Return the option whose label counts at each position, and if its text moves there."""
    change = CHANGES.get(change_of(name))
    if change is None or change.order is None:
        return tuple(range(options)), True
    return change.order(options), change.moves


def moves_labels(name: str) -> bool:
    """Check if the label of another position counts for a choice."""
    change = change_of(name)
    return change in CHANGES and CHANGES[change].order is not None


def preparation_of(name: str) -> str:
    """Return the preparation that is part of the axis ``prepare``."""
    return _split_name(name)[0]


def change_of(name: str) -> str:
    """Return the change that is part of the axis ``prepare``, "" for none."""
    return _split_name(name)[1]


def is_in_panel(name: str) -> bool:
    """Check that the change is one of a panel."""
    return change_of(name) in CHANGES


def is_for(name: str, item: Item) -> bool:
    """Check if the item is a part of protocols with this value of ``prepare``."""
    change = change_of(name)
    return change not in CHANGES or apply_change(change, item) is not None


def fields_shown(name: str) -> tuple[str, ...]:
    """Return the item's fields that the preparation puts into the question, or into its fields."""
    return SHOWS.get(preparation_of(name), ())


@cache
def _split_name(name: str) -> tuple[str, str]:
    """Split a value of ``prepare`` into preparation and change, "" for none."""
    preparation, _, change = name.rpartition("+")
    if change not in AFTER:
        return name, ""
    return preparation or "none", change


NAMES = tuple(_names())
"""Every value of the axis ``prepare``."""

_HELLASWAG_FIELDS = ("activity_label", "ctx_a", "ctx_b")
_DECISION_FIELDS = (STATE, DESCRIPTIONS)
_RACE_FIELDS = ("article", "problems")

NEEDED: Mapping[str, tuple[str, ...]] = {
    "copa": ("asks_for",),
    # A single item may lack the passage, but the code of all sources reads the column.
    "sciq": ("support",),
    "sciq-v0": ("support",),
    "race": _RACE_FIELDS,
    "race-v0": _RACE_FIELDS,
}
"""The fields that a preparation shows, and that must be in the data."""

SHOWS: Mapping[str, tuple[str, ...]] = {
    "hellaswag": _HELLASWAG_FIELDS,
    "hellaswag-raw": _HELLASWAG_FIELDS,
    "hellaswag-lighteval": _HELLASWAG_FIELDS,
    "hellaswag-helm": _HELLASWAG_FIELDS,
    "hellaswag-olmes": _HELLASWAG_FIELDS,
    "hellaswag-olmes-listed": _HELLASWAG_FIELDS,
    "decision": _DECISION_FIELDS,
    "decision-str": _DECISION_FIELDS,
    "decision-d1": _DECISION_FIELDS,
    "decision-compact": _DECISION_FIELDS,
    "decision-endpoint": _DECISION_FIELDS,
    **NEEDED,
}
"""The item's fields that a preparation puts into the question, or into its fields."""
