"""Published text preparations, a function or a row of the table each, and changes of the list of options.

A preparation changes texts and adds fields; how many choices an item has, their order and which are right stay.  A
change of the options is made after it, and is named behind it: ``copa+dont-know``, or ``dont-know`` alone; so are the
changes of a panel (:mod:`choicewise.protocols.changes`), which come before it.

Rows of HellaSwag as released have an activity label, a context in two parts and raw endings; rows that others have
cleaned have one text (``query``) and no parts.  Such a text and its endings are taken as they stand, for cleaning twice
is not the same as cleaning once: every pass makes one space of two.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
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
    with_options,
)
from choicewise.util.jsonio import compact_json, exact_json

_CONNECTIVES = {
    "cause": "because",
    "effect": "therefore",
}  # what is asked for → the word that leads to it
_BLANK = "  _  ."  # how a question ends that its answer completes
_BRACKETS = re.compile(r"\[.*?\]")


def copa(item: Item) -> Item:
    """The premise without its last character, the connective, and the alternatives with a small first letter.

    EleutherAI/lm-evaluation-harness@4e7e0d4, lm_eval/tasks/super_glue/copa/utils.py; the same in 2023 and in lighteval.
    """
    asked = item.fields.get("asks_for")
    if asked not in _CONNECTIVES:
        raise DataError(
            f"item {item.id} asks for {asked!r}; it must be {' or '.join(_CONNECTIVES)}: correct the item"
        )
    question = f"{item.question.strip()[:-1]} {_CONNECTIVES[asked]}"
    return replace(
        item, question=question, choices=tuple(text[:1].lower() + text[1:] for text in item.choices)
    )


def gap(item: Item) -> Item:
    """The item with the fields ``before`` and ``after``: the text up to the first ``_``, and the rest, stripped.

    The field ``line`` has every ``_`` of the question as ``___``.  As preprocess_winogrande.py of
    EleutherAI/lm-evaluation-harness@4e7e0d4 cuts it, and winogrande_std.py of allenai/OLMo-Eval@d7f75fb lists it.
    """
    before, blank, after = item.question.partition("_")
    if not blank:
        raise DataError(
            f"item {item.id} has no gap _ in its question {item.question!r}; correct the item"
        )
    parts = {"before": before, "after": after.strip(), "line": item.question.replace("_", "___")}
    return replace(item, fields={**item.fields, **parts})


def _named_subject(item: Item, field: str, table: str, section: str, of: str = "") -> Item:
    """The item with the ``field`` that its subject has in a table beside this file; DataError for a subject without."""
    known = _tables(table)[section]
    if item.subject not in known:
        hint = did_you_mean(item.subject, known)
        raise DataError(
            f"item {item.id} has the subject {item.subject!r}{of and f', which {of} has not'}; {hint}"
        )
    return replace(item, fields={**item.fields, field: known[item.subject]})


@cache
def _tables(name: str) -> Mapping[str, Mapping[str, str]]:
    path = files("choicewise.protocols").joinpath("preparations", f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _with_choices(item: Item, brackets: bool) -> Item:
    """Each choice stripped, " [title]" as a full stop, ``brackets`` kept or removed, two spaces as one."""
    texts = (choice.strip().replace(" [title]", ". ") for choice in item.choices)
    cleaned = (text if brackets else _BRACKETS.sub("", text) for text in texts)
    return replace(item, choices=tuple(text.replace("  ", " ") for text in cleaned))


_BRACKETED_TITLE, _TITLE = re.compile(r" \[title\]"), re.compile(r"\.? \[title\]")


def _hellaswag(
    item: Item,
    question: Callable[[str], str],
    ending: Callable[[str], str],
    second: Callable[[str], str] = str.capitalize,
    alone: str = "",
) -> Item:
    """The question is ``label: first part Second part``; ``question`` and every ``ending`` are cleaned.

    The ``second`` part has its first letter in upper case and all others in lower case, names included.  A question
    that others have put together is followed by ``alone``.
    """
    names = ("activity_label", "ctx_a", "ctx_b")
    missing = [name for name in names if name not in item.fields]
    if len(missing) == len(names):
        return replace(item, question=item.question + alone)
    if missing:
        raise DataError(
            f"item {item.id} lacks {' and '.join(missing)} of {', '.join(names)}; correct the item"
        )
    label, first, rest = (item.fields[name] for name in names)
    context = f"{label}: {first} {second(rest)}"
    return replace(item, question=question(context), choices=tuple(map(ending, item.choices)))


def _cleaned(text: str, title: re.Pattern[str] = _BRACKETED_TITLE) -> str:
    """WikiHow's titles as sentences, other brackets removed, pairs of spaces made one."""
    return _BRACKETS.sub("", title.sub(". ", text)).replace("  ", " ")


