"""The rows of a task as the harness asks them: items and requests of ours, and templates that make the same requests.

What stands between double braces becomes a hole of that name, and every item a field of that name with what the harness
puts there; so the text of the protocol is the text of the task file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, NamedTuple

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ChoicewiseError, DataError, ProtocolError
from choicewise.extensions.interop.harness_tasks.load import SEEDS, TaskTemplates
from choicewise.protocols.protocol import NEUTRAL, Protocol
from choicewise.requests.render import RenderedRequests, TemplateSource
from choicewise.requests.request import Request
from choicewise.util.text import has_half_character

COMMON: Mapping[str, Any] = {"fit": "cut-start", "boundary": "moved-space"}
"""How the harness cuts what is too long and where it puts the boundary (lm_eval/models/huggingface.py, 0.4.13)."""


@dataclass(frozen=True, slots=True)
class AskedRow:
    """One row of a task.

    ``query``: its own text without description and shots.  ``contexts``: one for all choices, or one for each;
    ``continuations``: one for each choice.  ``choices``: their texts; ``gold``: indices of the right ones.
    ``refused``: why it can't be asked; then nothing else is sure.  ``read_as_index``: its target is the text of one
    choice and was taken as the index of another.  ``own_shot``: it stands among its own shots.
    """

    doc: Mapping[str, Any]
    query: str = ""
    contexts: tuple[str, ...] = ()
    continuations: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    gold: tuple[int, ...] = ()
    refused: str | None = None
    read_as_index: bool = False
    own_shot: bool = False


@dataclass(frozen=True)
class AskedTask:
    """One task as it is asked: the harness's object, its number of few-shot examples, rows and items.

    ``split``: what is asked; ``numbers``: which rows the ``items`` are, counted from 0; ``pool``: items to be shown, by
    the name of their split.  ``template``: how it asks; None where no protocol of ours says that, for the ``reason``,
    and then there is no pool.
    """

    task: Any
    shots: int
    rows: Sequence[AskedRow]
    split: str
    items: tuple[Item, ...]
    numbers: tuple[int, ...]
    template: _Template | None
    pool: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    reason: str = ""


TaskForm = tuple[Mapping[str, Any], RenderedRequests | None, str]
"""The axes that render the requests of tasks; those that no template renders, and the reason; else None and nothing."""


def asked_rows(task: Any, shots: int) -> Iterator[AskedRow]:
    """Every row of the evaluated split, in order, with ``shots`` drawn by the harness's own stream.

    Raises DataError for a row that the harness itself can't make a request of.
    """
    task.set_fewshot_seed(SEEDS["shots"])
    drawn: list[Any] = []  # the shots of the latest row
    if shots:
        sample = task.sampler.sample

        def recording(*args: Any, **kwargs: Any) -> Any:
            drawn.extend(own := sample(*args, **kwargs))
            return own

        task.sampler.sample = recording
    for number, doc in enumerate(task.eval_docs):
        drawn.clear()
        try:
            row = _asked(task, doc, shots, drawn)
        except ChoicewiseError as error:
            raise DataError(f"task {task.config.task}, row {number}: {error.message}") from error
        except Exception as error:
            reason = (
                f"the harness makes no request of it ({type(error).__name__}: {str(error)[:200]})"
            )
            raise DataError(f"task {task.config.task}, row {number}: {reason}") from error
        if has_half_character("".join((row.query, *row.contexts, *row.continuations))):
            row = AskedRow(doc, refused="a text holds half a character, which no file can store")
        yield row


def asked_task(
    task: Any, subject: str, shots: int, rows: Sequence[AskedRow], templates: TaskTemplates
) -> AskedTask:
    """``task`` with the items of its ``rows``; ``subject``: its name in a group, empty outside."""
    template, reason = None, ""
    try:
        template = _task_template(task)
    except Inexpressible as error:
        reason = str(error)

    def items(
        numbers: Iterable[int],
        docs: Sequence[Any],
        queries: Sequence[str],
        answers: Iterable[_Answer],
    ) -> Any:
        """The items of ``docs``: their fields, and their queries where no single hole is the question."""
        filled = (
            [(None, {}) for _ in docs]
            if template is None
            else _fill_fields(template, docs, templates)
        )
        start = f"{subject}/" if subject else ""
        more = (
            {_DESCRIPTION: task.config.description or ""}
            if subject and template is not None
            else {}
        )
        return tuple(
            Item(
                f"{start}{number}",
                query if asked is None else asked,
                choices,
                gold,
                subject,
                {**fields, **more},
            )
            for number, query, (choices, gold), (asked, fields) in zip(
                numbers, queries, answers, filled, strict=True
            )
        )

    numbers = tuple(number for number, row in enumerate(rows) if row.refused is None)
    own = [rows[number] for number in numbers]
    asked = items(
        numbers,
        [row.doc for row in own],
        [row.query for row in own],
        [(row.choices, row.gold) for row in own],
    )
    split = str(task.config.test_split if task.has_test_docs() else task.config.validation_split)
    source, docs = _pool(task)
    pool = {}
    if template is not None and source not in (None, split):
        answers = [_answered(task, doc) for doc in docs]
        known = [each for each in answers if not isinstance(each, str)]
        if wrong := [each for each in answers if isinstance(each, str)]:
            reason = f"a row of split {source} can't be shown: {wrong[0]}"
        else:
            queries = [
                "" if template.asked is not None else str(task.doc_to_text(doc)) for doc in docs
            ]
            pool = {source: items(range(len(docs)), docs, queries, known)}
    return AskedTask(task, shots, rows, split, asked, numbers, template, pool, reason)


def task_form(name: str, asked: Sequence[AskedTask], data: Dataset) -> TaskForm:
    """The form of the requests of tasks whose items are all of ``data``.

    Templates are taken only where they render every request to the letter as the harness did.
    """
    split = asked[0].split
    try:
        axes = _axes(asked)
        _verify(asked, data, Protocol(benchmark=name, split=split, **{**COMMON, **axes}))
        return {"split": split, **axes}, None, ""
    except (Inexpressible, DataError, ProtocolError) as error:
        requests = {
            item.id: _request(item, each.rows[number])
            for each in asked
            for number, item in zip(each.numbers, each.items, strict=True)
        }
        rendered = RenderedRequests(name, requests)
        return (
            {"split": split, **NEUTRAL, "requests": rendered.digest},
            rendered,
            str(error).split("\n")[0],
        )


class Inexpressible(Exception):
    """A task whose requests no protocol of ours renders, and why."""


_Answer = tuple[tuple[str, ...], tuple[int, ...]]
"""Choices, and which of them are right."""

_DESCRIPTION = "task description"
"""The field with what stands before everything else, where the tasks of a group differ in it."""


def _axes(asked: Sequence[AskedTask]) -> dict[str, Any]:
    """The axes that are those of all tasks; raises Inexpressible where there are none."""
    forms: list[dict[str, Any]] = []
    for each in asked:
        if each.template is None:
            raise Inexpressible(each.reason)
        shots = _shot_axes(each.task, each.shots)
        if each.shots and each.reason:
            raise Inexpressible(each.reason)
        forms.append({**each.template.axes, **shots})
    if len({form["header"] for form in forms}) > 1:
        forms = [{**form, "header": "{" + _DESCRIPTION + "}"} for form in forms]
    for form in forms[1:]:
        if differ := [axis for axis in form if form[axis] != forms[0][axis]]:
            raise Inexpressible(f"its tasks differ in {', '.join(differ)}")
    return forms[0]


def _verify(asked: Sequence[AskedTask], data: Dataset, protocol: Protocol) -> None:
    """Raise Inexpressible at the first request that ``protocol`` renders in another way."""
    source = TemplateSource(protocol, data)
    for each in asked:
        subject = each.items[0].subject if each.items else ""
        for number, request in zip(each.numbers, source.requests(subject, each.items), strict=True):
            row = each.rows[number]
            if not isinstance(request, Request):
                raise Inexpressible(request.reason.message)
            if ((request.context(),), request.continuations) != (row.contexts, row.continuations):
                raise Inexpressible(f"row {number} comes out in another way")


def _request(item: Item, row: AskedRow) -> Request:
    own = len(row.contexts) > 1
    return Request(
        item=item,
        header="",
        shots=(),
        query="" if own else row.contexts[0],
        separator="",
        continuations=row.continuations,
        options=row.choices,
        gold=item.gold,
        parts=tuple((continuation,) for continuation in row.continuations),
        proposals=row.contexts if own else (),
    )


def _pool(task: Any) -> tuple[str | None, tuple[Any, ...]]:
    """The split that examples come from, None where there is none, and its rows as the task has processed them.

    Source: lm_eval/api/task.py, 0.4.13, fewshot_docs.
    """
    if getattr(task, "sampler", None) is None:
        return None, ()
    config, shots = task.config, task.fewshot_cfg
    names = [shots.split, "fewshot" if shots.samples is not None else None]
    names += [config.training_split, config.validation_split, config.test_split]
    return str(next(name for name in names if name is not None)), tuple(task.sampler.df)


def _shot_axes(task: Any, shots: int) -> dict[str, Any]:
    """The axes about examples; raises Inexpressible for a sampler that is none of ours."""
    if not shots:
        return {"shots": 0, "shot_split": None, "sampler": "none"}
    from lm_eval.api.samplers import ContextSampler, FirstNSampler

    kind, spare = type(task.sampler), task.fewshot_cfg.split == task.config.test_split
    ours = {
        (ContextSampler, False): "harness",
        (ContextSampler, True): "harness-spare",
        (FirstNSampler, False): "first",
    }
    if (sampler := ours.get((kind, spare))) is None:
        raise Inexpressible(
            f"its sampler is {kind.__name__}" + ", which leaves out the row itself" * spare
        )
    seed = None if sampler == "first" else SEEDS["shots"]
    return {"shots": shots, "shot_split": _pool(task)[0], "sampler": sampler, "seed": seed}


class _Template(NamedTuple):
    """How a task asks, as ``axes``, and the expressions that fill its holes.

    ``asked``: the hole that is the item's question; None where there are several, so that the whole query is.
    ``fields``: further hole → the template that fills it.
    """

    axes: Mapping[str, Any]
    asked: str | None
    fields: Mapping[str, str]


_TAKEN = frozenset({"question", "options", "subject", "letter", "choice"})
"""Holes that mean something else in our templates."""


def _task_template(task: Any) -> _Template:
    """The templates of ``task``; raises Inexpressible where it has code, statements, or a shape of its own."""
    config, shots = task.config, task.fewshot_cfg
    if task.multiple_input:
        raise Inexpressible("its choices are contexts")
    if not isinstance(config.doc_to_text, str):
        raise Inexpressible("doc_to_text is no template")
    if config.gen_prefix is not None:
        raise Inexpressible("it has a gen_prefix")
    for key in ("doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix"):
        if getattr(shots, key) != getattr(config, key):
            raise Inexpressible(f"its shots have a {key} of their own")
    pieces = _pieces(config.doc_to_text, task.features)
    before = _pieces(config.description or "", task.features)
    holes = list(dict.fromkeys(text for text, is_hole in pieces if is_hole))
    asked = "question" if "question" in holes else holes[0] if len(holes) == 1 else None
    names = {hole: f"doc.{hole}" if hole in _TAKEN else hole for hole in holes}
    header_names = {
        text: f"doc.{text}" if text in _TAKEN else text for text, is_hole in before if is_hole
    }
    fields = {
        name: hole
        for hole, name in {**names, **header_names}.items()
        if hole != asked or hole in header_names
    }
    single = task.OUTPUT_TYPE == "loglikelihood"
    axes = {
        "header": _spelled(before, header_names),
        "question": _spelled(pieces, names if asked is None else {**names, asked: "question"}),
        "option": "",
        "answer": _escaped(shots.target_delimiter) + "{choice}",
        "continuation": _escaped("" if single else config.target_delimiter) + "{choice}",
        "separator": shots.fewshot_delimiter,
        "choices": 1 if single else None,
    }
    return _Template(axes, asked, {name: "{{" + hole + "}}" for name, hole in fields.items()})


def _fill_fields(
    template: _Template, docs: Sequence[Mapping[str, Any]], templates: TaskTemplates
) -> list[tuple[str | None, dict[str, str]]]:
    """For each of ``docs`` the question, None where the whole query is it, and the fields."""
    names = list(template.fields)
    asked = [] if template.asked is None else ["{{" + template.asked + "}}"]
    if not asked and not names:
        return [(None, {}) for _ in docs]
    filled = templates.fill_all([*asked, *template.fields.values()], docs)
    return [
        (texts[0] if asked else None, dict(zip(names, texts[len(asked) :], strict=True)))
        for texts in filled
    ]


def _pieces(template: str, features: Iterable[str]) -> list[tuple[str, bool]]:
    """(text, False) for plain text and (expression, True) for what stands between double braces."""
    from jinja2 import Environment, TemplateSyntaxError

    if template in features:
        return [(template, True)]
    pieces: list[tuple[str, bool]] = []
    try:
        tokens = list(Environment(keep_trailing_newline=True).lex(template))
    except TemplateSyntaxError as error:
        raise Inexpressible(f"a template is no valid Jinja ({error.message})") from error
    expression: list[str] | None = None
    for _, kind, text in tokens:
        if kind == "data":
            pieces.append((text, False))
        elif kind == "variable_begin" and text == "{{":
            expression = []
        elif kind == "variable_end" and text == "}}" and expression is not None:
            spelled = "".join(expression).strip()
            if "{" in spelled or "}" in spelled or not spelled:
                raise Inexpressible(f"a hole can't be called {spelled!r}")
            pieces.append((spelled, True))
            expression = None
        elif expression is not None:
            expression.append(text)
        else:
            raise Inexpressible(f"a template has more than text and expressions ({text.strip()!r})")
    return pieces


def _spelled(pieces: Iterable[tuple[str, bool]], names: Mapping[str, str]) -> str:
    return "".join(
        "{" + names[text] + "}" if is_hole else _escaped(text) for text, is_hole in pieces
    )


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _asked(task: Any, doc: Mapping[str, Any], shots: int, drawn: Sequence[Any]) -> AskedRow:
    context = task.fewshot_context(doc, num_fewshot=shots, gen_prefix=task.doc_to_prefix(doc))
    own_shot = any(shot == doc for shot in drawn)
    if task.OUTPUT_TYPE == "loglikelihood":
        target = task.doc_to_target(doc)
        if not isinstance(target, str) or not target:
            return AskedRow(
                doc, refused=f"its target is {target!r}, and not a text that can be scored"
            )
        return AskedRow(
            doc, task.doc_to_text(doc), (context,), (target,), (target,), (0,), own_shot=own_shot
        )
    choices = task.doc_to_choice(doc)
    if (wrong := _wrong_choices(choices)) is not None:
        return AskedRow(doc, refused=wrong)
    instances = task.construct_requests(doc, context, metadata=(task.config.task, 0, 1))
    pairs = [instance.args for instance in instances][: len(choices)]
    several = bool(task.multiple_input)
    contexts = [pair[0] for pair in pairs] if several else dict.fromkeys(pair[0] for pair in pairs)
    target = task.doc_to_text(doc) if several else task.doc_to_target(doc)
    gold = _gold(target, choices, bool(task.multiple_target))
    refused = gold if isinstance(gold, str) else None
    return AskedRow(
        doc,
        pairs[0][1].strip() if several else str(task.doc_to_text(doc)),
        tuple(contexts),
        tuple(pair[1] for pair in pairs),
        tuple(choices),
        () if isinstance(gold, str) else gold,
        refused,
        not refused and _was_text(task, doc, choices),
        own_shot,
    )


def _answered(task: Any, doc: Mapping[str, Any]) -> _Answer | str:
    """The choices of a row that is shown as an example, and which are right, or why that is not known."""
    target = task.doc_to_target(doc)
    if task.OUTPUT_TYPE == "loglikelihood":
        return (
            ((target,), (0,)) if isinstance(target, str) and target else f"its target is {target!r}"
        )
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
        kinds = (
            ("a list", "the first row's is none")
            if isinstance(target, list)
            else ("no list", "the first row's is")
        )
        return f"its target {target!r} is {kinds[0]}, and {kinds[1]}"
    if isinstance(target, str):
        return (
            (choices.index(target),)
            if target in choices
            else f"its target {target[:80]!r} is none of its choices"
        )
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
