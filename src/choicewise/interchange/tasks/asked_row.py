"""The rows of a loaded task as the harness would send them, and which of them have no right answer that counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from choicewise.data.cell import has_half_character
from choicewise.errors import ChoicewiseError, DataError
from choicewise.interchange.tasks.loading import SEEDS


@dataclass(frozen=True, slots=True)
class AskedRow:
    """One row of a task.

    ``query``: its own text without description and shots.  ``contexts``: one for all choices, or one for each;
    ``continuations``: one for each choice.  ``choices``: their texts; ``gold``: indices of the right ones.
    ``refused``: why it can't be asked; then nothing else is sure.  ``read_as_index``: its target is the text of one
    choice and was taken as the index of another.  ``own_shot``: it stands among its own shots.
    """

    doc: Mapping[str, Any]
    query: str
    contexts: tuple[str, ...]
    continuations: tuple[str, ...]
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    refused: str | None = None
    read_as_index: bool = False
    own_shot: bool = False


def asked_rows(task: Any, shots: int) -> Iterator[AskedRow]:
    """Every row of the evaluated split, in order, with ``shots`` drawn by the harness's own stream.

    Raises DataError for a row that the harness itself can't make a request of.
    """
    task.set_fewshot_seed(SEEDS["shots"])
    drawn = _recorded(task) if shots else []
    for number, doc in enumerate(task.eval_docs):
        drawn.clear()
        try:
            yield _asked(task, doc, shots, drawn)
        except ChoicewiseError as error:
            raise DataError(f"task {task.config.task}, row {number}: {error.message}") from error
        except Exception as error:
            reason = f"the harness makes no request of it ({type(error).__name__}: {str(error)[:200]})"
            raise DataError(f"task {task.config.task}, row {number}: {reason}") from error


def _recorded(task: Any) -> list[Any]:
    """A list that has the shots of the latest row."""
    drawn: list[Any] = []
    sample = task.sampler.sample

    def recording(*args: Any, **kwargs: Any) -> Any:
        shots = sample(*args, **kwargs)
        drawn.extend(shots)
        return shots

    task.sampler.sample = recording
    return drawn


def _asked(task: Any, doc: Mapping[str, Any], shots: int, drawn: Sequence[Any]) -> AskedRow:
    context = task.fewshot_context(doc, num_fewshot=shots, gen_prefix=task.doc_to_prefix(doc))
    own_shot = any(shot == doc for shot in drawn)
    if task.OUTPUT_TYPE == "loglikelihood":
        target = task.doc_to_target(doc)
        if not isinstance(target, str) or not target:
            return AskedRow(doc, "", (), (), (), (), f"its target is {target!r}, and not a text that can be scored")
        return _checked(AskedRow(doc, task.doc_to_text(doc), (context,), (target,), (target,), (0,), own_shot=own_shot))
    choices = task.doc_to_choice(doc)
    if (wrong := _wrong_choices(choices)) is not None:
        return AskedRow(doc, "", (), (), (), (), wrong)
    instances = task.construct_requests(doc, context, metadata=(task.config.task, 0, 1))
    pairs = [instance.args for instance in instances][: len(choices)]
    contexts = tuple(dict.fromkeys(pair[0] for pair in pairs)) if not task.multiple_input else [p[0] for p in pairs]
    query = pairs[0][1].strip() if task.multiple_input else str(task.doc_to_text(doc))
    target = task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc)
    gold = _gold(target, choices, bool(task.multiple_target))
    refused = gold if isinstance(gold, str) else None
    row = AskedRow(
        doc,
        query,
        tuple(contexts),
        tuple(pair[1] for pair in pairs),
        tuple(choices),
        () if isinstance(gold, str) else gold,
        refused,
        not refused and _was_text(task, doc, choices),
        own_shot,
    )
    return _checked(row)


def _checked(row: AskedRow) -> AskedRow:
    if has_half_character("".join((row.query, *row.contexts, *row.continuations))):
        return AskedRow(row.doc, "", (), (), (), (), "a text holds half a character, which no file can store")
    return row


def answered(task: Any, doc: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[int, ...]] | str:
    """The choices of a row that is shown as an example, and which are right, or why that is not known."""
    target = task.doc_to_target(doc)
    if task.OUTPUT_TYPE == "loglikelihood":
        return ((target,), (0,)) if isinstance(target, str) and target else f"its target is {target!r}"
    choices = task.doc_to_choice(doc)
    gold = _wrong_choices(choices) or _gold(target, choices, bool(task.multiple_target))
    return gold if isinstance(gold, str) else (tuple(choices), gold)


def _wrong_choices(choices: Any) -> str | None:
    if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
        return None
    return f"its choices are {str(choices)[:80]!r}, and not a list of texts"


def _gold(target: Any, choices: Sequence[str], several: bool) -> tuple[int, ...] | str:
    """The right choices, or why they are not known.

    ``several``: whether the first row of the task has a list, after which the harness judges all rows
    (lm_eval/api/task.py, 0.4.13, process_results).  What it takes for a wrong answer without a word, or counts from the
    end, is no answer here.
    """
    if isinstance(target, list) != several:
        kinds = ("a list", "the first row's is none") if isinstance(target, list) else ("no list", "the first row's is")
        return f"its target {target!r} is {kinds[0]}, and {kinds[1]}"
    if isinstance(target, str):
        if target not in choices:
            return f"its target {target[:80]!r} is none of its choices"
        return (choices.index(target),)
    indices = target if isinstance(target, list) else [target]
    for index in indices:
        if not isinstance(index, Integral) or not 0 <= int(index) < len(choices):
            return f"its target {target!r} is no index of its {len(choices)} choices"
    return tuple(sorted({int(index) for index in indices})) or "it has no target"


def _was_text(task: Any, doc: Mapping[str, Any], choices: Sequence[str]) -> bool:
    """Whether the target was a text of digits, one of the choices, and taken as the index of another choice."""
    template = task.config.doc_to_text if task.multiple_input else task.config.doc_to_target
    if not isinstance(template, str) or template in task.features:
        return False
    from lm_eval import utils

    text = utils.apply_template(template, doc)
    return text.isdigit() and text in choices and choices.index(text) != int(text)
