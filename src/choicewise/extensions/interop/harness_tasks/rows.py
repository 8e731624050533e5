"""Make items, requests and templates of ours of the harness's rows of a task.

An expression between double braces becomes a hole of that name, and every item gets a field of that
name with the harness's text for it; so the text of the protocol is the text of the task file.
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
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.text import has_half_character

Axes = Mapping[str, Any]
"""Axes of a protocol by name."""

COMMON: Axes = {"fit": "cut-start", "boundary": "moved-space"}
"""Cut of long texts, and start of a continuation (lm_eval/models/huggingface.py, 0.4.13)."""


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    """Hold a row of a task with its request.

    ``query``: its text without description and shots.  ``contexts``: one for all choices, or one
    for each.  ``continuations`` and ``choices``: one for each choice, as it is scored and as it is
    in the data.  ``gold``: indices of the right choices.  ``refused``: why the row can't be scored;
    its ``gold`` is empty then.  ``read_as_index``: the target is the text of a choice and is taken
    as the index of another.  ``own_shot``: the row is among its shots.
    """

    doc: JsonMapping
    query: str = ""
    contexts: tuple[str, ...] = ()
    continuations: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    gold: tuple[int, ...] = ()
    refused: str | None = None
    read_as_index: bool = False
    own_shot: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """Hold a task of the harness with its number of few-shot examples, its rows and items.

    ``split``: the split of the rows.  ``numbers``: for each of the ``items`` the index of its row.
    ``pool``: items for examples by the name of their split.  ``template``: the form of the
    requests, None if no protocol of ours has it; then there is no pool.  ``reason``: why the
    template or the pool can't be used, "" if they can.
    """

    task: Any
    shots: int
    rows: Sequence[TaskRow]
    split: str
    items: tuple[Item, ...]
    numbers: tuple[int, ...]
    template: _Template | None
    pool: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class TaskForm:
    """Hold the axes that render the requests of tasks.

    ``rendered``: the requests themselves, if no template renders them, and the ``reason`` for that.
    """

    axes: Axes
    rendered: RenderedRequests | None = None
    reason: str = ""


def task_rows(task: Any, shots: int) -> Iterator[TaskRow]:
    """Yield every row of the evaluated split, with ``shots`` drawn by the harness's random stream.

    Raises DataError for a row that the harness can't make a request of.
    """
    task.set_fewshot_seed(SEEDS["shots"])
    # The harness does not tell which shots it draws, so they are recorded.
    drawn: list[Any] = []
    if shots:
        sample = task.sampler.sample

        def recording(*args: Any, **kwargs: Any) -> Any:
            examples = sample(*args, **kwargs)
            drawn.extend(examples)
            return examples

        task.sampler.sample = recording
    for number, doc in enumerate(task.eval_docs):
        drawn.clear()
        try:
            row = _task_row(task, doc, shots, drawn)
        except ChoicewiseError as error:
            raise DataError(f"task {task.config.task}, row {number}: {error.message}") from error
        except Exception as error:
            reason = (
                f"the harness makes no request of it ({type(error).__name__}: {str(error)[:200]})"
            )
            raise DataError(f"task {task.config.task}, row {number}: {reason}") from error
        if has_half_character("".join((row.query, *row.contexts, *row.continuations))):
            refused = "a text holds half a character, which no file can store"
            row = TaskRow(doc=doc, refused=refused)
        yield row


def task_data(
    task: Any, subject: str, shots: int, rows: Sequence[TaskRow], templates: TaskTemplates
) -> TaskData:
    """Return ``task`` with the items of its ``rows``; ``subject``: its name in a group, else ""."""
    template = None
    reason = ""
    try:
        template = _task_template(task)
    except Inexpressible as error:
        reason = str(error)
    usable = {number: row for number, row in enumerate(rows) if row.refused is None}
    filler = _Filler(task, subject, template, templates)
    items = filler.items(usable)
    split = task.config.validation_split
    if task.has_test_docs():
        split = task.config.test_split
    pool: dict[str, tuple[Item, ...]] = {}
    source, docs = _pool(task)
    if template is not None and source is not None and source != str(split):
        try:
            pool_rows = [_pool_row(task, doc, template) for doc in docs]
            pool = {source: filler.items(dict(enumerate(pool_rows)))}
        except _Unusable as error:
            reason = f"a row of split {source} can't be shown: {error}"
    return TaskData(
        task=task,
        shots=shots,
        rows=rows,
        split=str(split),
        items=items,
        numbers=tuple(usable),
        template=template,
        pool=pool,
        reason=reason,
    )


@dataclass(frozen=True)
class _Filler:
    """Make items of rows, whose fields fill the holes of a template."""

    task: Any
    subject: str
    template: _Template | None
    templates: TaskTemplates

    def items(self, row_of_number: Mapping[int, TaskRow]) -> tuple[Item, ...]:
        """Return an item for each row; its question is the query, unless a hole is."""
        docs = [row.doc for row in row_of_number.values()]
        start = ""
        description: dict[str, str] = {}
        if self.subject:
            start = f"{self.subject}/"
        if self.subject and self.template is not None:
            description = {_DESCRIPTION: self.task.config.description or ""}
        items = []
        all_texts = self._fill(docs)
        for (number, row), texts in zip(row_of_number.items(), all_texts, strict=True):
            item = Item(
                id=f"{start}{number}",
                question=texts.pop("question", row.query),
                choices=row.choices,
                gold=row.gold,
                subject=self.subject,
                fields=texts | description,
            )
            items.append(item)
        return tuple(items)

    def _fill(self, docs: Sequence[JsonMapping]) -> list[dict[str, str]]:
        """Return the texts of the holes for each of ``docs``, by the names of the holes."""
        if self.template is None or not self.template.holes:
            return [{} for _ in docs]
        names = list(self.template.holes)
        expressions = [f"{{{{{expression}}}}}" for expression in self.template.holes.values()]
        filled = self.templates.fill_all(expressions, docs)
        return [dict(zip(names, texts, strict=True)) for texts in filled]


def task_form(name: str, tasks: Sequence[TaskData], data: Dataset) -> TaskForm:
    """Return the form of the requests of ``tasks``, whose items are all of ``data``.

    Templates are taken only if they render every request to the letter as the harness does.
    """
    split = tasks[0].split
    try:
        axes = _axes(tasks)
        _verify(tasks, data, Protocol(benchmark=name, split=split, **{**COMMON, **axes}))
        return TaskForm({"split": split, **axes})
    except (Inexpressible, DataError, ProtocolError) as error:
        requests = {}
        for task in tasks:
            for number, item in zip(task.numbers, task.items, strict=True):
                requests[item.id] = _request(item, task.rows[number])
        rendered = RenderedRequests(name, requests)
        axes = {"split": split, **NEUTRAL, "requests": rendered.digest}
        return TaskForm(axes, rendered, str(error).split("\n")[0])


class Inexpressible(Exception):
    """Tell why no protocol of ours renders the requests of a task."""


class _Unusable(Exception):
    """Tell why a row can't be scored, or be an example."""


