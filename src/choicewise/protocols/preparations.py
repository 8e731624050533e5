"""Ten published text preparations, one function each.

A preparation changes texts and adds fields; how many choices an item has, their order and which are right stay.

Rows as released have an activity label, a context in two parts and raw endings; rows that others have cleaned have one
text (``query``) and no parts.  Such a text and its endings are taken as they stand, for cleaning twice is not the same
as cleaning once: every pass makes one space of two.

allenai/OLMo-Eval@d7f75fb, olmo_eval/tasks/olmes_v0_1/hellaswag_std.py.  Rows that others have cleaned (``query``) are
taken as they stand.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from choicewise.data.files import read_list
from choicewise.data.items import Item
from choicewise.errors import DataError, UnusableRow, did_you_mean


def bbh(item: Item) -> Item:
    """The item with the field ``description``, which its subject has in ``bbh.toml`` beside this file.

    Texts of lm_eval/tasks/leaderboard/bbh_mc/*.yaml@4e7e0d4.  Raises DataError for a subject without one.
    """
    known = _descriptions()
    if item.subject not in known:
        raise DataError(f"item {item.id} has the subject {item.subject!r}; {did_you_mean(item.subject, known)}")
    return replace(item, fields={**item.fields, "description": known[item.subject]})


_CONNECTIVES = {"cause": "because", "effect": "therefore"}
"""What is asked for → the word that leads to it."""


def copa(item: Item) -> Item:
    """The premise without its last character, the connective, and the alternatives with a small first letter.

    EleutherAI/lm-evaluation-harness@4e7e0d4, lm_eval/tasks/super_glue/copa/utils.py; the same in 2023 and in lighteval.
    """
    asked = item.fields.get("asks_for")
    if asked not in _CONNECTIVES:
        raise DataError(f"item {item.id} asks for {asked!r}; it must be {' or '.join(_CONNECTIVES)}: correct the item")
    question = f"{item.question.strip()[:-1]} {_CONNECTIVES[asked]}"
    return replace(item, question=question, choices=tuple(text[:1].lower() + text[1:] for text in item.choices))


def gap(item: Item) -> Item:
    """The item with the fields ``before`` and ``after``: the text up to the first ``_``, and the rest, stripped.

    The field ``line`` has every ``_`` of the question as ``___``.  As preprocess_winogrande.py of
    EleutherAI/lm-evaluation-harness@4e7e0d4 cuts it, and winogrande_std.py of allenai/OLMo-Eval@d7f75fb lists it.
    """
    before, blank, after = item.question.partition("_")
    if not blank:
        raise DataError(f"item {item.id} has no gap _ in its question {item.question!r}; correct the item")
    parts = {"before": before, "after": after.strip(), "line": item.question.replace("_", "___")}
    return replace(item, fields={**item.fields, **parts})


def gpqa(item: Item) -> Item:
    """Each choice stripped, " [title]" as a full stop, two spaces as one: lm_eval/tasks/gpqa/zeroshot/utils.py@4e7e0d4.

    The question stays as it is.
    """
    return replace(item, choices=tuple(_shown(choice) for choice in item.choices))


def hellaswag(item: Item) -> Item:
    """The question is ``label: first part Second part``, stripped and cleaned, and so is every ending.

    The second part has its first letter in upper case and all others in lower case, names included.
    EleutherAI/lm-evaluation-harness@4e7e0d4, lm_eval/tasks/hellaswag/utils.py; the same in 2023.
    """
    if (parts := _parts_of(item)) is None:
        return item
    label, first, second = parts
    endings = tuple(_cleaned_harness(ending.strip()) for ending in item.choices)
    return replace(item, question=_cleaned_harness(f"{label}: {first} {second.capitalize()}".strip()), choices=endings)


_BLANK = "  _  ."
"""How a question ends that its answer completes."""


def race(item: Item) -> Item:
    """The question becomes ``Article: ...``, every earlier question with its answer, and the bare question.

    The blank at the end of an earlier question is filled by its answer; of ``  _  .`` one space stays.
    EleutherAI/lm-evaluation-harness@4e7e0d4, lm_eval/tasks/race/preprocess_race.py.
    """
    return _after_article(item, slice(None, -len(_BLANK) + 1))


def sciq(item: Item) -> Item:
    """The passage without white space at its start; a line that is there even when the item has no passage.

    EleutherAI/lm-evaluation-harness@4e7e0d4, lm_eval/tasks/sciq/sciq.yaml.
    """
    return _with_passage(item, item.fields.get("support", "").lstrip() + "\n")


def _cmmlu_subjects(item: Item) -> Item:
    """The item of CMMLU with the field ``chinese_subject``.  Raises DataError for a subject that CMMLU has not."""
    return _named(item, "cmmlu")


def _ceval_subjects(item: Item) -> Item:
    """The item of C-Eval with the field ``chinese_subject``.  Raises DataError for a subject that C-Eval has not."""
    return _named(item, "ceval")


_GPQA_BRACKETS = re.compile(r"\[.*?\]")


def _gpqa_leaderboard(item: Item) -> Item:
    """The same, and everything in brackets removed, formulae too: lm_eval/tasks/leaderboard/gpqa/utils.py@4e7e0d4."""
    texts = (choice.strip().replace(" [title]", ". ") for choice in item.choices)
    return replace(item, choices=tuple(_GPQA_BRACKETS.sub("", text).replace("  ", " ") for text in texts))


def _hellaswag_lighteval(item: Item) -> Item:
    """As :func:`hellaswag`, but nothing is stripped and the question ends with a space.

    huggingface/lighteval@8d9ecd6, src/lighteval/tasks/default_prompts.py.
    """
    if (parts := _parts_of(item)) is None:
        return replace(item, question=f"{item.question} ")
    label, first, second = parts
    question = _cleaned_harness(f"{label}: {first} {second.capitalize()} ")
    return replace(item, question=question, choices=tuple(map(_cleaned_harness, item.choices)))


def _hellaswag_helm(item: Item) -> Item:
    """The first letter of the second part in upper case; brackets, spaces and endings stay as they are.

    stanford-crfm/helm@cab5d89, src/helm/benchmark/scenarios/commonsense_scenario.py.
    """
    if (parts := _parts_of(item)) is None:
        return item
    label, first, second = parts
    return replace(item, question=f"{label}: {first} {second[:1].upper()}{second[1:]}")


def _hellaswag_olmes(item: Item) -> Item:
    """As :func:`~.hellaswag.hellaswag`, but a full stop before WikiHow's ``[title]`` is not doubled."""
    if (parts := _parts_of(item)) is None:
        return item
    endings = tuple(_cleaned_olmes(ending.strip()) for ending in item.choices)
    return replace(item, question=_cleaned_olmes(_context(*parts).strip()), choices=endings)


def _hellaswag_olmes_listed(item: Item) -> Item:
    """The prompt is cleaned as one text: the context keeps a space at its end, and an ending has none at its beginning.

    What stands before an ending in the prompt, the full stop and space of its label, takes part in the cleaning.
    """
    if (parts := _parts_of(item)) is None:
        return item
    endings = tuple(_cleaned_olmes(f". {ending}").removeprefix(". ") for ending in item.choices)
    return replace(item, question=_cleaned_olmes(_context(*parts).lstrip()), choices=endings)


def _race_v0(item: Item) -> Item:
    """The same, but of an earlier question with a blank nothing stays except the blank itself, `` _  .``.

    An error of the source, @b281b09, lm_eval/tasks/race.py, which lighteval@8d9ecd6 has, too.
    """
    return _after_article(item, slice(-len(_BLANK) + 1, None))


def _redux_ok(item: Item) -> Item:
    """The item itself.  Raises DataError for one with another verdict (``error_type``) than ``ok``.

    Gema et al., 2024, arXiv:2406.04127; a dataset that holds nothing else may lack the field.
    """
    if (verdict := item.fields.get("error_type", "ok")) != "ok":
        raise DataError(
            f"item {item.id} has the error_type {verdict!r} and does not count; remove it, or skip bad items"
        )
    return item


def _sciq_v0(item: Item) -> Item:
    """The same, but no line where the item has no passage: the whole prompt is stripped.

    EleutherAI/lm-evaluation-harness@b281b09, lm_eval/tasks/sciq.py; lighteval likewise.
    """
    return _with_passage(item, (item.fields.get("support", "") + "\n").lstrip())


def _context(label: str, first: str, second: str) -> str:
    return f"{label}: {first} {second.capitalize()}"


_TITLE, _HELLASWAG_OLMES_BRACKETS = re.compile(r"\.? \[title\]"), re.compile(r"\[.*?\]")


def _cleaned_olmes(text: str) -> str:
    """WikiHow's titles as sentences, other brackets removed, pairs of spaces made one."""
    return _HELLASWAG_OLMES_BRACKETS.sub("", _TITLE.sub(". ", text)).replace("  ", " ")


@cache
def _descriptions() -> Mapping[str, str]:
    table: dict[str, Any] = tomllib.loads(
        (files("choicewise.protocols") / "preparations" / "bbh.toml").read_text(encoding="utf-8")
    )
    return dict(table["descriptions"])


def _named(item: Item, exam: str) -> Item:
    names = _exams()[exam]
    if item.subject not in names:
        hint = did_you_mean(item.subject, names)
        raise DataError(f"item {item.id} has the subject {item.subject!r}, which {exam} has not; {hint}")
    return replace(item, fields={**item.fields, "chinese_subject": names[item.subject]})


@cache
def _exams() -> Mapping[str, Mapping[str, str]]:
    """Exam → subject → its name in Chinese."""
    return tomllib.loads(
        files("choicewise.protocols").joinpath("preparations", "chinese_subjects.toml").read_text(encoding="utf-8")
    )


def _shown(choice: str) -> str:
    return choice.strip().replace(" [title]", ". ").replace("  ", " ")


def _parts_of(item: Item) -> tuple[str, str, str] | None:
    """Activity label and both parts of the context; None where others have put them together."""
    names = ("activity_label", "ctx_a", "ctx_b")
    missing = [name for name in names if name not in item.fields]
    if len(missing) == len(names):
        return None
    if missing:
        raise DataError(f"item {item.id} lacks {' and '.join(missing)} of {', '.join(names)}; correct the item")
    label, first, second = (item.fields[name] for name in names)
    return label, first, second


_HELLASWAG_BRACKETS = re.compile(r"\[.*?\]")


def _cleaned_harness(text: str) -> str:
    """WikiHow's titles as sentences, other brackets removed, pairs of spaces made one."""
    return _HELLASWAG_BRACKETS.sub("", text.replace(" [title]", ". ")).replace("  ", " ")


def _after_article(item: Item, kept: slice) -> Item:
    if missing := [name for name in ("article", "problems") if name not in item.fields]:
        raise DataError(
            f"item {item.id} has no field {' and no field '.join(missing)}; RACE is asked with one row per article, "
            "whose problems are a list (EleutherAI/race), not with one row per question"
        )
    try:
        problems = read_list(item.fields["problems"], "problems")[:-1]
        before = "".join(_solved(problem, kept) for problem in problems)
    except (UnusableRow, KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"item {item.id} has problems that can't be read ({error}); correct the item") from error
    return replace(item, question=f"Article: {item.fields['article']}\n\n{before}{item.question}")


def _solved(problem: Mapping[str, Any], kept: slice) -> str:
    answer = problem["options"]["ABCD".index(problem["answer"])]
    if problem["question"].endswith(_BLANK):
        return f"{problem['question'][kept]}{answer}\n"
    return f"Question: {problem['question']}\nAnswer: {answer}\n"


def _with_passage(item: Item, passage: str) -> Item:
    return replace(item, fields={**item.fields, "passage": passage})


Preparation = Callable[[Item], Item]
"""From an item to the item that templates show.  Raises DataError for an item that lacks what it needs."""

PREPARATIONS: Mapping[str, Preparation] = {
    "none": lambda item: item,
    "gap": gap,
    "hellaswag-olmes": _hellaswag_olmes,
    "hellaswag-olmes-listed": _hellaswag_olmes_listed,
    "hellaswag": hellaswag,
    "hellaswag-lighteval": _hellaswag_lighteval,
    "hellaswag-helm": _hellaswag_helm,
    "copa": copa,
    "sciq": sciq,
    "sciq-v0": _sciq_v0,
    "race": race,
    "race-v0": _race_v0,
    "cmmlu-subjects": _cmmlu_subjects,
    "ceval-subjects": _ceval_subjects,
    "redux-ok": _redux_ok,
    "gpqa": gpqa,
    "gpqa-leaderboard": _gpqa_leaderboard,
    "bbh": bbh,
}
"""Every preparation; a preparation whose source changes gets a second name."""

SHOWS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("hellaswag", "hellaswag-lighteval", "hellaswag-helm", "hellaswag-olmes", "hellaswag-olmes-listed"),
        ("activity_label", "ctx_a", "ctx_b"),
    ),
    "copa": ("asks_for",),
    **dict.fromkeys(("sciq", "sciq-v0"), ("support",)),
    **dict.fromkeys(("race", "race-v0"), ("article", "problems")),
}
"""Preparation → the item's fields that it puts into the question, or into fields that templates show."""