def _stripped(text: str, title: re.Pattern[str] = _BRACKETED_TITLE) -> str:
    return _cleaned(text.strip(), title)


def _redux_ok(item: Item) -> Item:
    """The item itself.  Raises DataError for one with another verdict (``error_type``) than ``ok``.

    Gema et al., 2024, arXiv:2406.04127; a dataset that holds nothing else may lack the field.
    """
    if (verdict := item.fields.get("error_type", "ok")) != "ok":
        raise DataError(
            f"item {item.id} has the error_type {verdict!r} and does not count; remove it, or skip bad items"
        )
    return item


def _after_article(item: Item, kept: slice) -> Item:
    """The question becomes ``Article: ...``, every earlier question with its answer, and the bare question.

    The blank at the end of an earlier question is filled by its answer; ``kept``: what stays of such a question.
    """
    if missing := [name for name in ("article", "problems") if name not in item.fields]:
        raise DataError(
            f"item {item.id} has no field {' and no field '.join(missing)}; RACE is asked with one row per article, "
            "whose problems are a list (EleutherAI/race), not with one row per question"
        )
    before = ""
    try:
        for problem in read_list(item.fields["problems"], "problems")[:-1]:
            asked, answer = problem["question"], problem["options"]["ABCD".index(problem["answer"])]
            ends = asked.endswith(_BLANK)
            before += (
                f"{asked[kept]}{answer}\n" if ends else f"Question: {asked}\nAnswer: {answer}\n"
            )
    except (UnusableRow, KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(
            f"item {item.id} has problems that can't be read ({error}); correct the item"
        ) from error
    return replace(item, question=f"Article: {item.fields['article']}\n\n{before}{item.question}")


def _with_passage(item: Item, passage: Callable[[str], str]) -> Item:
    return replace(item, fields={**item.fields, "passage": passage(item.fields.get("support", ""))})


INSTRUCTIONS = "Which option correctly answers `question`?"
"""The instructions of a question that is no decision; EvalScope 1.14.1, multi_choice_adapter.py."""


def _decision(
    item: Item,
    state: Callable[[object], str] = exact_json,
    described: Callable[[object], str] = exact_json,
    trim: Callable[[str], str] = str,
) -> Item:
    """The item with the field ``state``, and its descriptions as texts.

    A state or a description that is a text stays as it is, others are written by ``state`` and ``described``; an empty
    description is none, and ``trim`` is applied to others.  A question of another dataset is the state
    ``{"question": TEXT}`` with :data:`INSTRUCTIONS`.
    """
    value, question, own = _stated(item)
    if not question.strip():
        raise DataError(
            f"item {item.id} has no instructions, whose line the layout would leave out; take the line out of the axis "
            "question, or skip bad items"
        )
    texts = [each if isinstance(each, str | None) else described(each) for each in own]
    texts_of = {
        "state": value if isinstance(value, str) else state(value),
        DESCRIPTIONS: exact_json([trim(each) if each else None for each in texts]),
    }
    return replace(item, question=question, fields={**item.fields, **texts_of})


def _decision_endpoint(item: Item) -> Item:
    """The item with the field ``state`` as JSON, a text in quotes; its descriptions stay the JSON that they are."""
    value, question, own = _stated(item)
    return replace(
        item,
        question=question,
        fields={**item.fields, "state": exact_json(value), DESCRIPTIONS: exact_json(own)},
    )


def _stated(item: Item) -> tuple[Any, str, list[Any]]:
    """State, instructions and descriptions; of a question of another dataset as :func:`_decision` says."""
    whole, question = item.fields.get(STATE), item.question
    if whole is None:
        whole, question = exact_json({"question": item.question}), INSTRUCTIONS
    if kind_of(item) == "noul" and item.choices != tuple(NOUL):
        raise DataError(
            f"item {item.id} is a noul with the choices {list(item.choices)}; they must be yes and no"
        )
    try:
        return json.loads(whole), question, json.loads(item.fields.get(DESCRIPTIONS, "[]"))
    except ValueError as error:
        raise DataError(
            f"item {item.id}: the field {STATE} or {DESCRIPTIONS} is no JSON ({error})"
        ) from error


def _decision_d1(item: Item) -> Item:
    """A name with spaces for its underscores; where one answer to yes or no is described, the other is as ``None``.

    Raises DataError for names that are single letters, which the model takes for its codes.
    """
    if kind_of(item) == "choice" and all(
        len(name.strip()) == 1 and name.strip().isalpha() for name in item.choices
    ):
        raise DataError(
            f"item {item.id} names its options by letters, which d1 takes for its own codes; rename them"
        )
    item = _decision(item, partial(exact_json, indent=2), str)
    fields = dict(item.fields)
    if kind_of(item) == "noul" and any(own := json.loads(fields[DESCRIPTIONS])):
        fields[DESCRIPTIONS] = exact_json([str(each) for each in own])
    choices = (
        item.choices
        if kind_of(item) != "choice"
        else tuple(name.replace("_", " ") for name in item.choices)
    )
    return replace(item, choices=choices, fields=fields)


Preparation = Callable[[Item], Item]
"""From an item to the item that templates show.  Raises DataError for an item that lacks what it needs."""

PREPARATIONS: Mapping[str, Preparation] = ports.OpenTable(
    {
        "none": lambda item: item,
        "gap": gap,
        # a full stop before WikiHow's [title] is not doubled: olmo_eval/tasks/olmes_v0_1/hellaswag_std.py@d7f75fb
        "hellaswag-olmes": partial(
            _hellaswag,
            question=partial(_stripped, title=_TITLE),
            ending=partial(_stripped, title=_TITLE),
        ),
        # the prompt with its listed endings is cleaned as one text: so the context keeps a space at its end, an ending
        # has none at its beginning, and the full stop and space of its label take part: hellaswag_std.py, likewise
        "hellaswag-olmes-listed": partial(
            _hellaswag,
            question=lambda text: _cleaned(text.lstrip(), _TITLE),
            ending=lambda text: _cleaned(f". {text}", _TITLE).removeprefix(". "),
        ),
        # EleutherAI/lm-evaluation-harness@4e7e0d4, lm_eval/tasks/hellaswag/utils.py; the same in 2023
        "hellaswag": partial(_hellaswag, question=_stripped, ending=_stripped),
        # nothing is stripped, the question ends with a space: lighteval@8d9ecd6, src/lighteval/tasks/default_prompts.py
        "hellaswag-lighteval": partial(
            _hellaswag, question=lambda text: _cleaned(f"{text} "), ending=_cleaned, alone=" "
        ),
        # nothing is cleaned: lighteval@7c1cd62, src/lighteval/tasks/tasks/hellaswag.py
        "hellaswag-raw": partial(_hellaswag, question=str, ending=str),
        # one letter in upper case, the rest as it is: stanford-crfm/helm@cab5d89, scenarios/commonsense_scenario.py
        "hellaswag-helm": partial(
            _hellaswag, question=str, ending=str, second=lambda text: text[:1].upper() + text[1:]
        ),
        "copa": copa,
        # the passage without white space at its start; a line that is there even when the item has no passage:
        # EleutherAI/lm-evaluation-harness@4e7e0d4, lm_eval/tasks/sciq/sciq.yaml
        "sciq": partial(_with_passage, passage=lambda support: support.lstrip() + "\n"),
        # no line where the item has no passage, the whole prompt is stripped: @b281b09, lm_eval/tasks/sciq.py;
        # lighteval
        "sciq-v0": partial(_with_passage, passage=lambda support: (support + "\n").lstrip()),
        # of ``  _  .`` one space stays: @4e7e0d4, lm_eval/tasks/race/preprocess_race.py
        "race": partial(_after_article, kept=slice(None, -len(_BLANK) + 1)),
        # only the blank itself stays, `` _  .``: an error of @b281b09, lm_eval/tasks/race.py, and lighteval@8d9ecd6
        "race-v0": partial(_after_article, kept=slice(-len(_BLANK) + 1, None)),
        **{
            f"{exam}-subjects": partial(
                _named_subject,
                field="chinese_subject",
                table="chinese_subjects",
                section=exam,
                of=exam,
            )
            for exam in ("cmmlu", "ceval")
        },
        "redux-ok": _redux_ok,
        # lm_eval/tasks/gpqa/zeroshot/utils.py@4e7e0d4; the leaderboard's removes everything in brackets, formulae too:
        # lm_eval/tasks/leaderboard/gpqa/utils.py@4e7e0d4
        "gpqa": partial(_with_choices, brackets=True),
        "gpqa-leaderboard": partial(_with_choices, brackets=False),
        # texts of lm_eval/tasks/leaderboard/bbh_mc/*.yaml@4e7e0d4
        "bbh": partial(_named_subject, field="description", table="bbh", section="descriptions"),
        # transformers 5.23.0, decision/template_utils.py: nested values as JSON
        "decision": _decision,
        # vLLM 0.32.0, structured_decisions/strategies.py: a description that is no text through Python's str
        "decision-str": partial(_decision, described=str),
        # vLLM at c59eeb6c, structured_decisions/prompts.py: the state as ASCII, a description without space around it
        "decision-ascii": partial(_decision, state=json.dumps, described=str, trim=str.strip),
        # d1 of Liquid AI as vLLM 0.32.0 asks it (LiquidAI/d1-3b, prompt.py)
        "decision-d1": _decision_d1,
        # SGLang 0.5.23, prompt_format_version 1: JSON without spaces
        "decision-compact": partial(_decision, state=compact_json, described=compact_json),
        # for reading decision, which sends JSON
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
    """Whether an option says "none of the above", "all of these", or the like, and so nothing by itself.

    "Both A and B" does not count: it names what it is about.
    """
    return _REFERS.fullmatch(text.strip()) is not None


def dont_know(item: Item) -> Item:
    """The item with one more option, the last one.  DataError where it has no list of options."""
    if len(item.choices) < 2:
        raise DataError(
            f"item {item.id} has no options to choose from, so none can be added; skip bad items"
        )
    return with_options(item, [*item.choices, DONT_KNOW], [*descriptions_of(item), None])


def _with_none(item: Item, control: bool) -> Item:
    """The item with ``NONE`` in place of its right option, or for ``control`` of a wrong one, by the hash of its id.

    DataError for items that have not one right option and a wrong one, or an option that refers to the others already.
    """
    wrong = [place for place in range(len(item.choices)) if place not in item.gold]
    if len(item.gold) != 1 or not wrong:
        problem = f"has {len(item.gold)} right and {len(wrong)} wrong options, not one that is right and others wrong"
    elif any(map(refers_to_others, item.choices)):
        problem = (
            "has an option that refers to the others already (none of the above, all of these, ...)"
        )
    else:
        place = (
            wrong[int.from_bytes(draw_hash(0, item.id), "big") % len(wrong)]
            if control
            else item.gold[0]
        )
        choices, described = list(item.choices), descriptions_of(item)
        choices[place], described[place] = NONE, None
        return with_options(item, choices, described)
    raise DataError(
        f"item {item.id} {problem}, so it does not count under none-of-the-others; skip bad items"
    )


OPTIONS: Mapping[str, Preparation] = {
    "dont-know": dont_know,
    "none-of-the-others": partial(_with_none, control=False),
    "none-of-the-others-control": partial(_with_none, control=True),
}
"""Every change of the list of options."""

AFTER = (*OPTIONS, *CHANGES)
"""Every change that is named behind a preparation."""

BATCHED = "decision-endpoint+batched"
"""With the other questions of its case in one request, which only endpoints are sent."""

NAMES = tuple(
    name
    for own in PREPARATIONS
    for name in (own, *(change if own == "none" else f"{own}+{change}" for change in AFTER))
    if not name.endswith("batched") or name == BATCHED
)
"""Every value of the axis ``prepare``."""


def prepare(name: str, item: Item, shot: bool = False) -> Item:
    """The item as the axis ``prepare`` has it; ``shot``: as an example, which stays right and so has no ``NONE``.

    Raises DataError for an item that lacks what it needs, or does not count.
    """
    own, change = _parts(name)
    if change in CHANGES:
        changed = item if shot else apply_change(change, item)
        if changed is None:
            raise DataError(
                f"item {item.id} is no part of a protocol with {change}; skip bad items"
            )
        return PREPARATIONS[own](changed)
    item = PREPARATIONS[own](item)
    return item if not change or (shot and change != "dont-know") else OPTIONS[change](item)


def changed_options(name: str, change: str) -> str:
    """The value of the axis ``prepare`` that makes this ``change`` of the options, and prepares as ``name`` does."""
    own, _ = _parts(name)
    return change if own == "none" else f"{own}+{change}"


def abstains(name: str) -> bool:
    """Whether the last option of every item is ``DONT_KNOW``: a row more than the item has in the data."""
    return change_of(name) == "dont-know"


def more_options(name: str) -> int:
    """How many rows more than the item has in the data: 1 where an option is added, -1 where one is left out."""
    change = change_of(name)
    return CHANGES[change].more if change in CHANGES else int(abstains(name))


def added_option(name: str) -> str:
    """What the option that is added is called; empty where none is."""
    if abstains(name):
        return DONT_KNOW
    named = {"none-added": NONE_OF_THESE, "cloned": "(an option once more)"}
    return named.get(change_of(name), "")


def shown_order(name: str, options: int) -> tuple[Order, bool]:
    """For every place the option whose label counts there, and whether that option is shown there, too."""
    change = CHANGES.get(change_of(name))
    if change is None or change.order is None:
        return tuple(range(options)), True
    return change.order(options), change.moves


def moves_labels(name: str) -> bool:
    """Whether the label of another place counts for a choice."""
    change = change_of(name)
    return change in CHANGES and CHANGES[change].order is not None


def preparation_of(name: str) -> str:
    """Return the preparation that is part of the axis ``prepare``, without a change of the options."""
    return _parts(name)[0]


def change_of(name: str) -> str:
    """The change that is part of the axis ``prepare``, empty for none."""
    return _parts(name)[1]


def is_for(name: str, item: Item) -> bool:
    """Whether the item is a part of protocols that prepare so."""
    change = change_of(name)
    return change not in CHANGES or apply_change(change, item) is not None


def fields_shown(name: str) -> tuple[str, ...]:
    """The item's fields that the preparation puts into the question, or into fields that templates show."""
    return SHOWS.get(_parts(name)[0], ())


def _parts(name: str) -> tuple[str, str]:
    """The preparation of the source, and the change of the options, empty for none."""
    own, _, change = name.rpartition("+")
    return (own or "none", change) if change in AFTER else (name, "")


SHOWS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("hellaswag", "hellaswag-raw", "hellaswag-lighteval"),
            *("hellaswag-helm", "hellaswag-olmes", "hellaswag-olmes-listed"),
        ),
        ("activity_label", "ctx_a", "ctx_b"),
    ),
    "copa": ("asks_for",),
    **dict.fromkeys(
        ("decision", "decision-str", "decision-d1", "decision-compact", "decision-endpoint"),
        (STATE, DESCRIPTIONS),
    ),
    **dict.fromkeys(("sciq", "sciq-v0"), ("support",)),
    **dict.fromkeys(("race", "race-v0"), ("article", "problems")),
}
"""Preparation → the item's fields that it puts into the question, or into fields that templates show."""