_DESCRIPTION = "task description"
"""Field with the text before everything else, if the tasks of a group differ in it."""


def _axes(tasks: Sequence[TaskData]) -> JsonDict:
    """Return the axes of all tasks.  Raises Inexpressible if tasks differ, or have none."""
    forms: list[JsonDict] = []
    for task in tasks:
        if task.template is None:
            raise Inexpressible(task.reason)
        shots = _shot_axes(task.task, task.shots)
        if task.shots and task.reason:
            raise Inexpressible(task.reason)
        forms.append({**task.template.axes, **shots})
    # A description that differs becomes a field of the items.
    if len({form["header"] for form in forms}) > 1:
        for form in forms:
            form["header"] = f"{{{_DESCRIPTION}}}"
    first = forms[0]
    for form in forms:
        different = [axis for axis in form if form[axis] != first[axis]]
        if different:
            raise Inexpressible(f"its tasks differ in {', '.join(different)}")
    return first


def _verify(tasks: Sequence[TaskData], data: Dataset, protocol: Protocol) -> None:
    """Check that ``protocol`` renders every request as the harness does.  Raises Inexpressible."""
    source = TemplateSource(protocol, data)
    for task in tasks:
        subject = ""
        if task.items:
            subject = task.items[0].subject
        requests = source.requests(subject, task.items)
        for number, request in zip(task.numbers, requests, strict=True):
            if not isinstance(request, Request):
                raise Inexpressible(request.reason.message)
            row = task.rows[number]
            # A template renders one context for all choices.
            has_context = (request.context(),) == row.contexts
            if not has_context or request.continuations != row.continuations:
                raise Inexpressible(f"row {number} is rendered differently")


