"""``choicewise prompts``: the requests themselves, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.download import show_download
from choicewise.cli.evaluation import sources_of
from choicewise.cli.output import print_json, tell
from choicewise.errors import ModelError, UsageError
from choicewise.interchange.tasks.selector import split_tasks

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset
    from choicewise.protocols.protocol import Protocol
    from choicewise.requests.rendered import RenderedRequests
    from choicewise.tokens.chat_template import ChatTemplate


def prompts(
    protocol: options.Protocols,
    data: options.Data = None,
    subject: options.Subjects = None,
    limit: options.Limit = None,
    on_bad_item: options.BadItems = options.OnBadItem.error,
    mapping: options.Mapping = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="The model whose chat template is applied, only chats need one; behind a server that has none, the"
            " messages are shown as JSON.",
        ),
    ] = None,
    tokenizer: options.Tokenizer = None,
    include_path: options.IncludePath = None,
    allow_task_code: options.AllowTaskCode = False,
) -> None:
    """Print each request as a JSON line: item, subject, context, continuations, gold, protocol.

    Where choices have contexts of their own, `contexts`, parallel to `continuations`, stands for `context`; where a
    choice has several texts, `choices` says which choice each belongs to. Contexts are complete: only `run` shortens
    them to a model's window, because that needs the model's tokenizer. Without --data they are about the benchmarks'
    own data.
    """
    from choicewise.protocols.catalogue import resolve

    sources = sources_of(protocol, data, mapping, on_bad_item, subject, include_path, allow_task_code)
    template = _chat_template(resolve(*split_tasks(protocol)[1]), model, tokenizer)
    for source in sources:
        dataset = source.open(show_download())
        named = source.protocols(dataset, subject)
        tell(*(f"note: {note}" for note in source.notes))
        _print(dataset, named, source.rendered, subject, limit, template)


def _print(
    dataset: Dataset,
    named: Mapping[str, Protocol],
    rendered: Sequence[RenderedRequests],
    subject: list[str] | None,
    limit: int | None,
    template: ChatTemplate | None,
) -> None:
    """Every request about ``dataset``, once."""
    from choicewise.requests.rendered import rendered_line
    from choicewise.requests.schedule import request_source, with_split
    from choicewise.requests.source import unrefused

    recipes = {name: with_split(recipe, dataset) for name, recipe in named.items()}
    first_names = {recipe.prompt_digest: name for name, recipe in reversed(recipes.items())}
    for name, recipe in recipes.items():
        if first_names[recipe.prompt_digest] != name:
            continue  # an earlier protocol has the same requests
        source = request_source(recipe, dataset, rendered, template)
        for chosen in dataset.choose(recipe.split or "", subject):
            items = dataset.rows(recipe.split or "", chosen)[:limit]
            for request in unrefused(source.requests(chosen, items, 0)):
                print_json({**rendered_line(request, recipe.reading), "protocol": name}, indent=None)


def _chat_template(recipes: Mapping[str, Protocol], model: str | None, tokenizer: str | None) -> ChatTemplate | None:
    """The template of ``model``, where a protocol needs one."""
    chats = [name for name, recipe in recipes.items() if recipe.chat != "none"]
    if not chats:
        options.refuse_without_use("no protocol here is a chat and has", model=model, tokenizer=tokenizer)
        return None
    if model is None:
        raise UsageError(f"{chats[0]} is a chat, whose text is made by the model's chat template; add --model MODEL")
    from choicewise.models.load import load_model
    from choicewise.requests.schedule import no_chat

    options.refuse_foreign(model, tokenizer)
    template = load_model(model, progress=show_download(), say=tell, tokenizer=tokenizer).tokenizer.chat
    if reason := no_chat(recipes[chats[0]], model, template):
        raise ModelError(f"{chats[0]}: {reason}; leave the chat out, or use a model that has one")
    return template