def _request(item: Item, row: TaskRow) -> Request:
    # Choices with contexts of their own have no common query.
    query = ""
    proposals = row.contexts
    if len(row.contexts) == 1:
        query = row.contexts[0]
        proposals = ()
    return Request(
        item=item,
        header="",
        shots=(),
        query=query,
        separator="",
        continuations=row.continuations,
        options=row.choices,
        gold=item.gold,
        parts=tuple((continuation,) for continuation in row.continuations),
        proposals=proposals,
    )


def _pool(task: Any) -> tuple[str | None, tuple[Any, ...]]:
    """Return the split that examples come from, None if there is none, and its processed rows.

    Source: lm_eval/api/task.py, 0.4.13, fewshot_docs.
    """
    if getattr(task, "sampler", None) is None:
        return None, ()
    names = [task.fewshot_cfg.split]
    if task.fewshot_cfg.samples is not None:
        names.append("fewshot")
    names += [task.config.training_split, task.config.validation_split, task.config.test_split]
    # The harness takes the first of these splits that a task has.
    name = next(name for name in names if name is not None)
    return str(name), tuple(task.sampler.df)


def _shot_axes(task: Any, shots: int) -> JsonDict:
    """Return the axes of examples.  Raises Inexpressible for a sampler that is none of ours."""
    if not shots:
        return {"shots": 0, "shot_split": None, "sampler": "none"}
    from lm_eval.api.samplers import ContextSampler, FirstNSampler

    kind = type(task.sampler)
    # Examples of the evaluated split leave out the row itself, for which one more is drawn.
    is_spare = task.fewshot_cfg.split == task.config.test_split
    seed: int | None = SEEDS["shots"]
    if kind is ContextSampler and is_spare:
        sampler = "harness-spare"
    elif kind is ContextSampler:
        sampler = "harness"
    elif kind is FirstNSampler and not is_spare:
        sampler = "first"
        seed = None
    elif is_spare:
        raise Inexpressible(f"its sampler is {kind.__name__}, which leaves out the row itself")
    else:
        raise Inexpressible(f"its sampler is {kind.__name__}")
    shot_split, _ = _pool(task)
    return {"shots": shots, "shot_split": shot_split, "sampler": sampler, "seed": seed}


@dataclass(frozen=True)
class _Template:
    """Hold the ``axes`` by which a task renders its requests.

    ``holes``: the expression that fills each hole; the hole ``question`` is the item's question,
    and without it the whole query is.
    """

    axes: Axes
    holes: Mapping[str, str]


class _Piece(NamedTuple):
    """Hold a part of a template: plain text, or the expression of a hole."""

    text: str
    is_hole: bool = False


_TAKEN = frozenset({"question", "options", "subject", "letter", "choice"})
"""Holes that mean something else in our templates."""


def _task_template(task: Any) -> _Template:
    """Return the template of ``task``.

    Raises Inexpressible if it has code, statements, or a shape of its own.
    """
    _check_shape(task)
    config = task.config
    pieces = _pieces(config.doc_to_text, task.features)
    header_pieces = _pieces(config.description or "", task.features)
    expressions = _expressions(pieces)
    question = None
    if "question" in expressions:
        question = "question"
    elif len(expressions) == 1:
        question = expressions[0]
    names = {expression: _hole_name(expression) for expression in expressions}
    header_names = {
        expression: _hole_name(expression) for expression in _expressions(header_pieces)
    }
    holes = {}
    if question is not None:
        holes["question"] = question
    for expression, name in (names | header_names).items():
        if expression != question or expression in header_names:
            holes[name] = expression
    if question is not None:
        names[question] = "question"
    is_single = task.OUTPUT_TYPE == "loglikelihood"
    delimiter = config.target_delimiter
    choices = None
    if is_single:
        # The harness scores the target of such a task without a delimiter.
        delimiter = ""
        choices = 1
    axes = {
        "header": _spelled(header_pieces, header_names),
        "question": _spelled(pieces, names),
        "option": "",
        "answer": f"{_escaped(task.fewshot_cfg.target_delimiter)}{{choice}}",
        "continuation": f"{_escaped(delimiter)}{{choice}}",
        "separator": task.fewshot_cfg.fewshot_delimiter,
        "choices": choices,
    }
    return _Template(axes, holes)


def _check_shape(task: Any) -> None:
    """Raise Inexpressible for a task whose requests have a shape that templates lack."""
    if task.multiple_input:
        raise Inexpressible("its choices are contexts")
    if not isinstance(task.config.doc_to_text, str):
        raise Inexpressible("doc_to_text is no template")
    if task.config.gen_prefix is not None:
        raise Inexpressible("it has a gen_prefix")
    for key in ("doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix"):
        if getattr(task.fewshot_cfg, key) != getattr(task.config, key):
            raise Inexpressible(f"its shots have a {key} of their own")


def _expressions(pieces: Iterable[_Piece]) -> list[str]:
    return list(dict.fromkeys(piece.text for piece in pieces if piece.is_hole))


def _hole_name(expression: str) -> str:
    if expression in _TAKEN:
        return f"doc.{expression}"
    return expression


def _pieces(template: str, features: Iterable[str]) -> list[_Piece]:
    """Split a template into plain text and the expressions between double braces."""
    from jinja2 import Environment, TemplateSyntaxError

    # The harness reads the name of a column as the column.
    if template in features:
        return [_Piece(template, is_hole=True)]
    try:
        tokens = list(Environment(keep_trailing_newline=True).lex(template))
    except TemplateSyntaxError as error:
        raise Inexpressible(f"a template is not valid Jinja ({error.message})") from error
    pieces = []
    expression: list[str] | None = None
    for _, kind, text in tokens:
        if kind == "data":
            pieces.append(_Piece(text))
        elif kind == "variable_begin" and text == "{{":
            expression = []
        elif expression is None:
            raise Inexpressible(f"a template has more than text and expressions ({text.strip()!r})")
        elif kind == "variable_end" and text == "}}":
            hole = "".join(expression).strip()
            # Our templates have the name of a hole between single braces.
            if not hole or "{" in hole or "}" in hole:
                raise Inexpressible(f"a placeholder can't be called {hole!r}")
            pieces.append(_Piece(hole, is_hole=True))
            expression = None
        else:
            expression.append(text)
    return pieces


def _spelled(pieces: Iterable[_Piece], names: Mapping[str, str]) -> str:
    parts = []
    for piece in pieces:
        if piece.is_hole:
            parts.append(f"{{{names[piece.text]}}}")
        else:
            parts.append(_escaped(piece.text))
    return "".join(parts)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _task_row(task: Any, doc: JsonMapping, shots: int, drawn: Sequence[Any]) -> TaskRow:
    context = task.fewshot_context(doc, num_fewshot=shots, gen_prefix=task.doc_to_prefix(doc))
    own_shot = any(shot == doc for shot in drawn)
    if task.OUTPUT_TYPE == "loglikelihood":
        target = task.doc_to_target(doc)
        if not isinstance(target, str) or not target:
            refused = f"its target is {target!r}, not a text that can be scored"
            return TaskRow(doc=doc, refused=refused)
        return TaskRow(
            doc=doc,
            query=task.doc_to_text(doc),
            contexts=(context,),
            continuations=(target,),
            choices=(target,),
            gold=(0,),
            own_shot=own_shot,
        )
    try:
        choices = _choices(task, doc)
    except _Unusable as error:
        return TaskRow(doc=doc, refused=str(error))
    instances = task.construct_requests(doc, context, metadata=(task.config.task, 0, 1))
    # The further requests of acc_mutual_info have no contexts.
    pairs = [instance.args for instance in instances][: len(choices)]
    contexts = tuple(pair[0] for pair in pairs)
    if task.multiple_input:
        query = pairs[0][1].strip()
        target = task.doc_to_text(doc)
    else:
        query = str(task.doc_to_text(doc))
        target = task.doc_to_target(doc)
        contexts = tuple(dict.fromkeys(contexts))
    gold: tuple[int, ...] = ()
    refused_for = None
    read_as_index = False
    try:
        gold = _gold(target, choices, bool(task.multiple_target))
        read_as_index = _was_text(task, doc, choices)
    except _Unusable as error:
        refused_for = str(error)
    return TaskRow(
        doc=doc,
        query=query,
        contexts=contexts,
        continuations=tuple(pair[1] for pair in pairs),
        choices=choices,
        gold=gold,
        refused=refused_for,
        read_as_index=read_as_index,
        own_shot=own_shot,
    )


def _pool_row(task: Any, doc: JsonMapping, template: _Template) -> TaskRow:
    """Return the row of an example.  Raises _Unusable if its right choices are not known."""
    query = ""
    if "question" not in template.holes:
        query = str(task.doc_to_text(doc))
    target = task.doc_to_target(doc)
    if task.OUTPUT_TYPE == "loglikelihood":
        if not isinstance(target, str) or not target:
            raise _Unusable(f"its target is {target!r}")
        return TaskRow(doc=doc, query=query, choices=(target,), gold=(0,))
    choices = _choices(task, doc)
    gold = _gold(target, choices, bool(task.multiple_target))
    return TaskRow(doc=doc, query=query, choices=choices, gold=gold)


def _choices(task: Any, doc: JsonMapping) -> tuple[str, ...]:
    choices = task.doc_to_choice(doc)
    is_list = isinstance(choices, list) and bool(choices)
    if not is_list or not all(isinstance(choice, str) for choice in choices):
        raise _Unusable(f"its choices are {str(choices)[:80]!r}, not a list of texts")
    return tuple(choices)


def _gold(target: Any, choices: Sequence[str], several: bool) -> tuple[int, ...]:
    """Return the right choices.  Raises _Unusable if they are not known.

    ``several``: whether the first row of the task has a list, which decides how the harness judges
    all rows (lm_eval/api/task.py, 0.4.13, process_results).  A target that the harness silently
    takes for a wrong answer, or counts from the end, is refused.
    """
    if isinstance(target, list) and not several:
        raise _Unusable(f"its target {target!r} is a list, but the first row's is not")
    if several and not isinstance(target, list):
        raise _Unusable(f"its target {target!r} is not a list, but the first row's is")
    if isinstance(target, str):
        if target not in choices:
            raise _Unusable(f"its target {target[:80]!r} is not among its choices")
        return (choices.index(target),)
    indices = target
    if not isinstance(target, list):
        indices = [target]
    for index in indices:
        if not isinstance(index, Integral) or not 0 <= int(index) < len(choices):
            raise _Unusable(f"its target {target!r} is no index of its {len(choices)} choices")
    if not indices:
        raise _Unusable("it has no target")
    return tuple(sorted(set(map(int, indices))))


def _was_text(task: Any, doc: JsonMapping, choices: Sequence[str]) -> bool:
    """Return whether the target is the text of a choice, and is taken as the index of another."""
    template = task.config.doc_to_target
    if task.multiple_input:
        template = task.config.doc_to_text
    if not isinstance(template, str) or template in task.features:
        return False
    from lm_eval import utils

    text = utils.apply_template(template, doc)
    # The harness reads every text of digits as an index.
    return text.isdigit() and text in choices and choices.index(text) != int(text)
